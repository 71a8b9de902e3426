package message

import (
	"context"
	"time"
)

// Replay sends a dead message round again, with its whole budget. Every older
// receipt is void.
type Replay struct {
	At    time.Time
	Nonce string // takes the receipt's place; never handed out
}

// Verb implements Transition.
func (t Replay) Verb() Verb { return VerbReplay }

// Time implements Transition.
func (t Replay) Time() time.Time { return t.At }

// Allows implements Transition.
func (t Replay) Allows(m Message) error {
	if m.Status != Dead {
		return &ConflictError{Verb: VerbReplay, Status: m.Status, Reason: ReasonState}
	}
	return nil
}

// AppliedTo implements Transition.
func (t Replay) AppliedTo(m Message) bool { return m.Status == Pending && m.Receipt == t.Nonce }

// Apply implements Transition.
func (t Replay) Apply(m Message) Message {
	m.Status = Pending
	m.UpdatedAt = later(t.At, m.Due.Add(time.Millisecond)) // later than it died, or the version could come back
	m.Due = m.UpdatedAt
	m.RetryCount, m.StallCount = 0, 0
	m.LastError, m.DeadReason = nil, ""
	m.ExpiresAt = time.Time{}
	m.ReplayCount++
	m.Receipt, m.LastVerb = t.Nonce, ""
	return m
}

// Ended implements Transition.
func (Replay) Ended(Message) *Attempt { return nil }

// Replay sends the dead message round again. Errors: ErrNotFound,
// *ConflictError unless it is dead, ErrUnavailable.
func (s *Service) Replay(ctx context.Context, queue, id string) (Message, error) {
	return s.Store.Apply(ctx, queue, id, Replay{At: s.now(), Nonce: s.nonce()})
}
