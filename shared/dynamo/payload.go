package dynamo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/klauspost/compress/zstd"

	"github.com/redrivehq/redrive/shared/message"
)

// coders are made when they are first used: a start that needs none pays for
// none. Both work on whole values, and for many callers at once.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
			zstd.WithWindowSize(windowBytes), zstd.WithEncoderCRC(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(message.MaxPayloadBytes))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	})
)

const (
	windowBytes  = 256 << 10 // a payload fits
	worthPacking = 64        // bytes; what is shorter seldom becomes smaller
)

// pack makes text an attribute: as it is, or as zstd where that is smaller.
func pack(s string) types.AttributeValue {
	if len(s) >= worthPacking {
		if packed := encoder().EncodeAll([]byte(s), nil); len(packed) < len(s) {
			return &types.AttributeValueMemberB{Value: packed}
		}
	}
	return text(s)
}

// unpack is the reverse of pack.
func unpack(v types.AttributeValue) (string, error) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value, nil
	case *types.AttributeValueMemberB:
		raw, err := decoder().DecodeAll(v.Value, nil)
		if err != nil {
			return "", fmt.Errorf("dynamo: a packed text is damaged: %w", err)
		}
		return string(raw), nil
	}
	return "", errors.New("dynamo: there is no text")
}

// inlineBytes is how large a message may become on its way to success without
// costing a second write unit each time.
const inlineBytes = unitBytes

// place puts the payload where it costs least: into the message, as it is or
// packed, while that stays within inlineBytes on the way from enqueue by claim to
// success; else apart, under a payload key. It returns what is to be stored apart.
func (r *row) place() (apart types.AttributeValue) {
	r.payload = text(r.Payload)
	if fits(*r) {
		return nil
	}
	r.payload = pack(r.Payload)
	if fits(*r) {
		return nil
	}
	apart = r.payload
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: see its documentation
	r.payload, r.payloadKey = nil, payloadPrefix+hex.EncodeToString(b[:])
	return apart
}

// fits reports whether the item stays small on that way.
func fits(r row) bool {
	size := itemSize(encode(r))
	for _, tr := range []message.Transition{
		message.Claim{At: r.Due, Receipt: r.Receipt, Timeout: time.Second},
		message.Succeed{Answer: message.Answer{At: r.Due}, KeepDays: 1},
	} {
		if size > inlineBytes {
			return false
		}
		r.Message = tr.Apply(r.Message)
		size = itemSize(encode(r))
	}
	return size <= inlineBytes
}

// putPayload stores a payload that stands apart. Its key is random: if it is there
// already, it is this one, and the answer to the first try was lost.
func (s *Store) putPayload(ctx context.Context, r row, payload types.AttributeValue) error {
	e := newExpression()
	_, err := s.put(ctx, &dynamodb.PutItemInput{
		Item: item{
			attrPK: text(messagePK(r.Queue, r.ID)), attrSK: text(r.payloadKey),
			attrPayload: payload, attrLife: number(r.ReplayCount),
		},
		ConditionExpression: aws.String(e.absent()), ExpressionAttributeNames: e.names,
	})
	return err
}

// load completes a message with its payload. It reports false if that is missing
// or damaged. Where the first look does not find one that stands apart, a
// consistent one decides.
func (s *Store) load(ctx context.Context, r *row) (found bool, err error) {
	for _, consistent := range []bool{false, true} {
		if r.payload != nil || r.payloadKey == "" {
			break
		}
		m, err := s.get(ctx, primary(messagePK(r.Queue, r.ID), r.payloadKey), consistent)
		if err != nil {
			return false, err
		}
		r.payload = m[attrPayload]
	}
	return s.open(ctx, r), nil
}

// open unpacks the payload that was read. One that is missing or damaged stays
// empty, and is logged: the rest of the message is still of use to people.
func (s *Store) open(ctx context.Context, r *row) bool {
	var err error
	if r.Payload, err = unpack(r.payload); err != nil {
		s.Log.LogAttrs(ctx, slog.LevelError, "a payload is missing or damaged",
			slog.String("queue", r.Queue), slog.String("message_id", r.ID), slog.Any("error", err))
	}
	return err == nil
}

// payloadDay is how much longer than its message a payload is kept, so that a
// late write finds it.
const payloadDay = 24 * time.Hour

// expirePayload lets the payload go when its settled message has gone. It does
// nothing if the message has been replayed since.
func (s *Store) expirePayload(ctx context.Context, r row) error {
	if r.payloadKey == "" || r.ExpiresAt.IsZero() {
		return nil
	}
	e := newExpression()
	update := e.update(item{attrExpiresAt: seconds(r.ExpiresAt.Add(payloadDay))})
	return s.updatePayload(ctx, r, e, update, e.name(attrLife)+" <= "+e.value(number(r.ReplayCount)))
}

// keepPayload lets the payload of a message stay that is about to be replayed.
func (s *Store) keepPayload(ctx context.Context, r row) error {
	if r.payloadKey == "" || r.ExpiresAt.IsZero() { // nothing lets it go in this life
		return nil
	}
	e := newExpression()
	life := number(r.ReplayCount + 1)
	update := e.update(item{attrLife: life}, attrExpiresAt)
	return s.updatePayload(ctx, r, e, update, e.name(attrLife)+" < "+e.value(life))
}

// dropPayload lets the payload of a message go that is gone.
func (s *Store) dropPayload(ctx context.Context, r row, at time.Time) error {
	if r.payloadKey == "" {
		return nil
	}
	e := newExpression()
	return s.updatePayload(ctx, r, e, e.update(item{attrExpiresAt: seconds(at.Add(payloadDay))}), "")
}

// updatePayload changes the payload's item, if it is there and the condition
// holds. Without the former it would make a ghost.
func (s *Store) updatePayload(ctx context.Context, r row, e *expression, update, condition string) error {
	exists := e.present()
	if condition != "" {
		exists += " AND " + condition
	}
	_, _, err := s.update(ctx, &dynamodb.UpdateItemInput{
		Key: primary(messagePK(r.Queue, r.ID), r.payloadKey), UpdateExpression: &update,
		ConditionExpression: &exists, ExpressionAttributeNames: e.names, ExpressionAttributeValues: e.values,
	})
	return err
}
