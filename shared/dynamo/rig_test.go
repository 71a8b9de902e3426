package dynamo_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
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
	"github.com/redrivehq/redrive/shared/message"
)

// The wire, its faults and the rig serve most tests of this package. A rig is a
// Service on a table of its own; between it and the engine is a wire, which sees
// every try of every request and may spoil it.

// request is one try of one call.
type request struct {
	action  string         // as "PutItem"
	params  map[string]any // as JSON shows them
	payload []byte
	http    *http.Request
}

func newRequest(req *http.Request) *request {
	payload, err := io.ReadAll(req.Body)
	if err != nil {
		panic(err) // it is in memory
	}
	_, action, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	r := &request{action: action, payload: payload, http: req}
	if err := json.Unmarshal(payload, &r.params); err != nil {
		panic(err) // the SDK wrote it
	}
	return r
}

// with returns the request with other parameters.
func (r *request) with(params map[string]any) *request {
	payload, err := json.Marshal(params)
	if err != nil {
		panic(err) // they were JSON before
	}
	return &request{r.action, params, payload, r.http}
}

// at returns what stands under the names; an empty string if there is none.
func at(params any, names ...string) string {
	for _, name := range names {
		m, _ := params.(map[string]any)
		params = m[name]
	}
	s, _ := params.(string)
	return s
}

func (r *request) key() (pk, sk string) {
	where := "Key"
	if r.action == "PutItem" {
		where = "Item"
	}
	return at(r.params, where, "pk", "S"), at(r.params, where, "sk", "S")
}

func (r *request) writes() bool {
	return r.action == "PutItem" || r.action == "UpdateItem" || r.action == "DeleteItem"
}

// String names what is asked of what, as "PutItem mark".
func (r *request) String() string {
	if r.action == "BatchGetItem" {
		return r.action
	}
	pk, sk := r.key()
	if r.action == "Query" {
		pk = at(r.params, "ExpressionAttributeValues", ":0", "S")
		if at(r.params, "IndexName") != "" {
			status, _, _ := strings.Cut(pk, "#")
			return r.action + " " + status
		}
	}
	return r.action + " " + kindOf(pk, sk)
}

// kindOf says what is stored under a key.
func kindOf(pk, sk string) string {
	kind, isOne := map[string]string{"#active": "mark", "#queues": "queue", "#sweep": "round"}[pk]
	switch {
	case isOne:
		return kind
	case strings.HasPrefix(sk, "a#"):
		return "attempt"
	case strings.HasPrefix(sk, "p#"):
		return "payload"
	}
	return "message"
}

type answer = func() (*http.Response, error)

// fault decides what becomes of a request; send carries it out.
type fault func(r *request, send answer) (*http.Response, error)

// wire is an HTTP client with faults.
type wire struct {
	next aws.HTTPClient

	mu    sync.Mutex
	fault fault
	seen  []*request
}

// Do implements aws.HTTPClient.
func (w *wire) Do(req *http.Request) (*http.Response, error) {
	r := newRequest(req)
	w.mu.Lock()
	w.seen = append(w.seen, r)
	fault := w.fault
	w.mu.Unlock()
	if fault == nil {
		return w.send(r)
	}
	return fault(r, func() (*http.Response, error) { return w.send(r) })
}

func (w *wire) send(r *request) (*http.Response, error) {
	// A request that is on its way arrives, whatever its sender does meanwhile.
	req := r.http.Clone(context.WithoutCancel(r.http.Context()))
	req.Body = io.NopCloser(bytes.NewReader(r.payload))
	req.ContentLength = int64(len(r.payload))
	return w.next.Do(req)
}

// set makes the fault hold from now on; nil for none.
func (w *wire) set(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// take returns the requests seen since the last time.
func (w *wire) take() []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// saw counts the requests of that name since then.
func (w *wire) saw(name string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.seen {
		if r.String() == name {
			n++
		}
	}
	return n
}

func names(requests []*request) []string {
	var all []string
	for _, r := range requests {
		all = append(all, r.String())
	}
	return all
}

var errCut = errors.New("connection reset by peer")

// cut does not send the request.
func cut(*request, answer) (*http.Response, error) { return nil, errCut }

// lose sends the request and loses the answer.
func lose(_ *request, send answer) (*http.Response, error) {
	resp, err := send()
	if err == nil {
		resp.Body.Close()
	}
	return nil, errCut
}

// refuse answers with an error of DynamoDB.
func refuse(status int, code string) fault {
	return func(r *request, _ answer) (*http.Response, error) {
		return respond(r, status, fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"no"}`, code)), nil
	}
}

func respond(r *request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r.http,
	}
}

// only applies f to the n-th of the requests that pick chooses.
func only(n int, pick func(*request) bool, f fault) fault {
	var count atomic.Int32
	return func(r *request, send answer) (*http.Response, error) {
		if pick(r) && count.Add(1) == int32(n+1) {
			return f(r, send)
		}
		return send()
	}
}

// from sends n requests, applies first to the next, and cuts all that follow.
func from(n int, first fault) fault {
	var count atomic.Int32
	return func(r *request, send answer) (*http.Response, error) {
		switch i := int(count.Add(1)) - 1; {
		case i < n:
			return send()
		case i == n:
			return first(r, send)
		}
		return cut(r, send)
	}
}

func anyRequest(*request) bool { return true }

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
	wire             *wire
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
func (r *rig) wired(t *testing.T, now func() time.Time) (*message.Service, *dynamo.Store, *wire) {
	t.Helper()
	w := new(wire)
	svc, store := r.on(t, dynamodb.New(r.engine.Options(), func(o *dynamodb.Options) {
		w.next, o.HTTPClient = o.HTTPClient, w
		o.Retryer = hasty{o.Retryer.(aws.RetryerV2)}
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
		if r.wire.saw(name) >= n {
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

// each applies f to every request that pick chooses.
func each(pick func(*request) bool, f fault) fault {
	return func(r *request, send answer) (*http.Response, error) {
		if pick(r) {
			return f(r, send)
		}
		return send()
	}
}
