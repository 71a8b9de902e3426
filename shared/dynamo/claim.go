package dynamo

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/message"
)

// place is a shard of a queue.
type place struct {
	queue string
	shard int
}

// claimer is one call of Claim.
type claimer struct {
	*Store
	queue      string
	shardCount int
	limit      int
	next       func() message.Claim
	claimed    []claimed
}

// claimed is a message that was won, by which claim and through which entry.
type claimed struct {
	row
	claim message.Claim
	entry entry
}

// Claim implements message.Store. What was won is handed out, whatever happened
// to the rest.
func (s *Store) Claim(
	ctx context.Context, queue string, limit int, next func() message.Claim,
) ([]message.Message, error) {
	q, err := s.queueOf(ctx, queue)
	if err != nil {
		return nil, err
	}
	c := &claimer{Store: s, queue: queue, shardCount: q.shards, limit: limit, next: next}
	err = errors.Join(c.walk(ctx), c.loadAll(ctx))
	if len(c.claimed) == 0 {
		return nil, err
	}
	if err != nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "a claim was cut short, and hands out what it has",
			slog.String("queue", queue), slog.Int("messages", len(c.claimed)), slog.Any("error", err))
	}
	slices.SortFunc(c.claimed, func(a, b claimed) int { return strings.Compare(a.entry.due, b.entry.due) })
	messages := make([]message.Message, len(c.claimed))
	for i, won := range c.claimed {
		messages[i] = won.Message
	}
	return messages, nil
}

// walk claims from one shard after the other until there is enough.
func (c *claimer) walk(ctx context.Context) error {
	way := beginWalk(c.shardCount, random)
	claim := c.next()
	for first := true; ; first = false {
		shard, ok := way.next(func(shard int) bool { return c.isEmpty(shard, claim.At) })
		if !ok {
			return nil
		}
		if !first {
			claim = c.next()
		}
		if err := c.claimFrom(ctx, shard, claim); err != nil || len(c.claimed) == c.limit {
			return err
		}
	}
}

// isEmpty reports whether the shard gave nothing a moment ago.
func (c *claimer) isEmpty(shard int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	sh := c.shards[place{c.queue, shard}]
	return sh != nil && sh.empty(now)
}

// begin returns a hunt in the shard.
func (c *claimer) begin(shard int, now time.Time) *hunt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory(shard).begin(c.limit-len(c.claimed), pageOf(c.queue), now, random)
}

// memory returns what is remembered of the shard. Shard 0 keeps the crowd for all.
func (c *claimer) memory(i int) *shard {
	at := place{c.queue, i}
	if sh := c.shards[at]; sh != nil {
		return sh
	}
	sh := &shard{crowd: new(crowd)}
	if i > 0 {
		sh.crowd = c.memory(0).crowd
	}
	keep(c.shards, at, sh)
	return sh
}

// claimFrom claims what it can get of the shard. The first message that it tries
// gets the claim given.
func (c *claimer) claimFrom(ctx context.Context, shard int, claim message.Claim) error {
	h := c.begin(shard, claim.At)
	defer c.account(ctx, h)
	if err := c.look(ctx, h, shard, claim.At); err != nil {
		return err
	}
	for first := true; ; first = false {
		var block []entry
		c.locked(func() { block = h.pick(claim.At) })
		if len(block) == 0 {
			c.locked(func() { h.none(claim.At) })
			return nil
		}
		if !first {
			claim = c.next()
		}
		if won, err := c.take(ctx, h, shard, claim, block); won || err != nil {
			return err
		}
	}
}

// locked does something with what is remembered.
func (c *claimer) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// account adds the hunt to what is metered.
func (c *claimer) account(ctx context.Context, h *hunt) {
	var spread float64
	c.locked(func() { spread = h.spread })
	metered(ctx).add(func(u *Usage) {
		u.Spread = max(u.Spread, spread)
		if h.left {
			u.Left++
		}
	})
}

// look reads what is due in the shard, and one page on where this instance is at
// all of the first already.
func (c *claimer) look(ctx context.Context, h *hunt, shard int, now time.Time) error {
	limit, behind, enough := h.limit(), item(nil), false
	for range 2 {
		sp := span{partition: partition(message.Pending, shard, c.queue), low: lowest, high: until(now)}
		page, next, err := c.entries(ctx, sp, limit, behind)
		if err != nil {
			return err
		}
		c.locked(func() { enough = h.seen(page, next != nil, now) })
		if enough {
			break
		}
		behind = next
	}
	if len(h.entries) > 0 {
		return c.mark(ctx, c.queue, now)
	}
	return nil
}

// take tries the first entry of the block and, if it is won, the rest at once.
func (c *claimer) take(
	ctx context.Context, h *hunt, shard int, claim message.Claim, block []entry,
) (won bool, err error) {
	first, err := c.write(ctx, shard, claim, block[0])
	switch {
	case err != nil:
		c.locked(func() { h.failed(block) })
		return false, err
	case first == nil:
		c.locked(func() { h.lost(block, claim.At) })
		return false, nil
	}
	c.claimed = append(c.claimed, *first)
	block = block[1:]
	claims, rest, lost := make([]message.Claim, len(block)), make([]*claimed, len(block)), make([]bool, len(block))
	for i := range claims {
		claims[i] = c.next()
	}
	err = sideBySide(len(block), func(i int) (err error) {
		rest[i], err = c.write(ctx, shard, claims[i], block[i])
		lost[i] = rest[i] == nil && err == nil
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	losses := 0
	for i, r := range rest {
		switch {
		case r != nil:
			c.claimed = append(c.claimed, *r)
		case lost[i]:
			losses++
		default:
			h.failed(block[i : i+1])
		}
	}
	h.won(losses, len(rest), claim.At)
	return true, err
}

// write makes the claim, if the message is still what the entry shows. It returns
// nil if it is not.
func (c *claimer) write(ctx context.Context, shard int, claim message.Claim, e entry) (*claimed, error) {
	due, id := splitSortKey(e.due)
	next := claim.Apply(message.Message{Queue: c.queue, ID: id, Status: message.Pending, Due: due})
	x := newExpression()
	condition := x.equal(attrQueueStatus, text(partition(message.Pending, shard, c.queue))) +
		" AND " + x.equal(attrDue, text(e.due))
	update := x.update(item{
		attrQueueStatus: text(partition(next.Status, shardOf(id, c.shardCount), c.queue)),
		attrDue:         text(sortKey(next.Due, id)),
		attrReceipt:     text(next.Receipt),
		attrClaimedAt:   millis(next.ClaimedAt),
		attrUpdatedAt:   millis(next.UpdatedAt),
	}, attrLastVerb) + " ADD " + x.name(attrClaimCount) + " " + x.value(number(next.ClaimCount))
	stored, found, err := c.update(ctx, &dynamodb.UpdateItemInput{
		Key: primary(e.pk, skMessage), UpdateExpression: &update, ConditionExpression: &condition,
		ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.values, ReturnValues: types.ReturnValueAllNew,
	})
	if err != nil {
		return nil, err
	}
	if found != nil {
		stored = found
	}
	r := decode(stored)
	if found != nil && !claim.AppliedTo(r.Message) { // else it is its own, and the answer was lost
		return nil, nil //nolint:nilnil // lost, which is no error
	}
	return &claimed{r, claim, e}, nil
}

// loadAll completes the messages with their payloads. One whose payload is missing
// or damaged is buried; one whose payload cannot be read now is given back.
func (c *claimer) loadAll(ctx context.Context) error {
	keep := make([]bool, len(c.claimed))
	err := sideBySide(len(c.claimed), func(i int) (err error) {
		keep[i], err = c.complete(ctx, &c.claimed[i])
		return err
	})
	all := c.claimed
	c.claimed = nil
	for i, won := range all {
		if keep[i] {
			c.claimed = append(c.claimed, won)
		}
	}
	return err
}

// releaseWithin bounds what a claim does after its time.
const releaseWithin = 500 * time.Millisecond

func (c *claimer) complete(ctx context.Context, won *claimed) (bool, error) {
	found, err := c.load(ctx, &won.row)
	answer := message.Answer{At: won.claim.At, Receipt: won.claim.Receipt}
	switch {
	case err != nil:
		// ctx may have ended, and be the cause. Where this fails too, the lease runs out.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
		defer cancel()
		_, releaseErr := c.apply(ctx, won.row, message.Release{Answer: answer})
		return false, errors.Join(err, releaseErr)
	case !found:
		_, err := c.apply(ctx, won.row, message.Bury{Answer: answer})
		return false, err
	}
	return true, nil
}
