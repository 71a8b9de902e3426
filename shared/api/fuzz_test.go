package api_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"

	"github.com/redrivehq/redrive/shared/api"
)

// FuzzBody sends any body to every route that takes one: there is never a 500,
// and what is accepted as a payload is what a decoder that is not ours reads.
func FuzzBody(f *testing.F) {
	for _, tt := range malformed {
		text := strings.ReplaceAll(tt.body, "GOOD", `{"payload":"x","receipt":"r","error":""}`)
		f.Add([]byte(text[:min(len(text), 2_000)]))
	}
	for _, tt := range notUTF8 {
		f.Add([]byte(tt.body))
	}
	for _, text := range []string{
		"", "{}", `{"payload":"x"}`, `{"payload":"\u0000\ud83d\ude00\\\"","max_retries":3.0,"delay_seconds":1e-3}`,
		`{"receipt":"r","error":"e","permanent":true}`, `{"receipt":"r","error":"e","retry_after_seconds":0.5}`,
		`{"max_messages":10,"processing_timeout":43200}`, `{"max_retries":1e400,"processing_timeout":-0}`,
		`{"backoff":{"schedule_seconds":[1,0.5],"jitter":"full"},"succeeded_days":0.001,` +
			`"dead_days":null,"endpoint":null,"shards":64}`,
		`{"backoff":{"initial_seconds":0.1,"factor":1.5,"max_seconds":604800},"require_receipt":true,"max_stalls":100}`,
	} {
		f.Add([]byte(text))
	}
	x := fixtureOn(canned{})
	f.Fuzz(func(t *testing.T, text []byte) {
		var read struct {
			Payload any `json:"payload"`
		}
		for _, r := range api.Routes {
			if strings.HasPrefix(r.Key, "GET ") {
				continue
			}
			params := map[string]string{"queue": "emails", "id": someID}
			a := x.doRoute(t, r.Key, params, string(text), inBase64)
			if a.status >= 500 {
				t.Fatalf("%s: %q = %d %s", r.Key, text, a.status, a.body)
			}
			if r.Function != "enqueue" || a.status > 299 {
				continue
			}
			m := a.message(t, 201)
			if err := json.Unmarshal(text, &read); err != nil || read.Payload != *m.Payload {
				t.Errorf("%q is accepted with payload %q; encoding/json reads %q, %v", text, *m.Payload, read.Payload, err)
			}
		}
		x.log.take()
	})
}

// FuzzSettings puts any settings; what GET then shows can be put back.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"backoff":{"schedule_seconds":[1.118,604799.999,0.1]}}`, `{"backoff":{"initial_seconds":1.118,"factor":1.1}}`,
		`{"succeeded_days":0.1,"dead_days":0.01,"shards":2}`, `{"processing_timeout":4.32e4,"max_retries":1e1}`,
		`{"backoff":{"schedule_seconds":[1e0,2.5E+1,1000e-4]},"dead_days":3.65e3}`,
	} {
		f.Add(text)
	}
	x := newFixture(f)
	f.Fuzz(func(t *testing.T, text string) {
		x.log.take()
		a := x.do(t, "PUT", "/queues/emails", text)
		if a.status >= 500 {
			t.Fatalf("PUT %q = %d %s", text, a.status, a.body)
		}
		if a.status > 299 {
			return
		}
		shown := x.do(t, "GET", "/queues/emails", "")
		again := x.do(t, "PUT", "/queues/emails", shown.body)
		if again.status != 200 || again.body != shown.body {
			t.Errorf("PUT %q; GET shows %s; PUT of that = %d %s", text, shown.body, again.status, again.body)
		}
	})
}

// FuzzCursor pages with any cursor: it is refused, or leads to a page.
func FuzzCursor(f *testing.F) {
	x := newFixture(f)
	for range 3 {
		x.enqueue(f, "x")
	}
	genuine := make(map[string]bool)
	for _, target := range []string{emailsMessages + "?limit=1", emailsMessages + "?limit=2"} {
		cursor := *x.do(f, "GET", target, "").page(f).NextCursor
		genuine[cursor] = true
		f.Add(cursor)
		f.Add(cursor[:len(cursor)-1])
		f.Add(cursor + "A")
	}
	for _, text := range []string{
		"", "1", "%%%", "e30=", "AQ", strings.Repeat("A", 1_001), "AQAAAAAAAAAAAAAAAA", "\n",
		"\xff",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		x.log.take()
		a := x.do(t, "GET", emailsMessages+query("cursor", cursor), "")
		switch {
		case genuine[cursor]:
			a.page(t)
		case a.status == 400:
			a.refused(t, 400, "bad-request")
		case a.status != 200 || len(cursor) > 1_000: // the checksum is no secret: a 200 may be forged
			t.Errorf("cursor %q = %d %s", cursor, a.status, a.body)
		}
		if b := x.do(t, "GET", "/queues"+query("cursor", cursor), ""); b.status != 400 && b.status != 200 {
			t.Errorf("cursor %q of queues = %d %s", cursor, b.status, b.body)
		}
	})
}

// FuzzQueueName names a queue in any way: a name is refused if it breaks a rule
// of the contract, and else comes back as it is.
func FuzzQueueName(f *testing.F) {
	for _, name := range goodNames {
		f.Add(name)
	}
	for _, name := range []string{
		"", ".", "..", " a", "a/b", "a%", "a#", "a?", `a\`, "a\x00", "\xff", "cafe\u0301",
		"a\u3000", strings.Repeat("a", 129),
	} {
		f.Add(name)
	}
	x := newFixture(f)
	f.Fuzz(func(t *testing.T, name string) {
		x.log.take()
		good := len(name) >= 1 && len(name) <= 128 && utf8.ValidString(name) &&
			norm.NFC.String(name) == name && name != "." && name != ".."
		for i, r := range name {
			atEnd := i == 0 || i+utf8.RuneLen(r) == len(name)
			if unicode.Is(unicode.Cc, r) || strings.ContainsRune(`/\?#%`, r) || atEnd && unicode.IsSpace(r) {
				good = false
			}
		}
		params := map[string]string{"queue": name}
		a := x.doRoute(t, "POST /queues/{queue}/messages", params, `{"payload":"x"}`)
		if !good {
			a.refused(t, 400, "bad-request")
			return
		}
		m := a.message(t, 201)
		page := x.doRoute(t, "GET /queues/{queue}/messages", params, "").page(t)
		if diff := cmp.Diff([]string{m.ID}, ids(page.Messages)); diff != "" || m.Queue != name {
			t.Errorf("queue %q is shown as %q; list (-want +got):\n%s", name, m.Queue, diff)
		}
		params["id"] = m.ID
		x.doRoute(t, "DELETE /queues/{queue}/messages/{id}", params, "").refusedNot(t)
		x.doRoute(t, "DELETE /queues/{queue}", params, "").refusedNot(t)
	})
}

// FuzzReceipt answers with any receipt: only the current one counts.
func FuzzReceipt(f *testing.F) {
	x := newFixture(f)
	m := x.processing(f)
	for _, text := range []string{
		m.Receipt, m.Receipt + "=", strings.ToLower(m.Receipt), " " + m.Receipt, "", "x", strings.Repeat("é", 200),
		strings.Repeat("é", 201), "\x00", "\xff",
		"' OR 1=1 --", m.ID,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, receipt string) {
		x.log.take()
		sent := strings.ToValidUTF8(receipt, "\ufffd")
		for _, verb := range []string{"extend", "succeed", "fail", "release"} {
			pairs := []any{"receipt", sent}
			if verb == "fail" {
				pairs = append(pairs, "error", "no")
			}
			if sent == m.Receipt && verb != "extend" {
				continue // it would end the lease
			}
			a := x.do(t, "POST", m.path()+"/"+verb, body(pairs...))
			switch n := utf8.RuneCountInString(sent); {
			case sent == m.Receipt:
				a.message(t, 200)
			case n == 0:
				a.refused(t, 422, "validation-failed", invalidIn("receipt", "must not be empty.")...)
			case n > 200:
				a.refused(t, 422, "validation-failed", "receipt too_long receipt must have at most 200 characters.")
			default:
				a.refused(t, 409, "message-conflict")
			}
		}
		if got := x.get(t, m); got.Status != "processing" {
			t.Fatalf("receipt %q: the message is %s", receipt, got.Status)
		}
	})
}

// FuzzIdempotencyKey sends any key: one that is bare or quoted is the same.
func FuzzIdempotencyKey(f *testing.F) {
	for _, text := range []string{
		"k", `"k"`, `"`, `""`, `"a\"b"`, `a"b`, `a\b`, `"a\\b"`, "a,b", "a b", "é", "\x00", "\xff", strings.Repeat("k", 255),
		strings.Repeat("k", 256), `"k";p`, "",
	} {
		f.Add(text)
	}
	x := newFixture(f)
	f.Fuzz(func(t *testing.T, text string) {
		x.log.take()
		a := x.do(t, "POST", emailsMessages, `{"payload":"x"}`, key(text))
		if a.status == 400 {
			a.refused(t, 400, "bad-request")
			return
		}
		m := a.message(t, 201)
		for _, c := range []byte(text) {
			if c <= ' ' || c > '~' || c == ',' {
				t.Errorf("the key %q is accepted", text)
			}
		}
		x.do(t, "POST", emailsMessages, `{"payload":"other"}`, key(text)).refused(t, 422, "idempotency-key-reused")
		if !strings.HasPrefix(text, `"`) {
			quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
			if again := x.do(t, "POST", emailsMessages, `{"payload":"x"}`, key(quoted)).message(t, 200); again.ID != m.ID {
				t.Errorf("%s and %s are two keys", text, quoted)
			}
		}
		x.do(t, "DELETE", m.path(), "").refusedNot(t)
	})
}

// FuzzPayloadSize compares what is accepted with what is written.
func FuzzPayloadSize(f *testing.F) {
	for more, kind := range []string{"a", "\x00", `"`, "\u2028", "中\n"} {
		f.Add(kind, more-2)
	}
	f.Add("😀", 0)
	f.Add("\x00", 1)
	x := fixtureOn(canned{})
	f.Fuzz(func(t *testing.T, kind string, more int) {
		if kind == "" || !utf8.ValidString(kind) || more < -1_000 || more > 1_000 || len(kind) > 10_000 {
			return
		}
		x.log.take()
		text := atLimit(t, kind)
		if more < 0 {
			text = strings.ToValidUTF8(text[:max(len(text)+more, 0)], "")
		} else {
			text += strings.Repeat("a", more)
		}
		written := quoted(t, text)
		a := x.do(t, "POST", emailsMessages, `{"payload":`+written+`}`)
		if len(text) > maxPayload || len(written) > maxPayloadJSON {
			a.refused(t, 413, "payload-too-large")
		} else if a.status != 201 || !strings.Contains(a.body, `"payload":`+written+`,`) {
			t.Errorf("a payload of %d bytes, %d as JSON = %d %.200s", len(text), len(written), a.status, a.body)
		}
	})
}

// FuzzEvent hands any event to every function: each answers, without a panic
// and without a 500.
func FuzzEvent(f *testing.F) {
	for _, name := range eventNames(f) {
		text, err := os.ReadFile(filepath.Join(eventFolder, name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		`{}`, `{"version":"2.0"}`, `{"version":"1.0","path":"/"}`,
		`{"version":"2.0","rawPath":"/queues//messages","routeKey":"$default"}`,
		`{"version":"2.0","pathParameters":{"queue":"a","id":"b"},"body":"{}","isBase64Encoded":true}`,
		`{"version":"2.0","pathParameters":{"queue":"a"},"rawQueryString":"%zz&a;b=1","headers":{"Content-Type":"x"}}`,
		`{"version":"2.0","requestContext":{"stage":"a","http":{"method":"\ud800"}},"rawPath":"/a/queues"}`,
	} {
		f.Add([]byte(text))
	}
	x := fixtureOn(canned{})
	f.Fuzz(func(t *testing.T, text []byte) {
		x.log.take()
		var e events.APIGatewayV2HTTPRequest
		if json.Unmarshal(text, &e) != nil {
			return
		}
		if a := x.send(t, api.Fallback, clone(e)); a.status < 400 || a.status >= 500 {
			t.Errorf("fallback: event %s = %d %s", text, a.status, a.body)
		}
		for _, r := range api.Routes {
			e.RouteKey = r.Key // API Gateway sends no other to this function
			if a := x.send(t, r.Function, clone(e)); a.status >= 500 {
				t.Errorf("%s: event %s = %d %s", r.Key, text, a.status, a.body)
			}
		}
	})
}
