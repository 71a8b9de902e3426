package dynamo_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/storetest"
)

// item is what DynamoDB stores.
type item = map[string]types.AttributeValue

// lagging returns a client of the engine behind an index that lags: see wire.NewIndex.
func lagging(client *dynamodb.Client, clock func() int64, most int64, lag func() int64) *dynamodb.Client {
	return dynamodb.New(client.Options(), func(o *dynamodb.Options) {
		o.HTTPClient = wire.NewIndex(o.HTTPClient, clock, most, lag)
	})
}

// ticks is a clock that moves with what happens.
type ticks struct{ atomic.Int64 }

func (c *ticks) now() int64 { return c.Add(1) }

// lagMost is how many requests an index may lag behind: where each takes 5 ms, it
// is 200 ms.
const lagMost = 40

// anyLag is different each time.
func anyLag() int64 { return rand.Int64N(lagMost + 1) }

// TestConformanceWhileTheIndexLags has each query of the index see it as it was
// some requests ago, up to lagMost.
func TestConformanceWhileTheIndexLags(t *testing.T) {
	t.Parallel()
	client := engine(t)
	storetest.RunLagging(t, func(t *testing.T, now func() time.Time) storetest.Harness {
		t.Helper()
		table, clock := newTable(t, client), new(ticks)
		index := lagging(client, clock.now, lagMost, anyLag)
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
	lagging := lagging(client, new(ticks).now, 0, func() int64 { return 0 })
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
	condition, index := "#queue_status = :0 AND #due BETWEEN :1 AND :2", dynamo.IndexName
	entries, followed := make(map[string]int), 0
	for _, status := range []string{"pending#00#q", "processing#00#q", "succeeded#00#q", "dead#00#q"} {
		for _, limit := range []*int32{new(int32(1)), new(int32(7)), new(int32(34)), new(int32(99)), nil} {
			for _, forward := range []bool{true, false} {
				for _, what := range []types.Select{types.SelectAllProjectedAttributes, types.SelectCount} {
					in := &dynamodb.QueryInput{
						TableName: &d.table, IndexName: &index, KeyConditionExpression: &condition, Select: what,
						ExpressionAttributeNames:  map[string]string{"#queue_status": "queue_status", "#due": "due"},
						ExpressionAttributeValues: item{":0": str(status), ":1": str("0"), ":2": str(":")},
						Limit:                     limit, ScanIndexForward: &forward,
						ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
					}
					for range 5 { // pages at most
						want, err := client.Query(t.Context(), in)
						if err != nil {
							t.Fatal(err)
						}
						got, err := lagging.Query(t.Context(), in)
						if err != nil {
							t.Fatal(err)
						}
						got.ResultMetadata = want.ResultMetadata // of the connection
						if !reflect.DeepEqual(got, want) {
							t.Fatalf("%s, limit %v, forward %v, %s: %d entries, %v units, then %v; the engine says %d, %v, %v",
								status, limit, forward, what, got.Count, *got.ConsumedCapacity.CapacityUnits, got.LastEvaluatedKey,
								want.Count, *want.ConsumedCapacity.CapacityUnits, want.LastEvaluatedKey)
						}
						entries[status] += int(want.Count)
						if in.ExclusiveStartKey = want.LastEvaluatedKey; in.ExclusiveStartKey == nil {
							break
						}
						followed++
					}
				}
			}
		}
	}
	if followed < 100 || entries["pending#00#q"] < 1_000 || entries["processing#00#q"] < 100 {
		t.Errorf("%d pages had another behind them, and showed %v, want many of both", followed, entries)
	}
}

// frozen is a client of an index that shows the table as it was when it was
// stopped.
type frozen struct {
	*dynamodb.Client
	clock *ticks
	at    atomic.Int64 // zero: it does not lag
}

func newFrozen(t *testing.T) *frozen {
	t.Helper()
	f := &frozen{clock: new(ticks)}
	f.Client = lagging(engine(t), f.clock.now, math.MaxInt32, func() int64 {
		if at := f.at.Load(); at > 0 {
			return f.clock.Load() - at
		}
		return 0
	})
	return f
}

func (f *frozen) stop() { f.at.Store(f.clock.now()) }

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
