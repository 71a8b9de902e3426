package message

import "context"

// Succeed settles a message: its holder has done the work.
type Succeed struct {
	Answer
	KeepDays float64 // how long the settled message is kept
}

// Verb implements Transition.
func (t Succeed) Verb() Verb { return VerbSucceed }

// Allows implements Transition.
func (t Succeed) Allows(m Message) error { return t.allows(m, VerbSucceed) }

// AppliedTo implements Transition.
func (t Succeed) AppliedTo(m Message) bool { return t.repeats(m, VerbSucceed) }

// Apply implements Transition.
func (t Succeed) Apply(m Message) Message {
	m.Status = Succeeded
	m.Due = t.At
	m.UpdatedAt = t.At
	m.LastVerb = VerbSucceed
	m.ExpiresAt = expiry(t.At, t.KeepDays)
	return m
}

// Ended implements Transition. The success is read off the message itself: no
// attempt need be stored.
func (Succeed) Ended(Message) *Attempt { return nil }

// Succeed records that the holder of the receipt has done the work. Saying it
// twice is no error. A nil receipt stands for whoever holds the message. Errors:
// ErrNotFound, *ConflictError, *ValidationError, ErrUnavailable.
func (s *Service) Succeed(ctx context.Context, queue, id string, receipt *string) (Message, error) {
	set, err := s.settingsOf(ctx, queue)
	if err != nil {
		return Message{}, err
	}
	if err := invalid(set.answerFaults(receipt, ReceiptFaults(receipt))); err != nil {
		return Message{}, err
	}
	return s.Store.Apply(ctx, queue, id, Succeed{Answer: s.answer(receipt), KeepDays: set.SucceededDays})
}

// RequiresReceipt reports whether the queue refuses Succeed and Fail without a
// receipt. Errors: ErrUnavailable.
func (s *Service) RequiresReceipt(ctx context.Context, queue string) (bool, error) {
	set, err := s.settingsOf(ctx, queue)
	return set.RequireReceipt, err
}

// answer begins the transition of a holder.
func (s *Service) answer(receipt *string) Answer {
	a := Answer{At: s.now()}
	if receipt != nil {
		a.Receipt = *receipt
	}
	return a
}
