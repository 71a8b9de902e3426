package dynamo

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/message"
)

// applyMost is how often a transition is decided afresh because the message
// changed between reading and writing.
const applyMost = 5

// Apply implements message.Store.
func (s *Store) Apply(ctx context.Context, queue, id string, tr message.Transition) (message.Message, error) {
	if t, ok := tr.(message.Succeed); ok && t.Receipt != "" {
		return s.succeed(ctx, queue, id, t)
	}
	r, err := s.find(ctx, queue, id)
	if err != nil {
		return message.Message{}, err
	}
	return s.apply(ctx, r, tr)
}

// apply carries out tr on the message as read, or as it has become since.
func (s *Store) apply(ctx context.Context, r row, tr message.Transition) (message.Message, error) {
	for range applyMost {
		change, err := message.Decide(r.Message, tr)
		if err != nil {
			return message.Message{}, err
		}
		if !change.Changed {
			if ended := change.Attempt; ended != nil {
				r.LastError = &ended.Error // whole, where the message keeps the beginning
			}
			return r.Message, s.finish(ctx, r, change.Attempt)
		}
		tr = message.Pin(tr, r.Message)
		queue, err := s.queueOf(ctx, r.Queue)
		if err != nil {
			return message.Message{}, err
		}
		next := r.after(change, shardOf(r.ID, queue.shards))
		found, err := s.replace(ctx, r, next, tr.Time())
		switch {
		case err != nil:
			return message.Message{}, err
		case found == nil:
			return next.Message, s.finish(ctx, next, change.Attempt)
		}
		if r, err = s.again(ctx, r, tr, found); err != nil {
			return message.Message{}, err
		}
	}
	return message.Message{}, contended(string(tr.Verb()))
}

// replace writes next in the place of was, if that is still what is stored. Else
// it returns what was found: an empty item for none.
func (s *Store) replace(ctx context.Context, was, next row, at time.Time) (found item, err error) {
	if next.Status != message.Succeeded {
		if err := s.mark(ctx, was.Queue, at); err != nil {
			return nil, err
		}
	}
	if next.ReplayCount > was.ReplayCount {
		if err := s.keepPayload(ctx, was); err != nil {
			return nil, err
		}
	}
	e := newExpression()
	condition := e.version(was)
	update := e.change(encode(was), encode(next))
	_, found, err = s.update(ctx, &dynamodb.UpdateItemInput{
		Key: primary(messagePK(was.Queue, was.ID), skMessage), UpdateExpression: &update,
		ConditionExpression: &condition, ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
	})
	return found, err
}

// version is the condition that the stored message is still that one.
func (e *expression) version(r row) string {
	return e.equal(attrQueueStatus, text(partition(r.Status, r.shard, r.Queue))) +
		" AND " + e.equal(attrDue, text(sortKey(r.Due, r.ID))) +
		" AND " + e.equal(attrReceipt, text(r.Receipt))
}

// again returns the message that a write has found in the place of was. Errors:
// message.ErrNotFound.
func (s *Store) again(ctx context.Context, was row, tr message.Transition, found item) (row, error) {
	if gone(found) {
		if tr.Verb() == message.VerbReplay { // its payload was to stay
			if err := s.dropPayload(ctx, was, tr.Time()); err != nil {
				return row{}, err
			}
		}
		return row{}, message.ErrNotFound
	}
	r := decode(found)
	if tr.Verb() == message.VerbReplay && r.ReplayCount > was.ReplayCount && r.Status == message.Dead {
		// Replayed, perhaps by this call, and dead again: one call replays once.
		return row{}, &message.ConflictError{Verb: tr.Verb(), Status: r.Status, Reason: message.ReasonReplayed}
	}
	if tr.Verb() == message.VerbStall && r.LastVerb == message.VerbStall && r.Receipt == was.Receipt {
		// By this call, its answer lost, or by another sweep that may have stopped here.
		return r, s.finish(ctx, r, tr.Ended(r.Message))
	}
	return r, nil
}

// finish makes the second write of a verb: the attempt that ended goes into the
// history, or a payload apart may go with its settled message. It may be repeated.
func (s *Store) finish(ctx context.Context, r row, ended *message.Attempt) error {
	if ended != nil {
		if err := s.keepAttempt(ctx, r, *ended); err != nil {
			return err
		}
	}
	return s.expirePayload(ctx, r)
}

// keepAttempt puts the attempt into the history, unless it or a newer one stands
// in its place.
func (s *Store) keepAttempt(ctx context.Context, r row, a message.Attempt) error {
	e := newExpression()
	condition := e.absent() + " OR " +
		e.name(attrClaimedAt) + " < " + e.value(millis(a.ClaimedAt))
	_, err := s.put(ctx, &dynamodb.PutItemInput{
		Item: encodeAttempt(r, a), ConditionExpression: &condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
	})
	return err
}

// succeed writes without reading first: the receipt is all that has to hold.
func (s *Store) succeed(ctx context.Context, queue, id string, t message.Succeed) (message.Message, error) {
	q, err := s.queueOf(ctx, queue)
	if err != nil {
		return message.Message{}, err
	}
	next := t.Apply(message.Message{Queue: queue, ID: id})
	e := newExpression()
	condition := "begins_with(" + e.name(attrQueueStatus) + ", " + e.value(text(string(message.Processing)+"#")) + ")" +
		" AND " + e.equal(attrReceipt, text(t.Receipt))
	update := e.update(item{
		attrQueueStatus: text(partition(next.Status, shardOf(id, q.shards), queue)),
		attrDue:         text(sortKey(next.Due, id)),
		attrUpdatedAt:   millis(next.UpdatedAt),
		attrExpiresAt:   seconds(next.ExpiresAt),
		attrLastVerb:    text(string(next.LastVerb)),
	})
	stored, found, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key: primary(messagePK(queue, id), skMessage), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values, ReturnValues: types.ReturnValueAllNew,
	})
	switch {
	case err != nil:
		return message.Message{}, err
	case found != nil && gone(found):
		return message.Message{}, message.ErrNotFound
	case found != nil:
		stored = found
	}
	r := decode(stored)
	if found != nil {
		return s.apply(ctx, r, t)
	}
	return r.Message, s.finish(ctx, r, nil)
}
