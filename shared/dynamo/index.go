package dynamo

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/message"
)

// span is a range of one partition of the index, bounds included.
type span struct {
	partition string
	low, high string
	backwards bool
}

// in returns the query for it.
func (sp span) in() *dynamodb.QueryInput {
	e := newExpression()
	condition := e.equal(attrQueueStatus, text(sp.partition)) +
		" AND " + e.name(attrDue) + " BETWEEN " + e.value(text(sp.low)) + " AND " + e.value(text(sp.high))
	return &dynamodb.QueryInput{
		IndexName: aws.String(IndexName), KeyConditionExpression: &condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		ScanIndexForward: aws.Bool(!sp.backwards),
	}
}

// entries reads up to limit entries behind the key given, and returns the key
// behind which others follow; nil for none.
func (s *Store) entries(ctx context.Context, sp span, limit int, behind item) (page []entry, next item, err error) {
	if sp.low > sp.high { // DynamoDB refuses it
		return nil, nil, nil
	}
	in := sp.in()
	in.Limit, in.ExclusiveStartKey = aws.Int32(int32(min(limit, 1_000))), behind //nolint:gosec // it is small
	out, err := s.query(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range out.Items {
		page = append(page, entry{str(m, attrPK), str(m, attrDue)})
	}
	return page, out.LastEvaluatedKey, nil
}

// first returns the first entry of the span; false if there is none.
func (s *Store) first(ctx context.Context, sp span) (entry, bool, error) {
	page, _, err := s.entries(ctx, sp, 1, nil)
	if err != nil || len(page) == 0 {
		return entry{}, false, err
	}
	return page[0], true, nil
}

// eachShard does the same in every shard of the queue.
func (s *Store) eachShard(ctx context.Context, queue string, do func(ctx context.Context, shard int) error) error {
	q, err := s.queueOf(ctx, queue)
	if err != nil {
		return err
	}
	return sideBySide(q.shards, func(shard int) error { return do(ctx, shard) })
}

// merged reads one status of a queue in order, all shards together.
type merged struct {
	store *Store
	parts []*part
	each  int // entries read at a time
}

// part is what has been read of a shard.
type part struct {
	span
	read  []entry
	begun bool
	next  item // nil if nothing follows
}

// merge returns the entries of that status between the bounds. About so many are
// wanted.
func (s *Store) merge(
	ctx context.Context, queue string, status message.Status, bounds span, about int,
) (*merged, error) {
	q, err := s.queueOf(ctx, queue)
	if err != nil {
		return nil, err
	}
	const spare = 8 // shards are not filled quite evenly
	m := &merged{store: s, each: about/q.shards + spare}
	for shard := range q.shards {
		sp := bounds
		sp.partition = partition(status, shard, queue)
		m.parts = append(m.parts, &part{span: sp})
	}
	return m, m.fill(ctx)
}

// fill reads on in every part that has nothing left to show.
func (m *merged) fill(ctx context.Context) error {
	var short []*part
	for _, p := range m.parts {
		if len(p.read) == 0 && (!p.begun || p.next != nil) {
			short = append(short, p)
		}
	}
	return sideBySide(len(short), func(i int) (err error) {
		p := short[i]
		p.begun = true
		p.read, p.next, err = m.store.entries(ctx, p.span, m.each, p.next)
		return err
	})
}

// take returns up to n entries; fewer only where there are no more.
func (m *merged) take(ctx context.Context, n int) ([]entry, error) {
	var taken []entry
	for len(taken) < n {
		if err := m.fill(ctx); err != nil {
			return nil, err
		}
		best := slices.MinFunc(m.parts, func(a, b *part) int {
			switch {
			case len(a.read) == 0 || len(b.read) == 0:
				return len(b.read) - len(a.read) // those without come last
			case a.backwards:
				return strings.Compare(b.read[0].due, a.read[0].due)
			}
			return strings.Compare(a.read[0].due, b.read[0].due)
		})
		if len(best.read) == 0 {
			break
		}
		taken = append(taken, best.read[0])
		best.read = best.read[1:]
	}
	return taken, nil
}
