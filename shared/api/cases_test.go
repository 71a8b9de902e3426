package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/api"
)

// The tests of this file are the rows of CASES.md, the faults that people
// reported in public, by their numbers. Where the contract decided otherwise than
// a row, it is the contract that is tested.

// stage changes what API Gateway says of the stage and the path in front of it.
func stage(name, path string) change {
	return func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.Stage, e.RawPath = name, path }
}

func TestCasesOfRequestEvents(t *testing.T) {
	t.Parallel()
	t.Run("S001 a named stage in front of the path changes nothing", func(t *testing.T) {
		t.Parallel()
		var got []msg
		for _, c := range []change{stage("prod", "/prod/queues/orders/messages"), stage("$default",
			"/queues/orders/messages")} {
			f := newFixture(t)
			got = append(got, f.do(t, "POST", "/queues/orders/messages", `{"payload":"x"}`, c).message(t, 201))
		}
		if diff := cmp.Diff(got[0], got[1]); diff != "" || got[0].Queue != "orders" {
			t.Errorf("queue %q; the answers differ:\n%s", got[0].Queue, diff)
		}
	})
	t.Run("S002 a queue may be named like the stage", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, tt := range []struct{ stage, path, queue string }{
			{"prod", "/prod/queues/prod/messages", "prod"},
			{"queues", "/queues/queues/a/messages", "a"},
		} {
			a := f.do(t, "POST", "/queues/"+tt.queue+"/messages", `{"payload":"x"}`, stage(tt.stage, tt.path))
			if m := a.message(t, 201); m.Queue != tt.queue {
				t.Errorf("%s of stage %s: queue = %q, want %q", tt.path, tt.stage, m.Queue, tt.queue)
			}
		}
		f.do(t, "POST", "/prod/queues/prod/messages", `{"payload":"x"}`).refused(t, 404, "not-found")
	})
	t.Run("S003 an event of version 1 is refused by name", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		m := f.enqueueOn(t, "orders", "x")
		if got := f.list(t, "/queues/orders/messages"); len(got) != 1 || got[0].ID != m.ID {
			t.Errorf("list = %v", got)
		}
		var e events.APIGatewayV2HTTPRequest
		if err := json.Unmarshal([]byte(`{"version":"1.0","resource":"/queues/{queue}/messages",
			"path":"/queues/orders/messages",
			"httpMethod":"GET","headers":{},"queryStringParameters":null,"pathParameters":{"queue":"orders"},
			"requestContext":{"stage":"$default","httpMethod":"GET","path":"/queues/orders/messages"},
			"body":null,"isBase64Encoded":false}`), &e); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"list", api.Fallback} {
			if doc := f.send(t, name, e).refused(t, 400, "bad-request"); !strings.Contains(doc.Detail, `"1.0"`) {
				t.Errorf("%s: detail = %q, want the version in it", name, doc.Detail)
			}
		}
	})
	t.Run("S004 a body in base64 is decoded, and its media type must be JSON all the same", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		form := header("content-type", "application/x-www-form-urlencoded")
		f.do(t, "POST", emailsMessages, `{"payload":"hi"}`, inBase64, form).refused(t, 415, "unsupported-media-type")
		f.unchanged(t, map[string]any{})
		m := f.do(t, "POST", emailsMessages, "eyJwYXlsb2FkIjoiaGkifQ==", func(e *events.APIGatewayV2HTTPRequest) {
			e.IsBase64Encoded = true
		}).message(t, 201)
		if *m.Payload != "hi" || m.PayloadBytes != 2 {
			t.Errorf("payload = %q of %d bytes, want hi", *m.Payload, m.PayloadBytes)
		}
	})
	t.Run("S005 a byte that is not UTF-8 is refused and never replaced", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.do(t, "POST", emailsMessages, "eyJwYXlsb2FkIjoiYf9iIn0=", func(e *events.APIGatewayV2HTTPRequest) {
			e.IsBase64Encoded = true
		}).refused(t, 400, "malformed-body")
		if got := f.list(t, emailsMessages); len(got) > 0 {
			t.Errorf("list = %v, want none", got)
		}
	})
	t.Run("S006 the name of a header has no case", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		first := f.do(t, "POST", emailsMessages, `{"payload":"x"}`, header("idempotency-key", "k1")).message(t, 201)
		for _, name := range []string{"Idempotency-Key", "IDEMPOTENCY-KEY"} {
			if got := f.do(t, "POST", emailsMessages, `{"payload":"x"}`, header(name, "k1")).message(t,
				200); got.ID != first.ID {
				t.Errorf("%s: id = %s, want %s", name, got.ID, first.ID)
			}
		}
		if got := f.list(t, emailsMessages); len(got) != 1 {
			t.Errorf("%d messages, want one", len(got))
		}
	})
	t.Run("S007 the JSON of every answer has the members of format 2.0", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, a := range []answer{
			f.do(t, "POST", emailsMessages, `{"payload":"x"}`), f.do(t, "GET", "/queues/others/messages", ""),
			f.do(t, "GET", "/nowhere", ""), f.do(t, "POST", "/queues/others/claim", ""),
		} {
			text, err := json.Marshal(a.event)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				StatusCode *int              `json:"statusCode"`
				Headers    map[string]string `json:"headers"`
				Body       *string           `json:"body"`
				Base64     bool              `json:"isBase64Encoded"`
			}
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if got.StatusCode == nil || got.Headers == nil || got.Body == nil || got.Base64 {
				t.Errorf("answer = %s", text)
			}
			if isJSON := strings.HasPrefix(got.Headers["content-type"], "application/"); isJSON != (*got.Body != "") {
				t.Errorf("content-type %q with a body of %d bytes", got.Headers["content-type"], len(*got.Body))
			}
		}
	})
	t.Run("S009 a slash cannot be part of a queue name, decoded or not", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.do(t, "POST", "/queues/a/b/messages", `{"payload":"x"}`).refused(t, 404, "not-found")
		f.do(t, "POST", "/queues/a%2Fb/messages", `{"payload":"x"}`).refused(t, 400, "bad-request")
		f.unchanged(t, map[string]any{})
	})
	t.Run("S010 a query value is decoded once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, raw := range []string{"ab%2Bcd%2F%3D", "a%252Bb"} {
			f.do(t, "GET", emailsMessages+"?cursor="+raw, "").refused(t, 400, "bad-request")
		}
		for _, payload := range []string{"1", "2", "3"} {
			f.enqueue(t, payload)
		}
		cursor := f.firstCursor(t, emailsMessages+"?limit=1")
		plain := f.do(t, "GET", emailsMessages+"?limit=1&cursor="+cursor, "").page(t)
		escaped := f.do(t, "GET", emailsMessages+"?limit=1&cursor="+escapeAll(cursor), "").page(t)
		if diff := cmp.Diff(plain, escaped); diff != "" || len(plain.Messages) != 1 {
			t.Errorf("the cursor does not survive its escapes:\n%s", diff)
		}
	})
	t.Run("S011 a slash at the end, the root and an empty path are not found", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.do(t, "POST", "/queues/orders/messages/", `{"payload":"x"}`).refused(t, 404, "not-found")
		f.do(t, "GET", "/", "").refused(t, 404, "not-found")
		f.do(t, "GET", "", "").refused(t, 404, "not-found")
		f.unchanged(t, map[string]any{})
	})
}

func TestCasesOfPayloads(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		slug   string
		bodies []string
	}{
		{
			"S012 a name in other case is unknown", 422, "validation-failed",
			[]string{`{"payload":"first","PAYLOAD":"second"}`, `{"Payload":"x"}`},
		},
		{
			"S013 a name that comes twice is refused", 400, "malformed-body",
			[]string{`{"payload":"first","payload":"second"}`},
		},
		{
			"S014 a lone surrogate is refused", 400, "malformed-body",
			[]string{`{"payload":"a\ud800b"}`, `{"payload":"\udc49"}`},
		},
		{"S019 a payload must be there, and not be null", 422, "validation-failed", []string{`{"payload":null}`, `{}`}},
		{
			"S020 what follows the object is refused", 400, "malformed-body",
			[]string{`{"payload":"a"}{"payload":"b"}`, `{"payload":"a"} x`},
		},
		{
			"S021 a payload that is no string is refused", 422, "validation-failed",
			[]string{`{"payload":{"a":1}}`, `{"payload":123}`, `{"payload":["a"]}`, `{"payload":true}`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for _, text := range tt.bodies {
				a := f.do(t, "POST", emailsMessages, text)
				var doc document
				if a.into(t, tt.status, &doc); doc.Type != "/problems/"+tt.slug {
					t.Errorf("%s: %s, want %s", text, doc.Type, tt.slug)
				}
			}
			f.unchanged(t, map[string]any{})
		})
	}
	for _, tt := range []struct{ name, body, payload string }{
		{"S014 a pair of surrogates is one character of four bytes", `{"payload":"\ud83d\ude00"}`, "\xf0\x9f\x98\x80"},
		{
			"S015 numbers inside the payload are not touched",
			`{"payload":"{\"id\":8202522731445525542,\"n\":9007199254740993,\"f\":1.0,\"e\":1E400,\"z\":-0}"}`,
			`{"id":8202522731445525542,"n":9007199254740993,"f":1.0,"e":1E400,"z":-0}`,
		},
		{"S016 no character is escaped that need not be", `{"payload":"<a&b>"}`, "<a&b>"},
		{"S017 the payload is counted in bytes", `{"payload":"na\u00efve \ud83d\ude0a \u4e2d\u6587"}`, "naïve 😊 中文"},
		{"S018 no line feed is added", `{"payload":"{\"a\":1}"}`, `{"a":1}`},
		{"S019 an empty payload is a payload", `{"payload":""}`, ""},
		{"S020 blanks may follow the object", `{"payload":"a"}` + "\n  ", "a"},
		{"S021 a payload that holds JSON is a string", `{"payload":"{\"a\":\"b\"}"}`, `{"a":"b"}`},
		{"S022 blanks inside the payload are kept", `{"payload":"{ \"a\" : 1 }"}`, `{ "a" : 1 }`},
		{"a NUL comes back", `{"payload":"a\u0000b"}`, "a\x00b"},
		{"line and paragraph separators come back", `{"payload":"\u2028\u2029"}`, "\u2028\u2029"},
		{"characters that are none come back", `{"payload":"\uffff\ufffe\ufdd0"}`, "\uffff\ufffe\ufdd0"},
		{"the replacement character itself comes back", `{"payload":"\ufffd"}`, "\ufffd"},
		{"a byte order mark inside comes back", `{"payload":"\ufeffa"}`, "\ufeffa"},
		{"a payload is not normalised", `{"payload":"e\u0301\u00e9"}`, "e\u0301é"},
		{"line ends are not changed", `{"payload":"a\r\nb\rc\n"}`, "a\r\nb\rc\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			seen := map[string]msg{"enqueue": f.do(t, "POST", emailsMessages, tt.body).message(t, 201)}
			seen["GET"] = f.get(t, seen["enqueue"])
			for i := range 3 { // until it is dead
				f.clock.at(time.Duration(i) * time.Hour)
				m := f.claim(t)
				f.answerWith(t, m, "fail", "error", "no")
				seen[fmt.Sprint("claim ", i)] = m
			}
			seen["list"] = f.list(t, emailsMessages+"?payload=true&status=dead")[0]
			f.do(t, "POST", seen["GET"].path()+"/replay", "").message(t, 200)
			f.clock.at(4 * time.Hour)
			seen["claim after replay"] = f.claim(t)
			for where, m := range seen {
				if m.Payload == nil || *m.Payload != tt.payload || m.PayloadBytes != len(tt.payload) {
					t.Errorf("%s shows %+v, want %q", where, m, tt.payload)
				}
			}
		})
	}
	t.Run("S016 in the answer stand the characters themselves", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		if a := f.do(t, "POST", emailsMessages, `{"payload":"\u003ca\u0026b\u003e\u2028é😀"}`); !strings.Contains(a.body,
			"\"<a&b>\u2028é😀\"") {
			t.Errorf("answer %s", a.body)
		}
	})
}

func TestCasesOfNamesAndSizes(t *testing.T) {
	t.Parallel()
	t.Run("S023 parts of a key cannot run into each other", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.doRoute(t, "POST /queues/{queue}/messages", map[string]string{"queue": "a#"}, `{"payload":"P1"}`,
			key("b")).refused(t, 400, "bad-request")
		one := f.do(t, "POST", "/queues/a/messages", `{"payload":"P2"}`, key("#b")).message(t, 201)
		two := f.do(t, "POST", "/queues/a:/messages", `{"payload":"P3"}`, key("b")).message(t, 201)
		three := f.do(t, "POST", "/queues/a/messages", `{"payload":"P4"}`, key(":b")).message(t, 201)
		if got := sorted([]string{one.ID, two.ID, three.ID}); len(slices.Compact(got)) != 3 {
			t.Errorf("ids = %v, want three", got)
		}
	})
	t.Run("S024 lengths are counted in bytes", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, n := range []int{341, 342} {
			f.do(t, "POST", emailsMessages, `{"payload":"x"}`, key(strings.Repeat("中", n))).refused(t, 400, "bad-request")
		}
		f.do(t, "POST", "/queues/"+strings.Repeat("a", 2_049)+"/messages", `{"payload":"x"}`).refused(t, 400, "bad-request")
		f.unchanged(t, map[string]any{})
	})
	t.Run("S025 no message is stored after a 413", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, payload := range []string{
			strings.Repeat("😀", 102_400), strings.Repeat("a", 409_600),
			strings.Repeat("a", maxPayload+1),
		} {
			f.do(t, "POST", emailsMessages, `{"payload":"`+payload+`"}`).refused(t, 413, "payload-too-large")
		}
		if got := f.list(t, emailsMessages); len(got) > 0 {
			t.Errorf("list = %v, want none", got)
		}
		f.do(t, "POST", emailsMessages, `{"payload":"`+strings.Repeat("a", maxPayload)+`"}`).message(t, 201)
	})
	t.Run("S026 a dead message stays in its queue, whatever the queue is called", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, queue := range []string{"dlq_some_queue", "a-b", "a_b", "dead", "orders-dlq"} {
			path := "/queues/" + queue + "/messages"
			m := f.do(t, "POST", path, body("payload", queue, "max_retries", 1)).message(t, 201)
			f.answerWith(t, f.claimFrom(t, queue), "fail", "error", "no")
			for _, filter := range []string{"?payload=true&status=dead", "?payload=true"} {
				got := f.list(t, path+filter)
				if len(got) != 1 || got[0].ID != m.ID || *got[0].Payload != queue ||
					got[0].RetryCount != 1 || got[0].Status != "dead" {
					t.Errorf("list%s of %s = %+v, want the one dead message", filter, queue, got)
				}
			}
		}
	})
	t.Run("S027 no empty key reaches the store", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.do(t, "POST", "/queues//messages", `{"payload":"x"}`).refused(t, 400, "bad-request")
		f.doRoute(t, "POST /queues/{queue}/messages", map[string]string{"queue": ""}, `{"payload":"x"}`).
			refused(t, 400, "bad-request")
		f.doRoute(t, "POST /queues/{queue}/messages", nil, `{"payload":"x"}`).refused(t, 400, "bad-request")
		f.doRoute(t, "GET /queues/{queue}/messages/{id}", map[string]string{"queue": "a", "id": ""}, "").
			refused(t, 404, "not-found")
		f.do(t, "POST", emailsMessages, `{"payload":"x"}`, key("")).refused(t, 400, "bad-request")
		f.unchanged(t, map[string]any{})
	})
}

func TestCasesOfLists(t *testing.T) {
	t.Parallel()
	t.Run("S028 the limit counts what is shown", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		var dead []string
		for i := range 25 {
			f.clock.at(time.Duration(i) * time.Second)
			if i < 20 {
				f.succeeded(t)
			} else {
				dead = append(dead, f.dead(t).ID)
			}
		}
		first := f.do(t, "GET", emailsMessages+"?status=dead&limit=3", "").page(t)
		if diff := cmp.Diff(dead[:3], ids(first.Messages)); diff != "" || first.NextCursor == nil {
			t.Fatalf("first page, cursor %v (-want +got):\n%s", first.NextCursor, diff)
		}
		second := f.do(t, "GET", emailsMessages+"?status=dead&limit=3&cursor="+*first.NextCursor, "").page(t)
		if diff := cmp.Diff(dead[3:], ids(second.Messages)); diff != "" || second.NextCursor != nil {
			t.Errorf("second page, cursor %v (-want +got):\n%s", second.NextCursor, diff)
		}
	})
	t.Run("S029 a full page that is the last has no cursor", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for range 10 {
			f.enqueue(t, "x")
		}
		for _, limit := range []string{"10", "5", "1"} {
			for _, params := range [][]string{{"limit", limit}, {"limit", limit, "status", "pending"}, {
				"limit", limit, "order",
				"desc",
			}} {
				all, pages := f.walk(t, emailsMessages, params...)
				if want := map[string]int{
					"10": 1, "5": 2,
					"1": 10,
				}[limit]; len(slices.Compact(sorted(all))) != 10 || pages != want {
					t.Errorf("%v: %d messages on %d pages, want 10 on %d", params, len(all), pages, want)
				}
			}
		}
	})
	t.Run("S034 fractions of a second sort as numbers", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		var want []string
		for _, after := range []time.Duration{5 * time.Second, 5100 * time.Millisecond, 5150 * time.Millisecond} {
			f.clock.at(after)
			want = append(want, f.enqueue(t, "x").ID)
		}
		f.clock.at(6 * time.Second)
		got := []string{f.claim(t).ID, f.claim(t).ID, f.claim(t).ID}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("claims (-want +got):\n%s", diff)
		}
	})
}

func TestCasesOfClaims(t *testing.T) {
	t.Parallel()
	t.Run("S032 a count that is none claims nothing", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.enqueue(t, "x")
		before := f.stored(t)
		for _, n := range []string{
			`-1`, `0`, `"abc"`, `""`, `1e3`, `" 5"`, `"5"`, `99999999999999999999`, `1001`, `11`,
			`5.5`,
		} {
			a := f.do(t, "POST", emailsClaim, `{"max_messages":`+n+`}`)
			var doc document
			if a.into(t, 422, &doc); len(doc.Errors) != 1 ||
				doc.Errors[0].Field != "max_messages" || doc.Errors[0].Code != "invalid" {
				t.Errorf("max_messages %s: %+v", n, doc)
			}
		}
		for _, n := range []string{`+3`, `0x10`, ``, `5.`} {
			f.do(t, "POST", emailsClaim, `{"max_messages":`+n+`}`).refused(t, 400, "malformed-body")
		}
		f.unchanged(t, before)
	})
	t.Run("S038 a message is handed out once among twenty", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.enqueue(t, "x")
		if got := f.claimAtOnce(t, 20, 1); len(got) != 1 || got[0].ClaimCount != 1 {
			t.Errorf("handed out %v, want one message once", ids(got))
		}
		f.clock.at(time.Second)
		for range 10 {
			f.enqueue(t, "x")
		}
		got := sorted(ids(f.claimAtOnce(t, 20, 5)))
		if len(got) != 10 || len(slices.Compact(got)) != 10 {
			t.Errorf("handed out %v, want ten messages once each", got)
		}
	})
	t.Run("S042 a lease out of range claims nothing", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.enqueue(t, "x")
		before := f.stored(t)
		for _, lease := range []string{`-1`, `0`, `43201`, `8000000000000`, `9223372037`, `1.5`, `"30"`, `null`} {
			a := f.do(t, "POST", emailsClaim, `{"processing_timeout":`+lease+`}`)
			var doc document
			if a.into(t, 422, &doc); len(doc.Errors) != 1 || doc.Errors[0].Field != "processing_timeout" {
				t.Errorf("processing_timeout %s: %+v", lease, doc)
			}
		}
		f.unchanged(t, before)
	})
	t.Run("S043 the lease is that of the request, of the queue, or thirty seconds", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.do(t, "PUT", "/queues/short", `{"processing_timeout":5}`).refusedNot(t)
		for _, tt := range []struct {
			queue, body string
			want        time.Duration
		}{
			{"short", `{}`, 5 * time.Second},
			{"short", `{"processing_timeout":7}`, 7 * time.Second},
			{"emails", `{}`, 30 * time.Second},
			{"emails", `{"processing_timeout":7}`, 7 * time.Second},
		} {
			f.enqueueOn(t, tt.queue, "x")
			m := f.do(t, "POST", "/queues/"+tt.queue+"/claim", tt.body).message(t, 200)
			if want := at(tt.want); *m.LeaseExpiresAt != want {
				t.Errorf("%s %s: lease until %s, want %s", tt.queue, tt.body, *m.LeaseExpiresAt, want)
			}
		}
	})
}

// claimAtOnce lets so many workers claim up to n messages at the same time.
func (f *fixture) claimAtOnce(t *testing.T, workers, n int) []msg {
	t.Helper()
	var (
		mu  sync.Mutex
		all []msg
		wg  sync.WaitGroup
	)
	for range workers {
		wg.Go(func() {
			a := f.do(t, "POST", emailsClaim, body("max_messages", n))
			var got listedClaim
			if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 {
				t.Errorf("claim = %d %s", a.status, a.body)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, got.Messages...)
		})
	}
	wg.Wait()
	return all
}

// fails claims and fails a message of the queue until it is dead, and returns the
// delays in between.
func (f *fixture) fails(t *testing.T, queue string) (delays []time.Duration, last msg) {
	t.Helper()
	for range 12 {
		held := f.claimFrom(t, queue)
		now := f.clock.Now().Add(time.Millisecond)
		f.clock.at(now.Sub(epoch))
		last = f.answerWith(t, held, "fail", "error", "no")
		if last.Status == "dead" {
			return delays, last
		}
		due := now
		if last.RetryAfter != nil {
			var err error
			if due, err = time.Parse(time.RFC3339, *last.RetryAfter); err != nil {
				t.Fatal(err)
			}
		}
		delays = append(delays, due.Sub(now))
		f.clock.at(due.Sub(epoch) - time.Millisecond)
		if a := f.do(t, "POST", "/queues/"+queue+"/claim", ""); due.After(now) && a.status != 204 {
			t.Fatalf("claim 1 ms before it is due = %d", a.status)
		}
		f.clock.at(due.Sub(epoch))
	}
	t.Fatalf("the message does not die; delays %v", delays)
	return nil, msg{}
}

func TestCasesOfRetries(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for i, tt := range []struct {
		name, settings, options string
		want                    []time.Duration
	}{
		{
			"S048 the first delay is used and the last is not skipped",
			`{"max_retries":10,"backoff":{"initial_seconds":1,"factor":2,"max_seconds":300}}`, ``,
			[]time.Duration{1 * s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s},
		},
		{
			"S048 a delay of ten seconds and four attempts", `{"max_retries":4,"backoff":{"initial_seconds":10}}`, ``,
			[]time.Duration{10 * s, 20 * s, 40 * s},
		},
		{
			"S048 a delay of a tenth of a second doubles exactly", `{"max_retries":6,"backoff":{"initial_seconds":0.1}}`, ``,
			[]time.Duration{s / 10, s / 5, 2 * s / 5, 4 * s / 5, 8 * s / 5},
		},
		{
			"S048 the longest delay is kept to",
			`{"max_retries":5,"backoff":{"initial_seconds":100,"factor":10,"max_seconds":300}}`, ``,
			[]time.Duration{100 * s, 300 * s, 300 * s, 300 * s},
		},
		{"S048 without settings the delays are 2 and 4 seconds", `{}`, ``, []time.Duration{2 * s, 4 * s}},
		{
			"S052 a schedule is followed, and its last entry repeats",
			`{"max_retries":5,"backoff":{"schedule_seconds":[5,0.5]}}`, ``,
			[]time.Duration{5 * s, s / 2, s / 2, s / 2},
		},
		{"S052 a queue of one attempt", `{"max_retries":1}`, ``, nil},
		{"S052 a message of one attempt", `{"max_retries":10}`, `,"max_retries":1`, nil},
		{"S054 a message of two attempts", `{}`, `,"max_retries":2`, []time.Duration{2 * s}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, queue := newFixture(t), fmt.Sprint("q", i)
			f.do(t, "PUT", "/queues/"+queue, tt.settings).refusedNot(t)
			f.do(t, "POST", "/queues/"+queue+"/messages", `{"payload":"x"`+tt.options+`}`).message(t, 201)
			got, last := f.fails(t, queue)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("delays (-want +got):\n%s", diff)
			}
			if *last.DeadReason != "retries_exhausted" || last.RetryCount != len(tt.want)+1 {
				t.Errorf("dead after %d failures, %s; want %d", last.RetryCount, *last.DeadReason, len(tt.want)+1)
			}
		})
	}
	t.Run("S052 a delay of zero and an empty schedule are refused", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, backoff := range []string{`{"initial_seconds":0}`, `{"schedule_seconds":[]}`, `{"schedule_seconds":[0,0]}`} {
			var doc document
			f.do(t, "PUT", "/queues/emails", `{"backoff":`+backoff+`}`).into(t, 422, &doc)
		}
		f.unchanged(t, map[string]any{})
	})
	t.Run("S054 a number of attempts that is none is refused", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, n := range []string{`0`, `"5"`, `" 5"`, `-1`, `""`, `"abc"`, `1000000000000`} {
			var doc document
			f.do(t, "POST", emailsMessages, `{"payload":"x","max_retries":`+n+`}`).into(t, 422, &doc)
			f.do(t, "PUT", "/queues/emails", `{"max_retries":`+n+`}`).into(t, 422, &doc)
		}
		f.unchanged(t, map[string]any{})
	})
}

func TestCasesOfDeadLetters(t *testing.T) {
	t.Parallel()
	t.Run("S090 a replayed message has its whole budget again", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		m := f.do(t, "POST", emailsMessages, `{"payload":"x","max_retries":2}`).message(t, 201)
		f.fails(t, "emails")
		f.clock.at(100 * time.Second)
		replayed := f.do(t, "POST", m.path()+"/replay", "").message(t, 200)
		want := msg{
			ID: m.ID, Queue: "emails", Status: "pending", PayloadBytes: 1, MaxRetries: 2, MaxStalls: 3, ClaimCount: 2,
			ReplayCount: 1,
			CreatedAt:   at(0), UpdatedAt: at(100 * time.Second),
		}
		if diff := cmp.Diff(want, replayed); diff != "" {
			t.Errorf("replay (-want +got):\n%s", diff)
		}
		if got := f.get(t, m); len(got.Attempts) != 2 {
			t.Errorf("%d attempts after the replay, want the two before it", len(got.Attempts))
		}
		held := f.claim(t)
		f.clock.at(101 * time.Second)
		failed := f.answerWith(t, held, "fail", "error", "no")
		if failed.Status != "pending" || failed.RetryCount != 1 || *failed.RetryAfter != at(103*time.Second) {
			t.Errorf("first failure after the replay = %+v, want it pending for 2 s", failed)
		}
		f.clock.at(103 * time.Second)
		if again := f.answerWith(t, f.claim(t), "fail", "error", "no"); again.Status != "dead" || again.RetryCount != 2 {
			t.Errorf("second failure after the replay = %+v, want it dead", again)
		}
	})
	t.Run("S091 only a dead message is replayed, and only from its own queue", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		succeeded, processing, dead, pending := f.succeeded(t), f.processing(t), f.dead(t), f.pending(t)
		before := f.stored(t)
		for status, m := range map[string]msg{"succeeded": succeeded, "processing": processing, "pending": pending} {
			if doc := f.do(t, "POST", m.path()+"/replay", "").refused(t, 409, "message-conflict"); doc.MessageStatus != status {
				t.Errorf("message_status = %q, want %q", doc.MessageStatus, status)
			}
		}
		f.do(t, "POST", "/queues/emails/messages/msg_00000000000000000000000000/replay", "").refused(t, 404, "not-found")
		f.do(t, "POST", "/queues/others/messages/"+dead.ID+"/replay", "").refused(t, 404, "not-found")
		f.unchanged(t, before)
	})
	t.Run("S092 a message can be replayed again and again", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		m := f.do(t, "POST", emailsMessages, `{"payload":"x","max_retries":1}`).message(t, 201)
		for i := range 4 {
			f.clock.at(time.Duration(i) * time.Minute)
			held := f.claim(t)
			if held.ClaimCount != i+1 || held.ReplayCount != i {
				t.Errorf("claim %d: claim_count %d, replay_count %d", i+1, held.ClaimCount, held.ReplayCount)
			}
			f.answerWith(t, held, "fail", "error", "no")
			f.do(t, "POST", m.path()+"/replay", "").message(t, 200)
		}
	})
	t.Run("S093 of twenty replays at once one is done", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		m := f.dead(t)
		statuses := make([]int, 20)
		var wg sync.WaitGroup
		for i := range statuses {
			wg.Go(func() { statuses[i] = f.do(t, "POST", m.path()+"/replay", "").status })
		}
		wg.Wait()
		slices.Sort(statuses)
		if statuses[0] != 200 || statuses[1] != 409 || statuses[19] != 409 {
			t.Errorf("answers = %v, want one 200 and nineteen 409", statuses)
		}
		if got := f.get(t, m); got.ReplayCount != 1 || got.Status != "pending" {
			t.Errorf("the message is %s, replayed %d times", got.Status, got.ReplayCount)
		}
	})
	t.Run("S095 the last failure makes a message dead at once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		m := f.enqueue(t, "x")
		_, last := f.fails(t, "emails")
		if last.ClaimCount != 3 {
			t.Errorf("%d hand-outs, want 3", last.ClaimCount)
		}
		if got := f.list(t, emailsMessages+"?status=dead"); len(got) != 1 || got[0].ID != m.ID {
			t.Errorf("dead = %v, want the message", ids(got))
		}
	})
	t.Run("S096 the key of a dead message answers with that message", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		m := f.do(t, "POST", emailsMessages, `{"payload":"A"}`, key("foo")).message(t, 201)
		f.answerWith(t, f.claim(t), "fail", "error", "no", "permanent", true)
		if got := f.do(t, "POST", emailsMessages, `{"payload":"A"}`, key("foo")).message(t,
			200); got.ID != m.ID || got.Status != "dead" {
			t.Errorf("repeat = %s %s, want %s dead", got.ID, got.Status, m.ID)
		}
		f.do(t, "POST", emailsMessages, `{"payload":"B"}`, key("foo")).refused(t, 422, "idempotency-key-reused")
		if got := f.do(t, "POST", m.path()+"/replay", "").message(t, 200); got.Status != "pending" {
			t.Errorf("replay = %s", got.Status)
		}
	})
	t.Run("S097 a key is of its queue, and of its content", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		one := f.do(t, "POST", "/queues/a/messages", `{"payload":"A"}`, key("k1")).message(t, 201)
		if again := f.do(t, "POST", "/queues/a/messages", `{"payload":"A"}`, key("k1")).message(t, 200); again.ID != one.ID {
			t.Errorf("repeat = %s, want %s", again.ID, one.ID)
		}
		f.do(t, "POST", "/queues/a/messages", `{"payload":"B"}`, key("k1")).refused(t, 422, "idempotency-key-reused")
		if other := f.do(t, "POST", "/queues/b/messages", `{"payload":"A"}`, key("k1")).message(t, 201); other.ID == one.ID {
			t.Errorf("the same id %s on another queue", other.ID)
		}
		for _, queue := range []string{"a", "b"} {
			if got := f.list(t, "/queues/"+queue+"/messages"); len(got) != 1 {
				t.Errorf("queue %s has %d messages, want one", queue, len(got))
			}
		}
	})
}
