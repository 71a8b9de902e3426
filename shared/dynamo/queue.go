package dynamo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/stored"
)

// Attributes of a queue.
const (
	attrSettings = "settings" // JSON, see package stored
	attrCounts   = "counts"   // JSON, of the sweeper's last visit
	attrDeleted  = "deleted"  // only the shards are still of interest
	attrRevision = "revision" // fresh with each write of the settings
)

// record is a queue as stored.
type record struct {
	message.Queue
	deleted  bool
	revision string // empty if there is nothing stored
}

// live reports whether the queue exists.
func (r record) live() bool { return r.revision != "" && !r.deleted }

// noQueue is the record of a queue of which nothing is stored.
func noQueue(name string) record {
	return record{Queue: message.Queue{Name: name, Settings: message.DefaultSettings()}}
}

// fresh returns the settings of a queue in the place of this one: of the old ones
// only the shards count, where messages may wait.
func (r record) fresh() message.Settings {
	set := message.DefaultSettings()
	set.Shards = r.Settings.Shards
	return set
}

func decodeQueue(m item) (record, error) {
	r := record{revision: str(m, attrRevision)}
	r.Name, r.CreatedAt = str(m, attrSK), instant(m, attrCreatedAt)
	_, r.deleted = m[attrDeleted]
	var err error
	if r.Settings, err = stored.Decode(str(m, attrSettings)); err != nil {
		return record{}, fmt.Errorf("dynamo: settings of queue %q: %w", r.Name, err)
	}
	if text := str(m, attrCounts); text != "" {
		if r.Counts, err = decodeCounts(text); err != nil {
			return record{}, fmt.Errorf("dynamo: counts of queue %q: %w", r.Name, err)
		}
	}
	return r, nil
}

// known is a queue as it was read a short while ago.
type known struct {
	record
	shards int
	readAt time.Time
}

// knownFor is how long it is relied on: the contract promises that a change of
// the settings applies within 10 s everywhere.
const knownFor = 9 * time.Second

// queueOf returns what is known of the queue, after a look if that is too old.
func (s *Store) queueOf(ctx context.Context, name string) (known, error) {
	s.mu.Lock()
	k := s.queues[name]
	s.mu.Unlock()
	// Without the other clock that Go keeps, which may stop while a sandbox is frozen.
	if within(knownFor, k.readAt, s.Now().Round(0)) {
		return k, nil
	}
	return s.readQueue(ctx, name)
}

// readQueue reads the queue, a deleted one too, and remembers it.
func (s *Store) readQueue(ctx context.Context, name string) (known, error) {
	readAt := s.Now()
	m, err := s.get(ctx, primary(pkQueues, name), true)
	if err != nil {
		return known{}, err
	}
	r := noQueue(name)
	if m != nil {
		if r, err = decodeQueue(m); err != nil {
			return known{}, err
		}
	}
	return s.know(r, readAt), nil
}

func (s *Store) know(r record, readAt time.Time) known {
	k := known{r, *r.Settings.Shards, readAt}
	remember(s, s.queues, r.Name, k)
	return k
}

// ensureQueue makes sure that the queue exists.
func (s *Store) ensureQueue(ctx context.Context, name string, now time.Time) (known, error) {
	k, err := s.queueOf(ctx, name)
	if err != nil || k.live() {
		return k, err
	}
	return s.createQueue(ctx, name, now)
}

// createQueue makes the queue with default settings, unless it is there, whatever
// is remembered of it.
func (s *Store) createQueue(ctx context.Context, name string, now time.Time) (known, error) {
	k, err := s.readQueue(ctx, name)
	if err != nil || k.live() {
		return k, err
	}
	was := k.record
	next := record{Queue: message.Queue{Name: was.Name, CreatedAt: now, Settings: was.fresh()}}
	found, err := s.saveQueue(ctx, was, &next)
	switch {
	case err != nil:
		return known{}, err
	case found == nil:
		return s.know(next, s.Now()), nil
	case !found.live(): // created and deleted meanwhile
		return known{}, contendedQueue(name)
	}
	return s.know(*found, s.Now()), nil // by somebody else
}

func contendedQueue(name string) error {
	return fmt.Errorf("dynamo: queue %q changes faster than it can be written: %w", name, message.ErrUnavailable)
}

// saveQueue writes next in the place of was, if that is still what is stored;
// else it returns what is. The counts stay unless the queue is a new one.
func (s *Store) saveQueue(ctx context.Context, was record, next *record) (found *record, err error) {
	settings, err := stored.Encode(next.Settings)
	if err != nil {
		return nil, fmt.Errorf("dynamo: settings of queue %q: %w", next.Name, err)
	}
	next.revision = rand.Text()
	e := newExpression()
	set := item{
		attrSettings: text(settings), attrCreatedAt: millis(next.CreatedAt),
		attrVersion: number(version), attrRevision: text(next.revision),
	}
	var remove []string
	if next.deleted {
		set[attrDeleted] = &types.AttributeValueMemberBOOL{Value: true}
	} else {
		remove = append(remove, attrDeleted)
	}
	if next.deleted || !was.live() {
		remove = append(remove, attrCounts)
	}
	var condition string
	if was.revision != "" {
		condition = e.equal(attrRevision, text(was.revision))
	} else {
		condition = e.absent()
	}
	update := e.update(set, remove...)
	_, shown, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key: primary(pkQueues, next.Name), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
	})
	switch {
	case err != nil:
		return nil, err
	case shown == nil, str(shown, attrRevision) == next.revision: // written, now or by a first try
		return nil, nil //nolint:nilnil // nothing was found in the way
	case len(shown) == 0:
		none := noQueue(next.Name)
		return &none, nil
	}
	r, err := decodeQueue(shown)
	return &r, err
}

// Queue implements message.QueueStore.
func (s *Store) Queue(ctx context.Context, name string) (message.Queue, error) {
	k, err := s.readQueue(ctx, name)
	switch {
	case err != nil:
		return message.Queue{}, err
	case !k.live():
		return message.Queue{}, message.ErrQueueNotFound
	}
	return k.Queue, nil
}

// PutQueue implements message.QueueStore.
func (s *Store) PutQueue(ctx context.Context, q message.Queue) (put message.Queue, created bool, err error) {
	k, err := s.readQueue(ctx, q.Name)
	if err != nil {
		return message.Queue{}, false, err
	}
	was := k.record
	for range applyMost {
		next := record{Queue: q}
		next.Counts = nil
		if next.Settings, err = was.Settings.Replace(q.Settings); err != nil {
			return message.Queue{}, false, err
		}
		if was.live() {
			next.CreatedAt = was.CreatedAt
		}
		found, err := s.saveQueue(ctx, was, &next)
		if err != nil {
			return message.Queue{}, false, err
		}
		if found == nil {
			s.know(next, s.Now())
			return next.Queue, !was.live(), nil
		}
		was = *found
	}
	return message.Queue{}, false, contendedQueue(q.Name)
}

// DeleteQueue implements message.QueueStore. A message that comes at this very
// moment brings the queue back: see SaveCounts.
func (s *Store) DeleteQueue(ctx context.Context, name string, now time.Time) error {
	was, err := s.readQueue(ctx, name)
	if err != nil {
		return err
	}
	if !was.live() {
		return message.ErrQueueNotFound
	}
	if err := s.eachShard(ctx, name, func(ctx context.Context, shard int) error {
		for _, status := range message.Statuses() {
			if err := s.wantEmpty(ctx, partition(status, shard, name), now); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	next := record{Queue: was.Queue, deleted: true}
	next.Settings = was.fresh()
	found, err := s.saveQueue(ctx, was.record, &next)
	switch {
	case err != nil:
		return err
	case found != nil && !found.live(): // by somebody else
		return nil
	case found != nil:
		return contendedQueue(name)
	}
	s.know(next, s.Now())
	return nil
}

// wantEmpty returns message.ErrQueueNotEmpty if the partition shows a message
// that is there and not past its retention.
func (s *Store) wantEmpty(ctx context.Context, partition string, now time.Time) error {
	sp := span{partition: partition, low: lowest, high: highest}
	for behind := item(nil); ; {
		page, next, err := s.entries(ctx, sp, batchMost, behind)
		if err != nil {
			return err
		}
		rows, err := s.rows(ctx, page)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if !r.Expired(now) {
				return message.ErrQueueNotEmpty
			}
		}
		if behind = next; behind == nil {
			return nil
		}
	}
}

// ListQueues implements message.QueueStore.
func (s *Store) ListQueues(ctx context.Context, prefix, after string, limit int) ([]message.Queue, error) {
	from := after + "\x00" // the next name of all, in the order of bytes
	if after < prefix {
		from = prefix
	}
	var page []message.Queue
	err := s.names(ctx, pkQueues, from, limit, func(m item) (more bool, err error) {
		r, err := decodeQueue(m)
		if err != nil || !strings.HasPrefix(r.Name, prefix) {
			return false, err
		}
		if r.live() {
			page = append(page, r.Queue)
		}
		return len(page) < limit, nil
	})
	return page, err
}

// names visits the items of a partition whose sort keys are names, from a name
// on, until visit wants no more. About so many are wanted.
func (s *Store) names(
	ctx context.Context, pk, from string, about int, visit func(item) (more bool, err error),
) error {
	e := newExpression()
	condition := e.equal(attrPK, text(pk)) + " AND " + e.name(attrSK) + " >= " + e.value(text(from))
	in := &dynamodb.QueryInput{
		KeyConditionExpression: &condition, ConsistentRead: aws.Bool(true),
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		Limit: aws.Int32(int32(min(about, 1_000))), //nolint:gosec // it is small
	}
	for {
		out, err := s.query(ctx, in)
		if err != nil {
			return err
		}
		for _, m := range out.Items {
			if more, err := visit(m); err != nil || !more {
				return err
			}
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			return nil
		}
	}
}

// SaveCounts implements message.QueueStore.
func (s *Store) SaveCounts(ctx context.Context, name string, c message.Counts) error {
	counts, err := encodeCounts(c)
	if err != nil {
		return fmt.Errorf("dynamo: counts of queue %q: %w", name, err)
	}
	e := newExpression()
	update := e.update(item{attrCounts: text(counts)})
	condition := e.present() + " AND attribute_not_exists(" + e.name(attrDeleted) + ")"
	_, found, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key: primary(pkQueues, name), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
	})
	if err != nil || found == nil {
		return err
	}
	holds := 0
	for _, n := range c.Depth {
		holds += n
	}
	if holds == 0 {
		return nil
	}
	_, err = s.createQueue(ctx, name, c.At)
	return err
}

// storedCounts is how counts stand in a queue's item.
type storedCounts struct {
	Depth         map[message.Status]int `json:"depth"`
	More          []message.Status       `json:"more,omitempty"`
	OldestPending int64                  `json:"oldest_pending,omitempty"` // epoch milliseconds
	OldestDead    int64                  `json:"oldest_dead,omitempty"`
	At            int64                  `json:"at"`
}

func encodeCounts(c message.Counts) (string, error) {
	counts := storedCounts{
		Depth: c.Depth, OldestPending: epochMillis(c.OldestPending), OldestDead: epochMillis(c.OldestDead),
		At: epochMillis(c.At),
	}
	for _, status := range message.Statuses() {
		if c.More[status] {
			counts.More = append(counts.More, status)
		}
	}
	text, err := json.Marshal(counts)
	return string(text), err
}

func decodeCounts(text string) (*message.Counts, error) {
	var counts storedCounts
	if err := json.Unmarshal([]byte(text), &counts); err != nil {
		return nil, err
	}
	c := &message.Counts{
		Depth: counts.Depth, More: make(map[message.Status]bool),
		OldestPending: fromMillis(counts.OldestPending), OldestDead: fromMillis(counts.OldestDead),
		At: fromMillis(counts.At),
	}
	for _, status := range counts.More {
		c.More[status] = true
	}
	return c, nil
}

// epochMillis is zero for the zero time.
func epochMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
