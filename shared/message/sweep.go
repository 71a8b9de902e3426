package message

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Stall ends a lease that ran out without an answer.
type Stall struct {
	At time.Time // at least SweepGrace after Lease
	// Lease is the end of the lease as the sweeper saw it. If it is still the end,
	// the lease is over, whoever holds it.
	Lease    time.Time
	Backoff  Backoff
	Jitter   float64  // in [0, 1)
	DeadDays *float64 // how long a dead message is kept; nil for ever
}

// Verb implements Transition.
func (t Stall) Verb() Verb { return VerbStall }

// Time implements Transition.
func (t Stall) Time() time.Time { return t.At }

// Allows implements Transition.
func (t Stall) Allows(m Message) error {
	switch {
	case m.Status != Processing:
		return &ConflictError{Verb: VerbStall, Status: m.Status, Reason: ReasonState}
	case !m.Due.Equal(t.Lease) || t.At.Before(m.Due.Add(SweepGrace)):
		return &ConflictError{Verb: VerbStall, Status: m.Status, Reason: ReasonAlive}
	}
	return nil
}

// AppliedTo implements Transition. Two sweeps at once see the same lease: the
// second must not count it as its own.
func (t Stall) AppliedTo(Message) bool { return false }

// Apply implements Transition.
func (t Stall) Apply(m Message) Message {
	text := fmt.Sprintf("lease ran out at %s without an answer", m.Due.Format("2006-01-02T15:04:05.000Z"))
	m = m.settle(t.At, VerbStall)
	m.StallCount++
	m.LastError = &text
	if m.StallCount >= m.MaxStalls {
		return m.bury(Stalled, t.DeadDays)
	}
	return m.retry(t.Backoff.Delay(m.StallCount, t.Jitter))
}

// Ended implements Transition.
func (Stall) Ended(m Message) *Attempt { return m.attempt(OutcomeStalled, m.lastError()) }

// SweepOptions say what a sweep does beside ending leases. The zero value: nothing,
// and it goes through every queue in use.
type SweepOptions struct {
	// Count counts every queue visited, for ListQueues and the totals, and takes
	// the marks of those away that have been out of use for long.
	Count bool
	// SettledEvery is how often the succeeded messages are counted; in between, their
	// last number stays. They are most of what a queue holds, and nothing waits for
	// their count, which may cost as much as reading them. Zero: each time.
	SettledEvery time.Duration
	// Until is when the sweep stops and leaves the rest to the next one that has an
	// end; zero for never.
	Until time.Time
}

// SweepReport says what a sweep did.
type SweepReport struct {
	Queues   int // visited
	Returned int // lapsed leases whose messages wait again
	Buried   int // lapsed leases whose messages died
	Failed   int // lapsed leases that the store could not change; the next sweep finds them again
	// Done reports whether the sweep came to the last queue. One with an end may
	// then have begun anew.
	Done bool
	// Totals are those of all queues in use, if they were counted and the sweep is
	// done. Nil otherwise.
	Totals *Totals
	// Err is the first reason why something was left undone: a lease that failed,
	// or a queue that could not be looked through. Nil if all was done.
	Err error
}

// Totals sum up the queues in use.
type Totals struct {
	Pending, Dead int // messages, counted to CountLimit a queue
	DeadMost      int // dead messages of the queue that has most
	OldestPending time.Time
	OldestDead    time.Time // zero if there is none
}

func (t *Totals) add(c Counts) {
	t.Pending += c.Depth[Pending]
	t.Dead += c.Depth[Dead]
	t.DeadMost = max(t.DeadMost, c.Depth[Dead])
	t.OldestPending = earlier(t.OldestPending, c.OldestPending)
	t.OldestDead = earlier(t.OldestDead, c.OldestDead)
}

// earlier returns the earlier of two times; one that is zero does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Round is how far the sweeps with an end have come.
type Round struct {
	After  string // the last queue visited; empty at the beginning
	Totals Totals // of the queues up to there
}

const (
	sweepPage    = 100 // queues, or leases, read at a time
	queuesAtOnce = 16
	stallsAtOnce = 100 // in all queues together
)

// Sweep ends the leases that ran out, in every queue in use. One lease or queue
// that fails does not keep the others from it; the report says so. It may run
// twice at once. Errors: ErrUnavailable, or that of ctx, if it could not look
// further; the report then covers what was done.
func (s *Service) Sweep(ctx context.Context, o SweepOptions) (SweepReport, error) {
	sw := &sweep{Service: s, SweepOptions: o, stalls: make(chan struct{}, stallsAtOnce)}
	var kept Round
	if !o.Until.IsZero() {
		var err error
		if kept, err = s.Sweeps.Round(ctx); err != nil {
			return SweepReport{}, err
		}
		sw.round = kept
	}
	err := sw.run(ctx)
	if err == nil && sw.report.Done && kept.After != "" {
		// The queues at the beginning were visited by an earlier sweep: again, while
		// there is time.
		err = sw.run(ctx)
	}
	if !o.Until.IsZero() && sw.round != kept {
		// Also where ctx has ended, or the next sweep would begin where this one did.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveWithin)
		defer cancel()
		err = cmp.Or(err, s.Sweeps.SaveRound(ctx, sw.round))
	}
	return sw.report, err
}

// saveWithin bounds what a sweep does after its time.
const saveWithin = time.Second

// sweep is one run.
type sweep struct {
	*Service
	SweepOptions
	round  Round
	stalls chan struct{} // a place for each lease that is being ended

	mu     sync.Mutex
	report SweepReport
}

// over reports whether the time of the run is up.
func (sw *sweep) over(ctx context.Context) bool {
	return ctx.Err() != nil || !sw.Until.IsZero() && !sw.Now().Before(sw.Until)
}

// run visits the queues behind those that the round has visited, side by side,
// and ends the round if it came to the last.
func (sw *sweep) run(ctx context.Context) error {
	done, err := sw.visitAll(ctx)
	sw.report.Done = sw.report.Done || done
	if totals := sw.round.Totals; done {
		if sw.Count {
			sw.report.Totals = &totals
		}
		sw.round = Round{}
	}
	return err
}

func (sw *sweep) visitAll(ctx context.Context) (done bool, err error) {
	var visits sync.WaitGroup
	defer visits.Wait()
	turns := make(chan struct{}, queuesAtOnce)
	for {
		marks, err := sw.Sweeps.InUse(ctx, sw.round.After, sweepPage)
		if err != nil {
			return false, err
		}
		for _, mark := range marks {
			turns <- struct{}{}
			if sw.over(ctx) {
				return false, ctx.Err()
			}
			sw.round.After = mark.Queue
			visits.Go(func() {
				defer func() { <-turns }()
				sw.visit(ctx, mark)
			})
		}
		if len(marks) < sweepPage {
			visits.Wait()
			return true, ctx.Err()
		}
	}
}

// visit does what is to be done in one queue.
func (sw *sweep) visit(ctx context.Context, mark Mark) {
	defer sw.recover()
	sw.note(func(r *SweepReport) error { r.Queues++; return nil })
	q, err := sw.Queues.Queue(ctx, mark.Queue)
	if errors.Is(err, ErrQueueNotFound) { // deleted at the moment a message came
		q, err = Queue{Name: mark.Queue, Settings: DefaultSettings()}, nil
	}
	if err == nil {
		err = sw.endLeases(ctx, q)
	}
	sw.note(func(*SweepReport) error { return err })
	if !sw.Count || err != nil {
		return
	}
	counts, err := sw.count(ctx, mark, q.Counts)
	sw.note(func(*SweepReport) error {
		sw.round.Totals.add(counts)
		return err
	})
}

// note changes the report, and keeps the first error.
func (sw *sweep) note(change func(*SweepReport) error) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if err := change(&sw.report); sw.report.Err == nil {
		sw.report.Err = err
	}
}

// recover keeps what one queue or message makes of the program from the others.
func (sw *sweep) recover() {
	if p := recover(); p != nil {
		sw.note(func(*SweepReport) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) })
	}
}

func (sw *sweep) endLeases(ctx context.Context, q Queue) error {
	for after := (*Position)(nil); ; {
		lapsed, err := sw.Sweeps.Lapsed(ctx, q.Name, sw.now().Add(-SweepGrace), after, sweepPage)
		if err != nil || len(lapsed) == 0 {
			return err
		}
		// Side by side: a store can make many writes durable together.
		var all sync.WaitGroup
		for _, seen := range lapsed {
			sw.stalls <- struct{}{}
			all.Go(func() {
				defer func() { <-sw.stalls }()
				sw.endLease(ctx, q.Name, seen, q.Settings)
			})
		}
		all.Wait()
		after = &lapsed[len(lapsed)-1]
		if len(lapsed) < sweepPage || sw.over(ctx) {
			return ctx.Err()
		}
	}
}

func (sw *sweep) endLease(ctx context.Context, queue string, seen Position, set Settings) {
	defer sw.recover()
	m, err := sw.stall(ctx, queue, seen, set)
	sw.note(func(r *SweepReport) error {
		switch {
		case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
			// The holder answered or extended meanwhile.
		case err != nil:
			r.Failed++
			return err
		case m.Status == Dead:
			r.Buried++
		default:
			r.Returned++
		}
		return nil
	})
}

// stall ends a lease that was seen to have run out.
func (s *Service) stall(ctx context.Context, queue string, seen Position, set Settings) (Message, error) {
	return s.Store.Apply(ctx, queue, seen.ID, Stall{
		At: s.now(), Lease: seen.Due, Backoff: set.Backoff, Jitter: s.jitter(), DeadDays: set.DeadDays,
	})
}

// markAge is how old a mark must be before it is taken away: two instances that
// set it and look for it do not agree on the time.
const markAge = 10 * time.Minute

// count counts the queue. Last is what was counted the last time; nil if it never
// was.
func (sw *sweep) count(ctx context.Context, mark Mark, last *Counts) (Counts, error) {
	now := sw.now()
	statuses := Statuses()
	settled := last == nil || sw.SettledEvery == 0 ||
		!last.At.Truncate(sw.SettledEvery).Equal(now.Truncate(sw.SettledEvery))
	if !settled {
		statuses = slices.DeleteFunc(statuses, func(status Status) bool { return status == Succeeded })
	}
	counts, err := sw.Queues.Count(ctx, mark.Queue, now, statuses...)
	if err != nil {
		return Counts{}, err
	}
	if !settled {
		counts.Depth[Succeeded], counts.More[Succeeded] = last.Depth[Succeeded], last.More[Succeeded]
	}
	if err := sw.Queues.SaveCounts(ctx, mark.Queue, counts); err != nil {
		return counts, err
	}
	if counts.idle() && now.Sub(mark.At) >= markAge {
		return counts, sw.Sweeps.Unmark(ctx, mark)
	}
	return counts, nil
}

// lookAgain is how long a claim that finds nothing relies on what the last one
// saw of the leases.
const lookAgain = 5 * time.Second

// lookForLapsed ends the earliest lease of the queue if it ran out. A queue
// whose workers ask for messages so waits for no sweep. It is a help and no
// duty: where it fails, the sweep does it.
func (s *Service) lookForLapsed(ctx context.Context, queue string, set Settings) {
	now := s.now()
	s.mu.Lock()
	look, known := s.looks[queue]
	s.mu.Unlock()
	if known && now.Before(look) && look.Sub(now) <= lookAgain {
		return
	}
	look = now.Add(lookAgain)
	seen, found, err := s.Sweeps.NextLease(ctx, queue)
	if err == nil && found {
		end := seen.Due.Add(SweepGrace)
		if !end.After(now) {
			_, _ = s.stall(ctx, queue, seen, set) // or somebody else has
			end = now                             // others may have run out too
		}
		look = earlier(look, end)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looks == nil || len(s.looks) >= settingsKept {
		s.looks = make(map[string]time.Time)
	}
	s.looks[queue] = look
}
