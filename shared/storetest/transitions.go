package storetest

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

const week = 7 * 24 * time.Hour

// A hand-out of the tests below begins 10 s after the epoch and lasts 30 s; the
// transition under test comes at 20 s, a sweep at 42 s.
const (
	claimedAfter  = 10 * time.Second
	answeredAfter = 20 * time.Second
	leaseAfter    = 40 * time.Second
	sweptAfter    = 42 * time.Second
	leaseText     = "lease ran out at 2026-01-01T00:00:40.000Z without an answer"
)

// held returns a message that is being processed.
func (f *fixture) held(t *testing.T, queue string) message.Message {
	t.Helper()
	f.at(0)
	f.send(t, queue, message.Draft{Payload: "p"})
	f.at(claimedAfter)
	m := f.claimFrom(t, queue)
	f.at(answeredAfter)
	return m
}

// tired returns a message that is being processed, and dies of one more failure
// or stall. It was failed for "before".
func (f *fixture) tired(t *testing.T) message.Message {
	t.Helper()
	f.put(t, emails, func(set *message.Settings) { set.MaxRetries, set.MaxStalls, set.DeadDays = 2, 1, new(30.0) })
	f.enqueue(t, "p")
	f.fail(t, f.claim(t), "before")
	f.at(claimedAfter)
	m := f.claim(t)
	f.at(answeredAfter)
	return m
}

func (f *fixture) dead(t *testing.T, queue string) message.Message {
	t.Helper()
	return f.reject(t, f.held(t, queue), "no such address")
}

// testTransitions has each change once, with all that it leaves behind.
func testTransitions(t *testing.T, open Open) {
	rows := []struct {
		name string
		// prepare returns the message as it is before.
		prepare func(*testing.T, *fixture) message.Message
		change  func(*testing.T, *fixture, message.Message) message.Message
		// become changes before to what is to be stored.
		become func(before *message.Message, answer message.Message)
		// ended is the attempt that the change adds to the history.
		ended *message.Attempt
	}{
		{
			"a claim hands a pending message out",
			func(t *testing.T, f *fixture) message.Message {
				m := f.enqueue(t, "p")
				f.at(claimedAfter)
				return m
			},
			func(t *testing.T, f *fixture, _ message.Message) message.Message { return f.claim(t) },
			func(m *message.Message, answer message.Message) {
				m.Status, m.Due, m.Receipt = message.Processing, T(leaseAfter), answer.Receipt
				m.ClaimCount, m.ClaimedAt, m.UpdatedAt = 1, T(claimedAfter), T(claimedAfter)
			}, nil,
		},
		{
			"a claim forgets how the attempt before ended, and keeps its error",
			func(t *testing.T, f *fixture) message.Message {
				m := f.held(t, emails)
				f.at(claimedAfter)
				f.fail(t, m, "first")
				f.at(claimedAfter + 2*time.Second + ms)
				return f.get(t, m).Message
			},
			func(t *testing.T, f *fixture, _ message.Message) message.Message { return f.claim(t) },
			func(m *message.Message, answer message.Message) {
				m.Status, m.Due, m.Receipt = message.Processing, T(claimedAfter+32*time.Second+ms), answer.Receipt
				m.ClaimCount, m.LastVerb = 2, ""
				m.ClaimedAt, m.UpdatedAt = T(claimedAfter+2*time.Second+ms), T(claimedAfter+2*time.Second+ms)
			}, nil,
		},
		{
			"a success settles the message for seven days",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message { return f.succeed(t, m) },
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Succeeded, T(answeredAfter), message.VerbSucceed
				m.UpdatedAt, m.ExpiresAt = T(answeredAfter), T(answeredAfter+week)
			},
			&message.Attempt{
				Number: 1, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter), Outcome: message.OutcomeSucceeded,
			},
		},
		{
			"a hand-out without a payload ends in the dead-letter queue",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message {
				got, err := f.store.Apply(t.Context(), emails, m.ID, message.Bury{
					Answer: message.Answer{At: f.clock.Now(), Receipt: m.Receipt},
				})
				wantError(t, "Apply(bury)", err, nil)
				return got
			},
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Dead, T(answeredAfter), message.VerbBury
				m.UpdatedAt, m.DeadReason = T(answeredAfter), message.PayloadMissing
				m.LastError = new("the payload is missing from the store")
			},
			nil,
		},
		{
			"a success without a receipt is the holder's",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message {
				got, err := f.Succeed(t.Context(), emails, m.ID, nil)
				wantError(t, "Succeed without a receipt", err, nil)
				return got
			},
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Succeeded, T(answeredAfter), message.VerbSucceed
				m.UpdatedAt, m.ExpiresAt = T(answeredAfter), T(answeredAfter+week)
			},
			&message.Attempt{
				Number: 1, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter), Outcome: message.OutcomeSucceeded,
			},
		},
		{
			"a success keeps the counts and the last error",
			func(t *testing.T, f *fixture) message.Message { return f.tired(t) },
			func(t *testing.T, f *fixture, m message.Message) message.Message { return f.succeed(t, m) },
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Succeeded, T(answeredAfter), message.VerbSucceed
				m.UpdatedAt, m.ExpiresAt = T(answeredAfter), T(answeredAfter+week)
			},
			&message.Attempt{
				Number: 2, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter), Outcome: message.OutcomeSucceeded,
			},
		},
		{
			"a failure sends the message back for the backoff",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message { return f.fail(t, m, "timeout") },
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Pending, T(answeredAfter+2*time.Second), message.VerbFail
				m.RetryCount, m.LastError, m.UpdatedAt = 1, new("timeout"), T(answeredAfter)
			},
			&message.Attempt{
				Number: 1, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter),
				Outcome: message.OutcomeFailed, Error: "timeout",
			},
		},
		{
			"a failure may name its own delay",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message {
				got, err := f.Fail(t.Context(), emails, m.ID, message.Failure{
					Receipt: &m.Receipt, Error: "busy", RetryAfter: new(90*time.Second + ms),
				})
				wantError(t, "Fail with a delay", err, nil)
				return got
			},
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Pending, T(answeredAfter+90*time.Second+ms), message.VerbFail
				m.RetryCount, m.LastError, m.UpdatedAt = 1, new("busy"), T(answeredAfter)
			},
			&message.Attempt{
				Number: 1, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter),
				Outcome: message.OutcomeFailed, Error: "busy",
			},
		},
		{
			"a failure without a receipt is the holder's, and its text may be empty",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message {
				got, err := f.Fail(t.Context(), emails, m.ID, message.Failure{})
				wantError(t, "Fail without a receipt", err, nil)
				return got
			},
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Pending, T(answeredAfter+2*time.Second), message.VerbFail
				m.RetryCount, m.LastError, m.UpdatedAt = 1, new(""), T(answeredAfter)
			},
			&message.Attempt{
				Number: 1, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter), Outcome: message.OutcomeFailed,
			},
		},
		{
			"the last failure buries the message",
			func(t *testing.T, f *fixture) message.Message { return f.tired(t) },
			func(t *testing.T, f *fixture, m message.Message) message.Message { return f.fail(t, m, "again") },
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Dead, T(answeredAfter), message.VerbFail
				m.RetryCount, m.LastError, m.DeadReason = 2, new("again"), message.RetriesExhausted
				m.UpdatedAt, m.ExpiresAt = T(answeredAfter), T(answeredAfter+30*24*time.Hour)
			},
			&message.Attempt{
				Number: 2, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter),
				Outcome: message.OutcomeFailed, Error: "again",
			},
		},
		{
			"the last failure buries the message, whatever delay it names",
			func(t *testing.T, f *fixture) message.Message { return f.tired(t) },
			func(t *testing.T, f *fixture, m message.Message) message.Message {
				got, err := f.Fail(t.Context(), emails, m.ID, message.Failure{
					Receipt: &m.Receipt, Error: "again", RetryAfter: new(time.Hour),
				})
				wantError(t, "Fail with a delay", err, nil)
				return got
			},
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Dead, T(answeredAfter), message.VerbFail
				m.RetryCount, m.LastError, m.DeadReason = 2, new("again"), message.RetriesExhausted
				m.UpdatedAt, m.ExpiresAt = T(answeredAfter), T(answeredAfter+30*24*time.Hour)
			},
			&message.Attempt{
				Number: 2, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter),
				Outcome: message.OutcomeFailed, Error: "again",
			},
		},
		{
			"a permanent failure buries the message for ever at once",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message {
				return f.reject(t, m, "no such address")
			},
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Dead, T(answeredAfter), message.VerbFail
				m.RetryCount, m.LastError, m.DeadReason = 1, new("no such address"), message.Rejected
				m.UpdatedAt = T(answeredAfter)
			},
			&message.Attempt{
				Number: 1, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter),
				Outcome: message.OutcomeRejected, Error: "no such address",
			},
		},
		{
			"a permanent failure is a rejection on the last try too",
			func(t *testing.T, f *fixture) message.Message { return f.tired(t) },
			func(t *testing.T, f *fixture, m message.Message) message.Message { return f.reject(t, m, "gone") },
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Dead, T(answeredAfter), message.VerbFail
				m.RetryCount, m.LastError, m.DeadReason = 2, new("gone"), message.Rejected
				m.UpdatedAt, m.ExpiresAt = T(answeredAfter), T(answeredAfter+30*24*time.Hour)
			},
			&message.Attempt{
				Number: 2, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter),
				Outcome: message.OutcomeRejected, Error: "gone",
			},
		},
		{
			"a release gives the message back and moves no count",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message { return f.release(t, m) },
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Pending, T(answeredAfter), message.VerbRelease
				m.UpdatedAt = T(answeredAfter)
			}, nil,
		},
		{
			"an extension moves the end of the lease",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message { return f.extend(t, m, time.Minute) },
			func(m *message.Message, _ message.Message) {
				m.Due, m.UpdatedAt = T(answeredAfter+time.Minute), T(answeredAfter)
			}, nil,
		},
		{
			"a sweep returns a message whose lease ran out",
			prepareHeld,
			func(t *testing.T, f *fixture, m message.Message) message.Message {
				f.at(sweptAfter)
				f.sweep(t, 1, 0)
				return without(f.get(t, m).Message)
			},
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Pending, T(sweptAfter+2*time.Second), message.VerbStall
				m.StallCount, m.LastError, m.UpdatedAt = 1, new(leaseText), T(sweptAfter)
			},
			&message.Attempt{
				Number: 1, ClaimedAt: T(claimedAfter), EndedAt: T(sweptAfter),
				Outcome: message.OutcomeStalled, Error: leaseText,
			},
		},
		{
			"a sweep buries a message whose last lease ran out",
			func(t *testing.T, f *fixture) message.Message { return f.tired(t) },
			func(t *testing.T, f *fixture, m message.Message) message.Message {
				f.at(sweptAfter)
				f.sweep(t, 0, 1)
				return without(f.get(t, m).Message)
			},
			func(m *message.Message, _ message.Message) {
				m.Status, m.Due, m.LastVerb = message.Dead, T(sweptAfter), message.VerbStall
				m.StallCount, m.LastError, m.DeadReason = 1, new(leaseText), message.Stalled
				m.UpdatedAt, m.ExpiresAt = T(sweptAfter), T(sweptAfter+30*24*time.Hour)
			},
			&message.Attempt{
				Number: 2, ClaimedAt: T(claimedAfter), EndedAt: T(sweptAfter),
				Outcome: message.OutcomeStalled, Error: leaseText,
			},
		},
		{
			"a replay sends a dead message round again with its whole budget",
			func(t *testing.T, f *fixture) message.Message {
				m := f.fail(t, f.tired(t), "again")
				f.at(time.Hour)
				return f.get(t, m).Message
			},
			func(t *testing.T, f *fixture, m message.Message) message.Message { return f.replay(t, m) },
			func(m *message.Message, answer message.Message) {
				m.Status, m.Due, m.UpdatedAt, m.ExpiresAt = message.Pending, T(time.Hour), T(time.Hour), time.Time{}
				m.RetryCount, m.StallCount, m.ReplayCount = 0, 0, 1
				m.LastError, m.DeadReason = nil, ""
				m.Receipt, m.LastVerb = answer.Receipt, ""
			}, nil,
		},
	}
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			before := tt.prepare(t, f)
			before.Payload, before.PayloadBytes = "p", 1
			wantSame(t, "the message before", f.get(t, before).Message, before)
			attempts := f.get(t, before).Attempts

			answer := tt.change(t, f, before)

			want := before
			tt.become(&want, answer)
			if answer.Status == message.Processing && answer.ClaimCount > before.ClaimCount {
				wantSame(t, "the answer, with the payload,", answer, want)
			} else {
				wantSame(t, "the answer, without the payload,", answer, without(want))
			}
			stored := f.get(t, want)
			wantSame(t, "what is stored", stored.Message, want)
			if tt.ended != nil {
				attempts = append(attempts, *tt.ended)
			}
			wantSame(t, "the history", stored.Attempts, attempts)
			f.wantStatus(t, want, want.Status)
		})
	}
	runRows(t, open, []row{
		{"an enqueued message is due at once", func(t *testing.T, f *fixture) {
			got := f.enqueue(t, "häagen")
			want := message.Message{
				ID: got.ID, Queue: emails, Status: message.Pending, Due: epoch, Payload: "häagen", PayloadBytes: 7,
				MaxRetries: 3, MaxStalls: 3, Receipt: got.Receipt, CreatedAt: epoch, UpdatedAt: epoch,
			}
			wantSame(t, "Enqueue", got, want)
			wantSame(t, "what is stored", f.get(t, got), snapshot{want, []message.Attempt{}})
			f.wantStatus(t, got, message.Pending)
		}},
		{"an enqueued message takes the budgets of its queue, and what it asks for", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.MaxRetries, set.MaxStalls = 7, 9 })
			got := f.send(t, emails, message.Draft{Payload: "p", MaxRetries: new(1), Delay: new(1500 * ms)})
			want := message.Message{
				ID: got.ID, Queue: emails, Status: message.Pending, Due: T(1500 * ms), Payload: "p", PayloadBytes: 1,
				MaxRetries: 1, MaxStalls: 9, Receipt: got.Receipt, CreatedAt: epoch, UpdatedAt: epoch,
			}
			wantSame(t, "Enqueue", got, want)
			wantSame(t, "what is stored", f.get(t, got).Message, want)
			if other := f.enqueue(t, "p"); other.MaxRetries != 7 {
				t.Errorf("Enqueue without max_retries = %d, want the queue's 7", other.MaxRetries)
			}
		}},
		{"a queue's new budget is not that of a message enqueued before", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			f.put(t, emails, func(set *message.Settings) { set.MaxRetries, set.MaxStalls = 1, 1 })
			if got := f.fail(t, f.claim(t), "x"); got.Status != message.Pending || got.MaxRetries != 3 || got.MaxStalls != 3 {
				t.Errorf("Fail(%s) = %s with budgets %d and %d, want pending with 3 and 3",
					m.ID, got.Status, got.MaxRetries, got.MaxStalls)
			}
		}},
		{"a deleted message is gone with its payload and history", func(t *testing.T, f *fixture) {
			m := f.dead(t, emails)
			other := f.dead(t, emails)
			wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)
			f.wantGone(t, m)
			wantError(t, "Delete again", f.Delete(t.Context(), emails, m.ID), message.ErrNotFound)
			_, err := f.Replay(t.Context(), emails, m.ID)
			wantError(t, "Replay", err, message.ErrNotFound)
			f.wantStatus(t, other, message.Dead)
			wantSame(t, "the count", f.count(t, emails), [4]int{0, 0, 1, 0})
		}},
	})
}

const ms = time.Millisecond

func prepareHeld(t *testing.T, f *fixture) message.Message {
	t.Helper()
	return f.held(t, emails)
}
