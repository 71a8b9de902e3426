package api_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/api"
)

const emailsMessages = "/queues/emails/messages"

func TestEnqueueRefusesValues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(t, "here before")
	text := invalidIn("payload", "must be a string.")
	rows := []invalid{
		{"there is no payload", `{}`, []string{"payload required payload is required."}},
		{"the payload is null", `{"payload":null}`, text},
		{"the payload is a number", `{"payload":123}`, text},
		{"the payload is an object", `{"payload":{"a":1}}`, text},
		{"the payload is an array", `{"payload":["a"]}`, text},
		{"the payload is true", `{"payload":true}`, text},
		{
			"the payload is capitalised", `{"Payload":"x"}`,
			[]string{"payload required payload is required.", "Payload unknown Payload is not known."},
		},
		{
			"the payload comes a second time in capitals", `{"payload":"first","PAYLOAD":"second"}`,
			[]string{"PAYLOAD unknown PAYLOAD is not known."},
		},
		{
			"everything is wrong", `{"payloads":"x","max_retries":0,"delay_seconds":"1","queue":"emails"}`,
			[]string{
				"delay_seconds invalid delay_seconds must be a number of seconds.",
				"payload required payload is required.",
				"max_retries invalid max_retries must be between 1 and 10.",
				"payloads unknown payloads is not known.",
				"queue unknown queue is not known.",
			},
		},
		{
			"both options are out of range", `{"payload":"x","max_retries":11,"delay_seconds":31536000.001}`,
			[]string{
				"max_retries invalid max_retries must be between 1 and 10.",
				"delay_seconds invalid delay_seconds must be between 0 and 31536000 seconds.",
			},
		},
	}
	rows = append(rows, integerRows(`{"payload":"x","max_retries":VALUE}`, "max_retries", "must be between 1 and 10.")...)
	rows = append(rows, invalid{
		"max_retries is 11", `{"payload":"x","max_retries":11}`,
		invalidIn("max_retries", "must be between 1 and 10."),
	})
	rows = append(rows, secondsRows(`{"payload":"x","delay_seconds":VALUE}`, "delay_seconds",
		"must be between 0 and 31536000 seconds.", `31536000.001`, `31536001`)...)
	f.refuseValues(t, "POST", emailsMessages, rows)
}

func TestEnqueueTakesNumbersHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct {
		options string
		retries int
		after   time.Duration
	}{
		{``, 3, 0},
		{`,"max_retries":1`, 1, 0},
		{`,"max_retries":10`, 10, 0},
		{`,"max_retries":3.0`, 3, 0},
		{`,"max_retries":1e1`, 10, 0},
		{`,"max_retries":1E+1`, 10, 0},
		{`,"max_retries":100e-1`, 10, 0},
		{`,"max_retries":0.5e1`, 5, 0},
		{`,"max_retries":7.000000000000000000000000000`, 7, 0},
		{`,"max_retries":0.0000000000000000000000004e25`, 4, 0},
		{`,"delay_seconds":0`, 3, 0},
		{`,"delay_seconds":-0`, 3, 0},
		{`,"delay_seconds":-0.000`, 3, 0},
		{`,"delay_seconds":0e999999999`, 3, 0},
		{`,"delay_seconds":0.001`, 3, time.Millisecond},
		{`,"delay_seconds":0.0010`, 3, time.Millisecond},
		{`,"delay_seconds":1e-3`, 3, time.Millisecond},
		{`,"delay_seconds":1.118`, 3, 1118 * time.Millisecond},
		{`,"delay_seconds":0.29`, 3, 290 * time.Millisecond},
		{`,"delay_seconds":31535999.999`, 3, 31_536_000*time.Second - time.Millisecond},
		{`,"delay_seconds":31.536e6`, 3, 31_536_000 * time.Second},
	} {
		step(t, "with"+tt.options, func(t *testing.T) {
			m := f.do(t, "POST", emailsMessages, `{"payload":"x"`+tt.options+`}`).message(t, 201)
			if m.MaxRetries != tt.retries {
				t.Errorf("max_retries = %d, want %d", m.MaxRetries, tt.retries)
			}
			var want *string
			if tt.after > 0 {
				want = new(at(tt.after))
			}
			if diff := cmp.Diff(want, m.RetryAfter); diff != "" {
				t.Errorf("retry_after differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnqueueAnswersWithTheMessageAndItsPlace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, queue := range []string{
		"emails", "a b", "naïve", "中文", "a&b=c+d;e,f", "@:~!$'()*", `"quoted"`, "emoji 😀",
		"a..b",
	} {
		step(t, queue, func(t *testing.T) {
			a := f.do(t, "POST", "/queues/"+queue+"/messages", `{"payload":"x"}`)
			m := a.message(t, 201)
			path, err := url.PathUnescape(a.header["location"])
			if err != nil {
				t.Fatalf("location %q: %v", a.header["location"], err)
			}
			for _, c := range a.header["location"] {
				if c <= ' ' || c > '~' {
					t.Errorf("location %q holds %q, which no header may", a.header["location"], c)
				}
			}
			if route, params, ok := api.Match("GET",
				path); !ok || route.Function != "get" || params["queue"] != queue || params["id"] != m.ID {
				t.Errorf("location %q leads to %s %v", path, route.Key, params)
			}
			want := msg{
				ID: m.ID, Queue: queue, Status: "pending", Payload: new("x"), PayloadBytes: 1,
				MaxRetries: 3, MaxStalls: 3, CreatedAt: at(0), UpdatedAt: at(0),
			}
			if diff := cmp.Diff(want, m); diff != "" {
				t.Errorf("the message differs (-want +got):\n%s", diff)
			}
			want.Attempts = []attempt{}
			if diff := cmp.Diff(want, f.do(t, "GET", path, "").message(t, 200)); diff != "" {
				t.Errorf("GET of the location differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryMemberOfAMessageIsShownEvenIfNull(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.enqueue(t, "")
	common := []string{
		"id", "queue", "status", "payload_bytes", "retry_count", "max_retries", "retry_after", "last_error",
		"stall_count", "max_stalls", "claim_count", "replay_count", "lease_expires_at", "dead_reason", "dead_at",
		"created_at", "updated_at",
	}
	check := func(a answer, status int, more ...string) {
		t.Helper()
		var got map[string]json.RawMessage
		a.into(t, status, &got)
		if list, ok := got["messages"]; ok {
			var messages []map[string]json.RawMessage
			if err := json.Unmarshal(list, &messages); err != nil || len(messages) == 0 {
				t.Fatalf("%s: messages %s: %v", a.asked, list, err)
			}
			got = messages[0]
		}
		for _, name := range append(more, common...) {
			if _, ok := got[name]; !ok {
				t.Errorf("%s: no %s", a.asked, name)
			}
			delete(got, name)
		}
		for name := range got {
			t.Errorf("%s: %s, which does not belong there", a.asked, name)
		}
	}
	check(f.do(t, "GET", m.path(), ""), 200, "payload", "attempts")
	check(f.do(t, "GET", emailsMessages, ""), 200)
	check(f.do(t, "GET", emailsMessages+"?payload=true", ""), 200, "payload")
	claimed := f.do(t, "POST", "/queues/emails/claim", "")
	check(claimed, 200, "payload", "receipt")
	held := claimed.message(t, 200)
	check(f.do(t, "POST", m.path()+"/extend", body("receipt", held.Receipt)), 200)
	check(f.do(t, "POST", m.path()+"/release", body("receipt", held.Receipt)), 200)
	check(f.do(t, "POST", m.path()+"/release", body("receipt", held.Receipt)), 200)
	f.clock.at(time.Second)
	check(f.do(t, "POST", "/queues/emails/claim", `{"max_messages":1}`), 200, "payload", "receipt")
	check(f.do(t, "POST", m.path()+"/fail", `{"error":"","permanent":true}`), 200)
	check(f.do(t, "POST", m.path()+"/replay", ""), 200)
	f.clock.at(2 * time.Second)
	f.claim(t)
	check(f.do(t, "POST", m.path()+"/succeed", ""), 200)
	check(f.do(t, "GET", m.path(), ""), 200, "payload", "attempts")
}

func TestIdempotencyKeyIsOfOneForm(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct{ name, key string }{
		{"nothing", ""},
		{"a blank", " "},
		{"a blank inside", "a b"},
		{"a blank at the end", "a "},
		{"a tab", "a\tb"},
		{"a comma, as of two headers joined", "k1,k2"},
		{"a comma and a blank, as of two headers joined", "k1, k1"},
		{"256 characters", strings.Repeat("k", 256)},
		{"a letter that is not ASCII", "clé"},
		{"a character of three bytes", "中"},
		{"a control character", "a\x01"},
		{"a NUL", "a\x00b"},
		{"a delete character", "a\x7f"},
		{"a byte that is not UTF-8", "a\xff"},
		{"quotes around nothing", `""`},
		{"a quote that is not closed", `"k1`},
		{"one quote", `"`},
		{"something after the quotes", `"k1"x`},
		{"parameters after the quotes", `"k1";a=1`},
		{"an escape that is none", `"k\n"`},
		{"an escape at the end", `"k\`},
		{"a comma in quotes", `"a,b"`},
		{"a blank in quotes", `"a b"`},
		{"a letter in quotes that is not ASCII", `"clé"`},
		{"256 characters in quotes", `"` + strings.Repeat("k", 256) + `"`},
		{"two quoted strings", `"a", "b"`},
	} {
		step(t, "refused: "+tt.name, func(t *testing.T) {
			doc := f.do(t, "POST", emailsMessages, `{"payload":"x"}`, key(tt.key)).refused(t, 400, "bad-request")
			if !strings.Contains(doc.Detail, "Idempotency-Key") {
				t.Errorf("detail %q does not name the header", doc.Detail)
			}
			f.unchanged(t, map[string]any{})
		})
	}
	for _, tt := range []struct {
		name  string
		forms []string // of one key
	}{
		{"one character", []string{"k", `"k"`}},
		{"a UUID", []string{"8e03978e-40d5-43e8-bc93-6894a57f9324", `"8e03978e-40d5-43e8-bc93-6894a57f9324"`}},
		{"255 characters", []string{strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`}},
		{"255 quotes", []string{`"` + strings.Repeat(`\"`, 255) + `"`}},
		{"a quote inside", []string{`a"b`, `"a\"b"`}},
		{"a backslash inside", []string{`a\b`, `"a\\b"`}},
		{"every visible character", []string{"!#$%&'()*+-./:;<=>?@[]^_`{|}~"}},
	} {
		step(t, "accepted: "+tt.name, func(t *testing.T) {
			var first msg
			for i, form := range tt.forms {
				a := f.do(t, "POST", emailsMessages, `{"payload":"x"}`, key(form))
				if i == 0 {
					first = a.message(t, 201)
				} else if got := a.message(t, 200); got.ID != first.ID || a.header["idempotent-replayed"] != "true" {
					t.Errorf("%s = %s, want the message %s of %s", form, got.ID, first.ID, tt.forms[0])
				}
			}
		})
	}
}

func TestIdempotencyKeyTellsARepeatFromAReuse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.do(t, "POST", emailsMessages, `{"payload":"secret-first","max_retries":3}`, key("k1"))
	m := first.message(t, 201)
	if first.header["idempotent-replayed"] != "" || first.header["location"] == "" {
		t.Errorf("headers of the first: %v", first.header)
	}
	for _, tt := range []struct{ name, path, body string }{
		{"as it was", emailsMessages, `{"payload":"secret-first","max_retries":3}`},
		{"in another order", emailsMessages, ` { "max_retries" : 3, "payload" : "secret-first" } `},
		{"with a number written differently", emailsMessages, `{"payload":"secret-first","max_retries":3.0e0}`},
		{"with escapes", emailsMessages, `{"\u0070ayload":"secret\u002dfirst","max_retries":3}`},
	} {
		step(t, "a repeat "+tt.name, func(t *testing.T) {
			before := f.stored(t)
			a := f.do(t, "POST", tt.path, tt.body, key("k1"))
			if diff := cmp.Diff(m, a.message(t, 200)); diff != "" {
				t.Errorf("the message differs (-first +repeat):\n%s", diff)
			}
			if a.header["idempotent-replayed"] != "true" || a.header["location"] != "" {
				t.Errorf("headers %v, want idempotent-replayed and no location", a.header)
			}
			f.unchanged(t, before)
		})
	}
	for _, tt := range []struct{ name, body string }{
		{"another payload", `{"payload":"secret-other","max_retries":3}`},
		{"another number of retries", `{"payload":"secret-first","max_retries":4}`},
		{"an option left out that names the default", `{"payload":"secret-first"}`},
		{"an option added that names the default", `{"payload":"secret-first","max_retries":3,"delay_seconds":0}`},
		{"a payload that holds an option", `{"payload":"secret-first\nmax_retries=3"}`},
	} {
		step(t, "a reuse with "+tt.name, func(t *testing.T) {
			before := f.stored(t)
			a := f.do(t, "POST", emailsMessages, tt.body, key("k1"))
			a.refused(t, 422, "idempotency-key-reused")
			if strings.Contains(a.body, m.ID) || strings.Contains(a.body, "secret") {
				t.Errorf("the answer shows something of the first: %s", a.body)
			}
			f.unchanged(t, before)
		})
	}
	step(t, "a repeat shows the message as it is now", func(t *testing.T) {
		held := f.claim(t)
		f.answerWith(t, held, "fail", "error", "no", "permanent", true)
		got := f.do(t, "POST", emailsMessages, `{"payload":"secret-first","max_retries":3}`, key("k1")).message(t, 200)
		if got.ID != m.ID || got.Status != "dead" || *got.Payload != "secret-first" || got.Receipt != "" {
			t.Errorf("repeat = %+v, want the dead message without a receipt", got)
		}
	})
	step(t, "after a delete it makes a new message with the same id", func(t *testing.T) {
		if a := f.do(t, "DELETE", m.path(), ""); a.status != 204 {
			t.Fatalf("DELETE = %d", a.status)
		}
		if got := f.do(t, "POST", emailsMessages, `{"payload":"later"}`, key("k1")).message(t, 201); got.ID != m.ID {
			t.Errorf("id = %s, want %s again", got.ID, m.ID)
		}
	})
	step(t, "a refused body does not use the key up", func(t *testing.T) {
		f.do(t, "POST", emailsMessages, `{"payload":7}`, key("k2")).
			refused(t, 422, "validation-failed", invalidIn("payload", "must be a string.")...)
		f.do(t, "POST", emailsMessages, `{"payload":"x"}`, key("k2")).message(t, 201)
	})
}
