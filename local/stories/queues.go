package stories

// queues tells of what operators do.
func queues() []story {
	const defaults = `"max_retries":3,"processing_timeout":30,"max_stalls":3,"require_receipt":false,"shards":1,
		"backoff":{"initial_seconds":2,"factor":2,"max_seconds":3600,"jitter":"none"},
		"succeeded_days":7,"dead_days":null,"endpoint":null`
	return []story{
		{
			name: "a queue's settings are replaced as a whole",
			steps: []step{
				refused("GET /queues/$q", "", 404, "not-found"),
				call("PUT /queues/$q", `{}`, 201, `{"queue":"$q","created_at":"@time",`+defaults+`,
					"depth":{"pending":0,"processing":0,"succeeded":0,"dead":0},"depth_more":[],
					"oldest_pending_at":null,"oldest_dead_at":null,"counted_at":"@time"}`),
				call("PUT /queues/$q", `{"max_retries":10.0,"processing_timeout":43200,"max_stalls":100,"require_receipt":true,
					"backoff":{"schedule_seconds":[0.1,5,604800],"jitter":"equal"},"succeeded_days":0.5,"dead_days":30,
					"endpoint":null}`, 200, `{"max_retries":10,"processing_timeout":43200,"max_stalls":100,"require_receipt":true,
					"backoff":{"schedule_seconds":[0.1,5,604800],"jitter":"equal","initial_seconds":"@absent"},
					"succeeded_days":0.5,"dead_days":30}`),
				call("GET /queues/$q", "", 200, `{"max_retries":10,"dead_days":30}`),
				call("PUT /queues/$q", `{"queue":"x","created_at":"x","depth":{},"depth_more":[],"oldest_pending_at":null,
					"oldest_dead_at":null,"counted_at":null,"max_retries":4}`, 200, `{"queue":"$q","max_retries":4,"dead_days":null}`),
				call("PUT /queues/$q", `{"shards":4}`, 200, `{"shards":4,"max_retries":3}`),
				call("PUT /queues/$q", `{}`, 200, `{"shards":4}`),
				invalid("PUT /queues/$q", `{"shards":3}`, "shards invalid"),
				call("GET /queues/$q", "", 200, `{"shards":4,"max_retries":3,"require_receipt":false}`),
			},
		},
		{
			name: "every fault of the settings is named, and nothing changes",
			steps: []step{
				call("PUT /queues/$q", `{"max_retries":5}`, 201, ""),
				invalid("PUT /queues/$q", `{"max_retries":0,"processing_timeout":1.5,"max_stalls":101,"require_receipt":"yes",
					"shards":65,"backoff":{"initial_seconds":0.01,"factor":11,"max_seconds":604801,"jitter":"some","nope":1},
					"succeeded_days":366,"dead_days":0,"endpoint":{},"color":"red"}`,
					"max_retries invalid", "processing_timeout invalid", "max_stalls invalid", "require_receipt invalid",
					"shards invalid", "backoff.initial_seconds invalid", "backoff.factor invalid", "backoff.max_seconds invalid",
					"backoff.jitter invalid", "backoff.nope unknown", "succeeded_days invalid", "dead_days invalid",
					"endpoint invalid", "color unknown"),
				invalid("PUT /queues/$q", `{"max_retries":null,"backoff":{"schedule_seconds":[]}}`,
					"max_retries invalid", "backoff.schedule_seconds invalid"),
				call("GET /queues/$q", "", 200, `{"max_retries":5}`),
			},
		},
		{
			name: "a change of settings applies to what comes after it",
			steps: []step{
				enqueue(`{"payload":"before"}`, `{"id":"$id","max_retries":3,"max_stalls":3}`),
				call("PUT /queues/$q", `{"max_retries":7,"max_stalls":8,"processing_timeout":600}`, 200, `{"max_retries":7}`),
				enqueue(`{"payload":"after"}`, `{"max_retries":7,"max_stalls":8}`).again(),
				get(`{"max_retries":3,"max_stalls":3}`),
				claim(`{"id":"$id","max_retries":3,"receipt":"$receipt"}`),
				answer("succeed", `{"receipt":"$receipt"}`, `{"status":"succeeded"}`),
			},
		},
		{
			name: "a queue shows how much it holds",
			steps: []step{
				put(`{"max_retries":1,"processing_timeout":3600}`),
				enqueue(`{"payload":"1"}`, ``),
				claim(`{"id":"$id"}`),
				answer("fail", `{"error":"no"}`, `{"status":"dead"}`),
				enqueue(`{"payload":"2"}`, ``),
				claim(`{"id":"$id2"}`),
				enqueue(`{"payload":"3"}`, ``),
				call("GET /queues/$q", "", 200, `{"depth":{"pending":1,"processing":1,"succeeded":0,"dead":1},"depth_more":[],
					"oldest_pending_at":"@time","oldest_dead_at":"@time","counted_at":"@time"}`).again(),
				call("GET /queues?prefix=$q", "", 200, `{"queues":[{"queue":"$q","created_at":"@time","depth":{"dead":1},
					"oldest_dead_at":"@time","counted_at":"@time","endpoint_status":null}],"next_cursor":null}`).again(),
			},
		},
		{
			name: "queues are listed by name, page by page",
			steps: []step{
				call("PUT /queues/$q-b", `{}`, 201, ""),
				call("PUT /queues/$q-c", `{}`, 201, ""),
				call("PUT /queues/$q-a", `{}`, 201, `{"queue":"$a"}`),
				call("GET /queues?prefix=$q-&limit=2", "", 200, `{"queues":[{"queue":"$a"},{"queue":"$b"}],"next_cursor":"$next"}`),
				call("GET /queues?prefix=$q-&cursor=$next", "", 200, `{"queues":[{"queue":"$c"}],"next_cursor":null}`),
				refused("GET /queues?cursor=$next", "", 400, "bad-request"),
				refused("GET /queues?limit=251", "", 400, "bad-request"),
				refused("GET /queues?order=asc", "", 400, "bad-request"),
			},
		},
		{
			name: "a queue that holds messages is not deleted, an empty one is",
			steps: []step{
				put(`{"shards":2,"max_retries":9}`),
				enqueue(`{"payload":"x"}`, `{"id":"$id"}`),
				refused("DELETE /queues/$q", "", 409, "queue-conflict"),
				get(`{"max_retries":9}`),
				call("DELETE /queues/$q/messages/$id", "", 204, ""),
				call("DELETE /queues/$q", "", 204, "").again(),
				refused("GET /queues/$q", "", 404, "not-found"),
				refused("DELETE /queues/$q", "", 404, "not-found"),
				call("GET /queues?prefix=$q", "", 200, `{"queues":[],"next_cursor":null}`),
				call("PUT /queues/$q", `{}`, 201, `{"shards":2,"max_retries":3}`),
			},
			stored: `[]`,
		},
	}
}
