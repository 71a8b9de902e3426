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
		e := newExpression()
		condition := e.version(r)
		found, err := s.remove(ctx, &dynamodb.DeleteItemInput{
			Key: primary(messagePK(r.Queue, r.ID), skMessage), ConditionExpression: &condition,
			ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
		})
		if err != nil || len(found) == 0 { // deleted, now or before
			return err
		}
		next := decode(found)
		if !next.follows(r) { // another message under the same key
			return nil
		}
		r = next
	}
	return contended("delete")
}

// follows reports whether r is what became of the message was, and not another
// one under the same key: its receipt changes only with a claim or a replay.
func (r row) follows(was row) bool {
	counted := r.ClaimCount + r.ReplayCount - was.ClaimCount - was.ReplayCount
	return r.CreatedAt.Equal(was.CreatedAt) && (counted > 0 || counted == 0 && r.Receipt == was.Receipt)
}
