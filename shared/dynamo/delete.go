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
	items, err := s.all(ctx, queue, id)
	if err != nil {
		return err
	}
	r, err := decode(items[skMessage])
	if err != nil {
		return err
	}
	if err := s.deleteMessage(ctx, r, at); err != nil {
		return err
	}
	if err := s.dropPayload(ctx, r, at); err != nil {
		return err
	}
	for sk := range items {
		if !strings.HasPrefix(sk, attemptPrefix) {
			continue
		}
		if _, err := s.remove(ctx, &dynamodb.DeleteItemInput{Key: primary(messagePK(queue, id), sk)}); err != nil {
			return err
		}
	}
	return nil
}

// deleteMessage removes the message as read, or as it has become since.
func (s *Store) deleteMessage(ctx context.Context, r row, at time.Time) error {
	created := r.CreatedAt
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
		if r, err = decode(found); err != nil {
			return err
		}
		if !r.CreatedAt.Equal(created) { // another message under the same key
			return nil
		}
	}
	return contended("delete")
}
