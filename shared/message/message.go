package message

import (
	"slices"
	"time"
)

// Status is the state of a message.
type Status string

// A message is in exactly one of these states.
const (
	// Pending messages wait: for their due time, or for a claim.
	// Entered by enqueue, fail, release, a stall and replay; left by claim.
	Pending Status = "pending"
	// Processing messages are held under a lease.
	// Entered by claim; left by succeed, fail, release and a stall.
	Processing Status = "processing"
	// Succeeded messages are settled, and removed after the queue's retention.
	Succeeded Status = "succeeded"
	// Dead messages have used up a budget or were rejected. They wait for a
	// person; only replay and delete move them.
	Dead Status = "dead"
)

// Statuses lists every status, in the order in which a list without a status
// walks them.
func Statuses() []Status { return []Status{Pending, Processing, Dead, Succeeded} }

// DeadReason says why a message is dead.
type DeadReason string

// The reasons for which a message dies.
const (
	RetriesExhausted DeadReason = "retries_exhausted"
	Rejected         DeadReason = "rejected"
	Stalled          DeadReason = "stalled"
	// PayloadMissing is a fault of the store: it holds the message and not its
	// payload.
	PayloadMissing DeadReason = "payload_missing"
)

// Verb names a change of state; it is spelled as in the route that asks for it.
type Verb string

// The verbs that change a message. A stall is what the sweeper does to a lease
// that ran out; a message whose payload is missing is buried by its claim.
const (
	VerbClaim   Verb = "claim"
	VerbSucceed Verb = "succeed"
	VerbFail    Verb = "fail"
	VerbExtend  Verb = "extend"
	VerbRelease Verb = "release"
	VerbReplay  Verb = "replay"
	VerbStall   Verb = "stall"
	VerbDelete  Verb = "delete"
	VerbBury    Verb = "bury"
)

// Message is one message as it is stored. Times are UTC, in whole milliseconds.
type Message struct {
	ID    string
	Queue string

	Status Status
	// Due is when something is to happen next or has happened last: a pending
	// message may be claimed from then on, the lease of a processing one ends
	// then, a dead or succeeded one became so then.
	Due time.Time

	Payload      string // empty where a list left it out
	PayloadBytes int

	RetryCount  int // failures since it was enqueued or last replayed
	MaxRetries  int // at this many failures it dies
	StallCount  int // stalls since it was enqueued or last replayed
	MaxStalls   int // at this many stalls it dies
	ClaimCount  int // hand-outs, ever
	ReplayCount int

	LastError  *string // of the last failure or stall; nil before the first, and after a replay
	DeadReason DeadReason

	// Receipt proves who holds the lease. It stays after the attempt has ended,
	// so that a repeated answer is recognised, until the next claim replaces it.
	// Before the first claim and after a replay it is a value that nobody knows.
	Receipt string
	// LastVerb is how the attempt of Receipt ended; empty while it runs.
	LastVerb Verb

	ClaimedAt time.Time // of the newest hand-out; zero before the first
	CreatedAt time.Time
	UpdatedAt time.Time
	ExpiresAt time.Time // when a settled message is removed; whole seconds, zero for never

	// Fingerprint tells a repeat of a keyed enqueue from a reuse of its key.
	// Empty without a key.
	Fingerprint string
}

// Expired reports whether the message is past its retention at now. An expired
// message may still be stored, and counts as absent everywhere.
func (m Message) Expired(now time.Time) bool {
	return !m.ExpiresAt.IsZero() && !m.ExpiresAt.After(now)
}

// version is what every change of a message changes, and no change brings back.
type version struct {
	status  Status
	due     int64
	receipt string
}

func (m Message) version() version {
	return version{m.Status, m.Due.UnixMilli(), m.Receipt}
}

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of an attempt. A hand-out that was released is no attempt.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeFailed    Outcome = "failed"
	OutcomeRejected  Outcome = "rejected"
	OutcomeStalled   Outcome = "stalled"
)

// Attempt is one hand-out that ended.
type Attempt struct {
	Number    int // the claim's number: ascending, through replays too
	ClaimedAt time.Time
	EndedAt   time.Time
	Outcome   Outcome
	Error     string // empty for a success
}

// HistorySize is how many of the newest hand-outs the history covers.
const HistorySize = 20

// HistoryAge is how long an attempt stays in the history.
const HistoryAge = 90 * 24 * time.Hour

// isKept reports whether an attempt that ended then is still in the history.
func isKept(ended, now time.Time) bool { return now.Sub(ended) < HistoryAge }

// History returns the attempts of m that are shown at now, newest last. Stored
// holds what the store kept, in any order; the success of a succeeded message
// is read off the message and needs no entry of its own.
func History(m Message, stored []Attempt, now time.Time) []Attempt {
	shown := make([]Attempt, 0, len(stored)+1)
	for _, a := range stored {
		if a.Number > m.ClaimCount-HistorySize && isKept(a.EndedAt, now) && !a.ClaimedAt.Before(m.CreatedAt) {
			shown = append(shown, a)
		}
	}
	isLast := func(a Attempt) bool { return a.Number == m.ClaimCount }
	if m.Status == Succeeded && isKept(m.Due, now) && !slices.ContainsFunc(shown, isLast) {
		shown = append(shown, Attempt{
			Number: m.ClaimCount, ClaimedAt: m.ClaimedAt, Outcome: OutcomeSucceeded,
			EndedAt: later(m.Due, m.ClaimedAt), // whatever the clock of who answered
		})
	}
	slices.SortFunc(shown, func(a, b Attempt) int { return a.Number - b.Number })
	return shown
}
