package stories

import "strings"

// refusals tells of what is not done.
func refusals() []story {
	const path = "POST /queues/$q/messages"
	const nobody = "/queues/$q/messages/msg_00000000000000000000000000"
	return []story{
		{
			name: "every kind of refusal has its type and its status",
			steps: []step{
				put(`{}`),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`).with("Idempotency-Key: k"),
				refused(path, `{"payload":`, 400, "malformed-body"),
				refused("GET /queues/$q/messages?limit=many", "", 400, "bad-request"),
				refused("GET /nowhere", "", 404, "not-found"),
				refused("PATCH /queues/$q", `{}`, 405, "method-not-allowed").shows("Allow: @any"),
				call("POST /queues/$q/messages/$id/replay", "", 409,
					`{"type":"/problems/message-conflict","message_status":"pending"}`),
				refused("DELETE /queues/$q", "", 409, "queue-conflict"),
				refused(path, `{"payload":"`+strings.Repeat("x", 262_145)+`"}`, 413, "payload-too-large"),
				refused(path, strings.Repeat(" ", 1<<20+1), 413, "payload-too-large"),
				refused(path, `<payload>x</payload>`, 415, "unsupported-media-type").with("Content-Type: application/xml"),
				call(path, `{"payload":"x","max_retries":11}`, 422, `{"type":"/problems/validation-failed",
					"title":"Validation Failed","errors":[{"field":"max_retries","code":"invalid",
					"message":"max_retries must be between 1 and 10."}]}`),
				refused(path, `{"payload":"y"}`, 422, "idempotency-key-reused").with("Idempotency-Key: k"),
			},
			stored: `[{"id":"$id","status":"pending"}]`,
		},
		{
			name: "a refused enqueue names every fault and stores nothing",
			steps: []step{
				invalid(path, `{}`, "payload required"),
				invalid(path, `{"Payload":"x"}`, "payload required", "Payload unknown"),
				invalid(path, `{"payload":null}`, "payload invalid"),
				invalid(path, `{"payload":1,"max_retries":"3","delay_seconds":true,"color":"red"}`,
					"payload invalid", "max_retries invalid", "delay_seconds invalid", "color unknown"),
				invalid(path, `{"payload":"x","max_retries":2.5}`, "max_retries invalid"),
				invalid(path, `{"payload":"x","max_retries":null}`, "max_retries invalid"),
			},
			stored: `[]`,
		},
		{
			name: "S021 a payload that is not a string is refused, one that holds JSON is kept as it is",
			steps: []step{
				invalid(path, `{"payload":{"a":1}}`, "payload invalid"),
				invalid(path, `{"payload":123}`, "payload invalid"),
				invalid(path, `{"payload":["a"]}`, "payload invalid"),
				invalid(path, `{"payload":true}`, "payload invalid"),
				enqueue(`{"payload":"{\"a\":\"b\"}"}`, `{"id":"$id","payload":"{\"a\":\"b\"}","payload_bytes":9}`),
			},
			stored: `[{"id":"$id","payload":"{\"a\":\"b\"}"}]`,
		},
		{
			name: "S020 nothing may follow the body's object but blanks",
			steps: []step{
				refused(path, `{"payload":"a"}{"payload":"b"}`, 400, "malformed-body"),
				refused(path, `{"payload":"a"} x`, 400, "malformed-body"),
				enqueue("{\"payload\":\"a\"}\n  ", `{"id":"$id"}`),
			},
			stored: `[{"id":"$id","payload":"a"}]`,
		},
		{
			name: "S005 a body that is not UTF-8, or says something twice, is refused and not mended",
			steps: []step{
				refused(path, "{\"payload\":\"a\xffb\"}", 400, "malformed-body"),
				refused(path, `{"payload":"a\ud800b"}`, 400, "malformed-body"),
				refused(path, `{"payload":"first","payload":"second"}`, 400, "malformed-body"),
				refused(path, `["payload"]`, 400, "malformed-body"),
				refused(path, `"payload"`, 400, "malformed-body"),
				refused(path, "", 400, "malformed-body"),
			},
			stored: `[]`,
		},
		{
			name: "bodies are JSON, whatever JSON calls itself",
			steps: []step{
				put(patient),
				enqueue(`{"payload":"1"}`, ``).with("Content-Type: application/json; charset=utf-8"),
				enqueue(`{"payload":"2"}`, ``).with("Content-Type: application/cloudevents+json"),
				enqueue(`{"payload":"3"}`, ``).with("Content-Type: APPLICATION/JSON"),
				enqueue(`{"payload":"4"}`, ``).with("-Content-Type"),
				refused(path, `{"payload":"5"}`, 415, "unsupported-media-type").with("Content-Type: text/plain"),
				refused(path, `{"payload":"6"}`, 415, "unsupported-media-type").
					with("Content-Type: application/x-www-form-urlencoded"),
				refused(path, `{"payload":"7"}`, 415, "unsupported-media-type").with("Content-Type: application/octet-stream"),
				refused(path, `{"payload":"8"}`, 415, "unsupported-media-type").with("Content-Type: nonsense"),
				call("GET /queues/$q/messages", "", 200, `{"messages":[{},{},{},{}]}`).again(),
				call("POST /queues/$q/claim", "", 200, `{"payload":"1"}`).with("Content-Type: text/plain"),
			},
			stored: `[{"payload":"2"},{"payload":"3"},{"payload":"4"},{"payload":"1"}]`,
		},
		{
			name: "what nobody has heard of is not found, or empty",
			steps: []step{
				call("GET /queues/$q/messages", "", 200, `{"messages":[],"next_cursor":null}`),
				nothingToClaim(),
				call("POST /queues/$q/claim", `{"max_messages":3}`, 200, `{"messages":[]}`),
				refused("GET /queues/$q", "", 404, "not-found"),
				refused("DELETE /queues/$q", "", 404, "not-found"),
				refused("GET "+nobody, "", 404, "not-found"),
				refused("DELETE "+nobody, "", 404, "not-found"),
				refused("POST "+nobody+"/succeed", "", 404, "not-found"),
				refused("POST "+nobody+"/fail", `{"error":""}`, 404, "not-found"),
				refused("POST "+nobody+"/extend", `{"receipt":"r"}`, 404, "not-found"),
				refused("POST "+nobody+"/release", `{"receipt":"r"}`, 404, "not-found"),
				refused("POST "+nobody+"/replay", "", 404, "not-found"),
				refused("GET /queues/$q/messages/17", "", 404, "not-found"),
				call("GET /queues/$q/messages", "", 200, `{"messages":[]}`),
				refused("GET /queues/$q", "", 404, "not-found"), // to ask for it made no queue
			},
		},
		{
			name: "a message is found in its own queue only",
			steps: []step{
				put(patient),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`),
				call("POST /queues/$q2/messages", `{"payload":"y"}`, 201, `{"id":"$id2"}`),
				claim(`{"id":"$id","receipt":"$receipt"}`),
				refused("GET /queues/$q2/messages/$id", "", 404, "not-found"),
				refused("POST /queues/$q2/messages/$id/succeed", `{"receipt":"$receipt"}`, 404, "not-found"),
				refused("DELETE /queues/$q2/messages/$id", "", 404, "not-found"),
			},
			stored: `[{"id":"$id","status":"processing"}]`,
		},
		{
			name: "answers of a worker are checked before anything changes",
			steps: []step{
				put(patient),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`),
				claim(`{"id":"$id","receipt":"$receipt"}`),
				invalid("POST /queues/$q/messages/$id/fail", `{"receipt":"$receipt"}`, "error required"),
				invalid("POST /queues/$q/messages/$id/fail",
					`{"receipt":"","error":1,"permanent":"no","retry_after_seconds":604801}`,
					"receipt invalid", "error invalid", "permanent invalid", "retry_after_seconds invalid"),
				invalid("POST /queues/$q/messages/$id/succeed", `{"receipt":null}`, "receipt invalid"),
				invalid("POST /queues/$q/messages/$id/succeed", `{"receipt":"`+strings.Repeat("r", 201)+`"}`, "receipt too_long"),
				invalid("POST /queues/$q/messages/$id/succeed", `{"proof":"$receipt"}`, "proof unknown"),
				invalid("POST /queues/$q/messages/$id/extend", `{"processing_timeout":0}`,
					"receipt required", "processing_timeout invalid"),
				invalid("POST /queues/$q/messages/$id/release", `{}`, "receipt required"),
				invalid("POST /queues/$q/messages/$id/replay", `{"max_retries":1}`, "max_retries unknown"),
				invalid("DELETE /queues/$q/messages/$id", `{"force":true}`, "force unknown"),
				conflict("succeed", `{"receipt":"`+strings.Repeat("r", 200)+`"}`, "processing"),
				get(`{"status":"processing","retry_count":0}`),
				answer("succeed", `{"receipt":"$receipt"}`, `{"status":"succeeded"}`),
			},
		},
		{
			name: "an error text is kept to its limit, cut at a character",
			steps: []step{
				put(`{"max_retries":1,"processing_timeout":3600}`),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`),
				claim(`{"id":"$id","receipt":"$receipt"}`),
				answer("fail", `{"receipt":"$receipt","error":"x`+strings.Repeat("é", 1500)+`"}`,
					`{"last_error":"x`+strings.Repeat("é", 1023)+`"}`),
				get(`{"last_error":"x` + strings.Repeat("é", 1023) + `"}`),
			},
			stored: `[{"id":"$id","last_error":"x` + strings.Repeat("é", 99) + `"}]`,
		},
		{
			name: "S009 S011 paths are taken as they are",
			steps: []step{
				refused("POST /queues/$q/messages/", `{"payload":"x"}`, 404, "not-found"),
				refused("POST //queues/$q/messages", `{"payload":"x"}`, 404, "not-found"),
				refused("POST /queues/$q//messages", `{"payload":"x"}`, 404, "not-found"),
				refused("POST /queues/$q%2Fb/messages", `{"payload":"x"}`, 404, "not-found"),
				refused("POST /Queues/$q/messages", `{"payload":"x"}`, 404, "not-found"),
				refused("GET /queues/", "", 400, "bad-request"), // a queue without a name
				refused("POST /queues//messages", `{"payload":"x"}`, 400, "bad-request"),
				refused("GET /", "", 404, "not-found"),
				refused("GET /queues/$q", "", 404, "not-found"),
			},
			stored: `[]`,
		},
		{
			name: "another method of a path that is known is refused with those allowed",
			steps: []step{
				refused("PUT /queues/$q/messages", "", 405, "method-not-allowed").shows("Allow: POST, GET"),
				refused("GET /queues/$q/claim", "", 405, "method-not-allowed").shows("Allow: POST"),
				refused("POST "+nobody, "", 405, "method-not-allowed").shows("Allow: GET, DELETE"),
				refused("GET "+nobody+"/succeed", "", 405, "method-not-allowed").shows("Allow: POST"),
				refused("DELETE /queues", "", 405, "method-not-allowed").shows("Allow: GET"),
				refused("OPTIONS /queues/$q/messages", "", 405, "method-not-allowed").
					shows("Allow: POST, GET", "Access-Control-Allow-Origin: ", "Access-Control-Allow-Methods: "),
			},
		},
	}
}
