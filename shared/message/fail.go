package message

import (
	"context"
	"time"
)

// Fail ends an attempt without success: the message waits for its next one, or
// dies.
type Fail struct {
	Answer
	Error      string         // as kept
	Permanent  bool           // die at once, whatever is left of the budget
	RetryAfter *time.Duration // instead of the backoff; nil for the backoff
	Backoff    Backoff
	Jitter     float64  // in [0, 1)
	DeadDays   *float64 // how long a dead message is kept; nil for ever
}

// Verb implements Transition.
func (t Fail) Verb() Verb { return VerbFail }

// Allows implements Transition.
func (t Fail) Allows(m Message) error { return t.allows(m, VerbFail) }

// AppliedTo implements Transition.
func (t Fail) AppliedTo(m Message) bool { return t.repeats(m, VerbFail) }

// Apply implements Transition.
func (t Fail) Apply(m Message) Message {
	m = m.settle(t.At, VerbFail)
	m.RetryCount++
	m.LastError = &t.Error
	switch {
	case t.Permanent:
		return m.bury(Rejected, t.DeadDays)
	case m.RetryCount >= m.MaxRetries:
		return m.bury(RetriesExhausted, t.DeadDays)
	case t.RetryAfter != nil:
		return m.retry(*t.RetryAfter)
	}
	return m.retry(t.Backoff.Delay(m.RetryCount, t.Jitter))
}

// Ended implements Transition. The text of a repeat is the one that counted; of
// that a store may show only the beginning.
func (t Fail) Ended(m Message) *Attempt {
	text, outcome := t.Error, OutcomeFailed
	if counted := m.lastError(); CutError(text, ShortErrorBytes) != counted {
		text = counted
	}
	if m.DeadReason == Rejected {
		outcome = OutcomeRejected
	}
	return m.attempt(outcome, text)
}

// Failure is what a holder reports.
type Failure struct {
	Receipt    *string // nil for whoever holds the message
	Error      string  // may be empty; kept to MaxErrorBytes
	Permanent  bool
	RetryAfter *time.Duration // 0 to MaxRetryAfter
}

// Faults lists what is wrong with the report.
func (f Failure) Faults() []Fault {
	faults := ReceiptFaults(f.Receipt)
	if f.RetryAfter == nil {
		return faults
	}
	faults = appendSecondsRange(faults, "retry_after_seconds", *f.RetryAfter, 0, MaxRetryAfter)
	if f.Permanent {
		faults = append(faults, Fault{
			"retry_after_seconds", CodeInvalid,
			"retry_after_seconds cannot be given for a permanent failure: it is not retried.",
		})
	}
	return faults
}

// Fail records that the holder of the receipt has failed. Saying it twice is no
// error, and counts once. Errors: ErrNotFound, *ConflictError,
// *ValidationError, ErrUnavailable.
func (s *Service) Fail(ctx context.Context, queue, id string, f Failure) (Message, error) {
	set, err := s.settingsOf(ctx, queue)
	if err != nil {
		return Message{}, err
	}
	if err := invalid(set.answerFaults(f.Receipt, f.Faults())); err != nil {
		return Message{}, err
	}
	return s.Store.Apply(ctx, queue, id, Fail{
		Answer: s.answer(f.Receipt), Error: CutError(f.Error, MaxErrorBytes),
		Permanent: f.Permanent, RetryAfter: f.RetryAfter,
		Backoff: set.Backoff, Jitter: s.jitter(), DeadDays: set.DeadDays,
	})
}
