package storetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// paused does something between a sweep's reading and its writing.
type paused struct {
	message.SweepStore
	between func()
}

func (s *paused) Lapsed(
	ctx context.Context, queue string, before time.Time, after *message.Position, limit int,
) ([]message.Position, error) {
	lapsed, err := s.SweepStore.Lapsed(ctx, queue, before, after, limit)
	if len(lapsed) > 0 {
		s.between()
	}
	return lapsed, err
}

// settled counts when the indexes show everything.
type settled struct {
	message.QueueStore
	catchUp func()
}

func (s *settled) Count(
	ctx context.Context, queue string, now time.Time, statuses ...message.Status,
) (message.Counts, error) {
	s.catchUp()
	return s.QueueStore.Count(ctx, queue, now, statuses...)
}

// stuck cannot change some messages.
type stuck struct {
	message.Store
	ids []string
}

func (s *stuck) Apply(ctx context.Context, queue, id string, tr message.Transition) (message.Message, error) {
	if slices.Contains(s.ids, id) {
		return message.Message{}, message.ErrUnavailable
	}
	return s.Store.Apply(ctx, queue, id, tr)
}

// damaged cannot read a queue.
type damaged struct {
	message.QueueStore
	name string
}

func (s *damaged) Queue(ctx context.Context, name string) (message.Queue, error) {
	if name == s.name {
		return message.Queue{}, message.ErrUnavailable
	}
	return s.QueueStore.Queue(ctx, name)
}

// lapse enqueues and claims n messages, whose leases can be swept then.
func (f *fixture) lapse(t *testing.T, queue string, n int) []message.Message {
	t.Helper()
	f.at(0)
	for i := range n {
		f.send(t, queue, message.Draft{Payload: strconv.Itoa(i)})
	}
	var held []message.Message
	for len(held) < n {
		got := f.claimN(t, queue, message.MaxClaim)
		if len(got) == 0 {
			t.Fatalf("Claim(%q) handed out %d messages of %d", queue, len(held), n)
		}
		held = append(held, got...)
	}
	f.at(32 * time.Second)
	return held
}

func testSweep(t *testing.T, open Open) {
	runRows(t, open, []row{
		{"a sweep of nothing does nothing", func(t *testing.T, f *fixture) {
			got, err := f.Sweep(t.Context(), message.SweepOptions{})
			wantError(t, "Sweep", err, nil)
			wantSame(t, "the report", got, message.SweepReport{Done: true})
		}},
		{"S100 a sweep takes no lease that was given after it looked", func(t *testing.T, f *fixture) {
			m := f.lapse(t, emails, 1)[0]
			var second message.Message
			f.Sweeps = &paused{f.store, func() {
				f.stall(t, m) // another sweep
				f.at(34 * time.Second)
				second = f.claim(t)
				f.at(35 * time.Second)
			}}
			f.sweep(t, 0, 0)
			if got := f.get(t, m).Message; got.Receipt != second.Receipt || !got.Due.Equal(T(64*time.Second)) ||
				got.StallCount != 1 {
				t.Errorf("message = %+v, want the second lease until %v", got, T(64*time.Second))
			}
			f.succeed(t, second)
		}},
		{"S100 a sweep takes no lease that was extended after it looked", func(t *testing.T, f *fixture) {
			m := f.lapse(t, emails, 1)[0]
			f.Sweeps = &paused{f.store, func() {
				f.extend(t, m, time.Second)
				f.at(time.Hour) // the new lease has run out too, but it is not the one seen
			}}
			f.sweep(t, 0, 0)
			wantSame(t, "the end of the lease", f.get(t, m).Message.Due, T(33*time.Second))
			f.succeed(t, m)
		}},
		{"a sweep does not count what was answered or deleted after it looked", func(t *testing.T, f *fixture) {
			held := f.lapse(t, emails, 3)
			f.Sweeps = &paused{f.store, func() {
				f.succeed(t, held[0])
				f.reject(t, held[1], "x")
				wantError(t, "Delete", f.Delete(t.Context(), emails, held[1].ID), nil)
			}}
			f.sweep(t, 1, 0)
			f.wantStatus(t, held[0], message.Succeeded)
			f.wantGone(t, held[1])
			f.wantStatus(t, held[2], message.Pending)
		}},
		{"S101 messages that cannot be changed do not keep others from being swept", func(t *testing.T, f *fixture) {
			held := f.lapse(t, emails, 120)
			slices.SortFunc(held, byPlace)
			f.Store = &stuck{f.store, ids(held[:110])} // more than a page
			pages := 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f.Sweeps = &paused{f.store, func() {
				if pages++; pages > 10 {
					cancel() // or a sweep that reads the same page again would never end
				}
			}}
			f.catchUp()
			got, err := f.Sweep(ctx, message.SweepOptions{})
			wantError(t, "Sweep", err, nil)
			wantError(t, "the report's error", got.Err, message.ErrUnavailable)
			got.Err = nil
			wantSame(t, "the report", got, message.SweepReport{Queues: 1, Returned: 10, Failed: 110, Done: true})
			f.Store, f.Sweeps = f.store, f.store
			f.sweep(t, 110, 0)
			wantSame(t, "the count", f.count(t, emails), [4]int{120})
		}},
		{"S101 a sweep goes on to the last page", func(t *testing.T, f *fixture) {
			f.lapse(t, emails, 230)
			f.sweep(t, 230, 0)
			f.sweep(t, 0, 0)
			wantSame(t, "the count", f.count(t, emails), [4]int{230})
		}},
		{"a sweep visits every queue in use", func(t *testing.T, f *fixture) {
			queues := numbered("queue-", 130)
			for _, queue := range queues {
				f.lapse(t, queue, 1)
			}
			f.catchUp()
			got, err := f.Sweep(t.Context(), message.SweepOptions{})
			wantError(t, "Sweep", err, nil)
			wantSame(t, "the report", got, message.SweepReport{Queues: 130, Returned: 130, Done: true})
			for _, queue := range queues {
				wantSame(t, "the count of "+queue, f.count(t, queue), [4]int{1})
			}
		}},
		{"a queue that cannot be read keeps no other from being swept", func(t *testing.T, f *fixture) {
			queues := numbered("queue-", 40) // more than are visited at once
			for _, queue := range queues {
				f.lapse(t, queue, 1)
			}
			f.Queues = &damaged{f.store, queues[0]}
			f.catchUp()
			got, err := f.Sweep(t.Context(), message.SweepOptions{})
			wantError(t, "Sweep", err, nil)
			wantError(t, "the report's error", got.Err, message.ErrUnavailable)
			got.Err = nil
			wantSame(t, "the report", got, message.SweepReport{Queues: 40, Returned: 39, Done: true})
		}},
		{"a sweep takes the settings of each queue", func(t *testing.T, f *fixture) {
			f.put(t, "slow", func(set *message.Settings) { set.Backoff.Initial = time.Minute })
			f.put(t, "once", func(set *message.Settings) { set.MaxStalls, set.DeadDays = 1, new(1.0) })
			slow, once, plain := f.lapse(t, "slow", 1)[0], f.lapse(t, "once", 1)[0], f.lapse(t, "plain", 1)[0]
			f.sweep(t, 2, 1)
			for _, want := range []message.Message{
				{ID: slow.ID, Queue: "slow", Status: message.Pending, Due: T(92 * time.Second)},
				{ID: plain.ID, Queue: "plain", Status: message.Pending, Due: T(34 * time.Second)},
				{
					ID: once.ID, Queue: "once", Status: message.Dead, Due: T(32 * time.Second),
					ExpiresAt: T(32*time.Second + day),
				},
			} {
				got := f.get(t, want).Message
				got = message.Message{
					ID: got.ID, Queue: got.Queue, Status: got.Status, Due: got.Due, ExpiresAt: got.ExpiresAt,
				}
				wantSame(t, "the message in "+want.Queue, got, want)
			}
		}},
		{"a sweep leaves every other message as it is", func(t *testing.T, f *fixture) {
			stocked := f.stock(t, emails)
			f.at(31*time.Second + ms) // some leases have run out, and may not be swept yet
			f.sweep(t, 0, 0)
			for status, want := range stocked {
				wantSame(t, "the list of "+string(status), f.list(t, message.List{
					Queue: emails, Status: status, Payload: true,
				}), want)
			}
		}},
		{"a sweep that is out of time stops, and reports what it did", func(t *testing.T, f *fixture) {
			f.lapse(t, emails, 5)
			ctx, cancel := context.WithCancel(t.Context())
			f.Sweeps = &paused{f.store, cancel}
			f.catchUp()
			got, err := f.Sweep(ctx, message.SweepOptions{})
			if err == nil || got.Returned != 0 {
				t.Errorf("Sweep = %+v, %v, want it to stop before the first", got, err)
			}
			f.Sweeps = f.store
			f.sweep(t, 5, 0)
		}},
		{"sweeps with an end go on where the last one stopped, and sum up all queues", func(t *testing.T, f *fixture) {
			f.put(t, "queue-007", func(set *message.Settings) { set.MaxStalls = 1 })
			for _, queue := range numbered("queue-", 130) {
				f.lapse(t, queue, 1)
			}
			f.dead(t, "queue-130")
			f.dead(t, "queue-130")
			f.at(time.Hour)
			until := T(time.Hour + time.Second)
			f.Sweeps = &paused{f.store, func() { f.clock.set(until) }} // the time is up while the first are visited
			f.Queues = &settled{f.store, f.catchUp}
			f.catchUp()
			var sum message.SweepReport
			for range 200 {
				f.at(time.Hour)
				got, err := f.Sweep(t.Context(), message.SweepOptions{Count: true, Until: until})
				if err != nil || got.Err != nil || got.Done != (got.Totals != nil) || got.Queues == 0 && !got.Done {
					t.Fatalf("Sweep = %+v, %v, want progress, and totals only in the end", got, err)
				}
				sum.Queues += got.Queues
				sum.Returned += got.Returned
				sum.Buried += got.Buried
				if sum.Totals = got.Totals; got.Done {
					break
				}
			}
			if sum.Queues < 131 {
				t.Errorf("%d queues were visited, want each of 131", sum.Queues)
			}
			sum.Queues = 0
			wantSame(t, "the sum of the reports", sum, message.SweepReport{
				Returned: 129, Buried: 1, Totals: &message.Totals{
					Pending: 129, Dead: 3, DeadMost: 2, OldestDead: T(answeredAfter),
				},
			})
			f.Sweeps = f.store
			got, err := f.Sweep(t.Context(), message.SweepOptions{Count: true, Until: until.Add(time.Hour)})
			if err != nil || got.Queues < 131 || !got.Done {
				t.Errorf("the next Sweep = %+v, %v, want it to visit all", got, err)
			}
		}},
		{"a claim that finds nothing ends a lease that ran out", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			f.claimNone(t) // and sees when that lease ends
			f.clock.set(m.Due.Add(message.SweepGrace - ms))
			f.claimNone(t)
			f.wantStatus(t, m, message.Processing)
			f.clock.set(m.Due.Add(message.SweepGrace))
			f.claimNone(t) // the message waits for its backoff
			if got := f.get(t, m); got.Message.Status != message.Pending || got.Message.StallCount != 1 ||
				len(got.Attempts) != 1 || got.Attempts[0].Outcome != message.OutcomeStalled {
				t.Errorf("message = %+v, want it returned by a stall", got)
			}
			f.sweep(t, 0, 0)
			f.clock.set(f.clock.Now().Add(2 * time.Second))
			wantSame(t, "what is claimed then", ids(f.claimN(t, emails, 10)), []string{m.ID})
		}},
		{"a claim that finds nothing ends one lease after the other", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.MaxStalls = 1 })
			f.lapse(t, emails, 3)
			for n := range 3 {
				f.claimNone(t)
				wantSame(t, "the count", f.count(t, emails), [4]int{0, 2 - n, 1 + n, 0})
			}
		}},
		{"a claim that finds something ends no lease", func(t *testing.T, f *fixture) {
			m := f.lapse(t, emails, 1)[0]
			f.enqueue(t, "p")
			f.claim(t)
			f.wantStatus(t, m, message.Processing)
		}},
		{"leases that ran out are read in order, page by page", func(t *testing.T, f *fixture) {
			var held []message.Message
			for i := range 12 {
				f.send(t, emails, message.Draft{Key: strconv.Itoa(i)})
				timeout := time.Duration(10-i/3) * time.Second // three by three at the same time
				got := f.claimWith(t, emails, message.ClaimOptions{Timeout: &timeout})
				if len(got) != 1 {
					t.Fatalf("Claim = %v, want one message", ids(got))
				}
				held = append(held, got[0])
			}
			f.send(t, "orders", message.Draft{})
			f.claimFrom(t, "orders")
			f.enqueue(t, "pending")
			slices.SortFunc(held, byPlace)
			want := []message.Position{}
			for _, m := range held {
				want = append(want, m.Place())
			}
			for _, limit := range []int{1, 2, 3, 5, 100} {
				for end, n := range map[time.Duration]int{
					7*time.Second - ms: 0, 7 * time.Second: 3, 9*time.Second - ms: 6, 10 * time.Second: 12, time.Hour: 12,
				} {
					got := f.lapsed(t, T(end), limit)
					wantSame(t, fmt.Sprintf("leases until %v by %d", end, limit), got, want[:n:n])
				}
			}
		}},
	})
}

// lapsed reads all leases that ended by then.
func (f *fixture) lapsed(t *testing.T, until time.Time, limit int) []message.Position {
	t.Helper()
	all := []message.Position{}
	for after := (*message.Position)(nil); ; {
		f.catchUp()
		page, err := f.store.Lapsed(t.Context(), emails, until, after, limit)
		if err != nil || len(page) > limit {
			t.Fatalf("Lapsed = %d messages, %v, want at most %d", len(page), err, limit)
		}
		all = append(all, page...)
		if len(page) < limit {
			return all
		}
		after = &page[limit-1]
	}
}
