package message

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
func (t Stall) Apply(m Message) (Message, *Attempt) {
	text := fmt.Sprintf("lease ran out at %s without an answer", m.Due.Format("2006-01-02T15:04:05.000Z"))
	m = m.settle(t.At, VerbStall)
	m.StallCount++
	m.LastError = &text
	ended := &Attempt{
		Number: m.ClaimCount, ClaimedAt: m.ClaimedAt, EndedAt: m.UpdatedAt,
		Outcome: OutcomeStalled, Error: text,
	}
	if m.StallCount >= m.MaxStalls {
		return m.bury(Stalled, t.DeadDays), ended
	}
	return m.retry(t.Backoff.Delay(m.StallCount, t.Jitter)), ended
}

// SweepReport says what a sweep did.
type SweepReport struct {
	Queues   int // visited
	Returned int // lapsed leases whose messages wait again
	Buried   int // lapsed leases whose messages died
	Failed   int // lapsed leases that the store could not change; the next sweep finds them again
	// Err is the first reason why something was left undone: a lease that failed,
	// or a queue that could not be looked through. Nil if all was done.
	Err error
}

// sweepPage is how many queues, or leases, are read at a time.
const sweepPage = 100

// Sweep ends the leases that ran out, in every queue in use. One lease or queue
// that fails does not keep the others from it; the report says so. It may run
// twice at once. Errors: ErrUnavailable, or that of ctx, if it could not look
// further; the report then covers what was done.
func (s *Service) Sweep(ctx context.Context) (SweepReport, error) {
	var report SweepReport
	err := s.eachInUse(ctx, func(mark Mark) {
		report.Queues++
		report.note(s.sweepQueue(ctx, mark.Queue, &report))
	})
	return report, err
}

// note keeps the first error.
func (r *SweepReport) note(err error) {
	if r.Err == nil {
		r.Err = err
	}
}

func (s *Service) eachInUse(ctx context.Context, visit func(Mark)) error {
	for after := ""; ; {
		marks, err := s.Sweeps.InUse(ctx, after, sweepPage)
		if err != nil {
			return err
		}
		for _, mark := range marks {
			visit(mark)
			after = mark.Queue
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if len(marks) < sweepPage {
			return nil
		}
	}
}

func (s *Service) sweepQueue(ctx context.Context, queue string, report *SweepReport) error {
	for after := (*Position)(nil); ; {
		lapsed, err := s.Sweeps.Lapsed(ctx, queue, s.now().Add(-SweepGrace), after, sweepPage)
		if err != nil || len(lapsed) == 0 {
			return err
		}
		set, err := s.settingsOf(ctx, queue)
		if err != nil {
			return err
		}
		s.stallAll(ctx, queue, lapsed, set, report)
		after = &lapsed[len(lapsed)-1]
		if err := ctx.Err(); err != nil || len(lapsed) < sweepPage {
			return err
		}
	}
}

// stallAll ends the leases side by side: a store can make many writes durable
// together.
func (s *Service) stallAll(ctx context.Context, queue string, lapsed []Position, set Settings, report *SweepReport) {
	var all sync.WaitGroup
	results := make([]error, len(lapsed))
	dead := make([]bool, len(lapsed))
	for i, seen := range lapsed {
		all.Go(func() {
			m, err := s.Store.Apply(ctx, queue, seen.ID, Stall{
				At: s.now(), Lease: seen.Due, Backoff: set.Backoff, Jitter: s.jitter(), DeadDays: set.DeadDays,
			})
			results[i], dead[i] = err, m.Status == Dead
		})
	}
	all.Wait()
	for i, err := range results {
		switch {
		case errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound):
			// The holder answered or extended meanwhile.
		case err != nil:
			report.Failed++
			report.note(err)
		case dead[i]:
			report.Buried++
		default:
			report.Returned++
		}
	}
}

// markAge is how old a mark must be before it is taken away: two instances that
// set it and look for it do not agree on the time.
const markAge = 10 * time.Minute

// CountQueues counts every queue in use, for ListQueues, and takes the marks of
// those away that have been out of use for long. A queue that fails does not
// keep the others from it. Errors: the first of those, or ErrUnavailable.
func (s *Service) CountQueues(ctx context.Context) error {
	var first error
	err := s.eachInUse(ctx, func(mark Mark) {
		if err := s.countQueue(ctx, mark); first == nil {
			first = err
		}
	})
	return cmp.Or(err, first)
}

func (s *Service) countQueue(ctx context.Context, mark Mark) error {
	now := s.now()
	counts, err := s.Queues.Count(ctx, mark.Queue, now)
	if err != nil {
		return err
	}
	if err := s.Queues.SaveCounts(ctx, mark.Queue, counts); err != nil {
		return err
	}
	if counts.idle() && now.Sub(mark.At) >= markAge {
		return s.Sweeps.Unmark(ctx, mark)
	}
	return nil
}
