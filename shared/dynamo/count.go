package dynamo

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/message"
)

// Count implements message.QueueStore. It counts the index, which does not show
// the retention of each message: it takes that of the queue's settings, which may
// be some seconds old.
func (s *Store) Count(
	ctx context.Context, name string, now time.Time, statuses ...message.Status,
) (message.Counts, error) {
	if len(statuses) == 0 {
		statuses = message.Statuses()
	}
	q, err := s.queueOf(ctx, name)
	if err != nil {
		return message.Counts{}, err
	}
	counts := message.Counts{
		Depth: make(map[message.Status]int), More: make(map[message.Status]bool), At: now,
	}
	for _, status := range statuses {
		t := &tally{store: s, known: q, status: status, now: now}
		if err := sideBySide(q.shards, func(shard int) error { return t.count(ctx, shard) }); err != nil {
			return message.Counts{}, err
		}
		counts.Depth[status], counts.More[status] = min(t.n, message.CountLimit), t.n > message.CountLimit
		switch status {
		case message.Pending:
			counts.OldestPending = t.oldest
		case message.Dead:
			counts.OldestDead = t.oldest
		case message.Processing, message.Succeeded:
		}
	}
	return counts, nil
}

// tally counts one status in all shards of a queue.
type tally struct {
	store  *Store
	known  known
	status message.Status
	now    time.Time

	mu     sync.Mutex
	n      int
	oldest time.Time // earliest due time that has come, if it is asked for
}

func (t *tally) count(ctx context.Context, shard int) error {
	sp := span{partition: partition(t.status, shard, t.known.Name), low: lowest, high: highest}
	if from := t.known.Settings.Kept(t.status, t.now); !from.IsZero() {
		sp.low = until(from) // what became so in that millisecond is gone
	}
	found, err := t.countSpan(ctx, sp)
	if err != nil || !found || t.status != message.Pending && t.status != message.Dead {
		return err
	}
	sp.high = until(t.now)
	e, found, err := t.store.first(ctx, sp)
	if err != nil || !found {
		return err
	}
	due, _ := splitSortKey(e.due)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.oldest.IsZero() || due.Before(t.oldest) {
		t.oldest = due
	}
	return nil
}

// countSpan counts the entries of the span, and reports whether there are any. To
// count costs as much as to read: so it does that in steps, and stops when all
// shards together have more than is asked for.
func (t *tally) countSpan(ctx context.Context, sp span) (found bool, err error) {
	in := sp.in()
	in.Select = types.SelectCount
	in.Limit = aws.Int32(int32(message.CountLimit/t.known.shards + 1)) //nolint:gosec // it is small
	for {
		out, err := t.store.query(ctx, in)
		if err != nil {
			return false, err
		}
		t.mu.Lock()
		t.n += int(out.Count)
		enough := t.n > message.CountLimit
		t.mu.Unlock()
		found = found || out.Count > 0
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil || enough {
			return found, nil
		}
	}
}
