package message

import (
	"context"
	"time"
)

// Store keeps messages. Every change is one atomic step, made durable before
// the method returns. What a method decides, it decides with [Decide] on the
// message as stored at that moment. A store treats a message that is expired at
// the time given as absent. Every method may return ErrUnavailable.
type Store interface {
	// Enqueue stores m, and its queue with default settings if there is none.
	// If a message with m's ID is stored already, it changes nothing and returns
	// that one and false.
	Enqueue(ctx context.Context, m Message) (stored Message, created bool, err error)
	// Get returns the message with its payload, and the attempts kept of it, in
	// any order. It may return an expired one. Errors: ErrNotFound.
	Get(ctx context.Context, queue, id string) (Message, []Attempt, error)
	// List returns messages of one queue and status, by due time, then by ID. It
	// may stop early, at the query's byte limit, but not before the first; more
	// says whether others follow the last one returned. An index may lag behind:
	// what changes meanwhile may be missing.
	List(ctx context.Context, q ListQuery) (messages []Message, more bool, err error)
	// Claim picks up to limit due messages of the queue, earliest first, applies a
	// claim of its own to each, and returns them with their payloads, sorted by the
	// due time they had. It calls next once for each message that it tries, when
	// its turn has come, so that no lease runs while the call waits. No message is
	// returned to two callers. None is no error. A message whose payload is missing
	// is not returned: a [Bury] is applied to it.
	Claim(ctx context.Context, queue string, limit int, next func() Claim) ([]Message, error)
	// Apply carries out tr on the message, records the attempt that it ended, and
	// returns the message without its payload. Errors: ErrNotFound,
	// *ConflictError.
	Apply(ctx context.Context, queue, id string, tr Transition) (Message, error)
	// Delete removes the message with all that belongs to it. Errors:
	// ErrNotFound, *ConflictError while processing.
	Delete(ctx context.Context, queue, id string, at time.Time) error
}

// ListQuery asks for messages of one status.
type ListQuery struct {
	Queue      string
	Status     Status
	After      *Position // exclusive; nil for the beginning
	Descending bool
	Limit      int  // at most so many
	Payload    bool // with their payloads
	// PayloadBytes stops the list after the message whose payload reaches this
	// sum. Zero: no such limit.
	PayloadBytes int
	Now          time.Time // leaves out what is expired then
}

// Position is a message's place in a list.
type Position struct {
	Status Status
	Due    time.Time
	ID     string
}

// Place returns the position of m.
func (m Message) Place() Position { return Position{m.Status, m.Due, m.ID} }

// QueueStore keeps queues and their settings. Every method may return
// ErrUnavailable.
type QueueStore interface {
	// Queue returns the queue, with the counts that were saved last. Errors:
	// ErrQueueNotFound.
	Queue(ctx context.Context, name string) (Queue, error)
	// PutQueue creates the queue or replaces its settings with [Settings.Replace],
	// and reports whether it was created. CreatedAt stays. Errors:
	// *ValidationError.
	PutQueue(ctx context.Context, q Queue) (stored Queue, created bool, err error)
	// DeleteQueue removes a queue that holds no message; of its settings, shards
	// are remembered. Errors: ErrQueueNotFound, ErrQueueNotEmpty.
	DeleteQueue(ctx context.Context, name string, now time.Time) error
	// ListQueues returns up to limit queues whose names begin with prefix and
	// come after the name given, by name in the order of its bytes.
	ListQueues(ctx context.Context, prefix, after string, limit int) ([]Queue, error)
	// Count counts a queue's messages of the statuses given, of all if none is. An
	// unknown queue has none.
	Count(ctx context.Context, name string, now time.Time, statuses ...Status) (Counts, error)
	// SaveCounts keeps the counts for ListQueues to show. A queue that holds
	// messages and does not exist comes into being with default settings: it was
	// deleted at the moment they came.
	SaveCounts(ctx context.Context, name string, c Counts) error
}

// SweepStore finds what the sweeper has to visit, without looking at every queue
// or message. Every method may return
// ErrUnavailable.
type SweepStore interface {
	// InUse returns up to limit marks of queues whose names come after the name
	// given, by name. Every queue with a pending, processing or dead message is
	// marked; others may be.
	InUse(ctx context.Context, after string, limit int) ([]Mark, error)
	// Lapsed returns the positions of up to limit processing messages of the queue
	// whose leases ended at before or earlier, in list order, after the position
	// given.
	Lapsed(ctx context.Context, queue string, before time.Time, after *Position, limit int) ([]Position, error)
	// NextLease returns the earliest lease of the queue, or of a part of it chosen at
	// random; false if there is none.
	NextLease(ctx context.Context, queue string) (Position, bool, error)
	// Unmark takes the mark away, unless the queue has come into use since the
	// mark was read.
	Unmark(ctx context.Context, mark Mark) error
	// Round returns what SaveRound kept last: the zero Round before the first.
	Round(ctx context.Context) (Round, error)
	// SaveRound keeps how far the sweeps have come. It may be lost.
	SaveRound(ctx context.Context, r Round) error
}

// Mark says that a queue is in use.
type Mark struct {
	Queue string
	At    time.Time // when it was set
}
