package stories

import "net/http"

// What most stories do.

func enqueue(send, want string) step {
	return call("POST /queues/$q/messages", send, http.StatusCreated, want)
}

// claim asks until there is something, as workers do.
func claim(want string) step {
	s := call("POST /queues/$q/claim", "", http.StatusOK, want)
	s.repeat = whileBare
	return s
}

// claimFor is claim with a lease of its own.
func claimFor(lease, want string) step {
	s := claim(want)
	s.send = `{"processing_timeout":` + lease + `}`
	return s
}

func nothingToClaim() step {
	return call("POST /queues/$q/claim", "", http.StatusNoContent, "")
}

func answer(verb, send, want string) step {
	return call("POST /queues/$q/messages/$id/"+verb, send, http.StatusOK, want)
}

func conflict(verb, send, status string) step {
	return call("POST /queues/$q/messages/$id/"+verb, send, http.StatusConflict,
		`{"type":"/problems/message-conflict","message_status":"`+status+`"}`)
}

func get(want string) step {
	return call("GET /queues/$q/messages/$id", "", http.StatusOK, want)
}

// put makes the queue.
func put(settings string) step {
	return call("PUT /queues/$q", settings, http.StatusCreated, "")
}

// Settings. A lease that is not to run out is longer than any story takes.
const (
	patient   = `{"processing_timeout":3600}`
	soon      = `{"processing_timeout":3600,"backoff":{"initial_seconds":0.1}}`
	shortWork = `{"processing_timeout":1,"backoff":{"initial_seconds":0.1}}`
)

// lifecycle tells what becomes of a message.
func lifecycle() []story {
	return []story{
		{
			name: "a message that fails is handed out again and succeeds",
			steps: []step{
				put(soon),
				enqueue(`{"payload":"{\"to\":\"alice@example.com\"}"}`, `{"id":"$id","queue":"$q","status":"pending",
					"payload":"{\"to\":\"alice@example.com\"}","payload_bytes":26,"retry_count":0,"max_retries":3,
					"retry_after":null,"last_error":null,"stall_count":0,"max_stalls":3,"claim_count":0,"replay_count":0,
					"lease_expires_at":null,"dead_reason":null,"dead_at":null,"created_at":"@time","updated_at":"@time",
					"receipt":"@absent","attempts":"@absent"}`).shows("Location: /queues/$q/messages/$id"),
				claim(`{"id":"$id","status":"processing","claim_count":1,"receipt":"$first","lease_expires_at":"@time",
					"payload":"{\"to\":\"alice@example.com\"}","attempts":"@absent"}`),
				nothingToClaim(),
				answer("fail", `{"receipt":"$first","error":"451 try later"}`, `{"status":"pending","retry_count":1,
					"last_error":"451 try later","retry_after":"@time","lease_expires_at":null,"payload":"@absent"}`),
				answer("fail", `{"receipt":"$first","error":"said twice"}`, `{"retry_count":1,"last_error":"451 try later"}`),
				claim(`{"id":"$id","claim_count":2,"retry_count":1,"last_error":"451 try later","receipt":"$second"}`),
				conflict("succeed", `{"receipt":"$first"}`, "processing"),
				conflict("fail", `{"receipt":"$first","error":"late"}`, "processing"),
				answer("succeed", `{"receipt":"$second"}`, `{"status":"succeeded","lease_expires_at":null,"receipt":"@absent"}`),
				answer("succeed", `{"receipt":"$second"}`, `{"status":"succeeded","claim_count":2}`),
				conflict("fail", `{"receipt":"$second","error":"too late"}`, "succeeded"),
				nothingToClaim(),
				get(`{"status":"succeeded","payload":"{\"to\":\"alice@example.com\"}","receipt":"@absent","attempts":[
					{"number":1,"claimed_at":"@time","ended_at":"@time","outcome":"failed","error":"451 try later"},
					{"number":2,"claimed_at":"@time","ended_at":"@time","outcome":"succeeded","error":null}]}`),
			},
			stored: `[{"id":"$id","status":"succeeded","retry_count":1,"claim_count":2,"stall_count":0}]`,
		},
		{
			name: "a worker of the first days answers without a receipt",
			steps: []step{
				put(soon),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`),
				conflict("succeed", "", "pending"),
				claim(`{"id":"$id"}`),
				answer("fail", `{"error":""}`, `{"status":"pending","retry_count":1,"last_error":""}`),
				claim(`{"id":"$id","claim_count":2}`),
				answer("succeed", "", `{"status":"succeeded"}`),
				conflict("succeed", "{}", "succeeded"),
			},
			stored: `[{"id":"$id","status":"succeeded","retry_count":1}]`,
		},
		{
			name: "a queue that requires receipts refuses answers without one",
			steps: []step{
				put(`{"processing_timeout":3600,"require_receipt":true}`),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`),
				claim(`{"id":"$id","receipt":"$receipt"}`),
				invalid("POST /queues/$q/messages/$id/succeed", "", "receipt required"),
				invalid("POST /queues/$q/messages/$id/fail", `{"error":"x"}`, "receipt required"),
				answer("succeed", `{"receipt":"$receipt"}`, `{"status":"succeeded"}`),
			},
			stored: `[{"id":"$id","status":"succeeded","retry_count":0,"claim_count":1}]`,
		},
		{
			name: "S095 after the last failure a message is dead at once, can be looked at, is replayed, and succeeds",
			steps: []step{
				put(soon),
				enqueue(`{"payload":"order 17","max_retries":3}`, `{"id":"$id"}`),
				claim(`{"id":"$id","claim_count":1,"receipt":"$first"}`),
				answer("fail", `{"receipt":"$first","error":"one"}`, `{"status":"pending","retry_count":1}`),
				claim(`{"id":"$id","claim_count":2,"receipt":"$second"}`),
				answer("fail", `{"receipt":"$second","error":"two"}`, `{"status":"pending","retry_count":2}`),
				claim(`{"id":"$id","claim_count":3,"receipt":"$third"}`),
				answer("fail", `{"receipt":"$third","error":"three"}`, `{"status":"dead","retry_count":3,"last_error":"three",
					"retry_after":null,"dead_reason":"retries_exhausted","dead_at":"@time"}`),
				call("GET /queues/$q/messages?status=dead", "", 200, `{"messages":[{"id":"$id","claim_count":3,"last_error":"three",
					"dead_reason":"retries_exhausted","dead_at":"@time"}],"next_cursor":null}`).again(),
				nothingToClaim(),
				get(`{"status":"dead","payload":"order 17","attempts":[{"number":1,"error":"one"},{"number":2,"error":"two"},
					{"number":3,"outcome":"failed","error":"three"}]}`),
				answer("replay", "", `{"status":"pending","retry_count":0,"stall_count":0,"max_retries":3,"replay_count":1,
					"last_error":null,"dead_reason":null,"dead_at":null,"retry_after":null}`),
				conflict("replay", "", "pending"),
				claim(`{"id":"$id","claim_count":4,"replay_count":1,"payload":"order 17","receipt":"$fourth"}`),
				conflict("fail", `{"receipt":"$third","error":"three"}`, "processing"),
				answer("succeed", `{"receipt":"$fourth"}`, `{"status":"succeeded"}`),
				conflict("replay", "", "succeeded"),
				get(`{"attempts":[{"number":1},{"number":2},{"number":3},{"number":4,"outcome":"succeeded"}]}`),
			},
			stored: `[{"id":"$id","status":"succeeded","retry_count":0,"replay_count":1,"claim_count":4}]`,
		},
		{
			name: "a permanent failure is not tried again",
			steps: []step{
				put(soon),
				enqueue(`{"payload":"x"}`, `{"id":"$id","max_retries":3}`),
				claim(`{"id":"$id","receipt":"$receipt"}`),
				invalid("POST /queues/$q/messages/$id/fail",
					`{"receipt":"$receipt","error":"no such user","permanent":true,"retry_after_seconds":1}`,
					"retry_after_seconds invalid"),
				answer("fail", `{"receipt":"$receipt","error":"no such user","permanent":true}`, `{"status":"dead",
					"retry_count":1,
					"last_error":"no such user","dead_reason":"rejected","dead_at":"@time"}`),
				get(`{"attempts":[{"number":1,"outcome":"rejected","error":"no such user"}]}`),
				nothingToClaim(),
			},
			stored: `[{"id":"$id","status":"dead","dead_reason":"rejected","payload":"x"}]`,
		},
		{
			name: "a failure names its own delay instead of the backoff",
			steps: []step{
				put(`{"processing_timeout":3600,"backoff":{"initial_seconds":604800,"max_seconds":604800}}`),
				enqueue(`{"payload":"x","max_retries":10}`, `{"id":"$id"}`),
				claim(`{"id":"$id","receipt":"$first"}`),
				answer("fail", `{"receipt":"$first","error":"","retry_after_seconds":0}`,
					`{"status":"pending","retry_after":null}`),
				claim(`{"id":"$id","receipt":"$second"}`),
				answer("fail", `{"receipt":"$second","error":"","retry_after_seconds":0.25}`, `{"retry_after":"@time"}`),
				claim(`{"id":"$id","receipt":"$third"}`),
				answer("fail", `{"receipt":"$third","error":""}`, `{"status":"pending","retry_after":"@time"}`),
				nothingToClaim(),
			},
			stored: `[{"id":"$id","status":"pending","retry_count":3,"retry_after":"@time"}]`,
		},
		{
			name: "a crashed worker's message comes back, and its receipt is void then",
			steps: []step{
				put(shortWork),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`),
				claim(`{"id":"$id","receipt":"$crashed"}`),
				get(`{"status":"pending","retry_count":0,"stall_count":1,"claim_count":1,"last_error":"@any",
					"attempts":[{"number":1,"outcome":"stalled","error":"@any"}]}`).again(),
				conflict("succeed", `{"receipt":"$crashed"}`, "pending"),
				claimFor("3600", `{"id":"$id","stall_count":1,"claim_count":2,"receipt":"$next"}`),
				conflict("succeed", `{"receipt":"$crashed"}`, "processing"),
				conflict("extend", `{"receipt":"$crashed"}`, "processing"),
				answer("succeed", `{"receipt":"$next"}`, `{"status":"succeeded"}`),
			},
			stored: `[{"id":"$id","status":"succeeded","retry_count":0,"stall_count":1,"claim_count":2}]`,
		},
		{
			name: "a message that kills its workers dies after max_stalls",
			steps: []step{
				put(`{"backoff":{"initial_seconds":0.1},"processing_timeout":1,"max_stalls":2}`),
				enqueue(`{"payload":"x"}`, `{"id":"$id","max_stalls":2}`),
				claim(`{"id":"$id","claim_count":1}`),
				claim(`{"id":"$id","claim_count":2,"stall_count":1,"receipt":"$second"}`),
				get(`{"status":"dead","dead_reason":"stalled","dead_at":"@time","retry_count":0,"stall_count":2,
					"attempts":[{"number":1,"outcome":"stalled"},{"number":2,"outcome":"stalled"}]}`).again(),
				conflict("succeed", `{"receipt":"$second"}`, "dead"),
				answer("replay", "", `{"status":"pending","stall_count":0,"last_error":null}`),
			},
			stored: `[{"id":"$id","status":"pending","stall_count":0,"replay_count":1,"claim_count":2}]`,
		},
		{
			// The message that is lost was held later and longer than this one would have
			// been: when it is back, this one would be, too.
			name: "extend keeps a message from coming back",
			steps: []step{
				put(soon),
				enqueue(`{"payload":"x"}`, ``),
				enqueue(`{"payload":"x"}`, ``),
				claimFor("3", `{"id":"$id","receipt":"$receipt","lease_expires_at":"@time"}`),
				answer("extend", `{"receipt":"$receipt","processing_timeout":600}`, `{"id":"$id","status":"processing",
					"claim_count":1,"lease_expires_at":"$later"}`),
				answer("extend", `{"receipt":"$receipt","processing_timeout":1}`, `{"lease_expires_at":"$later"}`),
				conflict("extend", `{"receipt":"not-it"}`, "processing"),
				claimFor("4", `{"id":"$lost"}`),
				call("GET /queues/$q/messages/$lost", "", 200, `{"status":"pending","stall_count":1}`).again(),
				get(`{"status":"processing","stall_count":0,"lease_expires_at":"$later"}`),
				answer("succeed", `{"receipt":"$receipt"}`, `{"status":"succeeded","stall_count":0,"claim_count":1}`),
				conflict("extend", `{"receipt":"$receipt"}`, "succeeded"),
			},
			stored: `[{"id":"$lost","status":"pending"},{"id":"$id","status":"succeeded"}]`,
		},
		{
			name: "release gives a message back at once, and no count moves",
			steps: []step{
				put(patient),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`),
				claim(`{"id":"$id","receipt":"$first"}`),
				conflict("release", `{"receipt":"not-it"}`, "processing"),
				answer("release", `{"receipt":"$first"}`, `{"status":"pending","retry_count":0,"stall_count":0,"claim_count":1,
					"retry_after":null,"last_error":null,"lease_expires_at":null}`),
				answer("release", `{"receipt":"$first"}`, `{"status":"pending","claim_count":1}`),
				conflict("succeed", `{"receipt":"$first"}`, "pending"),
				claim(`{"id":"$id","claim_count":2,"receipt":"$second"}`),
				conflict("release", `{"receipt":"$first"}`, "processing"),
				answer("succeed", `{"receipt":"$second"}`, `{"status":"succeeded"}`),
				get(`{"attempts":[{"number":2,"outcome":"succeeded"}]}`),
			},
			stored: `[{"id":"$id","status":"succeeded","retry_count":0,"claim_count":2}]`,
		},
		{
			name: "a claim of several hands out as many as there are, earliest first",
			steps: []step{
				put(patient),
				enqueue(`{"payload":"1"}`, `{"id":"$one"}`),
				enqueue(`{"payload":"2"}`, `{"id":"$two"}`),
				enqueue(`{"payload":"3"}`, `{"id":"$three"}`),
				call("GET /queues/$q/messages?status=pending", "", 200,
					`{"messages":[{"id":"$one"},{"id":"$two"},{"id":"$three"}]}`).again(),
				invalid("POST /queues/$q/claim", `{"max_messages":11,"processing_timeout":0}`,
					"max_messages invalid", "processing_timeout invalid"),
				invalid("POST /queues/$q/claim", `{"max_messages":0,"processing_timeout":43201}`,
					"max_messages invalid", "processing_timeout invalid"),
				call("POST /queues/$q/claim", `{"max_messages":2,"processing_timeout":600}`, 200, `{"messages":[
					{"id":"$one","payload":"1","receipt":"$first","status":"processing"},
					{"id":"$two","payload":"2","receipt":"$second","status":"processing"}]}`),
				call("POST /queues/$q/claim", `{"max_messages":10}`, 200, `{"messages":[{"id":"$three","receipt":"$third"}]}`),
				call("POST /queues/$q/claim", `{"max_messages":10}`, 200, `{"messages":[]}`),
				nothingToClaim(),
				call("POST /queues/$q/messages/$one/succeed", `{"receipt":"$second"}`, 409, `{"message_status":"processing"}`),
				call("POST /queues/$q/messages/$one/succeed", `{"receipt":"$first"}`, 200, `{"id":"$one"}`),
				call("POST /queues/$q/messages/$two/succeed", `{"receipt":"$second"}`, 200, `{"id":"$two"}`),
				call("POST /queues/$q/messages/$three/succeed", `{"receipt":"$third"}`, 200, `{"id":"$three"}`),
			},
			stored: `[{"id":"$one"},{"id":"$two"},{"id":"$three","status":"succeeded"}]`,
		},
		{
			name: "a delayed message waits, and does not hold up others",
			steps: []step{
				put(patient),
				invalid("POST /queues/$q/messages", `{"payload":"x","delay_seconds":31536001}`, "delay_seconds invalid"),
				invalid("POST /queues/$q/messages", `{"payload":"x","delay_seconds":-0.001}`, "delay_seconds invalid"),
				invalid("POST /queues/$q/messages", `{"payload":"x","delay_seconds":0.0001}`, "delay_seconds invalid"),
				enqueue(`{"payload":"in a year","delay_seconds":31536000}`,
					`{"id":"$id","status":"pending","retry_after":"@time"}`),
				nothingToClaim(),
				enqueue(`{"payload":"at once","delay_seconds":0}`, `{"id":"$now","retry_after":null}`),
				claim(`{"id":"$now"}`),
				enqueue(`{"payload":"soon","delay_seconds":0.3}`, `{"id":"$soon","retry_after":"@time"}`),
				claim(`{"id":"$soon","payload":"soon"}`),
				nothingToClaim(),
			},
			stored: `[{"id":"$id","status":"pending"},{"id":"$now","status":"processing"},{"id":"$soon","status":"processing"}]`,
		},
		{
			name: "a message can be deleted, but not while it is worked on",
			steps: []step{
				put(patient),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`),
				claim(`{"id":"$id","receipt":"$receipt"}`),
				call("DELETE /queues/$q/messages/$id", "", 409,
					`{"type":"/problems/message-conflict","message_status":"processing"}`),
				answer("release", `{"receipt":"$receipt"}`, `{"status":"pending"}`),
				call("DELETE /queues/$q/messages/$id", "", 204, ""),
				refused("DELETE /queues/$q/messages/$id", "", 404, "not-found"),
				refused("GET /queues/$q/messages/$id", "", 404, "not-found"),
				refused("POST /queues/$q/messages/$id/release", `{"receipt":"$receipt"}`, 404, "not-found"),
				nothingToClaim(),
			},
			stored: `[]`,
		},
	}
}
