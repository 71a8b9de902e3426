package storetest

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testLeases has who holds a message, and until when.
func testLeases(t *testing.T, open Open) {
	runRows(t, open, []row{
		{"S035 a late acknowledgement with an old receipt is refused", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			first := f.claim(t)
			f.at(32 * time.Second)
			f.sweep(t, 1, 0)
			f.at(34 * time.Second)
			second := f.claim(t)
			if first.Receipt == second.Receipt {
				t.Errorf("two claims gave the same receipt %q", first.Receipt)
			}
			f.at(35 * time.Second)
			before := f.get(t, m)
			_, err := f.Succeed(t.Context(), emails, m.ID, &first.Receipt)
			wantError(t, "Succeed(r1)", err, conflict(message.VerbSucceed, message.Processing, message.ReasonReceipt))
			wantSame(t, "what is stored", f.get(t, m), before)
			if got := before.Message; !got.Due.Equal(T(64*time.Second)) || got.ClaimCount != 2 {
				t.Errorf("lease until %v at claim %d, want %v at claim 2", got.Due, got.ClaimCount, T(64*time.Second))
			}
			f.at(40 * time.Second)
			f.succeed(t, second)
			f.wantStatus(t, m, message.Succeeded)
		}},
		{"S036 an older attempt that fails late leaves a dead message dead", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.MaxRetries = 1 })
			m := f.enqueue(t, "p")
			a := f.claim(t)
			f.at(32 * time.Second)
			f.sweep(t, 1, 0)
			f.at(40 * time.Second)
			b := f.claim(t)
			f.at(45 * time.Second)
			f.fail(t, b, "b")
			f.at(50 * time.Second)
			before := f.get(t, m)
			_, err := f.Fail(t.Context(), emails, m.ID, message.Failure{Receipt: &a.Receipt, Error: "a"})
			wantError(t, "Fail(rA)", err, conflict(message.VerbFail, message.Dead, message.ReasonState))
			wantSame(t, "what is stored", f.get(t, m), before)
			f.wantStatus(t, m, message.Dead)
		}},
		{"S037 the answer of a holder whose lease ran out counts until the sweep", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			held := f.claim(t)
			f.at(40 * time.Second)
			f.succeed(t, held)
			f.wantStatus(t, m, message.Succeeded)
			f.sweep(t, 0, 0)
			f.claimNone(t)
			f.wantStatus(t, m, message.Succeeded)
		}},
		{"S037 the answer of a holder whose lease was swept is refused", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			held := f.claim(t)
			f.at(35 * time.Second)
			f.sweep(t, 1, 0)
			f.at(40 * time.Second)
			before := f.get(t, m)
			_, err := f.Succeed(t.Context(), emails, m.ID, &held.Receipt)
			wantError(t, "Succeed(r1)", err, conflict(message.VerbSucceed, message.Pending, message.ReasonState))
			wantSame(t, "what is stored", f.get(t, m), before)
			if got := f.claim(t); got.ID != m.ID || got.StallCount != 1 {
				t.Errorf("Claim = %s with %d stalls, want %s with 1", got.ID, got.StallCount, m.ID)
			}
		}},
		{"S037 every answer counts on a lease that ran out and was not swept", func(t *testing.T, f *fixture) {
			f.send(t, emails, message.Draft{Payload: "fail"})
			f.send(t, emails, message.Draft{Payload: "release"})
			f.send(t, emails, message.Draft{Payload: "extend"})
			held := f.claimN(t, emails, 3)
			f.at(time.Hour)
			if got := f.fail(t, held[0], "x"); got.Status != message.Pending || got.RetryCount != 1 || got.StallCount != 0 {
				t.Errorf("Fail = %+v, want pending after one failure and no stall", got)
			}
			if got := f.release(t, held[1]); got.Status != message.Pending || got.RetryCount != 0 || got.StallCount != 0 {
				t.Errorf("Release = %+v, want pending without a failure or a stall", got)
			}
			if got := f.extend(t, held[2], time.Minute); !got.Due.Equal(T(time.Hour + time.Minute)) {
				t.Errorf("Extend = lease until %v, want %v", got.Due, T(time.Hour+time.Minute))
			}
			f.sweep(t, 0, 0)
		}},
		{
			"S039 a message that has been finished is not handed out, whatever an index still shows",
			func(t *testing.T, f *fixture) {
				a, b := f.enqueue(t, "a"), f.enqueue(t, "b")
				f.succeed(t, f.claim(t))
				before := f.get(t, a)
				// The index is not given time to settle.
				got, err := f.Claim(t.Context(), emails, message.ClaimOptions{Max: new(2)})
				wantError(t, "Claim", err, nil)
				for _, m := range got {
					if m.ID != b.ID {
						t.Errorf("Claim = %s, want only %s", m.ID, b.ID)
					}
				}
				if len(got) == 0 {
					got = f.claimN(t, emails, 2)
				}
				wantSame(t, "what is claimed", ids(got), []string{b.ID})
				wantSame(t, "the finished message", f.get(t, a), before)
			},
		},
		{"S040 receipts and ids differ between hand-outs and between runs", func(t *testing.T, f *fixture) {
			seen := make(map[string]bool)
			for range 2 {
				other := newFixture(t, open) // the same clock, the same calls
				for range 3 {
					m := other.enqueue(t, "p")
					held := other.claim(t)
					other.succeed(t, held)
					for _, name := range []string{m.ID, m.Receipt, held.Receipt} {
						if seen[name] {
							t.Errorf("%q came twice", name)
						}
						seen[name] = true
					}
				}
			}
			m := f.enqueue(t, "p")
			for range 3 {
				held := f.claim(t)
				if seen[held.Receipt] {
					t.Errorf("receipt %q came twice", held.Receipt)
				}
				seen[held.Receipt] = true
				f.clock.set(f.clock.Now().Add(ms))
				f.release(t, held)
			}
			f.wantStatus(t, m, message.Pending)
		}},
		{"S041 a lease of one second runs out after one second, and is swept two later", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			got := f.claimWith(t, emails, message.ClaimOptions{Timeout: new(time.Second)})
			if len(got) != 1 || !got[0].Due.Equal(T(time.Second)) {
				t.Fatalf("Claim(1 s) = %+v, want a lease until %v", got, T(time.Second))
			}
			for _, after := range []time.Duration{time.Second - ms, time.Second, 3*time.Second - ms} {
				f.at(after)
				f.claimNone(t)
				f.sweep(t, 0, 0)
			}
			f.at(3 * time.Second)
			f.sweep(t, 1, 0)
			f.at(5*time.Second - ms)
			f.claimNone(t)
			f.at(5 * time.Second)
			if got := f.claim(t); got.ID != m.ID || got.ClaimCount != 2 {
				t.Errorf("Claim = %s, hand-out %d, want %s, hand-out 2", got.ID, got.ClaimCount, m.ID)
			}
		}},
		{"S042 a lease outside its range is refused, and nothing is handed out", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			before := f.get(t, m)
			for _, timeout := range []time.Duration{
				-time.Second, 0, time.Second - ms, message.MaxTimeout + time.Second, 1<<63 - 1, -1 << 63,
			} {
				got, err := f.Claim(t.Context(), emails, message.ClaimOptions{Timeout: &timeout})
				if !errors.Is(err, message.ErrInvalid) || len(got) > 0 {
					t.Errorf("Claim(%v) = %v, %v, want %v", timeout, ids(got), err, message.ErrInvalid)
				}
			}
			for _, n := range []int{-1, 0, message.MaxClaim + 1, math.MaxInt} {
				got, err := f.Claim(t.Context(), emails, message.ClaimOptions{Max: &n})
				if !errors.Is(err, message.ErrInvalid) || len(got) > 0 {
					t.Errorf("Claim(max %d) = %v, %v, want %v", n, ids(got), err, message.ErrInvalid)
				}
			}
			wantSame(t, "what is stored", f.get(t, m), before)
			got := f.claimWith(t, emails, message.ClaimOptions{Timeout: new(message.MaxTimeout)})
			if len(got) != 1 || !got[0].Due.Equal(T(message.MaxTimeout)) {
				t.Errorf("Claim(%v) = %+v, want one message", message.MaxTimeout, got)
			}
		}},
		{"S043 the length of a lease comes from the request, else from the queue", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.ProcessingTimeout = 5 * time.Second })
			f.enqueue(t, "a")
			f.enqueue(t, "b")
			f.send(t, "orders", message.Draft{})
			if got := f.claim(t); !got.Due.Equal(T(5 * time.Second)) {
				t.Errorf("Claim = lease until %v, want %v", got.Due, T(5*time.Second))
			}
			got := f.claimWith(t, emails, message.ClaimOptions{Timeout: new(7 * time.Second)})
			if len(got) != 1 || !got[0].Due.Equal(T(7*time.Second)) {
				t.Errorf("Claim(7 s) = %+v, want a lease until %v", got, T(7*time.Second))
			}
			if got := f.claimFrom(t, "orders"); !got.Due.Equal(T(30 * time.Second)) {
				t.Errorf("Claim of a queue that nobody set = lease until %v, want %v", got.Due, T(30*time.Second))
			}
		}},
		{"S045 the end of a lease is stored to the millisecond", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			f.at(7 * ms)
			f.claim(t)
			if got := f.get(t, m).Message.Due; got.UnixMilli() != 1767225630007 {
				t.Errorf("lease until %d, want 1767225630007", got.UnixMilli())
			}
			f.at(30*time.Second + 6*ms)
			f.claimNone(t)
			f.at(31 * time.Second)
			f.sweep(t, 0, 0)
			f.at(32*time.Second + 6*ms)
			f.sweep(t, 0, 0)
			f.at(32*time.Second + 7*ms)
			f.sweep(t, 1, 0)
			f.wantStatus(t, m, message.Pending)
		}},
		{"S046 a worker that dies before it answers leaves a message that comes again", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			f.claim(t)
			f.at(32 * time.Second)
			f.sweep(t, 1, 0)
			f.at(34 * time.Second)
			held := f.claim(t)
			f.succeed(t, held)
			if held.ID != m.ID || held.Payload != "p" || held.ClaimCount != 2 {
				t.Errorf("Claim = %s, %q, hand-out %d, want %s, p, hand-out 2", held.ID, held.Payload, held.ClaimCount, m.ID)
			}
			f.wantStatus(t, m, message.Succeeded)
		}},
		{"a queue that requires receipts refuses answers without", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.RequireReceipt = true })
			m := f.held(t, emails)
			before := f.get(t, m)
			_, err := f.Succeed(t.Context(), emails, m.ID, nil)
			wantError(t, "Succeed without a receipt", err, message.ErrInvalid)
			_, err = f.Fail(t.Context(), emails, m.ID, message.Failure{Error: "x"})
			wantError(t, "Fail without a receipt", err, message.ErrInvalid)
			wantSame(t, "what is stored", f.get(t, m), before)
			f.succeed(t, m)
			f.wantStatus(t, m, message.Succeeded)
		}},
		{"an answer without a receipt is refused where nobody holds the message", func(t *testing.T, f *fixture) {
			waiting := f.send(t, "waiting", message.Draft{})
			done := f.succeed(t, f.held(t, "done"))
			dead := f.dead(t, "dead")
			for _, m := range []message.Message{waiting, done, dead} {
				before := f.get(t, m)
				_, err := f.Succeed(t.Context(), m.Queue, m.ID, nil)
				wantError(t, "Succeed without a receipt", err,
					conflict(message.VerbSucceed, m.Status, message.ReasonState))
				_, err = f.Fail(t.Context(), m.Queue, m.ID, message.Failure{Error: "x"})
				wantError(t, "Fail without a receipt", err, conflict(message.VerbFail, m.Status, message.ReasonState))
				wantSame(t, "what is stored", f.get(t, m), before)
			}
		}},
		{"a release and an extension need a receipt", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			before := f.get(t, m)
			for _, receipt := range []*string{nil, new("")} {
				_, err := f.Release(t.Context(), emails, m.ID, receipt)
				wantError(t, "Release", err, message.ErrInvalid)
				_, err = f.Extend(t.Context(), emails, m.ID, message.Extension{Receipt: receipt})
				wantError(t, "Extend", err, message.ErrInvalid)
			}
			_, err := f.Succeed(t.Context(), emails, m.ID, new(""))
			wantError(t, "Succeed with an empty receipt", err, message.ErrInvalid)
			wantSame(t, "what is stored", f.get(t, m), before)
		}},
		{"a claim of ten messages gives each a receipt and a payload of its own", func(t *testing.T, f *fixture) {
			var want, receipts []string
			for _, payload := range numbered("p", 12) {
				f.enqueue(t, payload)
				want = append(want, payload)
			}
			held := f.claimN(t, emails, 10)
			wantSame(t, "the payloads", payloads(held), want[:10])
			for _, m := range held {
				receipts = append(receipts, m.Receipt)
			}
			wantSame(t, "receipts given twice", repeated(receipts), nil)
			for _, m := range held {
				f.succeed(t, m)
			}
			wantSame(t, "the payloads of the rest", payloads(f.claimN(t, emails, 10)), want[10:])
		}},
		{"claiming from an unknown queue hands out nothing and makes no queue", func(t *testing.T, f *fixture) {
			f.enqueue(t, "p")
			if got := f.claimN(t, "orders", 10); len(got) > 0 {
				t.Errorf("Claim of an unknown queue = %v, want none", ids(got))
			}
			_, err := f.Queue(t.Context(), "orders")
			wantError(t, "Queue", err, message.ErrQueueNotFound)
		}},
	})
}

// testExtensions has how long a lease can be made to last. Every message is
// claimed 10 s after the epoch, for 30 s.
func testExtensions(t *testing.T, open Open) {
	const h12 = claimedAfter + message.MaxHold
	for _, tt := range []struct {
		name    string
		at      time.Duration
		timeout time.Duration
		wantEnd time.Duration // 0: as it was
		wantErr error
	}{
		{"from the time of the call on", 20 * time.Second, 25 * time.Second, 45 * time.Second, nil},
		{"by one millisecond", 10*time.Second + ms, 30 * time.Second, leaseAfter + ms, nil},
		{"to the end it has: no change", 20 * time.Second, 20 * time.Second, 0, nil},
		{"to an earlier end: no change", 20 * time.Second, time.Second, 0, nil},
		{"after it ran out", 41 * time.Second, time.Second, 42 * time.Second, nil},
		{"long after it ran out, unswept", time.Hour, time.Minute, time.Hour + time.Minute, nil},
		{"to twelve hours after the claim, exactly", claimedAfter, message.MaxTimeout, h12, nil},
		{"to twelve hours after the claim, no longer", 20 * time.Second, message.MaxTimeout, h12, nil},
		{"in the last millisecond of the twelve hours", h12 - ms, time.Hour, h12, nil},
		{
			"at twelve hours after the claim: refused", h12, time.Second, 0,
			conflict(message.VerbExtend, message.Processing, message.ReasonHeldLong),
		},
		{
			"later than that: refused", h12 + time.Hour, time.Second, 0,
			conflict(message.VerbExtend, message.Processing, message.ReasonHeldLong),
		},
		{"for no time: refused", 20 * time.Second, 0, 0, message.ErrInvalid},
		{"for longer than a lease may last: refused", 20 * time.Second, message.MaxTimeout + ms, 0, message.ErrInvalid},
	} {
		t.Run("a lease is extended "+tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			m := f.held(t, emails)
			f.at(tt.at)
			got, err := f.Extend(t.Context(), emails, m.ID, message.Extension{Receipt: &m.Receipt, Timeout: &tt.timeout})
			wantError(t, "Extend", err, tt.wantErr)
			want := m
			if tt.wantEnd != 0 {
				want.Due, want.UpdatedAt = T(tt.wantEnd), T(tt.at)
			}
			if err == nil {
				wantSame(t, "the answer", got, without(want))
			}
			wantSame(t, "what is stored", f.get(t, m).Message, want)
		})
	}
	runRows(t, open, []row{
		{"an extension without a timeout takes the queue's", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.ProcessingTimeout = 50 * time.Second })
			m := f.held(t, emails)
			got, err := f.Extend(t.Context(), emails, m.ID, message.Extension{Receipt: &m.Receipt})
			if err != nil || !got.Due.Equal(T(answeredAfter+50*time.Second)) {
				t.Errorf("Extend = lease until %v, %v, want %v", got.Due, err, T(answeredAfter+50*time.Second))
			}
		}},
		{"an extended lease is swept after its new end", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			f.extend(t, m, time.Minute) // until 80 s
			f.at(sweptAfter)
			f.sweep(t, 0, 0)
			f.at(82*time.Second - ms)
			f.sweep(t, 0, 0)
			f.at(82 * time.Second)
			f.sweep(t, 1, 0)
			f.wantStatus(t, m, message.Pending)
		}},
		{"the twelve hours begin anew with the next claim", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			f.at(6 * time.Hour)
			f.release(t, m)
			m = f.claim(t)
			f.at(17 * time.Hour)
			if got := f.extend(t, m, 10*time.Hour); !got.Due.Equal(T(18 * time.Hour)) {
				t.Errorf("Extend = lease until %v, want %v", got.Due, T(18*time.Hour))
			}
		}},
		{"a message held for twelve hours can still be answered", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			f.at(h12 + time.Hour)
			f.succeed(t, m)
			f.wantStatus(t, m, message.Succeeded)
		}},
	})
}
