package storetest

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testRepeats sends every request more than once: a copy may come late, or a
// caller may not have heard the answer.
func testRepeats(t *testing.T, open Open) {
	answers := []struct {
		verb   message.Verb
		answer func(*testing.T, *fixture, message.Message, string) (message.Message, error)
	}{
		{message.VerbSucceed, func(t *testing.T, f *fixture, m message.Message, _ string) (message.Message, error) {
			t.Helper()
			return f.Succeed(t.Context(), emails, m.ID, &m.Receipt)
		}},
		{message.VerbFail, func(t *testing.T, f *fixture, m message.Message, text string) (message.Message, error) {
			t.Helper()
			return f.Fail(t.Context(), emails, m.ID, message.Failure{Receipt: &m.Receipt, Error: text})
		}},
		{message.VerbRelease, func(t *testing.T, f *fixture, m message.Message, _ string) (message.Message, error) {
			t.Helper()
			return f.Release(t.Context(), emails, m.ID, &m.Receipt)
		}},
	}
	for _, first := range answers {
		for _, second := range answers {
			t.Run("a "+string(first.verb)+" is followed by a "+string(second.verb), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, open)
				m := f.held(t, emails)
				done, err := first.answer(t, f, m, "first")
				wantError(t, "the first answer", err, nil)
				before := f.get(t, m)
				f.at(answeredAfter + time.Second)
				got, err := second.answer(t, f, m, "second")
				if first.verb == second.verb {
					wantError(t, "the repeat", err, nil)
					wantSame(t, "the answer to the repeat", got, done)
				} else {
					wantError(t, "the other answer", err, conflict(second.verb, done.Status, message.ReasonState))
				}
				wantSame(t, "what is stored", f.get(t, m), before)
			})
		}
	}
	for _, tt := range answers[1:] { // after a success nothing follows
		t.Run("a "+string(tt.verb)+" repeated after the next claim is refused, and until then is not", func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			m := f.held(t, emails)
			_, err := tt.answer(t, f, m, "first")
			wantError(t, "the answer", err, nil)
			f.at(time.Hour)
			_, err = tt.answer(t, f, m, "again")
			wantError(t, "the repeat before the claim", err, nil)
			next := f.claim(t)
			before := f.get(t, m)
			_, err = tt.answer(t, f, m, "again")
			wantError(t, "the repeat after the claim", err, conflict(tt.verb, message.Processing, message.ReasonReceipt))
			wantSame(t, "what is stored", f.get(t, m), before)
			f.succeed(t, next)
			_, err = tt.answer(t, f, m, "again")
			wantError(t, "the repeat after the success", err, conflict(tt.verb, message.Succeeded, message.ReasonState))
			f.wantStatus(t, m, message.Succeeded)
		})
	}
	testCopies(t, open)
	runRows(t, open, []row{
		{"a permanent failure repeats a plain one, and the other way round", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			f.fail(t, m, "plain")
			before := f.get(t, m)
			got := f.reject(t, m, "permanent")
			wantSame(t, "the answer", got, without(before.Message))
			wantSame(t, "what is stored", f.get(t, m), before)

			m = f.dead(t, "orders")
			before = f.get(t, m)
			got, err := f.Fail(t.Context(), "orders", m.ID, message.Failure{Receipt: &m.Receipt, RetryAfter: new(time.Hour)})
			wantError(t, "Fail", err, nil)
			wantSame(t, "the answer", got, without(before.Message))
			wantSame(t, "what is stored", f.get(t, m), before)
		}},
		{"a failure repeated after a replay is refused", func(t *testing.T, f *fixture) {
			m := f.dead(t, emails)
			f.at(time.Hour)
			f.replay(t, m)
			before := f.get(t, m)
			_, err := f.Fail(t.Context(), emails, m.ID, message.Failure{Receipt: &m.Receipt, Error: "again"})
			wantError(t, "Fail", err, conflict(message.VerbFail, message.Pending, message.ReasonState))
			wantSame(t, "what is stored", f.get(t, m), before)
		}},
		{"two answers without a receipt count once", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			_, err := f.Fail(t.Context(), emails, m.ID, message.Failure{Error: "first"})
			wantError(t, "Fail", err, nil)
			before := f.get(t, m)
			_, err = f.Fail(t.Context(), emails, m.ID, message.Failure{Error: "second"})
			wantError(t, "Fail again", err, conflict(message.VerbFail, message.Pending, message.ReasonState))
			wantSame(t, "what is stored", f.get(t, m), before)

			m = f.held(t, "orders")
			_, err = f.Succeed(t.Context(), "orders", m.ID, nil)
			wantError(t, "Succeed", err, nil)
			before = f.get(t, m)
			_, err = f.Succeed(t.Context(), "orders", m.ID, nil)
			wantError(t, "Succeed again", err, conflict(message.VerbSucceed, message.Succeeded, message.ReasonState))
			wantSame(t, "what is stored", f.get(t, m), before)
		}},
		{"the holder's repeat is known after an answer without a receipt", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			_, err := f.Fail(t.Context(), emails, m.ID, message.Failure{Error: "x"})
			wantError(t, "Fail", err, nil)
			before := f.get(t, m)
			f.fail(t, m, "y")
			wantSame(t, "what is stored", f.get(t, m), before)
		}},
		{"a second replay is refused", func(t *testing.T, f *fixture) {
			m := f.dead(t, emails)
			f.replay(t, m)
			before := f.get(t, m)
			_, err := f.Replay(t.Context(), emails, m.ID)
			wantError(t, "Replay", err, conflict(message.VerbReplay, message.Pending, message.ReasonState))
			wantSame(t, "what is stored", f.get(t, m), before)
		}},
		{"S105 an enqueue that arrives twice makes one message", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			// With a random id the second copy is one's own: it may be called created.
			if _, _, err := f.store.Enqueue(t.Context(), m); err != nil {
				t.Errorf("Enqueue of the same message = %v, want it found", err)
			}
			wantSame(t, "the messages", f.list(t, message.List{Queue: emails, Payload: true}), []message.Message{m})
		}},
		{"S105 an enqueue that arrives again after the claim changes nothing", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			f.claim(t)
			before := f.get(t, m)
			stored, _, err := f.store.Enqueue(t.Context(), m)
			if err != nil || stored.Status != message.Processing {
				t.Errorf("Enqueue of the same message = %s, %v, want it as it is", stored.Status, err)
			}
			wantSame(t, "what is stored", f.get(t, m), before)
			f.wantStatus(t, m, message.Processing)
		}},
		{"a keyed enqueue that arrives twice answers with what is stored", func(t *testing.T, f *fixture) {
			m := f.send(t, emails, message.Draft{Payload: "p", Key: "k"})
			held := f.claim(t)
			late := m
			late.Receipt = nobodys
			stored, created, err := f.store.Enqueue(t.Context(), late)
			if err != nil || created {
				t.Errorf("Enqueue = created %v, %v, want the stored message", created, err)
			}
			wantSame(t, "the stored message", stored, held)
			wantSame(t, "the message", f.get(t, m).Message, held)
		}},
		{"a claim that arrives twice hands nothing out again", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			copies := late(message.Claim{At: f.clock.Now(), Receipt: nobodys, Timeout: time.Minute})
			f.catchUp()
			held, err := f.store.Claim(t.Context(), emails, 1, copies)
			if err != nil || len(held) != 1 {
				t.Fatalf("Claim = %v, %v, want one message", ids(held), err)
			}
			again := func(after string) {
				t.Helper()
				before := f.get(t, m)
				f.settle()
				for range f.asks() {
					got, err := f.store.Claim(t.Context(), emails, 1, copies)
					if err != nil || len(got) > 0 {
						t.Errorf("Claim again after the %s = %v, %v, want none", after, ids(got), err)
					}
				}
				wantSame(t, "what is stored", f.get(t, m), before)
			}
			again("claim")
			f.release(t, held[0]) // in the same millisecond
			again("release")
			f.at(ms)
			held = f.claimN(t, emails, 1)
			f.reject(t, held[0], "x")
			again("failure")
			f.replay(t, m)
			again("replay")
		}},
	})
}

// testCopies carries the very same transition out again, later, on each state
// that can follow.
func testCopies(t *testing.T, open Open) {
	at := func(after time.Duration) message.Answer { return message.Answer{At: T(after), Receipt: nobodys} }
	claim := message.Claim{At: T(claimedAfter), Receipt: nobodys, Timeout: 30 * time.Second}
	backoff := message.DefaultSettings().Backoff
	type step struct {
		name    string
		next    message.Transition // nil: the late copy comes at once
		wantErr error              // of the late copy; nil: the message as it is
	}
	other := message.Claim{At: T(time.Hour), Receipt: "BBBBBBBBBBBBBBBB", Timeout: 30 * time.Second}
	for _, tt := range []struct {
		tr     message.Transition
		before []message.Transition
		after  []step
	}{
		{claim, nil, []step{
			{"at once", nil, nil},
			{"after an extension", message.Extend{Answer: at(answeredAfter), Timeout: time.Minute}, nil},
			{
				"after a release in the same millisecond",
				message.Release{Answer: at(claimedAfter)},
				conflict(message.VerbClaim, message.Pending, message.ReasonNotDue),
			},
			{"after another claim", other, conflict(message.VerbClaim, message.Processing, message.ReasonState)},
		}},
		{message.Succeed{Answer: at(answeredAfter), KeepDays: 7}, []message.Transition{claim}, []step{
			{"at once", nil, nil},
		}},
		{
			message.Fail{Answer: at(answeredAfter), Error: "x", Backoff: backoff},
			[]message.Transition{claim},
			[]step{
				{"at once", nil, nil},
				{"after another claim", other, conflict(message.VerbFail, message.Processing, message.ReasonReceipt)},
			},
		},
		{
			message.Fail{Answer: at(answeredAfter), Error: "x", Permanent: true},
			[]message.Transition{claim},
			[]step{
				{"at once", nil, nil},
				{
					"after a replay",
					message.Replay{At: T(time.Hour), Nonce: "CCCC"},
					conflict(message.VerbFail, message.Pending, message.ReasonState),
				},
			},
		},
		{message.Release{Answer: at(answeredAfter)}, []message.Transition{claim}, []step{
			{"at once", nil, nil},
			{"after another claim", other, conflict(message.VerbRelease, message.Processing, message.ReasonReceipt)},
		}},
		{message.Extend{Answer: at(answeredAfter), Timeout: time.Minute}, []message.Transition{claim}, []step{
			{"at once", nil, nil},
			{"after a longer extension", message.Extend{Answer: at(answeredAfter + ms), Timeout: time.Minute}, nil},
			{
				"after a release",
				message.Release{Answer: at(answeredAfter)},
				conflict(message.VerbExtend, message.Pending, message.ReasonState),
			},
		}},
		{
			message.Stall{At: T(sweptAfter), Lease: T(leaseAfter), Backoff: backoff},
			[]message.Transition{claim},
			[]step{
				{"at once", nil, conflict(message.VerbStall, message.Pending, message.ReasonState)},
				{"after another claim", other, conflict(message.VerbStall, message.Processing, message.ReasonAlive)},
			},
		},
		{
			message.Replay{At: T(time.Minute), Nonce: "CCCC"},
			[]message.Transition{claim, message.Fail{Answer: at(answeredAfter), Permanent: true}},
			[]step{
				{"at once", nil, nil},
				{"after a claim", other, conflict(message.VerbReplay, message.Processing, message.ReasonState)},
			},
		},
	} {
		for _, after := range tt.after {
			t.Run("a copy of the same "+string(tt.tr.Verb())+" "+after.name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, open)
				m := f.enqueue(t, "p")
				f.at(time.Hour)
				apply := func(tr message.Transition) {
					t.Helper()
					if _, err := f.store.Apply(t.Context(), emails, m.ID, tr); err != nil {
						t.Fatalf("Apply(%+v) = %v", tr, err)
					}
				}
				for _, tr := range tt.before {
					apply(tr)
				}
				apply(tt.tr)
				if after.next != nil {
					if _, ok := after.next.(message.Claim); ok && tt.tr.Verb() == message.VerbClaim {
						apply(message.Release{Answer: at(claimedAfter)})
					}
					apply(after.next)
				}
				before := f.get(t, m)
				got, err := f.store.Apply(t.Context(), emails, m.ID, tt.tr)
				wantError(t, "Apply of the copy", err, after.wantErr)
				if after.wantErr == nil {
					wantSame(t, "the answer", got, without(before.Message))
				}
				wantSame(t, "what is stored", f.get(t, m), before)
				f.wantStatus(t, m, before.Message.Status)
			})
		}
	}
}
