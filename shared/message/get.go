package message

import (
	"context"
	"slices"
)

// Get returns the message with its payload and its history, newest attempt
// last. Errors: ErrNotFound, ErrUnavailable.
func (s *Service) Get(ctx context.Context, queue, id string) (Message, []Attempt, error) {
	m, stored, err := s.Store.Get(ctx, queue, id)
	if err != nil {
		return Message{}, nil, err
	}
	now := s.now()
	if m.Expired(now) {
		return Message{}, nil, ErrNotFound
	}
	attempts := History(m, stored, now)
	isFailure := func(a Attempt) bool { return a.Outcome != OutcomeSucceeded }
	if m.LastError != nil && !slices.ContainsFunc(attempts, isFailure) {
		// The whole text is kept for as long as the attempt is.
		m.LastError = new(CutError(*m.LastError, ShortErrorBytes))
	}
	return m, attempts, nil
}
