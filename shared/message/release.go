package message

import "context"

// Release gives a message back unworked: it is due at once, and no count moves.
type Release struct{ Answer }

// Verb implements Transition.
func (t Release) Verb() Verb { return VerbRelease }

// Allows implements Transition.
func (t Release) Allows(m Message) error { return t.allows(m, VerbRelease) }

// AppliedTo implements Transition.
func (t Release) AppliedTo(m Message) bool { return t.repeats(m, VerbRelease) }

// Apply implements Transition.
func (t Release) Apply(m Message) Message {
	return m.settle(t.At, VerbRelease).retry(0)
}

// Ended implements Transition.
func (Release) Ended(Message) *Attempt { return nil }

// Release gives the message back. Saying it twice is no error. Errors:
// ErrNotFound, *ConflictError, *ValidationError, ErrUnavailable.
func (s *Service) Release(ctx context.Context, queue, id string, receipt *string) (Message, error) {
	if err := invalid(requireReceipt(receipt, ReceiptFaults(receipt))); err != nil {
		return Message{}, err
	}
	return s.Store.Apply(ctx, queue, id, Release{s.answer(receipt)})
}
