package dynamo

import (
	"context"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/message"
)

// Delete implements message.Store. First goes the message: what a crash leaves
// behind then belongs to nobody.
func (s *Store) Delete(ctx context.Context, queue, id string, at time.Time) error {
	items, err := s.items(ctx, queue, id, skMessage) // its payload sorts behind it, and is of no interest
	if err != nil {
		return err
	}
	r := decode(items[skMessage])
	if err := s.deleteMessage(ctx, r, at); err != nil {
		return err
	}
	if err := s.dropPayload(ctx, r, at); err != nil {
		return err
	}
	for sk, m := range items {
		if !strings.HasPrefix(sk, attemptPrefix) {
			continue
		}
		e := newExpression() // unless it is already one of the next message under this key
		condition := e.equal(attrClaimedAt, m[attrClaimedAt])
		if _, err := s.remove(ctx, &dynamodb.DeleteItemInput{
			Key: primary(messagePK(queue, id), sk), ConditionExpression: &condition,
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		}); err != nil {
			return err
		}
	}
	return nil
}

// deleteMessage removes the message as read, or as it has become since.
func (s *Store) deleteMessage(ctx context.Context, r row, at time.Time) error {
	for range applyMost {
		if err := message.MayDelete(r.Message, at); err != nil {
			return err
		}
		found, err := s.deleteVersion(ctx, r, at)
		if err != nil || gone(found) { // deleted, now or before
			return err
		}
		next := decode(found)
		if next.nonce != r.nonce { // another message under the same key
			return nil
		}
		r = next
	}
	return contended("delete")
}

// A copy of the request that enqueued a message may still be under way when it is
// deleted, and would bring it back. So a message that is not older than this leaves
// a gravestone, which the table's TTL takes away.
const (
	graveAge  = time.Minute
	graveTime = time.Hour
)

// deleteVersion removes the message if it is still what was read. Else it returns
// what was found.
func (s *Store) deleteVersion(ctx context.Context, r row, at time.Time) (found item, err error) {
	e := newExpression()
	condition, key := e.version(r), primary(messagePK(r.Queue, r.ID), skMessage)
	if at.Sub(r.CreatedAt) >= graveAge {
		return s.remove(ctx, &dynamodb.DeleteItemInput{
			Key: key, ConditionExpression: &condition,
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		})
	}
	update := e.change(encode(r), gravestone(r, at.Add(graveTime)))
	_, found, err = s.update(ctx, &dynamodb.UpdateItemInput{
		Key: key, UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
	})
	return found, err
}
