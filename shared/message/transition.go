package message

import (
	"cmp"
	"math"
	"time"
)

// Transition is a change of a message's state as a value. The types that
// implement it stand in the files of their verbs; together they are the state
// machine.
type Transition interface {
	// Verb names the transition.
	Verb() Verb
	// Time is when the change happens.
	Time() time.Time
	// Allows reports why m may not take the transition: nil, or a
	// *ConflictError.
	Allows(m Message) error
	// AppliedTo reports whether m shows that this very change has been made
	// before, and nothing since has undone it.
	AppliedTo(m Message) bool
	// Apply returns the message as the transition leaves it. It is only called
	// where Allows returned nil.
	Apply(m Message) Message
	// Ended returns the attempt that the transition ended and that belongs in the
	// history, read off the message as it left it; nil if there is none.
	Ended(m Message) *Attempt
}

// Change is what a transition makes of a message.
type Change struct {
	Message Message
	// Attempt is the one that ended and belongs in the history; nil if none. It
	// comes with a repeat too: a store that keeps attempts apart may have stopped
	// before it wrote this one.
	Attempt *Attempt
	// Changed is false where nothing is to be written: the change had been made
	// before, or left the message as it was.
	Changed bool
}

// Decide says what tr makes of m. Every store asks here, on the message as it
// is stored at the moment of the write. Errors: ErrNotFound for a message past
// its retention, else what the transition's Allows returns.
func Decide(m Message, tr Transition) (Change, error) {
	if m.Expired(tr.Time()) {
		return Change{}, ErrNotFound
	}
	if tr.AppliedTo(m) {
		return Change{Message: m, Attempt: tr.Ended(m)}, nil
	}
	if err := tr.Allows(m); err != nil {
		return Change{}, err
	}
	next := tr.Apply(m)
	return Change{Message: next, Attempt: tr.Ended(next), Changed: next.version() != m.version()}, nil
}

// Pin returns tr under the receipt that m shows, where it gives none. A store
// that reads a message, and finds it changed when it writes, pins the transition
// to what it read first: so that one call never answers for two attempts.
func Pin(tr Transition, m Message) Transition {
	switch t := tr.(type) {
	case Succeed:
		t.Receipt = cmp.Or(t.Receipt, m.Receipt)
		return t
	case Fail:
		t.Receipt = cmp.Or(t.Receipt, m.Receipt)
		return t
	}
	return tr
}

// Answer is what the verbs of a lease holder have in common.
type Answer struct {
	At time.Time
	// Receipt is the proof of holding the lease. Empty: whoever holds it (only
	// succeed and fail may leave it out).
	Receipt string
}

// Time implements Transition.
func (a Answer) Time() time.Time { return a.At }

func (a Answer) allows(m Message, verb Verb) error {
	if m.Status != Processing {
		return &ConflictError{Verb: verb, Status: m.Status, Reason: ReasonState}
	}
	if a.Receipt != "" && a.Receipt != m.Receipt {
		return &ConflictError{Verb: verb, Status: m.Status, Reason: ReasonReceipt}
	}
	return nil
}

func (a Answer) repeats(m Message, verb Verb) bool {
	return a.Receipt != "" && a.Receipt == m.Receipt && m.LastVerb == verb
}

// attempt is the one that ended with the message as it is.
func (m Message) attempt(outcome Outcome, text string) *Attempt {
	return &Attempt{
		Number: m.ClaimCount, ClaimedAt: m.ClaimedAt, EndedAt: m.UpdatedAt, Outcome: outcome, Error: text,
	}
}

// lastError is empty where there is none, or where a store has lost it.
func (m Message) lastError() string {
	if m.LastError == nil {
		return ""
	}
	return *m.LastError
}

// settle ends the lease. The due time of what follows is at the earliest 1 ms
// after the claim, which keeps the version from coming back.
func (m Message) settle(at time.Time, verb Verb) Message {
	m.UpdatedAt = later(at, m.ClaimedAt.Add(time.Millisecond))
	m.Due = m.UpdatedAt
	m.LastVerb = verb
	return m
}

// retry sends the message back to pending, to be claimed after delay.
func (m Message) retry(delay time.Duration) Message {
	m.Status = Pending
	m.Due = m.UpdatedAt.Add(delay)
	return m
}

// bury makes the message dead, for ever if deadDays is nil.
func (m Message) bury(reason DeadReason, deadDays *float64) Message {
	m.Status = Dead
	m.DeadReason = reason
	if deadDays != nil {
		m.ExpiresAt = expiry(m.Due, *deadDays)
	}
	return m
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// expiry returns when something that settled at the time given is removed after
// so many days: in whole seconds, rounded up, which is the unit of DynamoDB's
// TTL.
func expiry(at time.Time, days float64) time.Time {
	return at.Add(retention(days) + time.Second - time.Nanosecond).Truncate(time.Second)
}

func retention(days float64) time.Duration {
	const dayMillis = 24 * 60 * 60 * 1000
	return time.Duration(math.Round(days*dayMillis)) * time.Millisecond
}
