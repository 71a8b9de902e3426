package message

import (
	"context"
	"time"
)

// Delete removes the message for good. Errors: ErrNotFound, *ConflictError while
// it is processing, ErrUnavailable.
func (s *Service) Delete(ctx context.Context, queue, id string) error {
	return s.Store.Delete(ctx, queue, id, s.now())
}

// MayDelete reports why m may not be deleted at the time given: nil,
// ErrNotFound for one past its retention, or a *ConflictError.
func MayDelete(m Message, at time.Time) error {
	if m.Expired(at) {
		return ErrNotFound
	}
	if m.Status == Processing {
		return &ConflictError{Verb: VerbDelete, Status: m.Status, Reason: ReasonState}
	}
	return nil
}
