package history_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/local/prove/history"
	"github.com/redrivehq/redrive/shared/message"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is a time so many milliseconds after the beginning.
func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// script writes a history of one message: what a right server answers, to be
// spoiled.
type script struct {
	history.History
	m       history.Message
	claimed time.Time // last
	now     int       // milliseconds
}

func newScript() *script {
	return &script{
		History: history.History{Began: began, Queues: map[string]message.Settings{"q": message.DefaultSettings()}},
		m: history.Message{
			ID: "m", Queue: "q", Status: message.Pending, MaxRetries: 3, MaxStalls: 3, CreatedAt: at(0), UpdatedAt: at(0),
		},
	}
}

// call adds a call that takes ten milliseconds, and is carried out after five.
func (s *script) call(verb history.Verb, status int, change func(o *history.Operation)) *history.Operation {
	start := s.now
	s.now += 10
	o := history.Operation{
		Verb: verb, Queue: "q", ID: "m", Status: status,
		Start: time.Duration(start) * time.Millisecond, End: time.Duration(s.now) * time.Millisecond,
	}
	if change != nil {
		change(&o)
	}
	if o.Shown == nil && (status == 200 || status == 201) {
		shown := s.m
		o.Shown = &shown
	}
	s.Operations = append(s.Operations, o)
	s.now++
	return &s.Operations[len(s.Operations)-1]
}

func (s *script) when() time.Time { return at(s.now - 5) }

func (s *script) enqueue() *history.Operation {
	return s.call(history.Enqueue, 201, func(o *history.Operation) {
		o.Tag = "t"
		s.m.CreatedAt, s.m.UpdatedAt = s.when(), s.when()
	})
}

func (s *script) claim(receipt string) *history.Operation {
	return s.call(message.VerbClaim, 200, func(o *history.Operation) {
		s.m.Status, s.m.ClaimCount, s.m.UpdatedAt = message.Processing, s.m.ClaimCount+1, s.when()
		s.m.LeaseExpiresAt, s.m.RetryAfter = s.when().Add(30*time.Second), time.Time{}
		s.claimed = s.when()
		shown := s.m
		shown.Receipt = receipt
		o.Receipt, o.Shown = receipt, &shown
	})
}

func (s *script) fail(receipt string) *history.Operation {
	return s.call(message.VerbFail, 200, func(o *history.Operation) {
		o.Receipt, o.Error = receipt, "no"
		s.m.Status, s.m.RetryCount = message.Pending, s.m.RetryCount+1
		s.m.UpdatedAt, s.m.LeaseExpiresAt = s.when(), time.Time{}
		s.m.RetryAfter = s.when().Add(time.Duration(1<<s.m.RetryCount) * time.Second)
		text := "no"
		s.m.LastError = &text
		s.ended(message.OutcomeFailed, &text)
		shown := s.m
		shown.Attempts = nil
		o.Shown = &shown
	})
}

func (s *script) succeed(receipt string) *history.Operation {
	return s.call(message.VerbSucceed, 200, func(o *history.Operation) {
		o.Receipt = receipt
		s.m.Status, s.m.UpdatedAt, s.m.LeaseExpiresAt, s.m.RetryAfter = message.Succeeded, s.when(), time.Time{}, time.Time{}
		shown := s.m
		shown.Attempts = nil
		o.Shown = &shown
		s.ended(message.OutcomeSucceeded, nil)
	})
}

// ended adds to the history how the last claim ended.
func (s *script) ended(outcome message.Outcome, text *string) {
	s.m.Attempts = append(slices.Clone(s.m.Attempts), history.Attempt{
		Number: s.m.ClaimCount, ClaimedAt: s.claimed, EndedAt: s.m.UpdatedAt, Outcome: outcome, Error: text,
	})
}

func (s *script) release(receipt string) *history.Operation {
	return s.call(message.VerbRelease, 200, func(o *history.Operation) {
		o.Receipt = receipt
		s.m.Status, s.m.UpdatedAt, s.m.LeaseExpiresAt = message.Pending, s.when(), time.Time{}
	})
}

func (s *script) extend(receipt string, timeout time.Duration) *history.Operation {
	return s.call(message.VerbExtend, 200, func(o *history.Operation) {
		o.Receipt, o.Timeout = receipt, timeout
		s.m.UpdatedAt, s.m.LeaseExpiresAt = s.when(), s.when().Add(timeout)
	})
}

// stall lets the lease run out, and a sweep see it.
func (s *script) stall() {
	end := s.m.LeaseExpiresAt
	s.now += 33_000
	text := "lease ran out at " + end.Format("2006-01-02T15:04:05.000Z") + " without an answer"
	s.m.Status, s.m.StallCount, s.m.LastError, s.m.LeaseExpiresAt = message.Pending, s.m.StallCount+1, &text, time.Time{}
	s.m.UpdatedAt = end.Add(2500 * time.Millisecond)
	s.m.RetryAfter = s.m.UpdatedAt.Add(2 * time.Second)
	s.ended(message.OutcomeStalled, &text)
}

func (s *script) get() *history.Operation { return s.call(history.Get, 200, nil) }

// life is a whole one: a failure, a stall, a success.
func life() *script {
	s := newScript()
	s.enqueue()
	s.claim("r1")
	s.fail("r1")
	s.now += 2_000
	s.claim("r2")
	s.stall()
	s.get()
	s.now += 2_000
	s.claim("r3")
	s.succeed("r3")
	s.get()
	return s
}

func TestARightHistoryIsAccepted(t *testing.T) {
	t.Parallel()
	s := life()
	r := s.Check()
	if len(r.Violations) > 0 {
		t.Errorf("Check = %v, want no violations", r.Violations)
	}
	if want := (history.Report{Operations: 8, Messages: 1, Acknowledged: 6}); !reflect.DeepEqual(*r, want) {
		t.Errorf("Check = %+v, want %+v", *r, want)
	}
}

// unknown takes the answer away.
func unknown(o *history.Operation) {
	o.End, o.Status, o.Found, o.Shown = history.Never, 0, "", nil
	if o.Verb == message.VerbClaim {
		o.ID, o.Receipt, o.Max = "", "", 1
	}
}

func TestAnyAnswerMayBeMissing(t *testing.T) {
	t.Parallel()
	const claimThatStalls = 3
	for missing, o := range life().Operations {
		if o.Verb == message.VerbClaim && missing != claimThatStalls {
			continue // who does not know the receipt cannot go on as this history does
		}
		s := life()
		unknown(&s.Operations[missing])
		if missing == 0 { // its message is known by the payload that others saw
			s.Operations[0].ID, s.Operations[1].Tag = "", "t"
		}
		r := s.Check()
		if len(r.Violations) > 0 {
			t.Errorf("without the answer to call %d (%v): %v, want no violations", missing, o.Verb, r.Violations)
		}
		if unseen := r.Unseen; (unseen == 1) != (missing == claimThatStalls) {
			t.Errorf("without the answer to call %d (%v): %d claims unseen", missing, o.Verb, unseen)
		}
	}
	s := life()
	for i := range s.Operations {
		if s.Operations[i].Verb != message.VerbClaim {
			unknown(&s.Operations[i])
		}
	}
	if r := s.Check(); len(r.Violations) > 0 || r.Unknown != 5 {
		t.Errorf("with the answers to claims only: %v, %d of unknown outcome, want no violations, 5", r.Violations, r.Unknown)
	}
}

func TestWhatMustNotHappenIsFound(t *testing.T) {
	t.Parallel()
	last := func(s *script) *history.Operation { return &s.Operations[len(s.Operations)-1] }
	for _, tt := range []struct {
		name  string
		kind  history.Kind
		spoil func(s *script)
	}{
		{"a message is gone in the end", history.Lost, func(s *script) {
			last(s).Status, last(s).Shown = 404, nil
		}},
		{"a message is handed out under a lease that runs", history.HeldTwice, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			s.claim("r2")
		}},
		{"one claim is handed out to two", history.HeldTwice, func(s *script) {
			*s = *newScript()
			s.enqueue()
			again := *s.claim("r1")
			shown := *again.Shown
			shown.Receipt = "r2"
			again.Receipt, again.Shown = "r2", &shown
			s.Operations = append(s.Operations, again)
		}},
		{"a receipt is handed out twice", history.HeldTwice, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			s.succeed("r1")
			other := s.Operations[1]
			shown := *other.Shown
			shown.ID, other.ID, other.Shown = "m2", "m2", &shown
			s.Operations = append(s.Operations, other)
		}},
		{"a failure is counted twice", history.CountedTwice, func(s *script) {
			for i := range s.Operations[2:] {
				if shown := s.Operations[i+2].Shown; shown.RetryCount > 0 {
					shown.RetryCount++
				}
			}
		}},
		{"more attempts are counted than there were", history.CountedTwice, func(s *script) {
			last(s).Shown.StallCount += 2
		}},
		{"a lease is ended before its time", history.HeldTwice, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			lease := s.m.LeaseExpiresAt
			s.stall()
			s.now -= 5_000
			s.m.UpdatedAt, s.m.RetryAfter = lease.Add(-time.Second), lease
			s.claim("r2")
		}},
		{"a message is claimed before it is due", history.Impossible, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			s.fail("r1")
			s.claim("r2")
		}},
		{"a message is claimed before it is due, as of then", history.Impossible, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			s.fail("r1")
			due := s.m.RetryAfter
			early := s.claim("r2")
			early.Shown.UpdatedAt, early.Shown.LeaseExpiresAt = due, due.Add(30*time.Second)
		}},
		{"an answer under an old receipt counts", history.Impossible, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			s.fail("r1")
			s.now += 2_000
			s.claim("r2")
			s.succeed("r1")
		}},
		{"a delay is wrong", history.Impossible, func(s *script) {
			s.Operations[2].Shown.RetryAfter = s.Operations[2].Shown.RetryAfter.Add(time.Second)
		}},
		{"a right answer is refused", history.Impossible, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			s.call(message.VerbSucceed, 409, func(o *history.Operation) { o.Receipt, o.Found = "r1", message.Processing })
		}},
		{"a change is not seen by a later read", history.Impossible, func(s *script) {
			*s = *newScript()
			s.enqueue()
			before := s.m
			s.claim("r1")
			s.call(history.Get, 200, func(o *history.Operation) { o.Shown = &before })
		}},
		{"a lease is extended, and ends before that", history.HeldTwice, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			s.now += 29_000
			s.extend("r1", time.Minute)
			s.m.LeaseExpiresAt = s.claimed.Add(30 * time.Second)
			s.stall()
			s.claim("r2")
		}},
		{"more messages are claimed than anybody asked for", history.CountedTwice, func(s *script) {
			*s = *newScript()
			s.enqueue()
			unknown(s.claim(""))
			s.m.ClaimCount, s.m.Status, s.m.LeaseExpiresAt = 2, message.Processing, at(90_000)
			s.get()
		}},
		{"a claim took place that nobody made", history.Impossible, func(s *script) {
			s.m.ClaimCount++
			s.get()
		}},
		{"a stall is followed by another delay than its own", history.Impossible, func(s *script) {
			s.Operations[4].Shown.RetryAfter = s.Operations[4].Shown.RetryAfter.Add(time.Second)
		}},
		{"the delay that a failure asks for is ignored", history.Impossible, func(s *script) {
			s.Operations[2].RetryAfter = new(5 * time.Second)
		}},
		{"a message is made twice of one enqueue", history.Impossible, func(s *script) {
			other := *s.get()
			shown := *other.Shown
			shown.ID, other.ID, other.Shown = "m2", "m2", &shown
			s.Operations = append(s.Operations, other)
		}},
		{"an enqueue without a key is answered as a repeat", history.Impossible, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.call(history.Enqueue, 200, nil)
		}},
		{"a key is refused that belongs to nothing", history.Impossible, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.call(message.VerbDelete, 204, nil)
			s.call(history.Enqueue, 422, func(o *history.Operation) { o.Key = true })
		}},
		{"a success is refused, and counts", history.Impossible, func(s *script) {
			*s = *newScript()
			s.Lossy = true
			s.enqueue()
			s.claim("r1")
			s.succeed("r1")
			done := &s.Operations[2]
			done.Status, done.Found, done.Shown = 409, message.Processing, nil
			s.get()
		}},
		{"a refusal names a state that there was not", history.Impossible, func(s *script) {
			s.call(message.VerbReplay, 409, func(o *history.Operation) { o.Found = message.Pending })
		}},
		{"a message that is held is deleted", history.Impossible, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			s.call(message.VerbDelete, 204, nil)
		}},
		{"a message is not found while it is there", history.Impossible, func(s *script) {
			s.call(message.VerbReplay, 404, nil)
			s.get()
		}},
		{"an attempt is missing", history.Misanswered, func(s *script) {
			last(s).Shown.Attempts = last(s).Shown.Attempts[1:]
		}},
		{"attempts do not ascend", history.Misanswered, func(s *script) {
			slices.Reverse(last(s).Shown.Attempts)
		}},
		{"an attempt ended in another way", history.Misanswered, func(s *script) {
			last(s).Shown.Attempts[0].Outcome = message.OutcomeStalled
		}},
		{"an attempt has another reason", history.Misanswered, func(s *script) {
			last(s).Shown.Attempts[0].Error = nil
		}},
		{"an attempt began at another time", history.Misanswered, func(s *script) {
			last(s).Shown.Attempts[1].ClaimedAt = at(1)
		}},
		{"an attempt is of a claim to come", history.Misanswered, func(s *script) {
			last(s).Shown.Attempts[2].Number++
		}},
		{"a failure is shown as a rejection", history.Misanswered, func(s *script) {
			last(s).Shown.Attempts[0].Outcome = message.OutcomeRejected
		}},
		{"a release is shown as an attempt", history.Misanswered, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.claim("r1")
			s.release("r1")
			s.ended(message.OutcomeFailed, nil)
			s.get()
		}},
		{"a deleted message comes back", history.Impossible, func(s *script) {
			*s = *newScript()
			s.enqueue()
			s.call(message.VerbDelete, 204, nil)
			s.get()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := life()
			tt.spoil(s)
			r := s.Check()
			if r.Count(tt.kind) == 0 {
				t.Errorf("Check = %v, want it %s", r.Violations, tt.kind)
			}
			var picture bytes.Buffer
			short := s.Of("m").Shortest()
			if err := short.Draw(&picture); err != nil || !strings.Contains(picture.String(), "<html") {
				t.Errorf("Draw = %.60s…, %v, want a page", picture.String(), err)
			}
			if tt.kind == history.Impossible && len(short.Operations) > len(s.Operations) {
				t.Errorf("the shortest history has %d calls, of %d", len(short.Operations), len(s.Operations))
			}
		})
	}
}

// What looks wrong, and is not.
func TestWhatMayHappenIsAccepted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		write func(s *script)
	}{
		{"a message is released, and claimed at once", func(s *script) {
			s.claim("r1")
			s.release("r1")
			s.claim("r2")
			s.succeed("r2")
			s.get()
		}},
		{"a lease is extended by less than it has", func(s *script) {
			s.claim("r1")
			s.call(message.VerbExtend, 200, func(o *history.Operation) { o.Receipt, o.Timeout = "r1", time.Second })
			s.succeed("r1")
		}},
		{"a claim whose answer is missing takes the message, and nobody sees that but a delete", func(s *script) {
			unknown(s.claim(""))
			s.call(message.VerbDelete, 409, func(o *history.Operation) { o.Found = message.Processing })
			s.now += 40_000
			s.call(message.VerbDelete, 204, nil)
		}},
		{"two say the same at once, without a receipt", func(s *script) {
			s.claim("r1")
			first := *s.succeed("r1")
			first.Receipt = ""
			s.Operations[len(s.Operations)-1] = first
			s.Operations = append(s.Operations, first)
			s.get()
		}},
		{"a key is refused that belongs to another content", func(s *script) {
			s.call(history.Enqueue, 422, func(o *history.Operation) { o.Key = true })
			s.get()
		}},
		{"a key makes a message anew after it was deleted", func(s *script) {
			s.Operations[0].Key = true
			s.claim("r1")
			s.succeed("r1")
			s.call(message.VerbDelete, 204, nil)
			s.m = newScript().m
			s.enqueue().Key = true
			s.claim("r2")
			s.get()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScript()
			s.enqueue()
			tt.write(s)
			if r := s.Check(); len(r.Violations) > 0 {
				t.Errorf("Check = %v, want no violations", r.Violations)
			}
		})
	}
}

func TestMessagesThatAreNotSettledInTheEndAreCounted(t *testing.T) {
	t.Parallel()
	s := newScript()
	s.enqueue()
	s.get()
	if r := s.Check(); r.Unfinished != 1 {
		t.Errorf("Check = %+v, want 1 unfinished", *r)
	}
}

func TestTheShortestHistoryEndsWithWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := newScript()
	s.enqueue()
	s.get()
	s.claim("r1")
	s.get()
	s.call(message.VerbSucceed, 409, func(o *history.Operation) { o.Receipt, o.Found = "other", message.Processing })
	s.claim("r2") // under the lease of r1
	s.get()
	s.succeed("r2")
	s.get()
	short := s.Shortest()
	var verbs []history.Verb
	for _, o := range short.Operations {
		verbs = append(verbs, o.Verb)
	}
	if want := []history.Verb{history.Enqueue, message.VerbClaim, message.VerbClaim}; !slices.Equal(verbs, want) {
		t.Errorf("the shortest history is %v, want %v", verbs, want)
	}
}

func TestARefusalMayHideAnEffectWhereAnswersGetLost(t *testing.T) {
	t.Parallel()
	for lossy, want := range map[bool]int{false: 1, true: 0} {
		s := newScript()
		s.Lossy = lossy
		s.enqueue()
		s.claim("r1")
		s.fail("r1") // it counts, and is refused: by then the message has moved on
		failed := &s.Operations[2]
		failed.Status, failed.Found, failed.Shown = 409, message.Succeeded, nil
		s.now += 2_000
		s.claim("r2")
		s.succeed("r2")
		failed.End = s.Operations[4].End
		s.get()
		if r := s.Check(); r.Count(history.Impossible) != want {
			t.Errorf("lossy %v: Check = %v, want %d impossible", lossy, r.Violations, want)
		}
	}
}
