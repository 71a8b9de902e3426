package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/message"
)

// The calls of DynamoDB, with what all of them share: the table, the count of
// capacity, the errors. A write whose condition does not hold is no error: it
// returns the item that was found, which is empty if there is none. Else found is
// nil.

const capacity = types.ReturnConsumedCapacityIndexes

// listed returns what a call reported, as some calls do in a list.
func listed(c *types.ConsumedCapacity) []types.ConsumedCapacity {
	if c == nil {
		return nil
	}
	return []types.ConsumedCapacity{*c}
}

// get returns an item; nil if there is none.
func (s *Store) get(ctx context.Context, key item, consistent bool) (item, error) {
	out, err := s.Client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.Table, Key: key, ConsistentRead: &consistent, ReturnConsumedCapacity: capacity,
	})
	if err != nil {
		return nil, s.explain("GetItem", err)
	}
	consumed(ctx, false, listed(out.ConsumedCapacity))
	return out.Item, nil
}

// query reads one page.
func (s *Store) query(ctx context.Context, in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
	in.TableName, in.ReturnConsumedCapacity = &s.Table, capacity
	out, err := s.Client.Query(ctx, in)
	if err != nil {
		return nil, s.explain("Query", err)
	}
	consumed(ctx, false, listed(out.ConsumedCapacity))
	return out, nil
}

// put writes an item.
func (s *Store) put(ctx context.Context, in *dynamodb.PutItemInput) (found item, err error) {
	in.TableName, in.ReturnConsumedCapacity = &s.Table, capacity
	if in.ConditionExpression != nil {
		in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	}
	out, err := s.Client.PutItem(ctx, in)
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return refused(ctx, failed), nil
	}
	if err != nil {
		return nil, s.explain("PutItem", err)
	}
	consumed(ctx, true, listed(out.ConsumedCapacity))
	return found, nil
}

// update changes an item, and returns of it what the caller asked for.
func (s *Store) update(ctx context.Context, in *dynamodb.UpdateItemInput) (stored, found item, err error) {
	in.TableName, in.ReturnConsumedCapacity = &s.Table, capacity
	if in.ConditionExpression != nil {
		in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	}
	out, err := s.Client.UpdateItem(ctx, in)
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return nil, refused(ctx, failed), nil
	}
	if err != nil {
		return nil, nil, s.explain("UpdateItem", err)
	}
	consumed(ctx, true, listed(out.ConsumedCapacity))
	return out.Attributes, nil, nil
}

// remove deletes an item.
func (s *Store) remove(ctx context.Context, in *dynamodb.DeleteItemInput) (found item, err error) {
	in.TableName, in.ReturnConsumedCapacity = &s.Table, capacity
	if in.ConditionExpression != nil {
		in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	}
	out, err := s.Client.DeleteItem(ctx, in)
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return refused(ctx, failed), nil
	}
	if err != nil {
		return nil, s.explain("DeleteItem", err)
	}
	consumed(ctx, true, listed(out.ConsumedCapacity))
	return found, nil
}

// refused counts the write and returns what it found.
func refused(ctx context.Context, failed *types.ConditionalCheckFailedException) item {
	found := failed.Item
	if found == nil {
		found = item{}
	}
	lostWrite(ctx, found)
	return found
}

// batchMost is how many items DynamoDB returns at a time.
const batchMost = 100

// batch reads items consistently, in no order; those that do not exist are left
// out. It asks for what DynamoDB left unprocessed until it has all of it.
func (s *Store) batch(ctx context.Context, keys []item) ([]item, error) {
	var items []item
	idle := 0 // times that nothing came
	for len(keys) > 0 {
		now := keys[:min(batchMost, len(keys))]
		keys = keys[len(now):]
		consistent := true
		out, err := s.Client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
			RequestItems:           map[string]types.KeysAndAttributes{s.Table: {Keys: now, ConsistentRead: &consistent}},
			ReturnConsumedCapacity: capacity,
		})
		if err != nil {
			return nil, s.explain("BatchGetItem", err)
		}
		consumed(ctx, false, out.ConsumedCapacity)
		items = append(items, out.Responses[s.Table]...)
		left := out.UnprocessedKeys[s.Table].Keys
		keys = append(left, keys...)
		if len(left) < len(now) {
			idle = 0
			continue
		}
		if idle++; idle == attempts {
			return nil, fmt.Errorf("dynamo: BatchGetItem: %d items stay unprocessed: %w", len(left), message.ErrUnavailable)
		}
		select {
		case <-ctx.Done():
			return nil, s.explain("BatchGetItem", ctx.Err())
		case <-time.After(time.Duration(random() * float64(longestWait))):
		}
	}
	return items, nil
}
