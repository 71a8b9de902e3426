package dynamo

import (
	"context"
	"slices"
	"strings"
	"sync"
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
	queue   string
	shards  int
	limit   int
	next    func() message.Claim
	claimed []claimed
}

// claimed is a message that was won, by which claim and through which entry.
type claimed struct {
	row
	claim message.Claim
	entry entry
}

// Claim implements message.Store. It walks the shards from a random one on, and
// passes over those that gave nothing a moment ago, but looks into one at least.
func (s *Store) Claim(
	ctx context.Context, queue string, limit int, next func() message.Claim,
) ([]message.Message, error) {
	q, err := s.queueOf(ctx, queue)
	if err != nil {
		return nil, err
	}
	c := &claimer{Store: s, queue: queue, shards: q.shards, limit: limit, next: next}
	err = c.walk(ctx)
	if err == nil {
		err = c.loadAll(ctx)
	}
	if err != nil && len(c.claimed) == 0 {
		return nil, err
	}
	// What was won is handed out, whatever happened to the rest.
	slices.SortFunc(c.claimed, func(a, b claimed) int { return strings.Compare(a.entry.due, b.entry.due) })
	messages := make([]message.Message, len(c.claimed))
	for i, won := range c.claimed {
		messages[i] = won.Message
	}
	return messages, nil
}

func (c *claimer) walk(ctx context.Context) error {
	begin, looked := int(random()*float64(c.shards)), false
	for i := range c.shards {
		claim := c.next()
		at := place{c.queue, (begin + i) % c.shards}
		if c.isEmpty(at, claim.At) && (looked || i < c.shards-1) {
			continue
		}
		looked = true
		if err := c.claimFrom(ctx, at, claim); err != nil || len(c.claimed) == c.limit {
			return err
		}
	}
	return nil
}

// isEmpty reports whether the shard gave nothing a moment ago.
func (s *Store) isEmpty(at place, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.shards[at]
	return sh != nil && sh.empty(now)
}

// begin returns a hunt in the shard.
func (c *claimer) begin(at place, now time.Time) *hunt {
	c.mu.Lock()
	sh := c.Store.shards[at]
	c.mu.Unlock()
	if sh == nil {
		sh = new(shard)
		remember(c.Store, c.Store.shards, at, sh)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return sh.begin(c.limit-len(c.claimed), pageOf(c.queue), now, random)
}

// claimFrom claims what it can get of the shard, and begins with the claim given.
func (c *claimer) claimFrom(ctx context.Context, at place, claim message.Claim) error {
	h := c.begin(at, claim.At)
	if err := c.look(ctx, h, at, claim.At); err != nil {
		return err
	}
	before := len(c.claimed)
	for first := true; ; first = false {
		if !first {
			claim = c.next()
		}
		c.mu.Lock()
		block := h.pick(claim.At)
		c.mu.Unlock()
		if len(block) == 0 {
			break
		}
		won, err := c.take(ctx, h, at, claim, block)
		if won || err != nil {
			return err
		}
	}
	if len(c.claimed) == before {
		c.mu.Lock()
		h.none(claim.At)
		c.mu.Unlock()
	}
	metered(ctx).add(func(u *Usage) {
		u.Spread = max(u.Spread, h.spread)
		if h.left {
			u.Left++
		}
	})
	return nil
}

// look reads what is due in the shard, and one page on where this instance is at
// all of the first already.
func (c *claimer) look(ctx context.Context, h *hunt, at place, now time.Time) error {
	limit, behind := h.limit(), item(nil)
	for range 2 {
		sp := span{partition: partition(message.Pending, at.shard, c.queue), low: lowest, high: until(now)}
		page, next, err := c.entries(ctx, sp, limit, behind)
		if err != nil {
			return err
		}
		c.mu.Lock()
		enough := h.seen(page, len(page) == limit, now)
		c.mu.Unlock()
		if enough || next == nil {
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
	ctx context.Context, h *hunt, at place, claim message.Claim, block []entry,
) (won bool, err error) {
	first, err := c.write(ctx, at, claim, block[0])
	if err != nil || first == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		h.lose(block, claim.At)
		return false, err
	}
	c.claimed = append(c.claimed, *first)
	rest := make([]*claimed, len(block)-1)
	errs := make([]error, len(rest))
	var writes sync.WaitGroup
	for i, e := range block[1:] {
		claim := c.next()
		writes.Go(func() { rest[i], errs[i] = c.write(ctx, at, claim, e) })
	}
	writes.Wait()
	lost := 0
	for i, r := range rest {
		switch {
		case r != nil:
			c.claimed = append(c.claimed, *r)
		case errs[i] == nil:
			lost++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.won(lost, len(rest), claim.At)
	return true, nil
}

// write makes the claim, if the message is still what the entry shows. It returns
// nil if it is not.
func (c *claimer) write(ctx context.Context, at place, claim message.Claim, e entry) (*claimed, error) {
	due, id := splitSortKey(e.due)
	next := claim.Apply(message.Message{Queue: c.queue, ID: id, Status: message.Pending, Due: due})
	x := newExpression()
	condition := x.equal(attrQueueStatus, text(partition(message.Pending, at.shard, c.queue))) +
		" AND " + x.equal(attrDue, text(e.due))
	update := "SET " + x.equal(attrQueueStatus, text(partition(next.Status, shardOf(id, c.shards), c.queue))) +
		", " + x.equal(attrDue, text(sortKey(next.Due, id))) +
		", " + x.equal(attrReceipt, text(next.Receipt)) +
		", " + x.equal(attrClaimedAt, millis(next.ClaimedAt)) +
		", " + x.equal(attrUpdatedAt, millis(next.UpdatedAt)) +
		" REMOVE " + x.name(attrLastVerb) +
		" ADD " + x.name(attrClaimCount) + " " + x.value(number(next.ClaimCount))
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
	r, err := decode(stored)
	if err != nil {
		return nil, err
	}
	if found != nil && !claim.AppliedTo(r.Message) { // else it is its own, and the answer was lost
		return nil, nil //nolint:nilnil // lost, which is no error
	}
	return &claimed{r, claim, e}, nil
}

// loadAll completes the messages whose payloads stand apart. One that is missing
// is buried; one that cannot be read now is given back.
func (c *claimer) loadAll(ctx context.Context) error {
	keep := make([]bool, len(c.claimed))
	errs := make([]error, len(c.claimed))
	var reads sync.WaitGroup
	for i := range c.claimed {
		reads.Go(func() { keep[i], errs[i] = c.complete(ctx, &c.claimed[i]) })
	}
	reads.Wait()
	all := c.claimed
	c.claimed = nil
	var first error
	for i, won := range all {
		if keep[i] {
			c.claimed = append(c.claimed, won)
		}
		if first == nil {
			first = errs[i]
		}
	}
	return first
}

func (c *claimer) complete(ctx context.Context, won *claimed) (bool, error) {
	found, err := c.load(ctx, &won.row)
	answer := message.Answer{At: won.claim.At, Receipt: won.claim.Receipt}
	switch {
	case err != nil:
		_, _ = c.apply(ctx, won.row, message.Release{Answer: answer}) // or its lease runs out
		return false, err
	case !found:
		return false, c.bury(ctx, won.row, answer)
	}
	return true, nil
}
