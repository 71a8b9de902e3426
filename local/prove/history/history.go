// Package history judges what the clients of a Redrive server saw: whether all
// answers of a message can have come from one message that follows the rules of
// package message, one step after the other.
//
// It knows those rules, and nothing of HTTP, of a store, or of how the history
// came about.
package history

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// History is what the clients of some queues did and saw.
type History struct {
	Began  time.Time                   `json:"began"` // on the clock of the clients
	Queues map[string]message.Settings `json:"queues"`
	// Skew is how far the clocks of the servers are from that of the clients, at
	// most.
	Skew time.Duration `json:"skew"`
	// Lossy says that requests and answers between a server and its store may have
	// been lost, held up or repeated: a refusal does then not prove that the call
	// had no effect, and a claim may have taken a message that it does not name.
	Lossy      bool        `json:"lossy"`
	Operations []Operation `json:"operations"`
}

// Verb is a verb of package message, or one of these.
type Verb = message.Verb

// The calls that are no transition.
const (
	Enqueue Verb = "enqueue"
	Get     Verb = "get"
)

// Never is the end of a call whose outcome nobody knows: it may take effect at
// any time after its start, or not at all.
const Never = time.Duration(1<<63 - 1)

// Operation is one call about one message. A claim that handed out several is
// several operations.
type Operation struct {
	Client int  `json:"client"`
	Verb   Verb `json:"verb"`

	Queue string `json:"queue"`
	// ID is empty for an enqueue whose answer is missing and whose message nobody
	// has seen, and for a claim whose answer is missing.
	ID  string `json:"id"`
	Tag string `json:"tag,omitzero"` // of an enqueue: tells payloads apart
	Key bool   `json:"key,omitzero"` // it came with an idempotency key

	Start time.Duration `json:"start"` // since the history began
	End   time.Duration `json:"end"`

	// What was asked for.
	Receipt   string `json:"receipt,omitzero"` // empty: none was given
	Error     string `json:"error,omitzero"`
	Permanent bool   `json:"permanent,omitzero"`
	// RetryAfter is what a failure asks for instead of the backoff; nil for nothing.
	RetryAfter *time.Duration `json:"retry_after,omitempty"`
	Delay      time.Duration  `json:"delay,omitzero"`   // of an enqueue
	Timeout    time.Duration  `json:"timeout,omitzero"` // of a claim or an extension
	Max        int            `json:"max,omitzero"`     // messages that a claim without an answer asked for
	MaxRetries int            `json:"max_retries,omitzero"`

	// What was answered.
	Status int            `json:"status"`          // of HTTP; 0 where the outcome is unknown
	Found  message.Status `json:"found,omitzero"`  // by a refusal
	Shown  *Message       `json:"shown,omitempty"` // by any other answer with a message
}

// Message is a message as an answer shows it, in the names of the contract.
type Message struct {
	ID             string             `json:"id"`
	Queue          string             `json:"queue"`
	Status         message.Status     `json:"status"`
	Payload        string             `json:"payload,omitzero"`
	RetryCount     int                `json:"retry_count"`
	MaxRetries     int                `json:"max_retries"`
	RetryAfter     time.Time          `json:"retry_after,omitzero"`
	LastError      *string            `json:"last_error"`
	StallCount     int                `json:"stall_count"`
	MaxStalls      int                `json:"max_stalls"`
	ClaimCount     int                `json:"claim_count"`
	ReplayCount    int                `json:"replay_count"`
	LeaseExpiresAt time.Time          `json:"lease_expires_at,omitzero"`
	DeadReason     message.DeadReason `json:"dead_reason"`
	DeadAt         time.Time          `json:"dead_at,omitzero"`
	CreatedAt      time.Time          `json:"created_at"`
	UpdatedAt      time.Time          `json:"updated_at"`
	Receipt        string             `json:"receipt,omitzero"`
	Attempts       []Attempt          `json:"attempts,omitempty"`
}

// Attempt is an entry of a message's history.
type Attempt struct {
	Number    int             `json:"number"`
	ClaimedAt time.Time       `json:"claimed_at"`
	EndedAt   time.Time       `json:"ended_at"`
	Outcome   message.Outcome `json:"outcome"`
	Error     *string         `json:"error"`
}

// due is the message's due time: where the answer names none, it became so when
// it was changed last.
func (m *Message) due() time.Time {
	switch m.Status {
	case message.Processing:
		return m.LeaseExpiresAt
	case message.Dead:
		return m.DeadAt
	case message.Pending, message.Succeeded:
	}
	if m.RetryAfter.IsZero() {
		return m.UpdatedAt
	}
	return m.RetryAfter
}

// known reports whether the outcome is known.
func (o *Operation) known() bool { return o.End != Never }

// acknowledged reports whether the answer says that the call was carried out.
func (o *Operation) acknowledged() bool {
	return o.Status != 0 && o.Status < 300 && o.Verb != Get
}

// at is the time of a client's clock as a server may have it that is that far
// behind.
func (h *History) at(since, skew time.Duration) time.Time {
	return h.Began.Add(since + skew).UTC().Truncate(time.Millisecond)
}

// earliest is when the call can have been carried out at the earliest, on any
// server's clock.
func (h *History) earliest(o *Operation) time.Time { return h.at(o.Start, -h.Skew) }

// latest is the counterpart of earliest.
func (h *History) latest(o *Operation) time.Time {
	if !o.known() {
		return h.Began.AddDate(1, 0, 0)
	}
	return h.at(o.End, h.Skew)
}

// transition is what the call asks of its message, if it came about then.
func (h *History) transition(o *Operation, at time.Time) message.Transition {
	set := h.Queues[o.Queue]
	answer := message.Answer{At: at, Receipt: o.Receipt}
	switch o.Verb {
	case message.VerbClaim:
		return message.Claim{At: at, Receipt: o.Receipt, Timeout: cmp.Or(o.Timeout, set.ProcessingTimeout)}
	case message.VerbSucceed:
		return message.Succeed{Answer: answer, KeepDays: set.SucceededDays}
	case message.VerbFail:
		return message.Fail{
			Answer: answer, Error: o.Error, Permanent: o.Permanent, RetryAfter: o.RetryAfter,
			Backoff: set.Backoff, DeadDays: set.DeadDays,
		}
	case message.VerbExtend:
		return message.Extend{Answer: answer, Timeout: cmp.Or(o.Timeout, set.ProcessingTimeout)}
	case message.VerbRelease:
		return message.Release{Answer: answer}
	case message.VerbReplay:
		return message.Replay{At: at, Nonce: fmt.Sprintf("replay of client %d at %v", o.Client, o.Start)}
	default:
		panic(fmt.Sprintf("%s is no call of a client that changes a message", o.Verb))
	}
}
