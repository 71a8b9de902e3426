package dynamo_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/local/tables"
	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/message"
)

// A failed condition comes with no report of what it cost. What the meter counts
// instead is compared with what the engine reports for the same item.
func TestTheMeterCountsAFailedConditionAsTheEngineWould(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	r := newRig(t, engine)
	d := message.Draft{Payload: order(300), Key: "k"}
	r.send(t, "q", d)
	m := r.item(t, "message")
	// All types of values that items hold; no number ends in a zero, which costs
	// nothing.
	m["created_at"], m["updated_at"] = num("1767225600123"), num("1767225600123")
	m["v"], m["retry_count"], m["claim_count"] = num("1"), num("12"), num("123")
	m["packed"] = &types.AttributeValueMemberB{Value: []byte("\x00\xff")}
	m["deleted"] = &types.AttributeValueMemberBOOL{Value: true}
	m["long_in_bytes"] = str("äöü€😀")
	costs := func(pad int) (counted, reported float64) {
		t.Helper()
		m["pad"] = str(strings.Repeat("x", pad))
		out, err := engine.PutItem(t.Context(), &dynamodb.PutItemInput{
			TableName: &r.table, Item: m, ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, meter := dynamo.WithMeter(t.Context())
		_, created, err := r.plain.Enqueue(ctx, "q", d)
		if err != nil || created || meter.Usage().LostWrites != 1 {
			t.Fatalf("Enqueue = created %v, %v, %+v, want a write that is lost", created, err, meter.Usage())
		}
		return meter.Usage().WriteUnits, *out.ConsumedCapacity.Table.CapacityUnits
	}
	for _, kb := range []float64{1, 2, 3} {
		low, high := 0, 4096 // the most that kb units buy is in between
		for high-low > 1 {
			middle := (low + high) / 2
			if _, reported := costs(middle); reported <= kb {
				low = middle
			} else {
				high = middle
			}
		}
		for _, pad := range []int{max(low-1, 0), low, high} {
			counted, reported := costs(pad)
			wantEqual(t, fmt.Sprintf("the units counted at %d bytes from the edge of %v KB", pad-low, kb), counted, reported)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the golden files and the tables of docs/capacity.md")

const capacityDoc = "../../docs/capacity.md"

// Prices in dollars per million, as docs/capacity.md says.
const (
	writeUnitPrice = 0.625
	readUnitPrice  = 0.125
	callPrice      = 1.00 + 0.20 + 0.02 // of the HTTP API, of a function, of a few of its milliseconds
)

// cost is what something has cost.
type cost struct {
	name  string
	calls float64 // of the HTTP API
	dynamo.Usage
}

func (c cost) units() float64 { return c.WriteUnits*writeUnitPrice + c.ReadUnits*readUnitPrice }
func (c cost) total() float64 { return c.units() + c.calls*callPrice }

// plus adds another cost so many times.
func (c cost) plus(times float64, other cost) cost {
	c.calls += times * other.calls
	c.Requests += int(times * float64(other.Requests))
	c.WriteUnits += times * other.WriteUnits
	c.ReadUnits += times * other.ReadUnits
	return c
}

// as gives it a name.
func (c cost) as(name string) cost {
	c.name = name
	return c
}

// each divides it among n.
func (c cost) each(n int) cost {
	c.Requests /= n
	c.WriteUnits /= float64(n)
	c.ReadUnits /= float64(n)
	return c
}

// meters measures what an instance does that has its settings in memory and its
// mark set. Its clock stands still, or nearly so.
type meters struct {
	*rig
	t          *testing.T
	operations []cost
	lives      []cost // of messages
}

// measure measures without keeping it.
func (m *meters) measure(name string, do func(ctx context.Context) error) cost {
	m.t.Helper()
	ctx, meter := dynamo.WithMeter(m.t.Context())
	if err := do(ctx); err != nil {
		m.t.Fatalf("%s = %v", name, err)
	}
	return cost{name, 1, meter.Usage()}
}

// keep measures an operation.
func (m *meters) keep(name string, do func(ctx context.Context) error) cost {
	m.t.Helper()
	c := m.measure(name, do)
	m.operations = append(m.operations, c)
	return c
}

// order is JSON as orders are: at least so many bytes, the same each time.
func order(bytes int) string {
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("blue cotton shirt large wooden chair garden lamp steel bottle coffee beans dark roast " +
		"running shoes winter jacket notebook ruled pencil set kitchen knife paper towels phone case travel mug")
	type line struct {
		ID       string `json:"line_id"`
		SKU      string `json:"sku"`
		Title    string `json:"title"`
		Quantity int    `json:"quantity"`
		Price    string `json:"unit_price"`
		Currency string `json:"currency"`
		TaxRate  string `json:"tax_rate"`
		GiftWrap bool   `json:"gift_wrap"`
	}
	o := struct {
		Order    string `json:"order_id"`
		Customer string `json:"customer_email"`
		PlacedAt string `json:"placed_at"`
		Lines    []line `json:"line_items"`
	}{"ord_20260101_000042", "ada@example.com", "2026-01-01T00:00:00Z", nil}
	for {
		text, err := json.Marshal(o)
		if err != nil {
			panic(err) // it is text and numbers
		}
		if len(text) >= bytes {
			return string(text)
		}
		var title []string
		for range 3 {
			title = append(title, words[r.IntN(len(words))])
		}
		o.Lines = append(o.Lines, line{
			fmt.Sprintf("li_%016x", r.Uint64()), fmt.Sprintf("SKU-%06d", r.IntN(1_000_000)), strings.Join(title, " "),
			1 + r.IntN(5), fmt.Sprintf("%d.%02d", r.IntN(200), r.IntN(100)), "EUR", "19.0", r.IntN(10) == 0,
		})
	}
}

// soon lets a moment pass: nothing is due in the millisecond of its last change.
func (m *meters) soon() { m.clock.after.Add(int64(10 * time.Millisecond)) }

// take claims so many messages.
func (m *meters) take(held *[]message.Message, n int) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		*held, err = m.plain.Claim(ctx, "orders", message.ClaimOptions{Max: &n})
		if err == nil && len(*held) != n {
			err = fmt.Errorf("claimed %d messages, want %d", len(*held), n)
		}
		return err
	}
}

func (m *meters) enqueue(d message.Draft) func(context.Context) error {
	return func(ctx context.Context) error {
		_, _, err := m.plain.Enqueue(ctx, "orders", d)
		return err
	}
}

func (m *meters) succeed(held *[]message.Message) func(context.Context) error {
	return func(ctx context.Context) error {
		var all error
		for _, h := range *held {
			_, err := m.plain.Succeed(ctx, h.Queue, h.ID, &h.Receipt)
			all = errors.Join(all, err)
		}
		return all
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	m := &meters{rig: newRig(t, engine), t: t}
	m.put(t, "orders", func(*message.Settings) {})
	m.reject(t, m.held(t, "orders", "p")) // makes the instance warm
	m.messages()
	m.holders()
	m.people()
	m.polls(engine)
	m.sweeps(engine)

	for name, want := range map[string]dynamo.Usage{
		"enqueue, up to 1 KB":            {Requests: 1, WriteUnits: 2},
		"claim, up to 1 KB":              {Requests: 2, WriteUnits: 3, ReadUnits: 0.5},
		"succeed, up to 1 KB":            {Requests: 1, WriteUnits: 3},
		"up to 1 KB":                     {Requests: 4, WriteUnits: 8, ReadUnits: 0.5},
		"10 KB of JSON":                  {Requests: 7, WriteUnits: 14, ReadUnits: 1},
		"up to 1 KB, one failure before": {Requests: 9, WriteUnits: 15, ReadUnits: 2},
		"claim of nothing":               {Requests: 1, ReadUnits: 0.5},
		"claim of ten, up to 1 KB":       {Requests: 11, WriteUnits: 30, ReadUnits: 0.5},
	} {
		found := false
		for _, c := range append(m.operations, m.lives...) {
			if c.name == name {
				found = true
				c.Spread = 0
				wantEqual(t, "the cost of "+name, c.Usage, want)
			}
		}
		if !found {
			t.Errorf("the cost of %s was not measured", name)
		}
	}
	m.document()
}

// messages measures lives of messages.
func (m *meters) messages() {
	var held []message.Message
	live := func(size, payload string) cost {
		c := m.keep("enqueue, "+size, m.enqueue(message.Draft{Payload: payload}))
		c = c.plus(1, m.keep("claim, "+size, m.take(&held, 1)))
		return c.plus(1, m.keep("succeed, "+size, m.succeed(&held))).as(size)
	}
	plain := live("up to 1 KB", order(300))
	m.lives = append(m.lives, plain)

	m.send(m.t, "orders", message.Draft{Payload: order(300)})
	failure := m.measure("", m.take(&held, 1))
	failure = failure.plus(1, m.keep("fail", func(ctx context.Context) error {
		_, err := m.plain.Fail(ctx, "orders", held[0].ID, message.Failure{
			Receipt: &held[0].Receipt, Error: "connection refused", RetryAfter: new(time.Duration(0)),
		})
		return err
	}))
	m.soon()
	wantEqual(m.t, "the cost of a claim after a failure", m.measure("", m.take(&held, 1)).WriteUnits, 3)
	m.measure("", m.succeed(&held))
	m.lives = append(m.lives,
		plain.plus(1, failure).as("up to 1 KB, one failure before"),
		plain.plus(5, failure).as("up to 1 KB, five failures before"))

	batch := cost{}
	for range message.MaxClaim {
		batch = batch.plus(1, m.measure("", m.enqueue(message.Draft{Payload: order(300)})))
	}
	batch = batch.plus(1, m.keep("claim of ten, up to 1 KB", m.take(&held, message.MaxClaim)))
	batch = batch.plus(1, m.measure("", m.succeed(&held)))
	batch.calls += message.MaxClaim - 1 // each success is a call
	batch.calls /= message.MaxClaim
	m.lives = append(m.lives, batch.each(message.MaxClaim).as("up to 1 KB, claimed by ten"))

	m.lives = append(m.lives, live("10 KB of JSON", order(10_000)), live("100 KB of JSON", order(100_000)))
}

// holders measures what else a worker does.
func (m *meters) holders() {
	var held []message.Message
	m.send(m.t, "orders", message.Draft{Payload: order(300)})
	m.measure("", m.take(&held, 1))
	h := held[0]
	m.keep("extend", func(ctx context.Context) error {
		_, err := m.plain.Extend(ctx, "orders", h.ID, message.Extension{Receipt: &h.Receipt, Timeout: new(time.Hour)})
		return err
	})
	m.keep("release", func(ctx context.Context) error {
		_, err := m.plain.Release(ctx, "orders", h.ID, &h.Receipt)
		return err
	})
	m.soon()
	m.measure("", m.take(&held, 1))
	m.keep("succeed without a receipt", func(ctx context.Context) error {
		_, err := m.plain.Succeed(ctx, "orders", h.ID, nil)
		return err
	})
	for _, d := range []message.Draft{
		{Payload: order(300), Key: "up to 1 KB"}, {Payload: order(10_000), Key: "10 KB of JSON"},
	} {
		m.keep("enqueue with a key, "+d.Key, m.enqueue(d))
		m.keep("enqueue with the same key again, "+d.Key, m.enqueue(d))
		m.measure("", m.take(&held, 1))
		m.measure("", m.succeed(&held))
	}
}

// people measures what people and programs that watch do.
func (m *meters) people() {
	dead := m.reject(m.t, m.held(m.t, "orders", order(300)))
	m.keep("get", func(ctx context.Context) error {
		_, _, err := m.plain.Get(ctx, "orders", dead.ID)
		return err
	})
	m.keep("replay", func(ctx context.Context) error {
		_, err := m.plain.Replay(ctx, "orders", dead.ID)
		return err
	})
	m.soon()
	dead = m.reject(m.t, m.claim(m.t, "orders"))
	m.keep("delete, two attempts", func(ctx context.Context) error { return m.plain.Delete(ctx, "orders", dead.ID) })
	m.put(m.t, "list", func(*message.Settings) {})
	for range 51 {
		m.send(m.t, "list", message.Draft{Payload: order(300)})
	}
	m.keep("list of 50", func(ctx context.Context) error {
		page, more, err := m.plain.List(ctx, message.List{Queue: "list", Status: message.Pending, Limit: 50})
		if err == nil && (len(page) != 50 || !more) {
			err = fmt.Errorf("listed %d messages, more %v", len(page), more)
		}
		return err
	})
	m.keep("get a queue", func(ctx context.Context) error {
		_, err := m.plain.Queue(ctx, "orders")
		return err
	})
	m.keep("put a queue", func(ctx context.Context) error {
		_, _, err := m.plain.PutQueue(ctx, "orders", message.DefaultSettings())
		return err
	})
	m.keep("list of 50 queues", func(ctx context.Context) error {
		_, _, err := m.plain.ListQueues(ctx, "", "", 50)
		return err
	})
}

// poll claims nothing.
func poll(svc *message.Service, queue string) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := svc.Claim(ctx, queue, message.ClaimOptions{})
		if err == nil && len(got) > 0 {
			err = errors.New("there was a message")
		}
		return err
	}
}

func (m *meters) polls(engine *dynamodb.Client) {
	svc, _ := m.on(m.t, engine, m.clock.Now)
	m.put(m.t, "wide", func(set *message.Settings) { set.Shards = new(16) })
	for _, queue := range []string{"idle", "wide"} {
		m.measure("", poll(svc, queue))
	}
	m.keep("claim of nothing", poll(svc, "idle"))
	m.keep("claim of nothing, 16 shards, within 1 s of the last", poll(svc, "wide"))
	m.clock.after.Add(int64(2 * time.Second))
	m.keep("claim of nothing, 16 shards", poll(svc, "wide"))
	m.clock.after.Add(int64(3 * time.Second))
	m.keep("claim of nothing that looks at the leases, every 5 s", poll(svc, "idle"))
	svc, _ = m.on(m.t, engine, m.clock.Now)
	m.keep("enqueue, up to 1 KB, the first of an instance", func(ctx context.Context) error {
		_, _, err := svc.Enqueue(ctx, "orders", message.Draft{Payload: order(300)})
		return err
	})
	m.keep("enqueue, up to 1 KB, the first of a queue", func(ctx context.Context) error {
		_, _, err := svc.Enqueue(ctx, "new", message.Draft{Payload: order(300)})
		return err
	})
}

// sweeps measures the sweeper, on tables of its own.
func (m *meters) sweeps(engine *dynamodb.Client) {
	const queues = 10
	sweep := func(r *rig) func(context.Context) error {
		return func(ctx context.Context) error {
			report, err := r.plain.Sweep(ctx, message.SweepOptions{Count: true, SettledEvery: 10 * time.Minute})
			return errors.Join(err, report.Err)
		}
	}
	r := newRig(m.t, engine)
	for i := range queues {
		r.put(m.t, strconv.Itoa(i), func(*message.Settings) {})
	}
	none := m.measure("", sweep(r))
	var held []message.Message
	for i := range queues {
		held = append(held, r.held(m.t, strconv.Itoa(i), order(300)))
	}
	r.clock.at(9 * time.Second) // the settings are not in memory any more
	m.operations = append(m.operations, none.as("sweep"),
		m.measure("", sweep(r)).plus(-1, none).each(queues).as("sweep, each queue in use"))
	m.leases(engine)
	for _, h := range held {
		_, err := r.plain.Succeed(m.t.Context(), h.Queue, h.ID, &h.Receipt)
		wantErr(m.t, "Succeed", err, nil)
	}
	r.clock.at(time.Hour)
	m.operations = append(m.operations,
		m.measure("", sweep(r)).plus(-1, none).each(queues).as("sweep, each queue that is out of use, once"))
	wantEqual(m.t, "the cost of a sweep over queues out of use", m.measure("", sweep(r)).Usage, none.Usage)
	r.wantSound(m.t, 0)
}

// leases measures what each lease that ran out adds to a sweep.
func (m *meters) leases(engine *dynamodb.Client) {
	const more = 10
	r := newRig(m.t, engine)
	sweep := func(leases int) cost {
		m.t.Helper()
		begin := r.clock.Now().Sub(began)
		for _, old := range r.list(m.t) {
			wantErr(m.t, "Delete", r.plain.Delete(m.t.Context(), "q", old.ID), nil)
		}
		for range leases {
			r.held(m.t, "q", order(300))
		}
		r.clock.at(begin + lapsedAfter)
		c := m.measure("", func(ctx context.Context) error {
			report, err := r.plain.Sweep(ctx, message.SweepOptions{})
			wantEqual(m.t, "the number of leases", report.Returned, leases)
			return errors.Join(err, report.Err)
		})
		r.clock.at(begin + time.Hour)
		return c
	}
	sweep(0)
	one := sweep(1)
	m.operations = append(m.operations, sweep(1+more).plus(-1, one).each(more).as("sweep, each lease that ended"))
}

// document compares the tables with those of the document.
func (m *meters) document() {
	var b strings.Builder
	b.WriteString("| operation | requests | WRU | RRU | $ per million |\n|---|---:|---:|---:|---:|\n")
	for _, c := range m.operations {
		fmt.Fprintf(&b, "| %s | %d | %v | %v | %.2f |\n", c.name, c.Requests, c.WriteUnits, c.ReadUnits, c.units())
	}
	m.replace("operations", b.String())
	b.Reset()
	b.WriteString("| message | calls | requests | WRU | RRU | DynamoDB | API Gateway, Lambda | $ per million |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range m.lives {
		fmt.Fprintf(&b, "| %s | %v | %d | %v | %v | %.2f | %.2f | **%.2f** |\n", c.name, c.calls, c.Requests,
			c.WriteUnits, c.ReadUnits, c.units(), c.calls*callPrice, c.total())
	}
	m.replace("messages", b.String())
}

// replace compares the table of that name with the document's, and replaces it
// there if asked to.
func (m *meters) replace(name, table string) {
	m.t.Helper()
	m.t.Logf("%s\n%s", name, table)
	doc, err := os.ReadFile(capacityDoc)
	if err != nil {
		m.t.Fatal(err)
	}
	before, old, after, ok := tables.Place(string(doc), name, "make capacity")
	if !ok {
		m.t.Fatalf("%s has no place for the table %q", capacityDoc, name)
	}
	if *update {
		if err := os.WriteFile(capacityDoc, []byte(before+table+after), 0o600); err != nil {
			m.t.Fatal(err)
		}
		return
	}
	wantEqual(m.t, "the table of "+capacityDoc, old, table)
}
