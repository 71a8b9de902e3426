package dynamo_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/storetest"
)

// item is what DynamoDB stores.
type item = map[string]types.AttributeValue

// laggingIndex is an engine whose index shows the table as it was a while ago, as
// that of DynamoDB does. It answers queries of the index itself, from what it has
// seen being written; so all that is written to the table must go through it.
type laggingIndex struct {
	dynamo.Client
	tb    testing.TB
	clock func() int64 // any unit
	lag   func() int64 // how old the view of a query is
	most  int64        // that lag returns

	stripes [64]sync.Mutex // writes of one item come one after the other
	seed    maphash.Seed

	mu         sync.Mutex
	now        map[string]*indexEntry     // of each message
	partitions map[string]*indexPartition // by queue_status
}

// indexEntry is where a message stood for a while.
type indexEntry struct {
	key         item
	status, due string
	from, until int64
}

// indexPartition is in the order of the index. It holds what has gone, too, as
// long as a query may show it.
type indexPartition struct {
	entries []*indexEntry
	gone    int
}

func newLaggingIndex(
	tb testing.TB, client dynamo.Client, clock func() int64, most int64, lag func() int64,
) *laggingIndex {
	tb.Helper()
	return &laggingIndex{
		Client: client, tb: tb, clock: clock, lag: lag, most: most, seed: maphash.MakeSeed(),
		now: make(map[string]*indexEntry), partitions: make(map[string]*indexPartition),
	}
}

func shownText(m item, name string) string {
	s, _ := m[name].(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

// watch makes a write of one item, and notes what it leaves of it. An error may
// come with a failed condition, and then shows the item, or from a write that
// nobody knows the outcome of.
func (c *laggingIndex) watch(ctx context.Context, table *string, of item, write func() (item, error)) {
	if shownText(of, "sk") != "m" { // only messages are in the index
		_, _ = write()
		return
	}
	pk := shownText(of, "pk")
	stripe := &c.stripes[maphash.String(c.seed, pk)%uint64(len(c.stripes))]
	stripe.Lock()
	defer stripe.Unlock()
	stored, err := write()
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		stored, err = failed.Item, nil
	}
	if err != nil {
		consistent := true
		out, err := c.GetItem(context.WithoutCancel(ctx), &dynamodb.GetItemInput{
			TableName: table, ConsistentRead: &consistent, Key: item{"pk": of["pk"], "sk": of["sk"]},
		})
		if err != nil {
			c.tb.Errorf("GetItem after a write that failed = %v", err)
			return
		}
		stored = out.Item
	}
	c.note(pk, stored)
}

// note records that the message has changed.
func (c *laggingIndex) note(pk string, stored item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status, due := shownText(stored, "queue_status"), shownText(stored, "due")
	was, at := c.now[pk], c.clock()
	if was != nil {
		if was.status == status && was.due == due {
			return
		}
		was.until = at
		c.partitions[was.status].tidy(at - c.most)
		delete(c.now, pk)
	}
	if status == "" {
		return
	}
	e := &indexEntry{status: status, due: due, from: at, until: math.MaxInt64, key: item{
		"pk": stored["pk"], "sk": stored["sk"], "queue_status": stored["queue_status"], "due": stored["due"],
	}}
	c.now[pk] = e
	p := c.partitions[status]
	if p == nil {
		p = new(indexPartition)
		c.partitions[status] = p
	}
	p.entries = slices.Insert(p.entries, p.find(due), e)
}

// find returns where the first entry is that is not before due.
func (p *indexPartition) find(due string) int {
	i, _ := slices.BinarySearchFunc(p.entries, due, func(e *indexEntry, due string) int { return cmp.Compare(e.due, due) })
	return i
}

// tidy drops what was gone before the time given, once that is worth it.
func (p *indexPartition) tidy(before int64) {
	const worth = 100
	if p.gone++; p.gone < worth {
		return
	}
	p.gone = 0
	p.entries = slices.DeleteFunc(p.entries, func(e *indexEntry) bool { return e.until < before })
}

func (c *laggingIndex) PutItem(
	ctx context.Context, in *dynamodb.PutItemInput, options ...func(*dynamodb.Options),
) (out *dynamodb.PutItemOutput, err error) {
	c.watch(ctx, in.TableName, in.Item, func() (item, error) {
		out, err = c.Client.PutItem(ctx, in, options...)
		return in.Item, err
	})
	return out, err
}

func (c *laggingIndex) UpdateItem(
	ctx context.Context, in *dynamodb.UpdateItemInput, options ...func(*dynamodb.Options),
) (out *dynamodb.UpdateItemOutput, err error) {
	c.watch(ctx, in.TableName, in.Key, func() (item, error) {
		all := *in
		all.ReturnValues = types.ReturnValueAllNew
		if out, err = c.Client.UpdateItem(ctx, &all, options...); err != nil {
			return nil, err
		}
		return out.Attributes, nil
	})
	return out, err
}

func (c *laggingIndex) DeleteItem(
	ctx context.Context, in *dynamodb.DeleteItemInput, options ...func(*dynamodb.Options),
) (out *dynamodb.DeleteItemOutput, err error) {
	c.watch(ctx, in.TableName, in.Key, func() (item, error) {
		out, err = c.Client.DeleteItem(ctx, in, options...)
		return nil, err
	})
	return out, err
}

func (c *laggingIndex) Query(
	ctx context.Context, in *dynamodb.QueryInput, options ...func(*dynamodb.Options),
) (*dynamodb.QueryOutput, error) {
	if in.IndexName == nil {
		return c.Client.Query(ctx, in, options...)
	}
	if *in.KeyConditionExpression != "#queue_status = :0 AND #due BETWEEN :1 AND :2" {
		c.tb.Errorf("Query of the index asks for %s: this needs to know more", *in.KeyConditionExpression)
	}
	v := in.ExpressionAttributeValues
	page, more := c.view(shownText(v, ":0"), shownText(v, ":1"), shownText(v, ":2"), in)
	out := &dynamodb.QueryOutput{Count: int32(len(page)), ScannedCount: int32(len(page))}
	bytes := 1
	for _, e := range page {
		if in.Select != types.SelectCount {
			out.Items = append(out.Items, e.key)
		}
		for name := range e.key {
			bytes += len(name) + len(shownText(e.key, name))
		}
	}
	if more {
		out.LastEvaluatedKey = page[len(page)-1].key
	}
	const unit = 4096 // bytes, for half a read unit
	units := float64((bytes+unit-2)/unit) / 2
	out.ConsumedCapacity = &types.ConsumedCapacity{TableName: in.TableName, CapacityUnits: new(max(units, 0.5))}
	return out, nil
}

// view returns what the index showed a while ago, in the order asked for, and
// whether it stopped at the limit.
func (c *laggingIndex) view(status, low, high string, in *dynamodb.QueryInput) (page []*indexEntry, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.partitions[status]
	if p == nil {
		return nil, false
	}
	at := c.clock() - c.lag()
	backwards := in.ScanIndexForward != nil && !*in.ScanIndexForward
	from := p.find(low)
	to := p.find(high + "\x00")
	behind := shownText(in.ExclusiveStartKey, "due")
	for i := range max(to-from, 0) {
		e := p.entries[from+i]
		if backwards {
			e = p.entries[to-1-i]
		}
		if e.from > at || e.until <= at {
			continue
		}
		if passed := strings.Compare(e.due, behind); behind != "" && (passed == 0 || passed < 0 != backwards) {
			continue
		}
		page = append(page, e)
		if in.Limit != nil && len(page) == int(*in.Limit) {
			return page, true
		}
	}
	return page, false
}

// ticks is a clock that moves with what happens.
type ticks struct{ atomic.Int64 }

func (c *ticks) now() int64 { return c.Add(1) }

// lagMost is how many requests an index may lag behind: where each takes 5 ms, it
// is 200 ms.
const lagMost = 40

// TestConformanceWhileTheIndexLags has each query of the index see it as it was
// some requests ago, up to lagMost.
func TestConformanceWhileTheIndexLags(t *testing.T) {
	t.Parallel()
	client := engine(t)
	storetest.RunLagging(t, func(t *testing.T, now func() time.Time) storetest.Harness {
		t.Helper()
		table, clock := newTable(t, client), new(ticks)
		index := newLaggingIndex(t, client, clock.now, lagMost, func() int64 { return rand.Int64N(lagMost + 1) })
		open := func(t *testing.T) storetest.Store {
			t.Helper()
			return newStore(t, index, table, now)
		}
		return storetest.Harness{Store: open(t), Another: open, Settle: func() { clock.Add(lagMost) }}
	})
}

// TestALaggingIndexWithoutALagAnswersAsTheEngineDoes is for the emulation itself.
func TestALaggingIndexWithoutALagAnswersAsTheEngineDoes(t *testing.T) {
	t.Parallel()
	client := engine(t)
	lagging := newLaggingIndex(t, client, new(ticks).now, 0, func() int64 { return 0 })
	d := newDesk(t, lagging, 1)
	sent := d.sendAll(120)
	for _, m := range d.claim(d.Store, 10) {
		if _, err := d.Apply(t.Context(), "q", m.ID, message.Succeed{
			Answer: message.Answer{At: d.now(), Receipt: m.Receipt}, KeepDays: 7,
		}); err != nil {
			t.Fatal(err)
		}
	}
	held := d.claim(d.Store, 10)
	if _, err := d.Apply(t.Context(), "q", held[0].ID, message.Release{
		Answer: message.Answer{At: d.now(), Receipt: held[0].Receipt},
	}); err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(t.Context(), "q", sent[40], d.now()); err != nil {
		t.Fatal(err)
	}
	value := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	condition, index := "#queue_status = :0 AND #due BETWEEN :1 AND :2", dynamo.IndexName
	pages := 0
	for _, status := range []string{"pending#00#q", "processing#00#q", "succeeded#00#q", "dead#00#q"} {
		for _, limit := range []*int32{new(int32(1)), new(int32(7)), new(int32(34)), new(int32(99)), nil} {
			for _, forward := range []bool{true, false} {
				for _, what := range []types.Select{types.SelectAllProjectedAttributes, types.SelectCount} {
					in := &dynamodb.QueryInput{
						TableName: &d.table, IndexName: &index, KeyConditionExpression: &condition, Select: what,
						ExpressionAttributeNames:  map[string]string{"#queue_status": "queue_status", "#due": "due"},
						ExpressionAttributeValues: item{":0": value(status), ":1": value("0"), ":2": value(":")},
						Limit:                     limit, ScanIndexForward: &forward,
						ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
					}
					for range 5 { // pages at most
						pages++
						want, err := client.Query(t.Context(), in)
						if err != nil {
							t.Fatal(err)
						}
						got, err := lagging.Query(t.Context(), in)
						if err != nil {
							t.Fatal(err)
						}
						if !reflect.DeepEqual(got.Items, want.Items) && len(got.Items)+len(want.Items) > 0 ||
							got.Count != want.Count || !reflect.DeepEqual(got.LastEvaluatedKey, want.LastEvaluatedKey) ||
							*got.ConsumedCapacity.CapacityUnits != *want.ConsumedCapacity.CapacityUnits {
							t.Fatalf("%s, limit %v, forward %v, %s: %d entries, %v units, then %v; the engine says %d, %v, %v",
								status, limit, forward, what, got.Count, *got.ConsumedCapacity.CapacityUnits, got.LastEvaluatedKey,
								want.Count, *want.ConsumedCapacity.CapacityUnits, want.LastEvaluatedKey)
						}
						if in.ExclusiveStartKey = want.LastEvaluatedKey; in.ExclusiveStartKey == nil {
							break
						}
					}
				}
			}
		}
	}
	if pages < 100 {
		t.Errorf("%d pages were compared, want many", pages)
	}
}

// frozen is an index that shows the table as it was when it was stopped.
type frozen struct {
	*laggingIndex
	at atomic.Int64 // zero: it does not lag
}

func newFrozen(t *testing.T) *frozen {
	t.Helper()
	var f *frozen
	clock := new(ticks)
	f = &frozen{laggingIndex: newLaggingIndex(t, engine(t), clock.now, math.MaxInt32, func() int64 {
		if at := f.at.Load(); at > 0 {
			return clock.Load() - at
		}
		return 0
	})}
	return f
}

func (f *frozen) stop() { f.at.Store(f.clock()) }

func TestS038OneOfManyInstancesGetsAMessageThoughTheIndexShowsItToAll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ messages, limit int }{{1, 1}, {10, 5}} {
		const claimers = 20
		index := newFrozen(t)
		d := newDesk(t, index, 1)
		sent := d.sendAll(tt.messages)
		index.stop() // from now on it shows them as pending, whoever has them
		d.wait(2 * time.Second)
		stores := make([]*dynamo.Store, claimers) // none knows what the others do
		for i := range stores {
			stores[i] = d.open(index)
		}
		var nonce atomic.Int64
		claim := func(store *dynamo.Store) []message.Message {
			held, err := store.Claim(t.Context(), "q", tt.limit, func() message.Claim {
				return message.Claim{At: d.now(), Receipt: fmt.Sprintf("receipt %d", nonce.Add(1)), Timeout: time.Minute}
			})
			if err != nil || len(held) > tt.limit {
				t.Errorf("Claim = %v, %v, want up to %d messages", idsOf(held), err, tt.limit)
			}
			return held
		}
		held := make([][]message.Message, claimers)
		var all sync.WaitGroup
		for i, store := range stores {
			all.Go(func() { held[i] = claim(store) })
		}
		all.Wait()
		won := slices.Concat(held...)
		index.at.Store(0)
		for range 200 { // what conflicts have left over
			won = append(won, claim(stores[0])...)
			d.wait(100 * time.Millisecond)
		}
		receipts := make(map[string]string)
		for _, m := range won {
			receipts[m.ID] = m.Receipt
		}
		ids := idsOf(won)
		if slices.Sort(ids); !slices.Equal(ids, sent) {
			t.Errorf("%v were handed out, want %v", ids, sent)
		}
		for _, id := range sent {
			if m := wantStored(t, d, id, message.Processing, 1); m.Receipt != receipts[id] {
				t.Errorf("%s is held under %q, want %q, which was handed out", id, m.Receipt, receipts[id])
			}
		}
	}
}

func TestS039AFinishedMessageThatTheIndexStillShowsIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 10} {
		index := newFrozen(t)
		d := newDesk(t, index, 1)
		sent := []string{d.send(d.now(), "a"), d.send(d.now(), "b")}
		index.stop()
		// All in one millisecond: then only the status tells what is stored from what the index shows.
		held := d.claim(d.open(index), 1)
		wantIDs(t, "the first Claim", held, sent[0])
		if _, err := d.Apply(t.Context(), "q", sent[0], message.Succeed{
			Answer: message.Answer{At: d.now(), Receipt: held[0].Receipt}, KeepDays: 7,
		}); err != nil {
			t.Fatal(err)
		}
		before := wantStored(t, d, sent[0], message.Succeeded, 1)
		d.wait(2 * time.Second) // it is long overdue, and not left to others
		ctx, meter := dynamo.WithMeter(t.Context())
		got, err := d.open(index).Claim(ctx, "q", limit, d.next)
		if err != nil {
			t.Errorf("Claim = %v, want no error", err)
		}
		wantIDs(t, "the second Claim", got, sent[1])
		if lost := meter.Usage().LostWrites; lost != 1 {
			t.Errorf("%d writes were lost, want 1: the index shows the finished message", lost)
		}
		if after := wantStored(t, d, sent[0], message.Succeeded, 1); !reflect.DeepEqual(after, before) {
			t.Errorf("the finished message became %+v, want %+v", after, before)
		}
	}
}
