package message

import "context"

// Delete removes the message for good. Errors: ErrNotFound, *ConflictError while
// it is processing, ErrUnavailable.
func (s *Service) Delete(ctx context.Context, queue, id string) error {
	return s.Store.Delete(ctx, queue, id, s.now())
}
