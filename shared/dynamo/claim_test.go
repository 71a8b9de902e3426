package dynamo_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/message"
)

// meddler is a client that does as DynamoDB, but for what a test says.
type meddler struct {
	dynamo.Client
	query  func(in *dynamodb.QueryInput, out *dynamodb.QueryOutput) error
	get    func(in *dynamodb.GetItemInput) error
	update func(in *dynamodb.UpdateItemInput) error
}

var errOutage = errors.New("connection refused")

func (c *meddler) Query(
	ctx context.Context, in *dynamodb.QueryInput, options ...func(*dynamodb.Options),
) (*dynamodb.QueryOutput, error) {
	out, err := c.Client.Query(ctx, in, options...)
	if err == nil && c.query != nil {
		err = c.query(in, out)
	}
	return out, err
}

func (c *meddler) GetItem(
	ctx context.Context, in *dynamodb.GetItemInput, options ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	if c.get != nil {
		if err := c.get(in); err != nil {
			return nil, err
		}
	}
	return c.Client.GetItem(ctx, in, options...)
}

func (c *meddler) UpdateItem(
	ctx context.Context, in *dynamodb.UpdateItemInput, options ...func(*dynamodb.Options),
) (*dynamodb.UpdateItemOutput, error) {
	if c.update != nil {
		if err := c.update(in); err != nil {
			return nil, err
		}
	}
	return c.Client.UpdateItem(ctx, in, options...)
}

// desk is a queue whose clock the test moves.
type desk struct {
	*dynamo.Store
	t     *testing.T
	table string
	log   *bytes.Buffer
	clock *atomic.Int64 // milliseconds since deskEpoch
	sent  int
	tries atomic.Int64 // claims asked for
	busy  atomic.Bool  // one is being asked for
}

var deskEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newDesk(t *testing.T, client dynamo.Client, shards int) *desk {
	t.Helper()
	d := &desk{t: t, table: newTable(t, engine(t)), log: new(bytes.Buffer), clock: new(atomic.Int64)}
	d.Store = d.open(client)
	d.setShards(shards)
	return d
}

// open returns another instance on the same table.
func (d *desk) open(client dynamo.Client) *dynamo.Store {
	return dynamo.New(dynamo.Options{
		Client: client, Table: d.table, Now: d.now, Log: slog.New(slog.NewTextHandler(d.log, nil)),
	})
}

func (d *desk) now() time.Time {
	return deskEpoch.Add(time.Duration(d.clock.Load()) * time.Millisecond)
}

func (d *desk) wait(long time.Duration) { d.clock.Add(long.Milliseconds()) }

func (d *desk) setShards(shards int) {
	d.t.Helper()
	set := message.DefaultSettings()
	set.Shards = &shards
	if _, _, err := d.PutQueue(d.t.Context(), message.Queue{Name: "q", CreatedAt: d.now(), Settings: set}); err != nil {
		d.t.Fatalf("PutQueue = %v", err)
	}
}

// send puts a message that is due then, and returns its id.
func (d *desk) send(due time.Time, payload string) string {
	d.t.Helper()
	d.sent++
	id := fmt.Sprintf("msg_%026d", d.sent)
	_, created, err := d.Enqueue(d.t.Context(), message.Message{
		Queue: "q", ID: id, Status: message.Pending, Due: due, Receipt: "nonce of " + id, MaxRetries: 3, MaxStalls: 3,
		CreatedAt: due, UpdatedAt: due, Payload: payload, PayloadBytes: len(payload),
	})
	if err != nil || !created {
		d.t.Fatalf("Enqueue = %v, %v, want a new message", created, err)
	}
	return id
}

// sendAll puts n messages, one a millisecond, the last one due now.
func (d *desk) sendAll(n int) []string {
	d.t.Helper()
	all := make([]string, n)
	for i := range all {
		all[i] = d.send(d.now().Add(time.Duration(i-n+1)*time.Millisecond), "p")
	}
	return all
}

// next makes claims, and fails if it is asked for two at once.
func (d *desk) next() message.Claim {
	if !d.busy.CompareAndSwap(false, true) {
		d.t.Error("two claims are asked for at once")
	}
	defer d.busy.Store(false)
	return message.Claim{At: d.now(), Receipt: fmt.Sprintf("receipt %d", d.tries.Add(1)), Timeout: 30 * time.Second}
}

func (d *desk) claim(store *dynamo.Store, limit int) []message.Message {
	d.t.Helper()
	held, err := store.Claim(d.t.Context(), "q", limit, d.next)
	if err != nil {
		d.t.Fatalf("Claim = %v", err)
	}
	return held
}

func idsOf(messages []message.Message) []string {
	all := make([]string, len(messages))
	for i, m := range messages {
		all[i] = m.ID
	}
	return all
}

func wantIDs(t *testing.T, what string, got []message.Message, want ...string) {
	t.Helper()
	if !slices.Equal(idsOf(got), want) {
		t.Errorf("%s = %v, want %v", what, idsOf(got), want)
	}
}

func wantStored(t *testing.T, d *desk, id string, status message.Status, handOuts int) message.Message {
	t.Helper()
	m, _, err := d.Get(t.Context(), "q", id)
	if err != nil || m.Status != status || m.ClaimCount != handOuts {
		t.Errorf("Get(%s) = %s, hand-out %d, %v, want %s, hand-out %d", id, m.Status, m.ClaimCount, err, status, handOuts)
	}
	return m
}

func TestClaimsOfOneInstanceLoseNoWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ shards, limit int }{{1, 1}, {1, 10}, {4, 3}} {
		t.Run(fmt.Sprintf("%d at a time of %d shards", tt.limit, tt.shards), func(t *testing.T) {
			t.Parallel()
			const messages, claimers = 400, 32
			d := newDesk(t, lagging(engine(t), new(ticks).now, lagMost, anyLag), tt.shards)
			sent := d.sendAll(messages)
			ctx, meter := dynamo.WithMeter(t.Context())
			var mu sync.Mutex
			var won []string
			var claims atomic.Int64
			enough := func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(won) >= messages || t.Failed()
			}
			var all sync.WaitGroup
			for range claimers {
				all.Go(func() {
					for empty := 0; !enough(); {
						held, err := d.Claim(ctx, "q", tt.limit, func() message.Claim {
							return message.Claim{
								At: d.now(), Receipt: fmt.Sprintf("receipt %d", claims.Add(1)), Timeout: time.Minute,
							}
						})
						if err != nil {
							t.Errorf("Claim = %v", err)
							return
						}
						mu.Lock()
						won = append(won, idsOf(held)...)
						mu.Unlock()
						if empty++; len(held) > 0 {
							empty = 0
						}
						if empty == tooMany {
							t.Errorf("%d empty answers", empty)
							return
						}
						runtime.Gosched()
					}
				})
			}
			all.Wait()
			slices.Sort(won)
			if !slices.Equal(won, sent) {
				t.Errorf("%d messages were handed out, want each of %d once", len(won), messages)
			}
			if u := meter.Usage(); u.LostWrites != 0 || u.Spread != 1 {
				t.Errorf("%d writes were lost, and the spread became %v, want none and 1", u.LostWrites, u.Spread)
			}
		})
	}
}

func TestAnAnswerIsInOrderAndHasItsPayloads(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		client := engine(t)
		d := newDesk(t, client, shards)
		want := make(map[string]string)
		due := make(map[string]time.Time)
		for i := range 10 {
			at := d.now().Add(-time.Duration(i*7%10) * time.Second)
			payload := strconv.Itoa(i)
			if i%2 == 0 {
				payload = random(3_000) // stands apart
			}
			id := d.send(at, payload)
			want[id], due[id] = payload, at
		}
		held := d.claim(d.Store, 10)
		if len(held) != 10 {
			t.Fatalf("of %d shards Claim = %d messages, want 10", shards, len(held))
		}
		if !slices.IsSortedFunc(held, func(a, b message.Message) int {
			return cmp.Or(due[a.ID].Compare(due[b.ID]), cmp.Compare(a.ID, b.ID))
		}) {
			t.Errorf("of %d shards Claim = %v, want them as they were due", shards, idsOf(held))
		}
		for _, m := range held {
			if m.Payload != want[m.ID] || m.Status != message.Processing || m.ClaimCount != 1 {
				t.Errorf("%s is %s with a payload of %d bytes, want it processing, with %d",
					m.ID, m.Status, len(m.Payload), len(want[m.ID]))
			}
		}
	}
}

// random returns so many bytes of text that do not become smaller.
func random(n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(byte('!' + rand.IntN(90)))
	}
	return b.String()
}

func TestAClaimIsAskedForWhenItsTurnHasCome(t *testing.T) {
	t.Parallel()
	client := engine(t)
	d := newDesk(t, client, 1)
	before := int64(0)
	asked := func(what string, want int64) {
		t.Helper()
		if got := d.tries.Load() - before; got != want {
			t.Errorf("%s asks for %d claims, want %d", what, got, want)
		}
		before = d.tries.Load()
	}
	wantIDs(t, "Claim", d.claim(d.Store, 10))
	asked("an empty answer", 1)
	sent := d.sendAll(14)
	d.wait(time.Second)
	wantIDs(t, "Claim", d.claim(d.Store, 1), sent[0])
	asked("one message", 1)
	wantIDs(t, "Claim", d.claim(d.Store, 10), sent[1:11]...)
	asked("ten messages", 10)
	wantIDs(t, "Claim", d.claim(d.Store, 10), sent[11:]...)
	asked("the last three", 3)
	receipts := make(map[string]bool)
	for _, id := range sent {
		receipts[wantStored(t, d, id, message.Processing, 1).Receipt] = true
	}
	if len(receipts) != len(sent) {
		t.Errorf("%d receipts for %d messages", len(receipts), len(sent))
	}
}

func TestAClaimReadsOnePageOnWhereAllOfTheFirstIsTriedHere(t *testing.T) {
	t.Parallel()
	index := newFrozen(t)
	d := newDesk(t, index, 1)
	const page, messages = 37, 60 // of a queue whose name is one letter
	sent := d.sendAll(messages)
	index.stop()
	ctx, meter := dynamo.WithMeter(t.Context())
	for i := range messages {
		held, err := d.Claim(ctx, "q", 1, d.next)
		if err != nil {
			t.Fatalf("Claim = %v", err)
		}
		wantIDs(t, "Claim", held, sent[i])
	}
	// Half a unit a page: the settings are known.
	if got, want := meter.Usage().ReadUnits, 0.5*messages+0.5*(messages-page); got != want {
		t.Errorf("the claims read %v units, want %v", got, want)
	}
}

func TestAMessageWithoutItsPayloadIsBuriedAndTheOthersAreHandedOut(t *testing.T) {
	t.Parallel()
	client := engine(t)
	d := newDesk(t, client, 1)
	var sent []string
	for range 3 {
		sent = append(sent, d.send(d.now(), random(3_000)))
	}
	key := payloadOf(t, client, d.table, sent[1])
	if _, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &d.table, Key: key}); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "Claim", d.claim(d.Store, 10), sent[0], sent[2])
	if log := d.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "message_id="+sent[1]) {
		t.Errorf("the log says %q, want an error that names %s", log, sent[1])
	}
	if m := wantStored(t, d, sent[1], message.Dead, 1); m.DeadReason != message.PayloadMissing {
		t.Errorf("dead_reason = %s, want %s", m.DeadReason, message.PayloadMissing)
	}
}

// payloadOf returns the key of the payload that stands apart.
func payloadOf(t *testing.T, client *dynamodb.Client, table, id string) item {
	t.Helper()
	out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: item{
		"pk": &types.AttributeValueMemberS{Value: "q#" + id}, "sk": &types.AttributeValueMemberS{Value: "m"},
	}})
	if err != nil || out.Item["payload_key"] == nil {
		t.Fatalf("GetItem(%s) = %v, %v, want a message whose payload stands apart", id, out, err)
	}
	return item{"pk": out.Item["pk"], "sk": out.Item["payload_key"]}
}

func TestWhatWasWonIsHandedOutWhateverHappensToTheRest(t *testing.T) {
	t.Parallel()
	client := engine(t)
	// of fails the write of one message.
	of := func(id string) func(*dynamodb.UpdateItemInput) error {
		return func(in *dynamodb.UpdateItemInput) error {
			if textOf(in.Key["pk"]) == "q#"+id {
				return errOutage
			}
			return nil
		}
	}
	t.Run("a write behind the first fails", func(t *testing.T) {
		t.Parallel()
		m := &meddler{Client: client}
		d := newDesk(t, m, 1)
		sent := d.sendAll(5)
		m.update = of(sent[2])
		wantIDs(t, "Claim", d.claim(d.Store, 10), sent[0], sent[1], sent[3], sent[4])
		if log := d.log.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, errOutage.Error()) {
			t.Errorf("the log says %q, want a warning with the reason", log)
		}
		m.update = nil
		wantIDs(t, "the next Claim", d.claim(d.Store, 10), sent[2])
	})
	t.Run("the first write fails", func(t *testing.T) {
		t.Parallel()
		m := &meddler{Client: client}
		d := newDesk(t, m, 1)
		sent := d.sendAll(5)
		m.update = of(sent[0])
		ctx, meter := dynamo.WithMeter(t.Context())
		if held, err := d.Claim(ctx, "q", 3, d.next); !errors.Is(err, message.ErrUnavailable) || len(held) > 0 {
			t.Errorf("Claim = %v, %v, want none and %v", idsOf(held), err, message.ErrUnavailable)
		}
		if u := meter.Usage(); u.Spread != 1 || u.LostWrites != 0 {
			t.Errorf("an outage counts as others who claim: %+v", u)
		}
		m.update = nil
		wantIDs(t, "the next Claim", d.claim(d.Store, 3), sent[:3]...)
	})
	t.Run("the next shard cannot be read", func(t *testing.T) {
		t.Parallel()
		m := &meddler{Client: client}
		d := newDesk(t, m, 2)
		payloads := make(map[string]string)
		for range 4 {
			payload := random(3_000) // stands apart
			payloads[d.send(d.now(), payload)] = payload
		}
		reads := 0
		m.query = func(*dynamodb.QueryInput, *dynamodb.QueryOutput) error {
			if reads++; reads > 1 {
				return errOutage
			}
			return nil
		}
		held := d.claim(d.Store, 10)
		if len(held) == 0 || len(held) == len(payloads) {
			t.Fatalf("Claim = %v, want those of one shard", idsOf(held))
		}
		for _, m := range held {
			if m.Payload != payloads[m.ID] {
				t.Errorf("%s has a payload of %d bytes, want %d", m.ID, len(m.Payload), len(payloads[m.ID]))
			}
		}
	})
	t.Run("a payload cannot be read now", func(t *testing.T) {
		t.Parallel()
		m := &meddler{Client: client}
		d := newDesk(t, m, 1)
		a, b := d.send(d.now(), random(3_000)), d.send(d.now(), random(3_000))
		m.get = func(in *dynamodb.GetItemInput) error {
			if textOf(in.Key["pk"]) == "q#"+a && strings.HasPrefix(textOf(in.Key["sk"]), "p#") {
				return errOutage
			}
			return nil
		}
		wantIDs(t, "Claim", d.claim(d.Store, 2), b)
		if m := wantStored(t, d, a, message.Pending, 1); m.LastVerb != message.VerbRelease || m.StallCount != 0 {
			t.Errorf("%s after %d stalls and a %q, want it given back", m.ID, m.StallCount, m.LastVerb)
		}
		m.get = nil
		d.wait(time.Millisecond)
		wantIDs(t, "the next Claim", d.claim(d.Store, 2), a)
	})
	t.Run("a payload is damaged", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t, client, 1)
		a, b := d.send(d.now(), strings.Repeat("compresses well", 1_000)), d.send(d.now(), "b")
		update, name := "SET #payload = :0", "payload"
		key := item{"pk": &types.AttributeValueMemberS{Value: "q#" + a}, "sk": &types.AttributeValueMemberS{Value: "m"}}
		if _, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: &d.table, Key: key, UpdateExpression: &update,
			ExpressionAttributeNames:  map[string]string{"#payload": name},
			ExpressionAttributeValues: item{":0": &types.AttributeValueMemberB{Value: []byte("no zstd")}},
		}); err != nil {
			t.Fatal(err)
		}
		wantIDs(t, "Claim", d.claim(d.Store, 10), b)
		if m := wantStored(t, d, a, message.Dead, 1); m.DeadReason != message.PayloadMissing {
			t.Errorf("dead_reason = %s, want %s", m.DeadReason, message.PayloadMissing)
		}
	})
}

func TestAnAnswerHoldsAMessageOnceThoughTheIndexShowsItTwice(t *testing.T) {
	t.Parallel()
	m := &meddler{Client: engine(t)}
	d := newDesk(t, m, 1)
	sent := d.sendAll(3)
	m.query = func(in *dynamodb.QueryInput, out *dynamodb.QueryOutput) error {
		if in.IndexName == nil {
			return nil
		}
		older := maps.Clone(out.Items[1])
		older["due"] = &types.AttributeValueMemberS{Value: "0000000000000#" + sent[1]}
		out.Items = append([]item{older}, out.Items...)
		return nil
	}
	d.wait(2 * time.Second) // long overdue: it is not left to others
	wantIDs(t, "Claim", d.claim(d.Store, 10), sent...)
	for _, id := range sent {
		wantStored(t, d, id, message.Processing, 1)
	}
}
