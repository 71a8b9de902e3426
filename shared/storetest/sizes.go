package storetest

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// oddTexts are payloads and errors that get lost easily.
func oddTexts() map[string]string {
	var all strings.Builder
	for r := range rune(0x3000) { // every code point up to there, NUL and controls included
		all.WriteRune(r)
	}
	return map[string]string{
		"empty":                      "",
		"NUL":                        "\x00",
		"NUL inside":                 "a\x00b\x00",
		"NUL before the rest":        "\x00a",
		"every control character":    all.String()[:0x20],
		"every early code point":     all.String(),
		"blanks and line ends":       " \t\r\n ",
		"quotes and backslashes":     `"'\"\\` + "`",
		"HTML":                       "<a&b>\u2028\u2029",
		"byte order mark":            "\ufeffa",
		"noncharacters":              "\ufffe\uffff\U0010ffff",
		"the replacement character":  "\ufffd",
		"private use":                "\ue000\U000f0000",
		"the last before surrogates": "\ud7ff",
		"emoji with joiners":         "👩‍👩‍👧‍👦🏳️‍🌈",
		"decomposed and composed":    "e\u0301 \u00e9",
		"right to left":              "\u202eabc\u202c مرحبا",
		"S015 large numbers":         `{"id":8202522731445525542,"n":9007199254740993,"f":1.0,"e":1E400,"z":-0}`,
		"S022 blanks in JSON":        `{ "a" : 1 }`,
		"SQL":                        "'; DROP TABLE message; --",
	}
}

// testSizes has payloads and errors: how long, and of what.
func testSizes(t *testing.T, open Open) {
	for name, text := range oddTexts() {
		t.Run("a payload comes back byte for byte: "+name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			m := f.enqueue(t, text)
			if m.PayloadBytes != len(text) {
				t.Errorf("payload_bytes = %d, want %d", m.PayloadBytes, len(text))
			}
			same := func(where, got string) {
				t.Helper()
				if got != text {
					t.Errorf("%s = %.100q, want %.100q", where, got, text)
				}
			}
			same("Enqueue", m.Payload)
			same("Get", f.get(t, m).Message.Payload)
			same("List", f.list(t, message.List{Queue: emails, Payload: true})[0].Payload)
			held := f.claim(t)
			same("Claim", held.Payload)
			f.replay(t, f.reject(t, held, "x"))
			f.at(time.Minute)
			same("Claim after a replay", f.claim(t).Payload)
		})
		if len(text) > message.ShortErrorBytes {
			continue // shortened in places
		}
		t.Run("an error comes back byte for byte: "+name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			m := f.held(t, emails)
			same := func(where string, got *string) {
				t.Helper()
				if got == nil || *got != text {
					t.Errorf("%s = %v, want %q", where, got, text)
				}
			}
			same("Fail", f.fail(t, m, text).LastError)
			got := f.get(t, m)
			same("Get", got.Message.LastError)
			same("the history", &got.Attempts[0].Error)
			same("List", f.list(t, message.List{Queue: emails})[0].LastError)
			f.at(time.Minute)
			same("Claim", f.claim(t).LastError)
		})
	}
	for _, tt := range []struct {
		name    string
		payload string
		fits    bool
	}{
		{"S025 262,144 bytes", strings.Repeat("a", 262_144), true},
		{"S025 262,145 bytes", strings.Repeat("a", 262_145), false},
		{"S025 262,144 bytes of emoji", strings.Repeat("😀", 65_536), true},
		{"S025 262,145 bytes of emoji", strings.Repeat("😀", 65_536) + "a", false},
		{"S025 409,600 bytes of emoji", strings.Repeat("😀", 102_400), false},
		{"S025 409,600 bytes", strings.Repeat("a", 409_600), false},
		{"440,000 bytes of JSON with quotes", strings.Repeat(`"`, 219_999), true},
		{"440,001 bytes of JSON with quotes", strings.Repeat(`"`, 219_999) + "a", false},
		{"440,000 bytes of JSON with NULs", strings.Repeat("\x00", 73_333), true},
		{"440,001 bytes of JSON with NULs", strings.Repeat("\x00", 73_333) + "a", false},
		{"262,144 bytes of characters that JSON may leave alone", strings.Repeat("<&>\u2028\x7f/", 262_144/8), true},
	} {
		t.Run("a payload of "+tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			m, _, err := f.Enqueue(t.Context(), emails, message.Draft{Payload: tt.payload})
			if !tt.fits {
				wantError(t, "Enqueue", err, message.ErrPayloadTooLarge)
				wantSame(t, "the count", f.count(t, emails), [4]int{})
				return
			}
			wantError(t, "Enqueue", err, nil)
			if got := f.get(t, m).Message.Payload; got != tt.payload {
				t.Errorf("Get = a payload of %d bytes, want the one of %d", len(got), len(tt.payload))
			}
			if got := f.claim(t).Payload; got != tt.payload {
				t.Errorf("Claim = a payload of %d bytes, want the one of %d", len(got), len(tt.payload))
			}
		})
	}
	for _, tt := range []struct{ name, text, want string }{
		{"2,048 bytes is kept whole", strings.Repeat("a", 2_048), strings.Repeat("a", 2_048)},
		{"2,049 bytes is cut", strings.Repeat("a", 2_049), strings.Repeat("a", 2_048)},
		{"a character across the limit is cut before it", strings.Repeat("a", 2_047) + "é", strings.Repeat("a", 2_047)},
		{
			"an emoji across the limit is cut before it",
			strings.Repeat("😀", 511) + "abc😀", strings.Repeat("😀", 511) + "abc",
		},
		{"a character up to the limit is kept", strings.Repeat("é", 1_025), strings.Repeat("é", 1_024)},
		{"what is not UTF-8 is replaced", "a\xffb\xed\xa0\x80\x00c\xc3", "a\ufffdb\ufffd\x00c\ufffd"},
		{
			"many bytes that are not UTF-8 are replaced, then cut",
			strings.Repeat("\xff ", 2_000), strings.Repeat("\ufffd ", 512),
		},
	} {
		t.Run("an error of "+tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			m := f.held(t, emails)
			same := func(where string, got *string, want string) {
				t.Helper()
				if got == nil || *got != want {
					t.Errorf("%s differs from the %d bytes wanted", where, len(want))
				}
			}
			same("the answer", f.fail(t, m, tt.text).LastError, tt.want)
			got := f.get(t, m)
			same("what is stored", got.Message.LastError, tt.want)
			same("the history", &got.Attempts[0].Error, tt.want)
		})
	}
}

// testNames has names of queues: whatever a name may hold, it is one queue of
// its own.
func testNames(t *testing.T, open Open) {
	names := []string{
		"a", "b", "A", "ä", "a:b", "a@b", "a b", "a  b", "a-b", "a_b", "a.b", "a,b", "...", "a'b", `a"b`, "a+",
		"dlq_some_queue", "dead", "pending", "orders-dlq", "msg_0", "0", "00", "null", "🐙", "中文", "\u00e9",
		"\U0010ffff", "\ufffd", "a&b=c", "a;b", "a*b", "[a]", "{a}", "~a", "a|b", "^a", "$a", "a<b>", "_", "__",
		strings.Repeat("q", 128), strings.Repeat("q", 127) + "r", strings.Repeat("é", 64), strings.Repeat("🐙", 32),
	}
	runRows(t, open, []row{
		{"S026 any name is a queue of its own", func(t *testing.T, f *fixture) {
			sent := make(map[string]message.Message)
			distinct := make(map[string]bool)
			for _, name := range names {
				if distinct[name] {
					continue
				}
				distinct[name] = true
				sent[name] = f.send(t, name, message.Draft{Payload: "payload of " + name, MaxRetries: new(1)})
			}
			for name := range distinct {
				held := f.claimN(t, name, 10)
				wantSame(t, "what is claimed of "+name, payloads(held), []string{"payload of " + name})
				f.fail(t, held[0], "x")
				wantSame(t, "the dead of "+name, ids(f.list(t, message.List{Queue: name, Status: message.Dead})),
					[]string{sent[name].ID})
				wantSame(t, "the count of "+name, f.count(t, name), [4]int{0, 0, 1, 0})
				if got := f.get(t, sent[name]); got.Message.Payload != "payload of "+name || len(got.Attempts) != 1 {
					t.Errorf("Get from %q = %+v", name, got)
				}
			}
			var queues []string
			page, more, err := f.ListQueues(t.Context(), "", "", len(distinct))
			if err != nil || more {
				t.Errorf("ListQueues = more %v, %v, want all", more, err)
			}
			for _, q := range page {
				queues = append(queues, q.Name)
			}
			wantSame(t, "the queues, by bytes", queues, slices.Sorted(maps.Keys(distinct)))
		}},
		{"S023 the same id under two queues is two messages", func(t *testing.T, f *fixture) {
			for _, queue := range []string{"a", "a:1", "a@1"} {
				m := message.Message{
					ID: "msg_" + strings.Repeat("0", 26), Queue: queue, Status: message.Pending, Due: epoch,
					Payload: queue, PayloadBytes: len(queue), MaxRetries: 3, MaxStalls: 3, Receipt: nobodys,
					CreatedAt: epoch, UpdatedAt: epoch, Fingerprint: "f",
				}
				_, created, err := f.store.Enqueue(t.Context(), m)
				if err != nil || !created {
					t.Errorf("Enqueue(%q) = created %v, %v, want a new message", queue, created, err)
				}
			}
			for _, queue := range []string{"a", "a:1", "a@1"} {
				wantSame(t, "the messages", payloads(f.list(t, message.List{Queue: queue, Payload: true})), []string{queue})
			}
		}},
	})
}
