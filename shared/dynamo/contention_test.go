package dynamo_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/message"
)

// slow adds a delay before each request, and counts queries.
type slow struct {
	dynamo.Client
	delay   time.Duration
	queries *atomic.Int64
}

func (c slow) wait() { time.Sleep(c.delay) }

func (c slow) GetItem(
	ctx context.Context, in *dynamodb.GetItemInput, options ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	c.wait()
	return c.Client.GetItem(ctx, in, options...)
}

func (c slow) Query(
	ctx context.Context, in *dynamodb.QueryInput, options ...func(*dynamodb.Options),
) (*dynamodb.QueryOutput, error) {
	c.wait()
	c.queries.Add(1)
	return c.Client.Query(ctx, in, options...)
}

func (c slow) PutItem(
	ctx context.Context, in *dynamodb.PutItemInput, options ...func(*dynamodb.Options),
) (*dynamodb.PutItemOutput, error) {
	c.wait()
	return c.Client.PutItem(ctx, in, options...)
}

func (c slow) UpdateItem(
	ctx context.Context, in *dynamodb.UpdateItemInput, options ...func(*dynamodb.Options),
) (*dynamodb.UpdateItemOutput, error) {
	c.wait()
	return c.Client.UpdateItem(ctx, in, options...)
}

// fleet is a queue and its claimers, each a store that shares no memory with the
// others, as functions are.
type fleet struct {
	claimers int
	batch    int
	shards   int
	work     time.Duration // on a message
	poll     time.Duration // after an empty answer
	backlog  int
	arrivals int
	rate     float64 // arrivals a second

	delay time.Duration // before each request; zero: time stands still
	lag   time.Duration // of the index; where time stands still, of up to lagMost requests
}

const fleetQueue = "emails"

// turn is a message that was handed out.
type turn struct {
	id  string
	due time.Time
}

// drill is a fleet at work.
type drill struct {
	fleet
	t      testing.TB
	client dynamo.Client
	table  string
	now    func() time.Time
	random *rand.Rand

	queries, empty atomic.Int64
	sent, won      atomic.Int64
	mu             sync.Mutex
	turns          []turn
	usage          dynamo.Usage // of the claims
}

// run works until every message is done.
func (f fleet) run(tb testing.TB) *drill {
	tb.Helper()
	f.batch, f.shards = max(f.batch, 1), max(f.shards, 1)
	client := engine(tb)
	began := time.Now().UTC().Truncate(time.Millisecond)
	clock := func() int64 { return int64(time.Since(began)) }
	most, lag := int64(f.lag), func() int64 { return int64(f.lag) }
	now := func() time.Time { return time.Now().UTC().Truncate(time.Millisecond) } // as it is stored
	if f.delay == 0 {
		clock, now = new(ticks).now, func() time.Time { return began }
		most, lag = lagMost, anyLag
	}
	index := lagging(client, clock, most, lag)
	d := &drill{fleet: f, t: tb, table: newTable(tb, client), now: now, random: rand.New(rand.NewPCG(1, 2))}
	d.client = slow{index, f.delay, &d.queries}

	fast := newStore(tb, index, d.table, now)
	set := message.DefaultSettings()
	set.Shards = &f.shards
	q := message.Queue{Name: fleetQueue, CreatedAt: now(), Settings: set}
	if _, _, err := fast.PutQueue(tb.Context(), q); err != nil {
		tb.Fatalf("PutQueue = %v", err)
	}
	d.fill(fast)
	d.queries.Store(0)
	var all sync.WaitGroup
	all.Go(func() { d.arrive(newStore(tb, d.client, d.table, now)) })
	for range f.claimers {
		store := newStore(tb, d.client, d.table, now)
		start := time.Duration(d.random.Float64() * float64(f.work) * float64(f.batch))
		all.Go(func() { d.work(store, start) })
	}
	all.Wait()
	d.check(fast)
	return d
}

// fill makes the backlog, one message a millisecond.
func (d *drill) fill(store *dynamo.Store) {
	first := d.now().Add(-time.Duration(d.backlog) * time.Millisecond)
	var all sync.WaitGroup
	const atOnce = 16
	for worker := range atOnce {
		all.Go(func() {
			for i := worker; i < d.backlog; i += atOnce {
				d.send(store, first.Add(time.Duration(i)*time.Millisecond))
			}
		})
	}
	all.Wait()
}

func (d *drill) send(store *dynamo.Store, due time.Time) {
	id := fmt.Sprintf("msg_%026d", d.sent.Add(1))
	_, _, err := store.Enqueue(d.t.Context(), message.Message{
		Queue: fleetQueue, ID: id, Status: message.Pending, Due: due, Receipt: "nonce" + id,
		MaxRetries: 3, MaxStalls: 3, CreatedAt: due, UpdatedAt: due, Payload: "p", PayloadBytes: 1,
	})
	if err != nil {
		d.t.Errorf("Enqueue = %v", err)
	}
}

// arrive sends messages at random times, so many a second on average.
func (d *drill) arrive(store *dynamo.Store) {
	var all sync.WaitGroup
	at := time.Now()
	for range d.arrivals {
		at = at.Add(time.Duration(-math.Log(1-d.random.Float64()) / d.rate * float64(time.Second)))
		time.Sleep(time.Until(at))
		all.Go(func() { d.send(store, d.now()) })
	}
	all.Wait()
}

// tooMany empty answers mean that a message is never handed out.
const tooMany = 30_000

// work claims messages and finishes them until all are done.
func (d *drill) work(store *dynamo.Store, start time.Duration) {
	time.Sleep(start)
	ctx, meter := dynamo.WithMeter(d.t.Context())
	nonce, empty := 0, 0
	for d.won.Load() < int64(d.backlog+d.arrivals) && !d.t.Failed() {
		held, err := store.Claim(ctx, fleetQueue, d.batch, func() message.Claim {
			nonce++
			return message.Claim{At: d.now(), Receipt: fmt.Sprintf("%p-%d", store, nonce), Timeout: time.Minute}
		})
		if err != nil {
			d.t.Errorf("Claim = %v", err)
			return
		}
		if len(held) == 0 {
			if d.won.Load() < d.sent.Load() {
				d.empty.Add(1)
			}
			if empty++; empty == tooMany {
				d.t.Errorf("%d empty answers, and %d of %d messages handed out", empty, d.won.Load(), d.sent.Load())
			}
			time.Sleep(d.poll)
			continue
		}
		empty = 0
		d.note(held)
		for _, m := range held {
			time.Sleep(d.fleet.work)
			if _, err := store.Apply(d.t.Context(), fleetQueue, m.ID, message.Succeed{
				Answer: message.Answer{At: d.now(), Receipt: m.Receipt}, KeepDays: 7,
			}); err != nil {
				d.t.Errorf("Apply(succeed) = %v", err)
			}
		}
	}
	u := meter.Usage()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.usage.LostWrites += u.LostWrites
	d.usage.ReadUnits += u.ReadUnits
	d.usage.WriteUnits += u.WriteUnits
	d.usage.Left += u.Left
}

func (d *drill) note(held []message.Message) {
	d.won.Add(int64(len(held)))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range held {
		d.turns = append(d.turns, turn{m.ID, m.CreatedAt})
	}
}

// check looks for what was handed out twice, or not at all, or not finished.
func (d *drill) check(store *dynamo.Store) {
	d.t.Helper()
	seen := make(map[string]int)
	for _, t := range d.turns {
		if seen[t.id]++; seen[t.id] == 2 {
			d.t.Errorf("%s was handed out twice", t.id)
		}
	}
	if n := d.backlog + d.arrivals; len(seen) != n {
		d.t.Errorf("%d messages were handed out, want %d", len(seen), n)
	}
	for id := range seen {
		m, _, err := store.Get(d.t.Context(), fleetQueue, id)
		if err != nil || m.Status != message.Succeeded || m.ClaimCount != 1 {
			d.t.Errorf("Get(%s) = %s, hand-out %d, %v, want a success of the first", id, m.Status, m.ClaimCount, err)
		}
	}
}

// offset returns how many places the messages were handed out before or behind
// their turn, on average and at most.
func (d *drill) offset() (mean float64, most int) {
	order := slices.Clone(d.turns)
	slices.SortStableFunc(order, func(a, b turn) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.id, b.id))
	})
	place := make(map[string]int)
	for i, t := range order {
		place[t.id] = i
	}
	for i, t := range d.turns {
		off := max(i-place[t.id], place[t.id]-i)
		mean += float64(off) / float64(len(d.turns))
		most = max(most, off)
	}
	return mean, most
}

func TestClaimersThatShareNoMemory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fleet
	}{
		{"one at a time", fleet{claimers: 16, backlog: 300}},
		{"ten at a time", fleet{claimers: 16, backlog: 600, batch: 10}},
		{"of four shards", fleet{claimers: 16, backlog: 300, shards: 4}},
		{"three of four shards", fleet{claimers: 16, backlog: 300, shards: 4, batch: 3}},
	} {
		t.Run(tt.name+" get each message once", func(t *testing.T) {
			t.Parallel()
			tt.poll = time.Millisecond // lets the engine work
			tt.run(t)                  // looks for what came twice or not at all
		})
	}
	for _, batch := range []int{1, 10} {
		t.Run(fmt.Sprintf("and a lone one gets all in order, %d at a time", batch), func(t *testing.T) {
			t.Parallel()
			d := fleet{claimers: 1, backlog: 200, batch: batch}.run(t)
			if _, off := d.offset(); off > 0 || d.usage.LostWrites > 0 {
				t.Errorf("the order is %d places off, and %d writes were lost, want none", off, d.usage.LostWrites)
			}
		})
	}
}

// BenchmarkContention counts what claimers cost each other, where requests take
// 5 ms more than on this machine and the index lags 20 ms, and compares it with
// the goals. A machine that is busy with other things makes requests slower, and
// so the counts higher; in virtual time TestClaimersSeldomTryTheSame has the same.
func BenchmarkContention(b *testing.B) {
	claimers := fleet{
		claimers: 64, work: 130 * time.Millisecond, poll: 100 * time.Millisecond,
		delay: 5 * time.Millisecond, lag: 20 * time.Millisecond,
	}
	with := func(change func(*fleet)) fleet {
		f := claimers
		change(&f)
		return f
	}
	for _, row := range []struct {
		name string
		goal float64 // lost writes per claim, at most
		fleet
	}{
		{"backlog of 10,000", 0.3, with(func(f *fleet) { f.backlog = 10_000 })},
		{"as fast as worked off", 0.45, with(func(f *fleet) { f.arrivals, f.rate = 3_000, 411 })},
		{"mostly idle", 0.8, with(func(f *fleet) { f.arrivals, f.rate = 1_500, 91 })},
		{"16 shards, backlog", 0.3, with(func(f *fleet) { f.shards, f.backlog = 16, 2_500 })},
		{"16 shards, as fast as worked off", 0.45, with(func(f *fleet) { f.shards, f.arrivals, f.rate = 16, 2_500, 411 })},
		{"16 shards, mostly idle", 0.8, with(func(f *fleet) { f.shards, f.arrivals, f.rate = 16, 600, 91 })},
		{"batches of ten, backlog of 10,000", 0.1, with(func(f *fleet) { f.batch, f.backlog = 10, 10_000 })},
		{"a lone claimer", 0, with(func(f *fleet) { f.claimers, f.work, f.backlog = 1, 0, 300 })},
	} {
		b.Run(row.name, func(b *testing.B) {
			for b.Loop() {
				d := row.run(b)
				n := float64(len(d.turns))
				mean, most := d.offset()
				lost := float64(d.usage.LostWrites) / n
				if lost > row.goal {
					b.Errorf("%.3f writes were lost per claim, want at most %v", lost, row.goal)
				}
				b.ReportMetric(lost, "lost/claim")
				b.ReportMetric(d.usage.ReadUnits/n, "RRU/claim")
				b.ReportMetric(float64(d.queries.Load())/n, "queries/claim")
				b.ReportMetric(float64(d.empty.Load())/n, "empty/claim")
				b.ReportMetric(mean, "places-off")
				b.ReportMetric(float64(most), "places-off-max")
				if d.claimers == 1 && most > 0 {
					b.Errorf("a lone claimer was %d places off the order", most)
				}
			}
		})
	}
}
