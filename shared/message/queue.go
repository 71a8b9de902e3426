package message

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Queue is a named queue.
type Queue struct {
	Name      string
	CreatedAt time.Time
	Settings  Settings
	Counts    *Counts // in a list of the sweeper's last visit, nil before the first; else taken now
}

// Settings of a queue.
type Settings struct {
	MaxRetries        int           // of messages enqueued from now on
	ProcessingTimeout time.Duration // whole seconds
	MaxStalls         int           // of messages enqueued from now on
	RequireReceipt    bool          // refuse succeed and fail without one
	Shards            *int          // nil in a change: as it was; never nil in a stored queue
	Backoff           Backoff
	SucceededDays     float64  // how long settled messages are kept
	DeadDays          *float64 // how long dead messages are kept; nil for ever
}

// DefaultSettings are those of a queue that nobody has set.
func DefaultSettings() Settings {
	return Settings{
		MaxRetries: 3, ProcessingTimeout: 30 * time.Second, MaxStalls: 3, Shards: new(1),
		Backoff:       Backoff{Initial: 2 * time.Second, Factor: 2, Max: time.Hour, Jitter: JitterNone},
		SucceededDays: 7,
	}
}

// Faults lists what is outside its range.
func (set Settings) Faults() []Fault {
	var faults []Fault
	faults = appendRange(faults, "max_retries", set.MaxRetries, 1, MaxRetries)
	faults = appendSecondsRange(faults, "processing_timeout", set.ProcessingTimeout, time.Second, MaxTimeout)
	faults = appendRange(faults, "max_stalls", set.MaxStalls, 1, MaxStalls)
	if set.Shards != nil {
		faults = appendRange(faults, "shards", *set.Shards, 1, MaxShards)
	}
	faults = append(faults, set.Backoff.faults()...)
	faults = appendRange(faults, "succeeded_days", set.SucceededDays, 0.001, 365)
	if set.DeadDays != nil {
		faults = appendRange(faults, "dead_days", *set.DeadDays, 0.01, 3650)
	}
	return faults
}

// The range of every delay in a backoff.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 604_800 * time.Second
)

func (b Backoff) faults() []Fault {
	var faults []Fault
	if b.Schedule == nil {
		faults = appendSecondsRange(faults, "backoff.initial_seconds", b.Initial, minBackoff, maxBackoff)
		faults = appendRange(faults, "backoff.factor", b.Factor, 1, 10)
		faults = appendSecondsRange(faults, "backoff.max_seconds", b.Max, minBackoff, maxBackoff)
	} else if n := len(b.Schedule); n < 1 || n > MaxSchedule {
		faults = append(faults, Fault{
			"backoff.schedule_seconds", CodeInvalid,
			fmt.Sprintf("backoff.schedule_seconds must have between 1 and %d entries.", MaxSchedule),
		})
	}
	for i, delay := range b.Schedule {
		if delay < minBackoff || delay > maxBackoff {
			faults = append(faults, secondsFault(fmt.Sprintf("backoff.schedule_seconds[%d]", i), minBackoff, maxBackoff))
		}
	}
	switch b.Jitter {
	case JitterNone, JitterEqual, JitterFull:
	default:
		faults = append(faults, Fault{
			"backoff.jitter", CodeInvalid, "backoff.jitter must be none, equal or full.",
		})
	}
	return faults
}

// Replace returns what the settings become when they are replaced by next.
// Shards only ever grow: a message may wait in any of them. Errors:
// *ValidationError.
func (set Settings) Replace(next Settings) (Settings, error) {
	switch {
	case next.Shards == nil:
		next.Shards = set.Shards
	case *next.Shards < *set.Shards:
		return Settings{}, invalid([]Fault{{
			"shards", CodeInvalid, fmt.Sprintf("shards only ever grows; this queue has %d.", *set.Shards),
		}})
	}
	return next, nil
}

// CountLimit is how far the messages of one state are counted.
const CountLimit = 10_000

// Counts is how many messages a queue holds, and how old the oldest are.
type Counts struct {
	Depth         map[Status]int  // at most CountLimit each
	More          map[Status]bool // the states that hold more than that
	OldestPending time.Time       // earliest due time that has come; zero if none has
	OldestDead    time.Time       // zero if there is none
	At            time.Time       // when they were counted
}

// Kept returns the due time after which a settled message of that status is not
// past its retention at now, if these settings held when it settled; zero if it
// is kept for ever.
func (set Settings) Kept(status Status, now time.Time) time.Time {
	days := &set.SucceededDays
	switch status {
	case Dead:
		days = set.DeadDays
	case Pending, Processing:
		days = nil
	case Succeeded:
	}
	if days == nil {
		return time.Time{}
	}
	return now.Truncate(time.Second).Add(-retention(*days)) // see expiry
}

// idle reports whether nothing is left to be done or looked at.
func (c Counts) idle() bool {
	return c.Depth[Pending]+c.Depth[Processing]+c.Depth[Dead] == 0
}

// Queue returns a queue with its counts, taken now. Errors: ErrQueueNotFound,
// ErrUnavailable.
func (s *Service) Queue(ctx context.Context, name string) (Queue, error) {
	q, err := s.Queues.Queue(ctx, name)
	if err != nil {
		return Queue{}, err
	}
	counts, err := s.Queues.Count(ctx, name, s.now())
	if err != nil {
		return Queue{}, err
	}
	q.Counts = &counts
	return q, nil
}

// SettingsFaults lists what is wrong with settings for that queue: what is
// outside its range, and shards that would shrink. Errors: ErrUnavailable.
func (s *Service) SettingsFaults(ctx context.Context, name string, set Settings) ([]Fault, error) {
	faults := set.Faults()
	if set.Shards == nil || *set.Shards < 1 {
		return faults, nil
	}
	q, err := s.Queues.Queue(ctx, name)
	switch {
	case errors.Is(err, ErrQueueNotFound):
		return faults, nil
	case err != nil:
		return nil, err
	}
	_, err = q.Settings.Replace(set)
	if shrinks, ok := errors.AsType[*ValidationError](err); ok {
		faults = append(faults, shrinks.Faults...)
	}
	return faults, nil
}

// PutQueue creates the queue or replaces its settings, and reports whether it
// was created. The queue comes with its counts. Errors: *ValidationError, ErrUnavailable.
func (s *Service) PutQueue(ctx context.Context, name string, set Settings) (q Queue, created bool, err error) {
	if err = invalid(set.Faults()); err != nil {
		return Queue{}, false, err
	}
	now := s.now()
	q, created, err = s.Queues.PutQueue(ctx, Queue{Name: name, CreatedAt: now, Settings: set})
	s.forget(name)
	if err != nil {
		return Queue{}, false, err
	}
	counts, err := s.Queues.Count(ctx, name, now)
	q.Counts = &counts
	return q, created, err
}

// DeleteQueue deletes a queue that holds no message. Errors: ErrQueueNotFound,
// ErrQueueNotEmpty, ErrUnavailable.
func (s *Service) DeleteQueue(ctx context.Context, name string) error {
	err := s.Queues.DeleteQueue(ctx, name, s.now())
	s.forget(name)
	return err
}

// ListQueues returns up to limit queues by name, and whether others follow.
// Errors: ErrUnavailable.
func (s *Service) ListQueues(
	ctx context.Context, prefix, after string, limit int,
) (page []Queue, more bool, err error) {
	page, err = s.Queues.ListQueues(ctx, prefix, after, limit+1)
	if err != nil || len(page) <= limit {
		return page, false, err
	}
	return page[:limit], true, nil
}
