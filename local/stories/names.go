package stories

import "strings"

// names tells that a queue may be called almost anything.
func names() []story {
	round := []step{
		put(patient),
		enqueue(`{"payload":"x"}`, `{"id":"$id","queue":"$q"}`).shows("Location: /queues/$q/messages/$id"),
		claim(`{"id":"$id","queue":"$q","receipt":"$receipt"}`),
		get(`{"id":"$id","queue":"$q"}`),
		answer("succeed", `{"receipt":"$receipt"}`, `{"queue":"$q","status":"succeeded"}`),
		call("GET /queues/$q", "", 200, `{"queue":"$q"}`),
	}
	var stories []story
	for _, tt := range []struct{ what, prefix string }{
		{"letters of the world", "zażółć-キュー-📬-"},
		{"blanks inside", "two words "},
		{"an at sign and a colon", "user@home:"},
		{"what a query would mean", "a&b=c+d;e,"},
		{"what a form would mean", "a+b "},
		{"quotes and brackets", `"a'<b>{c}[d]|^` + "`"},
		{"dots", ".."},
		{"the words of the routes", "messages-claim-"},
		{"what templates would mean", "!~*()$$"},
	} {
		stories = append(stories, story{
			name: "a queue's name may hold " + tt.what, queue: tt.prefix, steps: round,
			stored: `[{"id":"$id","queue":"$q","status":"succeeded"}]`,
		})
	}
	bad := func(name string) step {
		return refused("POST /queues/"+name+"/messages", `{"payload":"x"}`, 400, "bad-request")
	}
	return append(stories, story{
		name: "a queue's name that breaks a rule is refused",
		steps: []step{
			bad("a%23b"),
			bad("a%3Fb"),
			bad("a%5Cb"),
			bad("a%25b"),
			bad("a%0Ab"),
			bad("a%C2%85b"),
			bad("%20a"),
			bad("a%20"),
			bad("%FF"),
			bad("e%CC%81"), // not NFC
			bad(strings.Repeat("a", 129)),
			bad(strings.Repeat("%C3%A9", 65)),
		},
	})
}
