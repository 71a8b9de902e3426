package message

import (
	"context"
	"time"
)

// Claim hands a due message out under a lease.
type Claim struct {
	At      time.Time
	Receipt string        // fresh: it becomes the proof of holding the lease
	Timeout time.Duration // the length of the lease
}

// Verb implements Transition.
func (c Claim) Verb() Verb { return VerbClaim }

// Time implements Transition.
func (c Claim) Time() time.Time { return c.At }

// Allows implements Transition.
func (c Claim) Allows(m Message) error {
	switch {
	case m.Status != Pending:
		return &ConflictError{Verb: VerbClaim, Status: m.Status, Reason: ReasonState}
	case m.Due.After(c.At):
		return &ConflictError{Verb: VerbClaim, Status: m.Status, Reason: ReasonNotDue}
	}
	return nil
}

// AppliedTo implements Transition.
func (c Claim) AppliedTo(m Message) bool {
	return m.Status == Processing && m.Receipt == c.Receipt
}

// Apply implements Transition.
func (c Claim) Apply(m Message) Message {
	m.Status = Processing
	m.ClaimedAt = later(c.At, m.Due) // by whatever clock it was found due
	m.UpdatedAt = m.ClaimedAt
	m.Due = m.ClaimedAt.Add(c.Timeout)
	m.Receipt = c.Receipt
	m.LastVerb = ""
	m.ClaimCount++
	return m
}

// Ended implements Transition.
func (Claim) Ended(Message) *Attempt { return nil }

// ClaimOptions say what a claim asks for. Zero values take the defaults.
type ClaimOptions struct {
	Max     *int           // how many messages, 1 to MaxClaim; 1 if nil
	Timeout *time.Duration // length of the lease in whole seconds, 1 s to MaxTimeout; the queue's if nil
}

// Faults lists what is outside its range.
func (o ClaimOptions) Faults() []Fault {
	var faults []Fault
	if o.Timeout != nil {
		faults = appendSecondsRange(faults, "processing_timeout", *o.Timeout, time.Second, MaxTimeout)
	}
	if o.Max != nil {
		faults = appendRange(faults, "max_messages", *o.Max, 1, MaxClaim)
	}
	return faults
}

// Claim hands out due messages of the queue, earliest first, each with its
// payload and a receipt of its own. None is no error, and no proof that the
// queue is empty. Errors: *ValidationError, ErrUnavailable.
func (s *Service) Claim(ctx context.Context, queue string, o ClaimOptions) ([]Message, error) {
	if err := invalid(o.Faults()); err != nil {
		return nil, err
	}
	set, err := s.settingsOf(ctx, queue)
	if err != nil {
		return nil, err
	}
	n, timeout := 1, set.ProcessingTimeout
	if o.Max != nil {
		n = *o.Max
	}
	if o.Timeout != nil {
		timeout = *o.Timeout
	}
	claimed, err := s.Store.Claim(ctx, queue, n, func() Claim {
		return Claim{At: s.now(), Receipt: s.nonce(), Timeout: timeout}
	})
	if err == nil && len(claimed) == 0 {
		s.lookForLapsed(ctx, queue, set)
	}
	return claimed, err
}
