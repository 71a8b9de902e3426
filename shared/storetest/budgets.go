package storetest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testBudgets has how often a message may fail or stall, and when it comes back.
func testBudgets(t *testing.T, open Open) {
	for _, tt := range []struct {
		name    string
		backoff message.Backoff
		want    []float64 // seconds after each failure; one more failure is the last
	}{
		{
			"the default", message.DefaultSettings().Backoff,
			[]float64{2, 4, 8, 16, 32, 64, 128, 256, 512},
		},
		{
			"of one second, at most 300",
			message.Backoff{Initial: time.Second, Factor: 2, Max: 300 * time.Second, Jitter: message.JitterNone},
			[]float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		},
		{
			"of ten seconds in four tries",
			message.Backoff{Initial: 10 * time.Second, Factor: 2, Max: 300 * time.Second, Jitter: message.JitterNone},
			[]float64{10, 20, 40},
		},
		{
			"of a tenth of a second",
			message.Backoff{Initial: 100 * ms, Factor: 2, Max: 300 * time.Second, Jitter: message.JitterNone},
			[]float64{0.1, 0.2, 0.4, 0.8, 1.6},
		},
		{
			"that is clamped",
			message.Backoff{Initial: 10 * time.Second, Factor: 10, Max: 250 * time.Second, Jitter: message.JitterNone},
			[]float64{10, 100, 250, 250},
		},
		{
			"of a schedule, whose last entry repeats",
			message.Backoff{Schedule: []time.Duration{5 * time.Second, 1500 * ms}, Jitter: message.JitterNone},
			[]float64{5, 1.5, 1.5, 1.5},
		},
	} {
		for _, event := range []string{"failure", "stall"} {
			t.Run(fmt.Sprintf("S048 a %s waits for a backoff %s", event, tt.name), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, open)
				f.put(t, emails, func(set *message.Settings) {
					set.Backoff, set.MaxRetries, set.MaxStalls = tt.backoff, len(tt.want)+1, len(tt.want)+1
				})
				f.wantDelays(t, f.enqueue(t, "p"), event, tt.want)
			})
		}
	}
	runRows(t, open, []row{
		{"S051 a delay of zero is a whole millisecond, and no default", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			for n := range 3 {
				held := f.claim(t)
				f.clock.set(f.clock.Now().Add(5 * ms))
				got, err := f.Fail(t.Context(), emails, m.ID, message.Failure{
					Receipt: &held.Receipt, RetryAfter: new(time.Duration(0)),
				})
				if err != nil || !got.Due.Equal(f.clock.Now()) {
					t.Errorf("Fail number %d at %v = due %v, %v, want at once", n+1, f.clock.Now(), got.Due, err)
				}
			}
			f.wantStatus(t, m, message.Dead)
		}},
		{"S052 a budget of one try is one try", func(t *testing.T, f *fixture) {
			f.send(t, emails, message.Draft{MaxRetries: new(1)})
			if got := f.fail(t, f.claim(t), "x"); got.Status != message.Dead || got.RetryCount != 1 {
				t.Errorf("Fail = %s after %d failures, want dead after 1", got.Status, got.RetryCount)
			}
		}},
		{"S052 a schedule that is empty, or holds a zero, is refused", func(t *testing.T, f *fixture) {
			for _, schedule := range [][]time.Duration{{}, {0}, {time.Second, 0}, make([]time.Duration, 21)} {
				set := message.DefaultSettings()
				set.Backoff = message.Backoff{Schedule: schedule, Jitter: message.JitterNone}
				_, _, err := f.PutQueue(t.Context(), emails, set)
				wantError(t, fmt.Sprintf("PutQueue(schedule %v)", schedule), err, message.ErrInvalid)
			}
			_, err := f.Queue(t.Context(), emails)
			wantError(t, "Queue", err, message.ErrQueueNotFound)
		}},
		{"S053 a message with one try is kept when it dies, by failure or by stall", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.MaxRetries, set.MaxStalls = 1, 1 })
			failed, stalled := f.enqueue(t, "failed"), f.enqueue(t, "stalled")
			f.fail(t, f.claim(t), "refused by the worker")
			f.claim(t)
			f.at(32 * time.Second)
			f.sweep(t, 0, 1)
			for _, want := range []struct {
				m          message.Message
				reason     message.DeadReason
				text, kept string
			}{
				{failed, message.RetriesExhausted, "refused by the worker", "failed"},
				{stalled, message.Stalled, "lease ran out at 2026-01-01T00:00:30.000Z without an answer", "stalled"},
			} {
				got := f.get(t, want.m).Message
				if got.DeadReason != want.reason || *got.LastError != want.text || got.Payload != want.kept ||
					got.RetryCount+got.StallCount != 1 {
					t.Errorf("dead message = %+v, want %+v", got, want)
				}
				f.replay(t, want.m)
				f.wantStatus(t, want.m, message.Pending)
			}
		}},
		{"S054 a budget outside its range is refused, and nothing is stored", func(t *testing.T, f *fixture) {
			for _, n := range []int{0, -1, 11, math.MaxInt} {
				_, _, err := f.Enqueue(t.Context(), emails, message.Draft{MaxRetries: &n})
				wantError(t, fmt.Sprintf("Enqueue(max_retries %d)", n), err, message.ErrInvalid)
			}
			for _, delay := range []time.Duration{-ms, message.MaxDelay + ms, -1 << 63} {
				_, _, err := f.Enqueue(t.Context(), emails, message.Draft{Delay: &delay})
				wantError(t, fmt.Sprintf("Enqueue(delay %v)", delay), err, message.ErrInvalid)
			}
			wantSame(t, "the count", f.count(t, emails), [4]int{})
		}},
		{"S055 a worker that stops costs a stall and no retry", func(t *testing.T, f *fixture) {
			m := f.send(t, emails, message.Draft{MaxRetries: new(10)})
			f.claim(t)
			f.at(32 * time.Second)
			f.sweep(t, 1, 0)
			got := f.get(t, m).Message
			if got.RetryCount != 0 || got.StallCount != 1 || !got.Due.Equal(T(34*time.Second)) {
				t.Errorf("swept message = %d failures, %d stalls, due %v, want 0, 1, %v",
					got.RetryCount, got.StallCount, got.Due, T(34*time.Second))
			}
		}},
		{"S055 a worker that stops on the last try leaves a dead message", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			for stall := range 3 {
				f.clock.set(f.get(t, m).Message.Due)
				held := f.claim(t)
				f.clock.set(held.Due.Add(message.SweepGrace))
				if stall < 2 {
					f.sweep(t, 1, 0)
				} else {
					f.sweep(t, 0, 1)
				}
			}
			got := f.get(t, m).Message
			if got.Status != message.Dead || got.DeadReason != message.Stalled || got.StallCount != 3 || got.ClaimCount != 3 {
				t.Errorf("message = %+v, want dead after three stalls", got)
			}
		}},
		{"failures and stalls have separate budgets", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			for n := 1; n <= 2; n++ { // two of each, of three
				f.clock.set(f.get(t, m).Message.Due)
				got := f.fail(t, f.claim(t), "x")
				if wait := got.Due.Sub(got.UpdatedAt); got.RetryCount != n || wait != time.Duration(1<<n)*time.Second {
					t.Errorf("failure %d = count %d, due after %v", n, got.RetryCount, wait)
				}
				f.clock.set(got.Due)
				f.clock.set(f.claim(t).Due.Add(message.SweepGrace))
				f.sweep(t, 1, 0)
				got = f.get(t, m).Message
				if wait := got.Due.Sub(got.UpdatedAt); got.StallCount != n || wait != time.Duration(1<<n)*time.Second {
					t.Errorf("stall %d = count %d, due after %v", n, got.StallCount, wait)
				}
			}
			f.clock.set(f.get(t, m).Message.Due)
			got := f.fail(t, f.claim(t), "third")
			if got.Status != message.Dead || got.DeadReason != message.RetriesExhausted || got.RetryCount != 3 ||
				got.StallCount != 2 || got.ClaimCount != 5 {
				t.Errorf("the third failure leaves %+v, want dead after 3 failures, 2 stalls, 5 hand-outs", got)
			}
		}},
		{"releases cost no budget", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			for n := 1; n <= 12; n++ {
				f.at(time.Duration(n) * time.Second)
				f.release(t, f.claim(t))
			}
			got := f.get(t, m).Message
			if got.RetryCount != 0 || got.StallCount != 0 || got.ClaimCount != 12 || got.LastError != nil {
				t.Errorf("message = %+v, want 12 hand-outs and no other count", got)
			}
		}},
		{"S059 a message that died is not handed out again", func(t *testing.T, f *fixture) {
			m := f.send(t, emails, message.Draft{MaxRetries: new(1)})
			f.fail(t, f.claim(t), "x")
			for _, after := range []time.Duration{time.Second, 10 * time.Second, 1000 * time.Second} {
				f.at(after)
				f.claimNone(t)
				f.sweep(t, 0, 0)
			}
			f.wantStatus(t, m, message.Dead)
		}},
		{"S060 jitter spreads the messages that failed together", func(t *testing.T, f *fixture) {
			for _, tt := range []struct {
				jitter      message.Jitter
				least, most time.Duration
			}{
				{message.JitterNone, 4 * time.Second, 4 * time.Second},
				{message.JitterEqual, 2 * time.Second, 4 * time.Second},
				{message.JitterFull, 0, 4 * time.Second},
			} {
				f.put(t, emails, func(set *message.Settings) {
					set.Backoff = message.Backoff{Initial: 4 * time.Second, Factor: 2, Max: time.Hour, Jitter: tt.jitter}
				})
				times := make(map[time.Duration]bool)
				for range 40 {
					f.enqueue(t, "p")
				}
				var held []message.Message
				for range 4 {
					held = append(held, f.claimN(t, emails, 10)...)
				}
				f.clock.set(f.clock.Now().Add(ms))
				for _, m := range held {
					got := f.fail(t, m, "x")
					wait := got.Due.Sub(got.UpdatedAt)
					if wait < tt.least || wait > tt.most || wait%ms != 0 {
						t.Errorf("jitter %s: waits %v, want %v to %v", tt.jitter, wait, tt.least, tt.most)
					}
					times[wait] = true
				}
				f.clock.set(f.clock.Now().Add(time.Minute))
				for _, m := range f.list(t, message.List{Queue: emails}) {
					wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)
				}
				// 40 of 2,000 or more values: fewer than 20 different ones do not happen.
				if different := len(times); len(held) != 40 || (different > 20) != (tt.least != tt.most) {
					t.Errorf("jitter %s: %d different waits of %d", tt.jitter, different, len(held))
				}
			}
		}},
		{"S090 a replay restores the whole budget", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.MaxRetries, set.MaxStalls = 2, 2 })
			m := f.enqueue(t, "p")
			f.claim(t)
			f.at(32 * time.Second)
			f.sweep(t, 1, 0) // one stall, so that there is one to be forgotten
			f.at(40 * time.Second)
			f.fail(t, f.claim(t), "first")
			f.at(50 * time.Second)
			if got := f.fail(t, f.claim(t), "second"); got.Status != message.Dead || got.StallCount != 1 {
				t.Fatalf("Fail = %s after %d stalls, want dead after 1", got.Status, got.StallCount)
			}
			f.at(100 * time.Second)
			got := f.replay(t, m)
			if !got.Due.Equal(T(100*time.Second)) || got.RetryCount != 0 || got.StallCount != 0 || got.MaxRetries != 2 ||
				got.MaxStalls != 2 || got.ReplayCount != 1 || got.ClaimCount != 3 {
				t.Errorf("Replay = %+v, want it due now, with no failure or stall of 2", got)
			}
			f.at(101 * time.Second)
			held := f.claim(t)
			f.at(102 * time.Second)
			if got = f.fail(t, held, "third"); got.Status != message.Pending || !got.Due.Equal(T(104*time.Second)) {
				t.Errorf("Fail = %s, due %v, want pending, due %v", got.Status, got.Due, T(104*time.Second))
			}
			f.at(104 * time.Second)
			f.claim(t)
			f.at(136 * time.Second)
			f.sweep(t, 1, 0) // the first stall since the replay
			f.at(140 * time.Second)
			held = f.claim(t)
			if got = f.fail(t, held, "fourth"); got.Status != message.Dead || got.RetryCount != 2 || got.StallCount != 1 {
				t.Errorf("Fail = %s after %d failures and %d stalls, want dead after 2 and 1",
					got.Status, got.RetryCount, got.StallCount)
			}
		}},
		{"S092 a message can be replayed each time it dies", func(t *testing.T, f *fixture) {
			m := f.send(t, emails, message.Draft{MaxRetries: new(1)})
			for n := 1; n <= 3; n++ {
				f.at(time.Duration(n) * 100 * time.Second)
				f.fail(t, f.claim(t), "x")
				if got := f.replay(t, m); got.ReplayCount != n {
					t.Errorf("Replay number %d = replay_count %d", n, got.ReplayCount)
				}
				f.clock.set(f.clock.Now().Add(time.Second))
			}
			if held := f.claim(t); held.ClaimCount != 4 || held.ID != m.ID {
				t.Errorf("Claim = %s, hand-out %d, want %s, hand-out 4", held.ID, held.ClaimCount, m.ID)
			}
		}},
		{"S095 the last failure buries the message at once, after exactly its tries", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			for range 3 {
				f.clock.set(f.get(t, m).Message.Due)
				f.fail(t, f.claim(t), "x")
			}
			f.wantStatus(t, m, message.Dead)
			if got := f.get(t, m).Message; got.ClaimCount != 3 || got.RetryCount != 3 {
				t.Errorf("dead after %d hand-outs and %d failures, want 3 and 3", got.ClaimCount, got.RetryCount)
			}
		}},
		{"S098 a message keeps its id through retries and replays", func(t *testing.T, f *fixture) {
			m := f.send(t, emails, message.Draft{Payload: "same", MaxRetries: new(2)})
			other := f.send(t, "orders", message.Draft{Payload: "same"})
			if m.ID == other.ID {
				t.Errorf("two messages with the same payload have the id %s", m.ID)
			}
			for n := range 2 {
				f.at(time.Duration(n+1) * time.Minute)
				if held := f.claim(t); held.ID != m.ID {
					t.Errorf("hand-out %d has the id %s, want %s", n+1, held.ID, m.ID)
				} else {
					f.fail(t, held, "x")
				}
			}
			f.replay(t, m)
			f.at(time.Hour)
			if held := f.claim(t); held.ID != m.ID || held.Payload != "same" {
				t.Errorf("the replayed message is %s, %q, want %s", held.ID, held.Payload, m.ID)
			}
		}},
		{"a message that comes back in the millisecond of its claim is due one later", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			f.at(claimedAfter)
			wantNext := func(verb string, got message.Message) {
				t.Helper()
				if want := T(claimedAfter + ms); !got.Due.Equal(want) || !got.UpdatedAt.Equal(want) {
					t.Errorf("%s = due %v, updated %v, want %v", verb, got.Due, got.UpdatedAt, want)
				}
				f.claimNone(t)
				f.at(claimedAfter)
			}
			wantNext("Release", f.release(t, f.claim(t)))
			wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)

			f.enqueue(t, "p")
			held := f.claim(t)
			got, err := f.Fail(t.Context(), emails, held.ID, message.Failure{
				Receipt: &held.Receipt, RetryAfter: new(time.Duration(0)),
			})
			wantError(t, "Fail", err, nil)
			wantNext("Fail", got)
			wantError(t, "Delete", f.Delete(t.Context(), emails, held.ID), nil)

			f.enqueue(t, "p")
			got = f.reject(t, f.claim(t), "x")
			wantNext("Fail for good", got)
			if got = f.replay(t, got); !got.Due.Equal(T(claimedAfter+2*ms)) || !got.UpdatedAt.Equal(T(claimedAfter+2*ms)) {
				t.Errorf("Replay in the millisecond of death = due %v, updated %v, want %v",
					got.Due, got.UpdatedAt, T(claimedAfter+2*ms))
			}
			f.at(claimedAfter + ms)
			f.claimNone(t)
			f.at(claimedAfter + 2*ms)
			f.claim(t)
		}},
	})
}

// wantDelays fails the message, or lets it stall, once more than there are
// waits, and compares each wait.
func (f *fixture) wantDelays(t *testing.T, m message.Message, event string, want []float64) {
	t.Helper()
	for n := range len(want) + 1 {
		f.clock.set(f.get(t, m).Message.Due.Add(-ms))
		if n > 0 {
			f.claimNone(t)
		}
		f.clock.set(f.get(t, m).Message.Due)
		held := f.claim(t)
		var got message.Message
		if event == "stall" {
			f.clock.set(held.Due.Add(message.SweepGrace))
			f.catchUp()
			if _, err := f.Sweep(t.Context(), message.SweepOptions{}); err != nil {
				t.Fatalf("Sweep = %v", err)
			}
			got = f.get(t, m).Message
		} else {
			f.clock.set(held.ClaimedAt.Add(ms))
			got = f.fail(t, held, "x")
		}
		if n == len(want) {
			if got.Status != message.Dead {
				t.Errorf("%s %d leaves the message %s, want dead", event, n+1, got.Status)
			}
			return
		}
		if wait := got.Due.Sub(f.clock.Now()); got.Status != message.Pending || wait.Seconds() != want[n] {
			t.Errorf("%s %d leaves the message %s, due after %v, want pending after %v s",
				event, n+1, got.Status, wait, want[n])
		}
	}
}
