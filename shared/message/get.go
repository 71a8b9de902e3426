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
	failedLately := func(a Attempt) bool {
		return a.Outcome != OutcomeSucceeded && isKept(a.EndedAt, now)
	}
	if m.LastError != nil && !slices.ContainsFunc(stored, failedLately) {
		// The whole text is kept with its attempt, and as long.
		m.LastError = new(CutError(*m.LastError, ShortErrorBytes))
	}
	return m, History(m, stored, now), nil
}
