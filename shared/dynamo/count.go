package dynamo

import (
	"context"
	"sync"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// Count implements message.QueueStore. It counts the index, which does not show
// the retention of each message: it takes that of the queue's settings, which may
// be some seconds old.
func (s *Store) Count(ctx context.Context, name string, now time.Time) (message.Counts, error) {
	q, err := s.queueOf(ctx, name)
	if err != nil {
		return message.Counts{}, err
	}
	c := &counter{Store: s, Queue: q.Queue, Counts: message.Counts{
		Depth: make(map[message.Status]int), More: make(map[message.Status]bool), At: now,
	}}
	if err := s.eachShard(ctx, name, c.countShard); err != nil {
		return message.Counts{}, err
	}
	for status, n := range c.Depth {
		c.Depth[status], c.More[status] = min(n, message.CountLimit), n > message.CountLimit
	}
	return c.Counts, nil
}

// counter adds up the shards of a queue.
type counter struct {
	*Store
	message.Queue

	mu sync.Mutex
	message.Counts
}

func (c *counter) countShard(ctx context.Context, shard int) error {
	for _, status := range message.Statuses() {
		sp := span{partition: partition(status, shard, c.Name), low: lowest, high: highest}
		if from := c.Settings.Kept(status, c.At); !from.IsZero() {
			sp.low = until(from) // what is kept to the end of that millisecond is gone
		}
		n, err := c.count(ctx, sp, message.CountLimit)
		if err != nil {
			return err
		}
		var oldest time.Time
		if n > 0 && (status == message.Pending || status == message.Dead) {
			sp.high = until(c.At)
			e, found, err := c.first(ctx, sp)
			if err != nil {
				return err
			}
			if found {
				oldest, _ = splitSortKey(e.due)
			}
		}
		c.add(status, n, oldest)
	}
	return nil
}

func (c *counter) add(status message.Status, n int, oldest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Depth[status] += n
	at := &c.OldestPending
	if status == message.Dead {
		at = &c.OldestDead
	}
	if !oldest.IsZero() && (at.IsZero() || oldest.Before(*at)) {
		*at = oldest
	}
}
