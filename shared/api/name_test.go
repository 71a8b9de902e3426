package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/api"
)

func TestQueueNameThatBreaksARuleIsRefusedByEveryRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.pending(t)
	for _, tt := range []struct{ name, queue, rule string }{
		{"is empty", "", "must not be empty"},
		{"has 129 bytes", strings.Repeat("a", 129), "must have at most 128 bytes of UTF-8"},
		{"has 43 characters of 3 bytes", strings.Repeat("中", 43), "must have at most 128 bytes of UTF-8"},
		{"has 2,049 bytes", strings.Repeat("a", 2_049), "must have at most 128 bytes of UTF-8"},
		{"holds a byte that is not UTF-8", "a\xffb", "must be UTF-8 without U+FFFD"},
		{"holds half a character", "a\xe4\xb8", "must be UTF-8 without U+FFFD"},
		{"holds what stands for such a byte in an event", "\ufffd", "must be UTF-8 without U+FFFD"},
		{"holds a surrogate", "\xed\xa0\x80", "must be UTF-8 without U+FFFD"},
		{"holds a slash", "a/b", `must not contain any of / \ ? # %`},
		{"holds a backslash", `a\b`, `must not contain any of / \ ? # %`},
		{"holds a question mark", "a?", `must not contain any of / \ ? # %`},
		{"holds a hash", "#a", `must not contain any of / \ ? # %`},
		{"holds a percent sign", "a%2Fb", `must not contain any of / \ ? # %`},
		{"holds a NUL", "a\x00b", "must not contain control characters"},
		{"holds a line feed", "a\nb", "must not contain control characters"},
		{"ends in a line feed", "a\n", "must not contain control characters"},
		{"holds a delete character", "a\x7f", "must not contain control characters"},
		{"holds a control character of Latin-1", "a\u0085b", "must not contain control characters"},
		{"begins with a blank", " a", "must not begin or end with a blank"},
		{"ends with a blank", "a ", "must not begin or end with a blank"},
		{"is a blank", " ", "must not begin or end with a blank"},
		{"begins with a no-break space", "\u00a0a", "must not begin or end with a blank"},
		{"ends with an ideographic space", "a\u3000", "must not begin or end with a blank"},
		{"is a dot", ".", "must not be . or .."},
		{"is two dots", "..", "must not be . or .."},
		{"is decomposed", "cafe\u0301", "must be in Unicode normalization form C (NFC)"},
		{"holds a character that NFC replaces", "\u212b", "must be in Unicode normalization form C (NFC)"},
		{"holds marks in another order", "a\u0301\u0323", "must be in Unicode normalization form C (NFC)"},
		{"holds decomposed Hangul", "\u1100\u1161", "must be in Unicode normalization form C (NFC)"},
	} {
		step(t, "a name that "+tt.name, func(t *testing.T) {
			before := f.stored(t)
			for _, r := range api.Routes {
				if !strings.Contains(r.Key, "{queue}") {
					continue
				}
				params := map[string]string{"queue": tt.queue}
				if strings.Contains(r.Key, "{id}") {
					params["id"] = m.ID
				}
				doc := f.doRoute(t, r.Key, params, "").refused(t, 400, "bad-request")
				if want := "The queue name " + tt.rule + "."; doc.Detail != want {
					t.Errorf("%s: detail = %q, want %q", r.Key, doc.Detail, want)
				}
			}
			f.unchanged(t, before)
		})
	}
}

// goodNames are names of queues.
var goodNames = []string{
	"a", "0", "orders", "a-b", "a_b", "a.b", "...", ".a", "a..", "dead", "dlq_some_queue", "orders-dlq", "queues",
	"messages", "claim",
	strings.Repeat("a", 128), strings.Repeat("é", 64), strings.Repeat("中", 42) + "aa", strings.Repeat("😀", 32),
	"a b", "a  b", "a\u00a0b", "naïve", "中文", "日本語のキュー", "😀", "👩‍👩‍👧", "Ⅷ", "ﬁ", "\u200ba", "a\u2028b", "ß", "İ",
	`"`, `""`, "'", "`", "<a&b>", "a+b", "a=b&c", "a;b", "a,b", "a:b", "@a", "$a", "$default", "!", "*", "~", "^", "|",
	"{a}", "{queue}",
	"[a]", "(a)", "msg_06H2S2KGG1D5M0000000000008",
	"null", "true", "-", "--", "-1", "1e5", "A", "ＡＢＣ", "\ufeffa", "\U0010ffff",
}

func TestQueueNameThatBreaksNoRuleIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range goodNames {
		step(t, name, func(t *testing.T) {
			params := map[string]string{"queue": name}
			m := f.doRoute(t, "POST /queues/{queue}/messages", params, body("payload", name)).message(t, 201)
			if m.Queue != name {
				t.Errorf("queue = %q", m.Queue)
			}
			page := f.doRoute(t, "GET /queues/{queue}/messages", params, "").page(t)
			if diff := cmp.Diff([]string{m.ID}, ids(page.Messages)); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
			held := f.doRoute(t, "POST /queues/{queue}/claim", params, "").message(t, 200)
			if held.ID != m.ID || *held.Payload != name {
				t.Errorf("claim = %s %q, want %s %q", held.ID, *held.Payload, m.ID, name)
			}
		})
	}
	// None of them is another one in the store's eyes.
	if n := len(f.stored(t)); n != 2*len(goodNames) {
		t.Errorf("%d queues and messages are stored, want %d", n, 2*len(goodNames))
	}
}
