package dynamo

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/message"
)

// Get implements message.Store.
func (s *Store) Get(ctx context.Context, queue, id string) (message.Message, []message.Attempt, error) {
	items, err := s.items(ctx, queue, id, payloadPrefix+"~")
	if err != nil {
		return message.Message{}, nil, err
	}
	r := decode(items[skMessage])
	if r.payload == nil {
		r.payload = items[r.payloadKey][attrPayload]
	}
	s.open(ctx, &r)
	attempts := s.history(ctx, &r, items)
	return r.Message, attempts, nil
}

// history returns the attempts, and completes the text of the last error. If the
// crash of a writer kept the last attempt from its place, it is read off the
// message. A text that is damaged stays empty, and is logged.
func (s *Store) history(ctx context.Context, r *row, items map[string]item) []message.Attempt {
	var attempts []message.Attempt
	for sk, m := range items {
		if !strings.HasPrefix(sk, attemptPrefix) {
			continue
		}
		a, err := decodeAttempt(m)
		if err != nil {
			s.Log.LogAttrs(ctx, slog.LevelError, "the text of an attempt is damaged",
				slog.String("queue", r.Queue), slog.String("message_id", r.ID), slog.Any("error", err))
			if r.last != nil && a.Number == r.last.Number {
				continue // the message has its beginning
			}
		}
		attempts = append(attempts, a)
	}
	if r.last == nil {
		return attempts
	}
	i := slices.IndexFunc(attempts, func(a message.Attempt) bool {
		return a.Number == r.last.Number && a.ClaimedAt.Equal(r.last.ClaimedAt)
	})
	if i < 0 {
		return append(attempts, *r.last)
	}
	r.LastError = &attempts[i].Error
	return attempts
}

// items returns those of a message by their sort keys, up to the one given: the
// attempts, the message, its payload. Errors: message.ErrNotFound.
func (s *Store) items(ctx context.Context, queue, id, last string) (map[string]item, error) {
	e := newExpression()
	condition := e.equal(attrPK, text(messagePK(queue, id))) + " AND " + e.name(attrSK) + " <= " + e.value(text(last))
	in := &dynamodb.QueryInput{
		KeyConditionExpression: &condition, ConsistentRead: aws.Bool(true),
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
	}
	items := make(map[string]item)
	for {
		page, err := s.query(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, m := range page.Items {
			items[str(m, attrSK)] = m
		}
		if in.ExclusiveStartKey = page.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			break
		}
	}
	if gone(items[skMessage]) {
		return nil, message.ErrNotFound
	}
	return items, nil
}

// find reads a message consistently, its payload only if that stands in the same
// item. Errors: message.ErrNotFound.
func (s *Store) find(ctx context.Context, queue, id string) (row, error) {
	m, err := s.get(ctx, primary(messagePK(queue, id), skMessage), true)
	switch {
	case err != nil:
		return row{}, err
	case gone(m):
		return row{}, message.ErrNotFound
	}
	return decode(m), nil
}
