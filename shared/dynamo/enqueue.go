package dynamo

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/message"
)

// Enqueue implements message.Store. The order of the writes makes sure that
// whatever is left after a crash is found, or is nothing that anybody names: the
// mark, the queue, the payload if it stands apart, the message.
func (s *Store) Enqueue(ctx context.Context, m message.Message) (stored message.Message, created bool, err error) {
	if err := s.mark(ctx, m.Queue, m.CreatedAt); err != nil {
		return message.Message{}, false, err
	}
	queue, err := s.ensureQueue(ctx, m.Queue, m.CreatedAt)
	if err != nil {
		return message.Message{}, false, err
	}
	r := row{Message: m, shard: shardOf(m.ID, queue.shards), nonce: m.Receipt}
	if apart := r.place(); apart != nil {
		if found, err := s.repeated(ctx, m); found != nil || err != nil {
			return s.stored(ctx, found, err)
		}
		if err := s.putPayload(ctx, r, apart); err != nil {
			return message.Message{}, false, err
		}
	}
	e := newExpression()
	condition := e.absent() +
		" OR " + e.name(attrExpiresAt) + " <= " + e.value(number(m.CreatedAt.Unix())) +
		" OR attribute_not_exists(" + e.name(attrQueueStatus) + ") AND " + // a gravestone, of another enqueue
		e.name(attrNonce) + " <> " + e.value(text(r.nonce))
	found, err := s.put(ctx, &dynamodb.PutItemInput{
		Item: encode(r), ConditionExpression: aws.String(condition),
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
	})
	if err != nil {
		return message.Message{}, false, err
	}
	s.forgetEntry(r)
	if found == nil {
		return m, true, nil
	}
	return s.settle(ctx, r, found)
}

// settle says what it means that the put found a message, or its gravestone: it is
// this one, put by a first try whose answer was lost, or an older one under the
// same key.
func (s *Store) settle(ctx context.Context, r row, found item) (message.Message, bool, error) {
	was := decode(found)
	if was.nonce == r.nonce {
		if gone(found) {
			return r.Message, true, nil
		}
		was.Payload = r.Payload
		return was.Message, true, nil
	}
	if r.payloadKey != "" {
		if _, err := s.remove(ctx, &dynamodb.DeleteItemInput{
			Key: primary(messagePK(r.Queue, r.ID), r.payloadKey),
		}); err != nil {
			return message.Message{}, false, err
		}
	}
	return s.stored(ctx, &was, nil)
}

// stored answers with a message that was there before.
func (s *Store) stored(ctx context.Context, was *row, err error) (message.Message, bool, error) {
	if err == nil {
		_, err = s.load(ctx, was)
	}
	if err != nil {
		return message.Message{}, false, err
	}
	return was.Message, false, nil
}

// repeated returns the message that a key belongs to already; nil if there is
// none. To put a payload only to find that out would cost more.
func (s *Store) repeated(ctx context.Context, m message.Message) (*row, error) {
	if m.Fingerprint == "" {
		return nil, nil //nolint:nilnil // none is no error
	}
	was, err := s.find(ctx, m.Queue, m.ID)
	switch {
	case errors.Is(err, message.ErrNotFound), err == nil && was.Expired(m.CreatedAt):
		return nil, nil //nolint:nilnil // none is no error
	case err != nil:
		return nil, err
	}
	return &was, nil
}
