package stories

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// lists tells of looking at many messages.
func lists() []story {
	const path = "GET /queues/$q/messages"
	return []story{
		{
			name: "a list walks the states, page by page, forwards and backwards",
			steps: []step{
				put(`{"max_retries":1,"processing_timeout":3600}`),
				enqueue(`{"payload":"d"}`, `{"id":"$d"}`),
				claim(`{"id":"$d"}`),
				call("POST /queues/$q/messages/$d/fail", `{"error":"no"}`, 200, `{"status":"dead"}`),
				enqueue(`{"payload":"s"}`, `{"id":"$s"}`),
				claim(`{"id":"$s"}`),
				call("POST /queues/$q/messages/$s/succeed", "", 200, `{"status":"succeeded"}`),
				enqueue(`{"payload":"p"}`, `{"id":"$p"}`),
				claim(`{"id":"$p"}`),
				enqueue(`{"payload":"c1"}`, `{"id":"$c1"}`),
				enqueue(`{"payload":"c2"}`, `{"id":"$c2"}`),
				call(path, "", 200, `{"messages":[{"id":"$c1","status":"pending","payload":"@absent","attempts":"@absent"},
					{"id":"$c2"},{"id":"$p","status":"processing","receipt":"@absent"},{"id":"$d","status":"dead","last_error":"no"},
					{"id":"$s","status":"succeeded"}],"next_cursor":null}`).again(),

				call(path+"?limit=2", "", 200, `{"messages":[{"id":"$c1"},{"id":"$c2"}],"next_cursor":"$two"}`),
				call(path+"?limit=2&cursor=$two", "", 200, `{"messages":[{"id":"$p"},{"id":"$d"}],"next_cursor":"$four"}`),
				call(path+"?limit=2&cursor=$four", "", 200, `{"messages":[{"id":"$s"}],"next_cursor":null}`),
				call(path+"?order=desc&limit=2", "", 200, `{"messages":[{"id":"$s"},{"id":"$d"}],"next_cursor":"$back"}`),
				call(path+"?limit=2&order=desc&cursor=$back", "", 200,
					`{"messages":[{"id":"$p"},{"id":"$c2"}],"next_cursor":"$last"}`),
				call(path+"?order=desc&cursor=$last", "", 200, `{"messages":[{"id":"$c1"}],"next_cursor":null}`),
				call(path+"?limit=5", "", 200, `{"messages":[{},{},{},{},{"id":"$s"}],"next_cursor":null}`),

				call(path+"?limit=1&payload=true&cursor=$two", "", 200,
					`{"messages":[{"id":"$p","payload":"p"}],"next_cursor":"@any"}`),
				call(path+"?status=pending", "", 200, `{"messages":[{"id":"$c1"},{"id":"$c2"}],"next_cursor":null}`),
				call(path+"?status=dead&payload=true", "", 200, `{"messages":[{"id":"$d","payload":"d"}]}`),
				call(path+"?status=succeeded&payload=false", "", 200, `{"messages":[{"id":"$s","payload":"@absent"}]}`),
				call(path+"?status=pending&order=desc&limit=1", "", 200, `{"messages":[{"id":"$c2"}],"next_cursor":"$of_pending"}`),

				refused(path+"?order=desc&cursor=$two", "", 400, "bad-request"),
				refused(path+"?status=pending&cursor=$two", "", 400, "bad-request"),
				refused(path+"?status=dead&order=desc&cursor=$of_pending", "", 400, "bad-request"),
				refused("GET /queues/$q2/messages?cursor=$two", "", 400, "bad-request"),
			},
			stored: `[{"payload":"c1"},{"payload":"c2"},{"payload":"p"},{"payload":"d"},{"payload":"s"}]`,
		},
		{
			name: "a query that is not understood is refused",
			steps: []step{
				refused(path+"?limit=0", "", 400, "bad-request"),
				refused(path+"?limit=251", "", 400, "bad-request"),
				refused(path+"?limit=%2B3", "", 400, "bad-request"),
				refused(path+"?limit=", "", 400, "bad-request"),
				refused(path+"?status=processed", "", 400, "bad-request"),
				refused(path+"?status=", "", 400, "bad-request"),
				refused(path+"?order=up", "", 400, "bad-request"),
				refused(path+"?payload=1", "", 400, "bad-request"),
				refused(path+"?cursor=", "", 400, "bad-request"),
				refused(path+"?cursor=%25%25%25", "", 400, "bad-request"),
				refused(path+"?cursor=ab%2Bcd%2F%3D", "", 400, "bad-request"),
				call(path+"?color=red", "", 400, `{"detail":"Unknown query parameters: \"color\"."}`),
				call(path+"?limit=1&limit=1", "", 400, `{"detail":"Query parameters given more than once: \"limit\"."}`),
			},
		},
		{
			name: "S033 a page ends before the answer grows too long",
			then: longPages,
		},
	}
}

// longPages lists more than one answer may hold.
func longPages(t *testing.T, tl *teller) {
	t.Helper()
	const (
		messages   = 100
		size       = 100_000
		mostInJSON = 6_291_556 // bytes that Lambda returns
	)
	path := "/queues/" + tl.known["q"] + "/messages"
	body := `{"payload":"` + strings.Repeat("x", size) + `"}`
	left := make(map[string]bool)
	for i := range messages {
		status, _, answer, err := tl.send(t, http.MethodPost, path, body, nil)
		_, rest, _ := strings.Cut(string(answer), `"id":"`)
		id, _, ok := strings.Cut(rest, `"`)
		if err != nil || status != http.StatusCreated || !ok {
			t.Fatalf("enqueue %d = %d %s, %v, want 201", i, status, shorten(answer), err)
		}
		left[id] = true
	}
	all := call("GET /queues/$q/messages?limit=250", "", http.StatusOK,
		`{"messages":[`+strings.Repeat(`{},`, messages-1)+`{}]}`)
	tl.do(t, "all are listed", all.again())

	pages := 0
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		query := "?limit=100&payload=true"
		if cursor != "" {
			query += "&cursor=" + cursor
		}
		status, _, answer, err := tl.send(t, http.MethodGet, path+query, "", nil)
		if err != nil || status != http.StatusOK || len(answer) >= mostInJSON {
			t.Fatalf("page %d: %d with %d bytes, %v", pages, status, len(answer), err)
		}
		var page struct {
			Messages []struct {
				ID      string
				Payload string
			}
			NextCursor *string `json:"next_cursor"`
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			t.Fatal(err)
		}
		if len(page.Messages) == 0 {
			t.Fatalf("page %d is empty", pages)
		}
		for _, m := range page.Messages {
			if !left[m.ID] || len(m.Payload) != size {
				t.Fatalf("page %d shows %s with %d bytes, which is unknown, or shown before", pages, m.ID, len(m.Payload))
			}
			delete(left, m.ID)
		}
		if cursor = ""; page.NextCursor != nil {
			cursor = *page.NextCursor
		}
	}
	if len(left) > 0 || pages < 2 {
		t.Errorf("%d pages left out %d messages, want at least 2 pages with all", pages, len(left))
	}
}
