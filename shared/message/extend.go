package message

import (
	"context"
	"time"
)

// Extend lets the holder keep the message longer.
type Extend struct {
	Answer
	Timeout time.Duration // from the time of the call on
}

// Verb implements Transition.
func (t Extend) Verb() Verb { return VerbExtend }

// Allows implements Transition.
func (t Extend) Allows(m Message) error {
	if err := t.allows(m, VerbExtend); err != nil {
		return err
	}
	if !t.At.Before(m.ClaimedAt.Add(MaxHold)) {
		return &ConflictError{Verb: VerbExtend, Status: m.Status, Reason: ReasonHeldLong}
	}
	return nil
}

// AppliedTo implements Transition. An extension that changes nothing is decided
// by Apply.
func (t Extend) AppliedTo(Message) bool { return false }

// Apply implements Transition. A result that is not later than the present end
// leaves the message as it is.
func (t Extend) Apply(m Message) Message {
	end := t.At.Add(t.Timeout)
	if limit := m.ClaimedAt.Add(MaxHold); end.After(limit) {
		end = limit
	}
	if end.After(m.Due) {
		m.Due = end
		m.UpdatedAt = t.At
	}
	return m
}

// Ended implements Transition.
func (Extend) Ended(Message) *Attempt { return nil }

// Extension is what a holder asks for.
type Extension struct {
	Receipt *string        // required
	Timeout *time.Duration // whole seconds, 1 s to MaxTimeout; the queue's if nil
}

// Faults lists what is wrong with what was given.
func (e Extension) Faults() []Fault {
	faults := ReceiptFaults(e.Receipt)
	if e.Timeout != nil {
		faults = appendSecondsRange(faults, "processing_timeout", *e.Timeout, time.Second, MaxTimeout)
	}
	return faults
}

// Extend moves the end of the lease to the later of what it is and now plus the
// timeout, at most MaxHold after the claim. Errors: ErrNotFound,
// *ConflictError, *ValidationError, ErrUnavailable.
func (s *Service) Extend(ctx context.Context, queue, id string, e Extension) (Message, error) {
	if err := invalid(requireReceipt(e.Receipt, e.Faults())); err != nil {
		return Message{}, err
	}
	tr := Extend{Answer: s.answer(e.Receipt)}
	if e.Timeout != nil {
		tr.Timeout = *e.Timeout
	} else {
		set, err := s.settingsOf(ctx, queue)
		if err != nil {
			return Message{}, err
		}
		tr.Timeout = set.ProcessingTimeout
	}
	return s.Store.Apply(ctx, queue, id, tr)
}
