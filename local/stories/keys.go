package stories

// keys tells of enqueuing under an Idempotency-Key.
func keys() []story {
	const order, other = `{"payload":"order 17"}`, `{"payload":"order 18"}`
	const path = "POST /queues/$q/messages"
	return []story{
		{
			name: "a repeated enqueue under a key is one message, for as long as that is stored",
			steps: []step{
				put(patient),
				enqueue(order, `{"id":"$id"}`).with("Idempotency-Key: order-17"),
				call(path, order, 200, `{"id":"$id","status":"pending","payload":"order 17"}`).
					with("Idempotency-Key: order-17").shows("Idempotent-Replayed: true"),
				call(path, order, 200, `{"id":"$id"}`).with(`Idempotency-Key: "order-17"`),
				refused(path, other, 422, "idempotency-key-reused").with("Idempotency-Key: order-17"),
				refused(path, `{"payload":"order 17","max_retries":3}`, 422, "idempotency-key-reused").
					with("Idempotency-Key: order-17"),
				call("POST /queues/$q2/messages", order, 201, `{"id":"$elsewhere"}`).with("Idempotency-Key: order-17"),
				refused("GET /queues/$q2/messages/$id", "", 404, "not-found"),
				claim(`{"id":"$id","receipt":"$receipt"}`),
				answer("succeed", `{"receipt":"$receipt"}`, `{"status":"succeeded"}`),
				call(path, order, 200, `{"id":"$id","status":"succeeded","claim_count":1}`).
					with("Idempotency-Key: order-17").shows("Idempotent-Replayed: true"),
				call("DELETE /queues/$q/messages/$id", "", 204, ""),
				enqueue(order, `{"id":"$id","status":"pending","claim_count":0}`).with("Idempotency-Key: order-17"),
			},
			stored: `[{"id":"$id","status":"pending","payload":"order 17"}]`,
		},
		{
			name: "S006 the key's header is found however its name is spelled",
			steps: []step{
				enqueue(order, `{"id":"$id"}`).with("idempotency-key: k1"),
				call(path, order, 200, `{"id":"$id"}`).with("Idempotency-Key: k1"),
				call(path, order, 200, `{"id":"$id"}`).with("IDEMPOTENCY-KEY: k1"),
			},
			stored: `[{"id":"$id"}]`,
		},
		{
			name: "a key that is not one is refused, and nothing is stored",
			steps: []step{
				refused(path, order, 400, "bad-request").with("Idempotency-Key: a,b"),
				refused(path, order, 400, "bad-request").with("Idempotency-Key: a", "Idempotency-Key: b"),
				refused(path, order, 400, "bad-request").with("Idempotency-Key: a b"),
				refused(path, order, 400, "bad-request").with(`Idempotency-Key: ""`),
				refused(path, order, 400, "bad-request").with(`Idempotency-Key: "open`),
			},
			stored: `[]`,
		},
	}
}
