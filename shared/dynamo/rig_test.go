package dynamo_test

import (
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
)

// The rig serves most tests of this package. It is a Service on a table of its own;
// between it and the engine is a wire, which sees every try of every request and
// may spoil it.

// names says what was asked for.
func names(requests []*wire.Request) []string {
	var all []string
	for _, r := range requests {
		all = append(all, r.String())
	}
	return all
}

// hasty asks again as the production client does, without the waits.
type hasty struct{ aws.RetryerV2 }

// RetryDelay implements aws.Retryer.
func (hasty) RetryDelay(int, error) (time.Duration, error) { return 0, nil }

// began is when the clock of a rig begins.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// handClock is moved by hand.
type handClock struct{ after atomic.Int64 }

func (c *handClock) Now() time.Time { return began.Add(time.Duration(c.after.Load())) }

// at moves the clock to so long after it began.
func (c *handClock) at(after time.Duration) { c.after.Store(int64(after)) }

// rig is two instances of the program on one table.
type rig struct {
	*message.Service // behind the wire
	wire             *wire.Wire
	plain            *message.Service // the other instance
	store            *dynamo.Store    // of the former
	engine           *dynamodb.Client // past the wire
	table            string
	clock            *handClock
	random           func([]byte)
}

// newRig returns a rig on a table of its own. What it makes up is the same in
// every rig: random texts, and the time.
func newRig(t *testing.T, engine *dynamodb.Client) *rig {
	t.Helper()
	r := &rig{engine: engine, table: newTable(t, engine), clock: new(handClock)}
	source, mu := rand.NewChaCha8([32]byte{}), new(sync.Mutex)
	r.random = func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		source.Read(b) // never fails: see its documentation
	}
	r.Service, r.store, r.wire = r.wired(t, r.clock.Now)
	r.plain, _ = r.on(t, engine, r.clock.Now)
	return r
}

// wired returns another instance, on a wire and a clock of its own.
func (r *rig) wired(t *testing.T, now func() time.Time) (*message.Service, *dynamo.Store, *wire.Wire) {
	t.Helper()
	w := wire.New(r.engine.Options().HTTPClient)
	svc, store := r.on(t, dynamodb.New(r.engine.Options(), func(o *dynamodb.Options) {
		o.HTTPClient, o.Retryer = w, hasty{o.Retryer.(aws.RetryerV2)}
	}), now)
	return svc, store, w
}

// on returns another instance.
func (r *rig) on(t *testing.T, c dynamo.Client, now func() time.Time) (*message.Service, *dynamo.Store) {
	t.Helper()
	store := newStore(t, c, r.table, now)
	return &message.Service{Store: store, Queues: store, Sweeps: store, Now: now, Random: r.random}, store
}

// lateAfter makes it that late, by the clock of the instance behind the wire, when
// so many requests of the name were made.
func (r *rig) lateAfter(n int, name string, late time.Time) {
	r.Now = func() time.Time {
		if r.wire.Saw(name) >= n {
			return late
		}
		return r.clock.Now()
	}
}

// What follows prepares messages, all by the other instance.

func (r *rig) put(t *testing.T, queue string, change func(*message.Settings)) {
	t.Helper()
	set := message.DefaultSettings()
	change(&set)
	if _, _, err := r.plain.PutQueue(t.Context(), queue, set); err != nil {
		t.Fatalf("PutQueue(%q) = %v", queue, err)
	}
}

func (r *rig) send(t *testing.T, queue string, d message.Draft) message.Message {
	t.Helper()
	m, created, err := r.plain.Enqueue(t.Context(), queue, d)
	if err != nil || !created {
		t.Fatalf("Enqueue(%q) = created %v, %v, want a new message", queue, created, err)
	}
	return m
}

func (r *rig) claim(t *testing.T, queue string) message.Message {
	t.Helper()
	got, err := r.plain.Claim(t.Context(), queue, message.ClaimOptions{})
	if err != nil || len(got) != 1 {
		t.Fatalf("Claim(%q) = %d messages, %v, want one", queue, len(got), err)
	}
	return got[0]
}

func (r *rig) fail(t *testing.T, m message.Message, text string) message.Message {
	t.Helper()
	got, err := r.plain.Fail(t.Context(), m.Queue, m.ID, message.Failure{Receipt: &m.Receipt, Error: text})
	if err != nil {
		t.Fatalf("Fail(%s) = %v", m.ID, err)
	}
	return got
}

// held returns a message that is being processed.
func (r *rig) held(t *testing.T, queue, payload string) message.Message {
	t.Helper()
	r.send(t, queue, message.Draft{Payload: payload})
	return r.claim(t, queue)
}

// reject lets the message die.
func (r *rig) reject(t *testing.T, m message.Message) message.Message {
	t.Helper()
	got, err := r.plain.Fail(t.Context(), m.Queue, m.ID, message.Failure{Receipt: &m.Receipt, Error: "x", Permanent: true})
	if err != nil {
		t.Fatalf("Fail(%s) = %v", m.ID, err)
	}
	return got
}

// remove takes the one item of its kind out of the table, behind the store's back.
func (r *rig) remove(t *testing.T, kind string) {
	t.Helper()
	m := r.item(t, kind)
	key := map[string]types.AttributeValue{"pk": m["pk"], "sk": m["sk"]}
	if _, err := r.engine.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &r.table, Key: key}); err != nil {
		t.Fatalf("DeleteItem = %v", err)
	}
}

// list returns all messages of the queue, whole.
func (r *rig) list(t *testing.T) []message.Message {
	t.Helper()
	page, more, err := r.plain.List(t.Context(), message.List{Queue: "q", Limit: message.MaxListLimit, Payload: true})
	if err != nil || more {
		t.Fatalf("List = more %v, %v, want all", more, err)
	}
	return page
}

// seen is what a caller can see of a message.
type seen struct {
	Message  message.Message
	Attempts []message.Attempt
}

func (r *rig) get(t *testing.T, m message.Message) seen {
	t.Helper()
	got, attempts, err := r.plain.Get(t.Context(), m.Queue, m.ID)
	if err != nil {
		t.Fatalf("Get(%s) = %v", m.ID, err)
	}
	return seen{got, attempts}
}

func wantErr(t *testing.T, call string, got, want error) {
	t.Helper()
	conflict, ok := errors.AsType[*message.ConflictError](want)
	found, isConflict := errors.AsType[*message.ConflictError](got)
	if !errors.Is(got, want) && (!ok || !isConflict || *found != *conflict) {
		t.Errorf("%s = %v, want %v", call, got, want)
	}
}

func wantEqual[V any](t *testing.T, what string, got, want V) {
	t.Helper()
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateErrors()); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

// noise returns text of so many bytes that hardly becomes smaller.
func noise(n int) string {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return base64.StdEncoding.EncodeToString(b)[:n]
}

// big is a payload that stands apart.
var big = noise(2_000)
