package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSucceedRefusesValues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.processing(t)
	f.refuseValues(t, "POST", m.path()+"/succeed", append(receiptRows(`{"receipt":VALUE}`), invalid{
		"the receipt is capitalised", body("Receipt", m.Receipt), []string{"Receipt unknown Receipt is not known."},
	}))
}

func TestFailRefusesValues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.processing(t)
	text, boolean := invalidIn("error", "must be a string."), invalidIn("permanent", "must be true or false.")
	rows := []invalid{
		{"there is no error", `{}`, []string{"error required error is required."}},
		{"the error is null", `{"error":null}`, text},
		{"the error is a number", `{"error":500}`, text},
		{"the error is an object", `{"error":{"code":500}}`, text},
		{"permanent is null", `{"error":"","permanent":null}`, boolean},
		{"permanent is a word", `{"error":"","permanent":"true"}`, boolean},
		{"permanent is a number", `{"error":"","permanent":1}`, boolean},
		{"permanent is an array", `{"error":"","permanent":[]}`, boolean},
		{
			"it is permanent and to be retried", `{"error":"","permanent":true,"retry_after_seconds":5}`,
			invalidIn("retry_after_seconds", "cannot be given for a permanent failure: it is not retried."),
		},
		{
			"everything is wrong", `{"receipt":1,"permanent":true,"retry_after_seconds":604801,"reason":""}`,
			[]string{
				"receipt invalid receipt must be a string.",
				"error required error is required.",
				"retry_after_seconds invalid retry_after_seconds must be between 0 and 604800 seconds.",
				"retry_after_seconds invalid retry_after_seconds cannot be given for a permanent failure: it is not retried.",
				"reason unknown reason is not known.",
			},
		},
	}
	rows = append(rows, receiptRows(`{"error":"","receipt":VALUE}`)...)
	rows = append(rows, secondsRows(`{"error":"","retry_after_seconds":VALUE}`, "retry_after_seconds",
		"must be between 0 and 604800 seconds.", `604800.001`, `604801`)...)
	f.refuseValues(t, "POST", m.path()+"/fail", rows)
}

func TestExtendRefusesValues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.processing(t)
	rows := []invalid{
		{"there is no receipt", `{}`, []string{"receipt required receipt is required."}},
		{
			"there is no receipt and a bad timeout", `{"processing_timeout":0}`,
			[]string{
				"receipt required receipt is required.",
				"processing_timeout invalid processing_timeout must be between 1 and 43200 seconds.",
			},
		},
	}
	rows = append(rows, receiptRows(`{"receipt":VALUE}`)...)
	rows = append(rows, integerRows(body("receipt", m.Receipt)[:len(body("receipt",
		m.Receipt))-1]+`,"processing_timeout":VALUE}`,
		"processing_timeout", "must be between 1 and 43200 seconds.")...)
	f.refuseValues(t, "POST", m.path()+"/extend", rows)
}

func TestReleaseRefusesValues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.processing(t)
	f.refuseValues(t, "POST", m.path()+"/release", append(receiptRows(`{"receipt":VALUE}`),
		invalid{"there is no receipt", `{}`, []string{"receipt required receipt is required."}}))
}

func TestQueueThatRequiresReceiptsRefusesAnswersWithout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.do(t, "PUT", "/queues/emails", `{"require_receipt":true}`).refusedNot(t)
	m := f.processing(t)
	missing := "receipt required receipt is required."
	f.refuseValues(t, "POST", m.path()+"/succeed", []invalid{
		{"succeed without a body", ``, []string{missing}},
		{"succeed with an empty object", `{}`, []string{missing}},
		{"succeed with an unknown name too", `{"x":1}`, []string{missing, "x unknown x is not known."}},
		{"succeed with a receipt that is none", `{"receipt":7}`, invalidIn("receipt", "must be a string.")},
	})
	f.refuseValues(t, "POST", m.path()+"/fail", []invalid{
		{"fail with an error only", `{"error":"no"}`, []string{missing}},
		{"fail with nothing", `{}`, []string{"error required error is required.", missing}},
		{
			"fail with a bad delay too", `{"error":"no","retry_after_seconds":-1}`,
			[]string{missing, "retry_after_seconds invalid retry_after_seconds must be between 0 and 604800 seconds."},
		},
	})
	f.answerWith(t, m, "succeed")
}

func TestAnswerWithoutReceiptIsForWhoeverHoldsTheMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.do(t, "POST", f.processing(t).path()+"/succeed", "").message(t, 200)
	f.do(t, "POST", f.processing(t).path()+"/succeed", "{}").message(t, 200)
	m := f.processing(t)
	f.do(t, "POST", m.path()+"/fail", `{"error":"no"}`).message(t, 200)
	// The second such call finds it pending.
	if doc := f.do(t, "POST", m.path()+"/fail", `{"error":"no"}`).refused(t, 409,
		"message-conflict"); doc.MessageStatus != "pending" {
		t.Errorf("message_status = %q, want pending", doc.MessageStatus)
	}
}

func TestRepeatedAnswerChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct{ verb, first, again string }{
		{"succeed", `{"receipt":"R"}`, `{"receipt":"R"}`},
		{"fail", `{"receipt":"R","error":"one"}`, `{"receipt":"R","error":"other","permanent":true}`},
		{"fail", `{"receipt":"R","error":"one","permanent":true}`, `{"receipt":"R","error":"","retry_after_seconds":5}`},
		{"release", `{"receipt":"R"}`, `{"receipt":"R"}`},
	} {
		step(t, tt.verb+" "+tt.first, func(t *testing.T) {
			m := f.processing(t)
			with := func(text string) string { return strings.ReplaceAll(text, `"R"`, toJSON(m.Receipt)) }
			first := f.do(t, "POST", m.path()+"/"+tt.verb, with(tt.first)).message(t, 200)
			before := f.stored(t)
			again := f.do(t, "POST", m.path()+"/"+tt.verb, with(tt.again)).message(t, 200)
			if diff := cmp.Diff(first, again); diff != "" {
				t.Errorf("the repeat differs (-first +repeat):\n%s", diff)
			}
			f.unchanged(t, before)
			// A claim makes the receipt old; so the rows do not disturb each other either.
			f.clock.at(time.Hour)
			for f.do(t, "POST", emailsClaim, "").status == 200 {
				continue
			}
			f.clock.at(0)
		})
	}
}

// TestVerbOnMessageInAnyState asks for every verb in every state; the answer is
// 200, 204, or a conflict with the present status.
func TestVerbOnMessageInAnyState(t *testing.T) {
	t.Parallel()
	verbs := []struct {
		name, method, below string
		body                string // R stands for the receipt
		allowed             string // from these states
		repeats             string // in this state it is a repeat
	}{
		{"succeed", "POST", "/succeed", `{"receipt":"R"}`, "processing", "succeeded"},
		{"succeed without receipt", "POST", "/succeed", ``, "processing", ""},
		{"succeed with another receipt", "POST", "/succeed", `{"receipt":"x"}`, "", ""},
		{
			"succeed with a receipt of 200 characters", "POST", "/succeed", `{"receipt":"` + strings.Repeat("中", 200) + `"}`,
			"", "",
		},
		{"fail", "POST", "/fail", `{"receipt":"R","error":"no"}`, "processing", "dead"},
		{"fail without receipt", "POST", "/fail", `{"error":"no"}`, "processing", ""},
		{"fail with another receipt", "POST", "/fail", `{"receipt":"R ","error":"no"}`, "", ""},
		{"extend", "POST", "/extend", `{"receipt":"R","processing_timeout":60}`, "processing", ""},
		{"extend with another receipt", "POST", "/extend", `{"receipt":"r"}`, "", ""},
		{"release", "POST", "/release", `{"receipt":"R"}`, "processing", ""},
		{"release with another receipt", "POST", "/release", `{"receipt":"\u0000"}`, "", ""},
		{"replay", "POST", "/replay", ``, "dead", ""},
		{"delete", "DELETE", "", ``, "pending dead succeeded", ""},
	}
	f := newFixture(t)
	for _, state := range []struct {
		name string
		make func(testing.TB) msg
	}{
		{"pending", f.pending}, {"processing", f.processing}, {"succeeded", f.succeeded}, {"dead", f.dead},
	} {
		for _, v := range verbs {
			step(t, v.name+" of a "+state.name+" message", func(t *testing.T) {
				m := state.make(t)
				receipt := m.Receipt
				if receipt == "" {
					receipt = "no such receipt"
				}
				before := f.stored(t)
				a := f.do(t, v.method, m.path()+v.below, strings.ReplaceAll(v.body, `"R`, `"`+receipt))
				switch {
				case strings.Contains(v.allowed, state.name):
					if a.refusedNot(t); cmp.Equal(before, f.stored(t)) {
						t.Error("nothing has changed")
					}
				case v.repeats == state.name:
					a.refusedNot(t)
					f.unchanged(t, before)
				default:
					if doc := a.refused(t, 409, "message-conflict"); doc.MessageStatus != state.name {
						t.Errorf("message_status = %q, want %q", doc.MessageStatus, state.name)
					}
					f.unchanged(t, before)
				}
				// Out of the way of the next row.
				f.do(t, "POST", m.path()+"/succeed", "")
				f.do(t, "DELETE", m.path(), "")
			})
		}
	}
}

func TestMessageThatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.processing(t)
	f.enqueueOn(t, "others", "x")
	routes := []struct{ method, below, body string }{
		{"GET", "", ""},
		{"DELETE", "", ""},
		{"POST", "/succeed", body("receipt", m.Receipt)},
		{"POST", "/succeed", ""},
		{"POST", "/fail", body("receipt", m.Receipt, "error", "no")},
		{"POST", "/extend", body("receipt", m.Receipt)},
		{"POST", "/release", body("receipt", m.Receipt)},
		{"POST", "/replay", ""},
	}
	for _, tt := range []struct{ name, queue, id string }{
		{"of another queue", "others", m.ID},
		{"of an unknown queue", "unknown", m.ID},
		{"that was never given", "emails", "msg_06H2S2KGG1D5M0000000000009"},
		{"whose prefix is missing", "emails", m.ID[4:]},
		{"whose prefix is capitalised", "emails", "MSG_" + m.ID[4:]},
		{"in small letters", "emails", strings.ToLower(m.ID)},
		{"a character too short", "emails", m.ID[:29]},
		{"a character too long", "emails", m.ID + "0"},
		{"with a letter that Crockford leaves out", "emails", m.ID[:29] + "U"},
		{"with a line feed", "emails", m.ID[:29] + "\n"},
		{"that differs in bits that do not count", "emails", m.ID[:29] + "9"},
		{"a number, as in the seed", "emails", "1"},
		{"that is a word", "emails", "latest"},
		{"a path upwards", "emails", ".."},
		{"with a slash", "emails", "a/b"},
		{"a NUL", "emails", "\x00"},
		{"that is not UTF-8", "emails", "\xff"},
		{"10,000 characters long", "emails", strings.Repeat("A", 10_000)},
		{"that is empty", "emails", ""},
	} {
		step(t, "an id "+tt.name, func(t *testing.T) {
			before := f.stored(t)
			for _, r := range routes {
				doc := f.doRoute(t, r.method+" /queues/{queue}/messages/{id}"+r.below,
					map[string]string{"queue": tt.queue, "id": tt.id}, r.body).refused(t, 404, "not-found")
				if want := "There is no such message in this queue."; doc.Detail != want {
					t.Errorf("detail = %q, want %q", doc.Detail, want)
				}
			}
			f.unchanged(t, before)
		})
	}
}

func TestExtendMovesTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.do(t, "PUT", "/queues/emails", `{"processing_timeout":40}`).refusedNot(t)
	m := f.processing(t)
	for _, tt := range []struct {
		name  string
		after time.Duration
		body  string
		want  time.Duration // end of the lease
	}{
		{"the queue's timeout from now on", 10 * time.Second, ``, 50 * time.Second},
		{"a timeout of its own", 20 * time.Second, `,"processing_timeout":60.0`, 80 * time.Second},
		{"a result that is earlier changes nothing", 21 * time.Second, `,"processing_timeout":1`, 80 * time.Second},
		{
			"a lease that is over can be extended until the sweep acts", 81 * time.Second, `,"processing_timeout":43200`,
			12 * time.Hour,
		},
		{"twelve hours after the claim it ends", 12*time.Hour - time.Second, `,"processing_timeout":43200`, 12 * time.Hour},
	} {
		step(t, tt.name, func(t *testing.T) {
			f.clock.at(tt.after)
			got := f.do(t, "POST", m.path()+"/extend", `{"receipt":"`+m.Receipt+`"`+tt.body+`}`).message(t, 200)
			if *got.LeaseExpiresAt != at(tt.want) || got.Status != "processing" {
				t.Errorf("%s until %s, want %s", got.Status, *got.LeaseExpiresAt, at(tt.want))
			}
		})
	}
	step(t, "after twelve hours it is refused", func(t *testing.T) {
		f.clock.at(12 * time.Hour)
		before := f.stored(t)
		doc := f.do(t, "POST", m.path()+"/extend", body("receipt", m.Receipt)).refused(t, 409, "message-conflict")
		if doc.MessageStatus != "processing" || !strings.Contains(doc.Detail, "12 hours") {
			t.Errorf("problem = %+v", doc)
		}
		f.unchanged(t, before)
	})
}

func TestFailDecidesWhatBecomesOfTheMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	long := strings.Repeat("é", 1_500) // 3,000 bytes
	for _, tt := range []struct {
		name, body string // more members of the body
		retries    int
		want       msg
	}{
		{"the queue's backoff", `"error":"no"`, 3, msg{
			Status: "pending", RetryAfter: new(at(2 * time.Second)),
			LastError: new("no"),
		}},
		{"an empty error", `"error":""`, 3, msg{Status: "pending", RetryAfter: new(at(2 * time.Second)), LastError: new("")}},
		{"a delay of its own", `"error":"no","retry_after_seconds":0.5`, 3, msg{
			Status:     "pending",
			RetryAfter: new(at(500 * time.Millisecond)), LastError: new("no"),
		}},
		{"no delay at all", `"error":"no","retry_after_seconds":0`, 3, msg{Status: "pending", LastError: new("no")}},
		{"a week", `"error":"no","retry_after_seconds":604800,"permanent":false`, 3, msg{
			Status:     "pending",
			RetryAfter: new(at(604_800 * time.Second)), LastError: new("no"),
		}},
		{"the last try", `"error":"no","retry_after_seconds":5`, 1, msg{
			Status: "dead", DeadReason: new("retries_exhausted"),
			DeadAt: new(at(0)), LastError: new("no"),
		}},
		{"a permanent failure", `"error":"no","permanent":true`, 10, msg{
			Status: "dead", DeadReason: new("rejected"),
			DeadAt: new(at(0)), LastError: new("no"),
		}},
		{"a long error is kept to 2,048 bytes", toJSON(map[string]string{"error": long})[1:3011], 3, msg{
			Status:     "pending",
			RetryAfter: new(at(2 * time.Second)), LastError: new(long[:2_048]),
		}},
		{
			"an error of every kind of character", `"error":"a\u0000b\u2028<&>\"\\\ud83d\ude00\u007f"`, 3,
			msg{Status: "pending", RetryAfter: new(at(2 * time.Second)), LastError: new("a\x00b\u2028<&>\"\\😀\x7f")},
		},
	} {
		step(t, tt.name, func(t *testing.T) {
			f.clock.at(-time.Second)
			m := f.do(t, "POST", emailsMessages, body("payload", "x", "max_retries", tt.retries)).message(t, 201)
			held := f.claim(t)
			f.clock.at(0)
			got := f.do(t, "POST", m.path()+"/fail", `{"receipt":"`+held.Receipt+`",`+tt.body+`}`).message(t, 200)
			want := tt.want
			want.ID, want.Queue, want.PayloadBytes, want.RetryCount, want.ClaimCount = m.ID, "emails", 1, 1, 1
			want.MaxRetries, want.MaxStalls, want.CreatedAt, want.UpdatedAt = tt.retries, 3, at(-time.Second), at(0)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the answer differs (-want +got):\n%s", diff)
			}
			// GET shows the whole error and the attempt, a list the first 200 bytes.
			want.Payload, want.Attempts = new("x"), []attempt{{1, at(-time.Second), at(0), "failed", want.LastError}}
			if strings.Contains(tt.body, "true") {
				want.Attempts[0].Outcome = "rejected"
			}
			if diff := cmp.Diff(want, f.get(t, m)); diff != "" {
				t.Errorf("GET differs (-want +got):\n%s", diff)
			}
			listed := f.list(t, emailsMessages)
			if short := (*want.LastError)[:min(len(*want.LastError), 200)]; len(listed) != 1 || *listed[0].LastError != short {
				t.Errorf("list = %v, want last_error %q", listed, short)
			}
			if a := f.do(t, "DELETE", m.path(), ""); a.status != 204 {
				t.Errorf("DELETE = %d", a.status)
			}
		})
	}
}
