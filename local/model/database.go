package main

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/virtual"
)

type item = map[string]types.AttributeValue

// database is DynamoDB in virtual time, as far as enqueue and claim use it: items
// under conditions, and the pending partitions of an index that lags.
type database struct {
	*virtual.World
	lag     time.Duration
	items   map[string]*stored
	pending map[string][]*stored // by partition, in its order
	queries int
}

// stored is an item.
type stored struct {
	item
	entry item      // of the index, while it was pending
	size  int       // of that, in bytes
	due   string    // its place there
	put   time.Time // when it came into the table
	gone  time.Time // when it left that partition; zero while it is there
}

// indexed returns the item with its entry.
func indexed(m item, now time.Time) *stored {
	s := &stored{item: m, entry: make(item), due: text(m["due"]), put: now}
	for _, name := range []string{"pk", "sk", "queue_status", "due"} {
		s.entry[name] = m[name]
		s.size += len(name) + len(text(m[name]))
	}
	return s
}

func newDatabase(w *virtual.World, lag time.Duration) *database {
	return &database{World: w, lag: lag, items: make(map[string]*stored), pending: make(map[string][]*stored)}
}

// client is one caller, whose requests take time. What enqueue and claim do not
// call is not there.
type client struct {
	dynamo.Client
	*database
	sleep func(time.Duration) // nil for a caller who waits for nothing
}

// requestFrom and requestTo bound how long a request takes, as in decision 14.
const requestFrom, requestTo = 3 * time.Millisecond, 7 * time.Millisecond

// travel does something in the middle of the time that a request takes.
func (c *client) travel(do func()) {
	if c.sleep == nil {
		do()
		return
	}
	half := c.Between(requestFrom, requestTo) / 2
	c.sleep(half)
	do()
	c.sleep(half)
}

func text(v types.AttributeValue) string {
	s, _ := v.(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

func keyOf(m item) string { return text(m["pk"]) + "\n" + text(m["sk"]) }

func units(n float64) *types.ConsumedCapacity { return &types.ConsumedCapacity{CapacityUnits: &n} }

// GetItem implements dynamo.Client.
func (c *client) GetItem(
	_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	out := &dynamodb.GetItemOutput{ConsumedCapacity: units(1)} // the settings of a queue, consistently
	c.travel(func() {
		if s := c.items[keyOf(in.Key)]; s != nil {
			out.Item = s.item
		}
	})
	return out, nil
}

// PutItem implements dynamo.Client. Nothing that is put here was there before.
func (c *client) PutItem(
	_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.PutItemOutput, error) {
	c.travel(func() {
		s := indexed(in.Item, c.Now)
		c.items[keyOf(in.Item)] = s
		if partition := text(in.Item["queue_status"]); partition != "" {
			all := c.pending[partition]
			at := len(all)
			for at > 0 && all[at-1].due > s.due {
				at--
			}
			c.pending[partition] = slices.Insert(all, at, s)
		}
	})
	return &dynamodb.PutItemOutput{}, nil
}

// assignment is an attribute and its value, in a condition or an update.
var assignment = regexp.MustCompile(`#(\w+) = (:\w+)`)

// UpdateItem implements dynamo.Client, for conditions that are equalities and for
// updates that set values.
func (c *client) UpdateItem(
	_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options),
) (out *dynamodb.UpdateItemOutput, err error) {
	c.travel(func() {
		s := c.items[keyOf(in.Key)]
		if s == nil {
			s = &stored{item: in.Key}
			c.items[keyOf(in.Key)] = s
		}
		for _, equal := range assignment.FindAllStringSubmatch(*in.ConditionExpression, -1) {
			if text(s.item[equal[1]]) != text(in.ExpressionAttributeValues[equal[2]]) {
				err = &types.ConditionalCheckFailedException{Item: s.item}
				return
			}
		}
		next := maps.Clone(s.item)
		for _, set := range assignment.FindAllStringSubmatch(*in.UpdateExpression, -1) {
			next[set[1]] = in.ExpressionAttributeValues[set[2]]
		}
		s.item, s.gone = next, c.Now
		out = &dynamodb.UpdateItemOutput{Attributes: next}
	})
	return out, err
}

// pageBytes of the index are half a read unit.
const pageBytes = 4096

// Query implements dynamo.Client: what the index showed a while ago.
func (c *client) Query(
	_ context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options),
) (*dynamodb.QueryOutput, error) {
	out := new(dynamodb.QueryOutput)
	c.travel(func() {
		partition, high := text(in.ExpressionAttributeValues[":0"]), text(in.ExpressionAttributeValues[":2"])
		behind, size := text(in.ExclusiveStartKey["due"]), 0
		if strings.HasPrefix(partition, "pending") {
			c.queries++
		}
		for _, s := range c.shown(partition) {
			if s.due > high || len(out.Items) == int(*in.Limit) {
				break
			}
			if s.due <= behind || !s.visible(c.Now.Add(-c.lag)) {
				continue
			}
			out.Items = append(out.Items, s.entry)
			size += s.size
		}
		if len(out.Items) == int(*in.Limit) {
			out.LastEvaluatedKey = out.Items[len(out.Items)-1]
		}
		out.ConsumedCapacity = units(float64(ceil(max(size, 1), pageBytes)) / 2)
	})
	return out, nil
}

// countPending counts the messages that nobody has claimed.
func (d *database) countPending() (n int) {
	for _, partition := range d.pending {
		for _, s := range partition {
			if s.gone.IsZero() {
				n++
			}
		}
	}
	return n
}

// visible reports whether the index showed the item at that time.
func (s *stored) visible(at time.Time) bool {
	return !s.put.After(at) && (s.gone.IsZero() || s.gone.After(at))
}

// shown returns the partition without what left its head long ago.
func (c *client) shown(partition string) []*stored {
	all, at := c.pending[partition], c.Now.Add(-c.lag)
	for len(all) > 0 && !all[0].gone.IsZero() && !all[0].gone.After(at) {
		all = all[1:]
	}
	c.pending[partition] = all
	return all
}
