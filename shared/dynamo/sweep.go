package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/message"
)

// attrAt is the time of a mark.
const attrAt = "at"

// markFor is how long an instance relies on a mark that it has set. A mark that
// is taken away is older than twice that, so that nobody relies on it.
const markFor = 5 * time.Minute

// mark says that the queue is in use: whoever puts a message where the sweeper
// must find it marks the queue first.
func (s *Store) mark(ctx context.Context, queue string, now time.Time) error {
	s.mu.Lock()
	at := s.marks[queue]
	s.mu.Unlock()
	if within(markFor, at, now) {
		return nil
	}
	m := primary(pkActive, queue)
	m[attrAt] = millis(now)
	if _, err := s.put(ctx, &dynamodb.PutItemInput{Item: m}); err != nil {
		return err
	}
	remember(s, s.marks, queue, now)
	return nil
}

// InUse implements message.SweepStore.
func (s *Store) InUse(ctx context.Context, after string, limit int) ([]message.Mark, error) {
	var marks []message.Mark
	err := s.names(ctx, pkActive, after+"\x00", limit, func(m item) (more bool, err error) {
		marks = append(marks, message.Mark{Queue: str(m, attrSK), At: instant(m, attrAt)})
		return len(marks) < limit, nil
	})
	return marks, err
}

// Unmark implements message.SweepStore. The mark was read before this looks: who
// has written since then set another one, or relies on one that is not this old.
func (s *Store) Unmark(ctx context.Context, mark message.Mark) error {
	err := s.eachShard(ctx, mark.Queue, func(ctx context.Context, shard int) error {
		for _, status := range []message.Status{message.Pending, message.Processing, message.Dead} {
			sp := span{partition: partition(status, shard, mark.Queue), low: lowest, high: highest}
			_, found, err := s.first(ctx, sp)
			if err != nil {
				return err
			}
			if found {
				return errInUse
			}
		}
		return nil
	})
	if errors.Is(err, errInUse) {
		return nil
	}
	if err != nil {
		return err
	}
	e := newExpression()
	condition := e.equal(attrAt, millis(mark.At))
	_, err = s.remove(ctx, &dynamodb.DeleteItemInput{
		Key: primary(pkActive, mark.Queue), ConditionExpression: &condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.marks, mark.Queue)
	return err
}

// errInUse ends the look through the shards of a queue.
var errInUse = errors.New("in use")

// Lapsed implements message.SweepStore.
func (s *Store) Lapsed(
	ctx context.Context, queue string, before time.Time, behind *message.Position, limit int,
) (lapsed []message.Position, err error) {
	bounds := span{low: lowest, high: until(before)}
	if behind != nil {
		bounds.low = after(sortKey(behind.Due, behind.ID))
	}
	index, err := s.merge(ctx, queue, message.Processing, bounds, limit)
	if err != nil {
		return nil, err
	}
	entries, err := index.take(ctx, limit)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		lapsed = append(lapsed, e.position(message.Processing))
	}
	return lapsed, nil
}

// position is where the entry stands.
func (e entry) position(status message.Status) message.Position {
	due, id := splitSortKey(e.due)
	return message.Position{Status: status, Due: due, ID: id}
}

// NextLease implements message.SweepStore. It looks into one shard.
func (s *Store) NextLease(ctx context.Context, queue string) (message.Position, bool, error) {
	q, err := s.queueOf(ctx, queue)
	if err != nil {
		return message.Position{}, false, err
	}
	shard := draw(q.shards, random)
	e, found, err := s.first(ctx, span{
		partition: partition(message.Processing, shard, queue), low: lowest, high: highest,
	})
	return e.position(message.Processing), found, err
}

const (
	skRound   = "round"
	attrRound = "round" // JSON
)

// Round implements message.SweepStore.
func (s *Store) Round(ctx context.Context) (message.Round, error) {
	m, err := s.get(ctx, primary(pkSweep, skRound), true)
	if err != nil || m == nil {
		return message.Round{}, err
	}
	var r storedRound
	if err := json.Unmarshal([]byte(str(m, attrRound)), &r); err != nil {
		// A round may be lost; the sweeps may not.
		s.Log.LogAttrs(ctx, slog.LevelError, "where the sweep has come is unreadable: it begins anew", slog.Any("error", err))
		return message.Round{}, nil
	}
	return message.Round{After: r.After, Totals: message.Totals{
		Pending: r.Pending, Dead: r.Dead, DeadMost: r.DeadMost,
		OldestPending: fromMillis(r.OldestPending), OldestDead: fromMillis(r.OldestDead),
	}}, nil
}

// storedRound is how far a round has come, as it stands in the table.
type storedRound struct {
	After         string `json:"after"`
	Pending       int    `json:"pending"`
	Dead          int    `json:"dead"`
	DeadMost      int    `json:"dead_most"`
	OldestPending int64  `json:"oldest_pending,omitempty"` // epoch milliseconds
	OldestDead    int64  `json:"oldest_dead,omitempty"`
}

// SaveRound implements message.SweepStore.
func (s *Store) SaveRound(ctx context.Context, r message.Round) error {
	round, err := json.Marshal(storedRound{
		r.After, r.Totals.Pending, r.Totals.Dead, r.Totals.DeadMost,
		epochMillis(r.Totals.OldestPending), epochMillis(r.Totals.OldestDead),
	})
	if err != nil {
		return fmt.Errorf("dynamo: where the sweep has come: %w", err)
	}
	m := primary(pkSweep, skRound)
	m[attrRound] = text(string(round))
	_, err = s.put(ctx, &dynamodb.PutItemInput{Item: m})
	return err
}
