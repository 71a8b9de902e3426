package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
)

// The limits of a payload: in bytes, and in bytes as JSON text.
const (
	maxPayload     = 262_144
	maxPayloadJSON = 440_000
)

// quoted writes a text as Redrive does: nothing is escaped that need not be.
func quoted(tb testing.TB, text string) string {
	tb.Helper()
	b, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// TestSizeOfAPayloadAgreesWithWhatIsWritten: the rule for what is accepted must be
// about the text as it is written in answers.
func TestSizeOfAPayloadAgreesWithWhatIsWritten(t *testing.T) {
	t.Parallel()
	f := fixtureOn(canned{})
	for _, kind := range []string{
		"a", "</&", `"`, `\`, "\x00", "\b", "\t", "\n", "\v", "\f", "\r", "\x1f", " \x7f", "\u0080é", "\u2028\u2029",
		"\ufeff\ufffd\uffff", "\U0010ffff😀", "a\x00", `\"é`,
	} {
		step(t, fmt.Sprintf("%q", kind), func(t *testing.T) {
			text := atLimit(t, kind)
			f.big = quoted(t, text)
			a := f.do(t, "POST", emailsMessages, `{"payload":`+f.big+`}`)
			if m := a.message(t, 201); *m.Payload != "BIG" || m.PayloadBytes != len(text) {
				t.Errorf("the payload of %d bytes is not written as jsontext.AppendQuote writes it", len(text))
			}
			f.do(t, "POST", emailsMessages, `{"payload":`+quoted(t, text+"a")+`}`).refused(t, 413, "payload-too-large")
		})
	}
}

// atLimit makes the longest payload of this kind that is allowed.
func atLimit(tb testing.TB, kind string) string {
	tb.Helper()
	asJSON := len(quoted(tb, kind)) - len(`""`)
	text := strings.Repeat(kind, min(maxPayload/len(kind), (maxPayloadJSON-len(`""`))/asJSON))
	return text + strings.Repeat("a", min(maxPayload-len(text), maxPayloadJSON-len(quoted(tb, text))))
}

func TestPayloadAtTheLimitComesBackByteForByte(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, kind := range []string{"a", "\x00", `"`, "中😀"} {
		step(t, fmt.Sprintf("%q", kind), func(t *testing.T) {
			text := atLimit(t, kind)
			f.big = quoted(t, text)
			before := f.stored(t)
			f.do(t, "POST", emailsMessages, `{"payload":`+quoted(t, text+"a")+`}`).refused(t, 413, "payload-too-large")
			f.unchanged(t, before)
			m := f.do(t, "POST", emailsMessages, `{"payload":`+f.big+`}`).message(t, 201)
			for what, got := range map[string]msg{
				"claim": f.claim(t), "GET": f.get(t, m),
				"list": f.list(t, emailsMessages+"?payload=true")[0],
			} {
				if *got.Payload != "BIG" || got.PayloadBytes != len(text) {
					t.Errorf("%s shows another payload, of %d bytes", what, got.PayloadBytes)
				}
			}
			f.do(t, "POST", m.path()+"/succeed", "").message(t, 200)
			if d := f.do(t, "DELETE", m.path(), ""); d.status != 204 {
				t.Errorf("DELETE = %d", d.status)
			}
		})
	}
}

func TestPayloadIsMeasuredInBytesWhateverItsSpelling(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct {
		name, body string
		status     int
	}{
		{"escapes that need not be count as what they mean", `{"payload":"` + strings.Repeat(`\u0061`, 170_000) + `"}`, 201},
		{"a pair of surrogates counts four bytes", `{"payload":"` + strings.Repeat(`\ud83d\ude00`, 65_536) + `"}`, 201},
		{"a pair of surrogates too many", `{"payload":"` + strings.Repeat(`\ud83d\ude00`, 65_537) + `"}`, 413},
		{"102,400 emoji have 409,600 bytes", body("payload", strings.Repeat("😀", 102_400)), 413},
		{"409,600 letters", body("payload", strings.Repeat("a", 409_600)), 413},
		{"262,144 bytes", body("payload", strings.Repeat("a", maxPayload)), 201},
		{"262,145 bytes", body("payload", strings.Repeat("a", maxPayload+1)), 413},
		{"131,072 letters of two bytes", body("payload", strings.Repeat("é", maxPayload/2)), 201},
		{"131,073 letters of two bytes", body("payload", strings.Repeat("é", maxPayload/2+1)), 413},
		{"a payload too large in base64", body("payload", strings.Repeat("a", maxPayload+1)), 413},
	} {
		step(t, tt.name, func(t *testing.T) {
			before := f.stored(t)
			a := f.do(t, "POST", emailsMessages, tt.body, inBase64)
			if tt.status == 413 {
				a.refused(t, 413, "payload-too-large")
				f.unchanged(t, before)
			} else {
				a.message(t, tt.status)
			}
		})
	}
}

// worst is the payload of which most fits into the fewest bytes: each becomes six.
var worst = strings.Repeat("\x01", (maxPayloadJSON-len(`""`))/len(`\u0001`))

func TestTenClaimedMessagesAlwaysFitIntoOneAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	queue := strings.Repeat(`"`, 128) // each is written as two bytes
	params := map[string]string{"queue": queue}
	var want []string
	for range 10 {
		want = append(want, f.put(t, queue, worst))
	}
	for _, wait := range []string{"0", "1"} {
		var got listedClaim
		a := f.doRoute(t, "POST /queues/{queue}/claim", params, `{"max_messages":10}`) // its size is checked for every answer
		a.into(t, 200, &got)
		if diff := cmp.Diff(want, ids(got.Messages)); diff != "" {
			t.Errorf("claim of ten (-want +got):\n%s", diff)
		}
		for _, m := range got.Messages {
			if *m.Payload != "BIG" || wait == "1" && len(*m.LastError) != 200 {
				t.Errorf("%s has another payload, or the error %v", m.ID, m.LastError)
			}
			f.doRoute(t, "POST /queues/{queue}/messages/{id}/fail", map[string]string{"queue": queue, "id": m.ID},
				`{"error":"`+strings.Repeat(`\u0001`, 2_048)+`","retry_after_seconds":`+wait+`}`).message(t, 200)
		}
		f.clock.at(time.Second)
	}
}

// put enqueues past the handler, and makes the payload the fixture's big.
func (f *fixture) put(tb testing.TB, queue, payload string) (id string) {
	tb.Helper()
	m, _, err := f.Enqueue(tb.Context(), queue, message.Draft{Payload: payload})
	if err != nil {
		tb.Fatal(err)
	}
	if f.big == "" {
		f.big = quoted(tb, payload)
	}
	return m.ID
}

func TestListStopsEarlyRatherThanOverrun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		payload   string
		n         int
		leastPage int // messages on all pages but the last
	}{
		{"S033: one hundred messages of 100,000 bytes", strings.Repeat("p", 100_000), 100, 44},
		{"messages of control characters at the limit", worst, 12, 10},
		{"messages of three-byte characters at the limit", strings.Repeat("中", maxPayload/3), 19, 17},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var want []string
			for i := range tt.n {
				want = append(want, f.put(t, "emails", tt.payload))
				if i%20 == 0 { // so that a page ends within one state, and between two
					f.claim(t)
				}
			}
			var got []string
			ask := emailsMessages + "?limit=250&payload=true"
			for next := ask; next != ""; {
				page := f.do(t, "GET", next, "").page(t)
				got = append(got, ids(page.Messages)...)
				for _, m := range page.Messages {
					if *m.Payload != "BIG" {
						t.Errorf("%s has another payload", m.ID)
					}
				}
				if next = ""; page.NextCursor != nil {
					if len(page.Messages) < tt.leastPage {
						t.Errorf("a page has %d messages, at least %d fit", len(page.Messages), tt.leastPage)
					}
					next = ask + "&cursor=" + *page.NextCursor
				}
			}
			if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
				t.Errorf("ids on all pages (-want +got):\n%s", diff)
			}
			// Without payloads all of them fit on one page.
			if got := f.list(t, emailsMessages+"?limit=250"); len(got) != tt.n {
				t.Errorf("%d messages without payloads, want %d", len(got), tt.n)
			}
		})
	}
}

// TestListLeavesRoomForItsEnd: a message that would fill the page to the last byte
// comes on the next one, for the cursor must follow.
func TestListLeavesRoomForItsEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 17 {
		f.put(t, "emails", strings.Repeat("a", maxPayload))
	}
	f.put(t, "emails", "")
	one := len(f.do(t, "GET", emailsMessages+"?payload=true&order=desc&limit=1", "").body)
	all := len(f.do(t, "GET", emailsMessages+"?payload=true", "").body)
	frame := len(`{"messages":[],"next_cursor":""}`) + 70
	f.put(t, "emails", strings.Repeat("b", maxAnswer-all-(one-frame)-30))
	f.put(t, "emails", "last")
	// How long an answer may be is checked for every answer.
	got, pages := f.walk(t, emailsMessages, "payload", "true")
	if len(got) != 20 || pages != 2 {
		t.Errorf("%d messages on %d pages, want 20 on 2", len(got), pages)
	}
}

func TestAnswerOfMoreThanOneMegabyteIsInBase64(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 5 {
		f.put(t, "emails", strings.Repeat("a", 220_000))
	}
	// That base64 and length agree is checked for every answer.
	if a := f.do(t, "GET", emailsMessages+"?payload=true",
		""); !a.event.IsBase64Encoded || a.header["content-type"] != "application/json" {
		t.Errorf("base64 = %v, headers %v, want it for %d bytes", a.event.IsBase64Encoded, a.header, len(a.body))
	}
	if a := f.do(t, "GET", emailsMessages+"?payload=true&limit=4", ""); a.event.IsBase64Encoded {
		t.Errorf("base64 for %d bytes", len(a.body))
	}
}
