package dynamo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
)

// The errors by which DynamoDB says that it cannot now.
var outages = map[string]wire.Fault{
	"a partition's throughput is exceeded": wire.Refuse(http.StatusBadRequest, "ProvisionedThroughputExceededException"),
	"throttling":                           wire.Refuse(http.StatusBadRequest, "ThrottlingException"),
	"a limit of requests":                  wire.Refuse(http.StatusBadRequest, "RequestLimitExceeded"),
	"an internal error":                    wire.Refuse(http.StatusInternalServerError, "InternalServerError"),
	"an outage":                            wire.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable"),
	"a connection cut before the request":  wire.Cut,
	"a connection cut before the answer":   wire.Lose,
}

// lifeCycle takes messages through every verb and returns all answers.
func lifeCycle(t *testing.T, r *rig) []any {
	t.Helper()
	svc, ctx := r.Service, t.Context()
	var answers []any
	keep := func(call string, answer any, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s = %v", call, err)
		}
		answers = append(answers, answer)
	}
	claimed := func() message.Message {
		t.Helper()
		got, err := svc.Claim(ctx, "q", message.ClaimOptions{})
		keep("Claim", got, err)
		if len(got) != 1 {
			t.Fatalf("Claim = %d messages, want 1", len(got))
		}
		return got[0]
	}
	set := message.DefaultSettings()
	set.MaxStalls, set.DeadDays = 2, new(1.0)
	q, created, err := svc.PutQueue(ctx, "q", set)
	keep("PutQueue", []any{q, created}, err)
	for _, d := range []message.Draft{{Payload: big}, {Payload: "small", Key: "k", Delay: new(time.Hour)}} {
		m, created, err := svc.Enqueue(ctx, "q", d)
		keep("Enqueue", []any{m, created}, err)
	}
	m := claimed()
	m, err = svc.Extend(ctx, "q", m.ID, message.Extension{Receipt: &m.Receipt, Timeout: new(time.Minute)})
	keep("Extend", m, err)
	m, err = svc.Release(ctx, "q", m.ID, &m.Receipt)
	keep("Release", m, err)
	r.clock.at(time.Second)
	m = claimed()
	m, err = svc.Fail(ctx, "q", m.ID, message.Failure{Receipt: &m.Receipt, Error: "x", RetryAfter: new(time.Duration(0))})
	keep("Fail", m, err)
	for i := range 2 {
		r.clock.at(time.Duration(i+1) * time.Minute)
		claimed()
		r.clock.at(time.Duration(i+1)*time.Minute + 40*time.Second)
		// Of a lease that ended although nobody heard of it a report says nothing.
		_, err := svc.Sweep(ctx, message.SweepOptions{Count: true, Until: r.clock.Now().Add(time.Minute)})
		keep("Sweep", nil, err)
	}
	m, err = svc.Replay(ctx, "q", m.ID)
	keep("Replay", m, err)
	r.clock.at(3 * time.Minute)
	m = claimed()
	m, err = svc.Succeed(ctx, "q", m.ID, &m.Receipt)
	keep("Succeed", m, err)
	page, more, err := svc.List(ctx, message.List{Queue: "q", Limit: 10, Payload: true})
	keep("List", []any{page, more}, err)
	r.clock.at(time.Hour)
	m, attempts, err := svc.Get(ctx, "q", m.ID)
	keep("Get", seen{m, attempts}, err)
	keep("Delete", nil, svc.Delete(ctx, "q", m.ID))
	m = claimed()
	m, err = svc.Fail(ctx, "q", m.ID, message.Failure{Error: noise(2_048), Permanent: true})
	keep("Fail", m, err)
	keep("Delete", nil, svc.Delete(ctx, "q", m.ID))
	keep("DeleteQueue", nil, svc.DeleteQueue(ctx, "q"))
	queues, more, err := svc.ListQueues(ctx, "", "", 10)
	keep("ListQueues", []any{queues, more}, err)
	r.clock.at(2 * time.Hour) // the mark may go
	report, err := svc.Sweep(ctx, message.SweepOptions{Count: true})
	keep("Sweep", report, err)
	return answers
}

func TestARequestThatFailsOnceIsAskedAgain(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	quiet := newRig(t, engine)
	answers, items := lifeCycle(t, quiet), quiet.dump(t)
	quiet.wantSound(t, 0)
	for name, fault := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			var mu sync.Mutex
			tried := make(map[string]bool)
			r.wire.Set(func(req *wire.Request, send wire.Send) (*http.Response, error) {
				id := req.HTTP.Header.Get("Amz-Sdk-Invocation-Id")
				mu.Lock()
				again := tried[id]
				tried[id] = true
				mu.Unlock()
				if again {
					return send()
				}
				return fault(req, send)
			})
			wantEqual(t, "what every verb answers", lifeCycle(t, r), answers)
			wantEqual(t, "what is stored", r.dump(t), items)
			wantEqual(t, "the number of requests", len(r.wire.Take()), 2*len(tried))
		})
	}
}

// everyVerb returns a call of each, on messages that are ready for it.
func everyVerb(t *testing.T, r *rig) map[string]func(context.Context) error {
	t.Helper()
	r.put(t, "dying", func(set *message.Settings) { set.MaxStalls, set.DeadDays = 1, new(1.0) })
	r.send(t, "waiting", message.Draft{Payload: big, Key: "k"})
	m, dead, dying := r.held(t, "held", big), r.reject(t, r.held(t, "dead", big)), r.held(t, "dying", big)
	r.clock.at(message.DefaultSettings().ProcessingTimeout + message.SweepGrace)
	return map[string]func(context.Context) error{
		"Enqueue": func(ctx context.Context) error {
			_, _, err := r.Enqueue(ctx, "new", message.Draft{Payload: big})
			return err
		},
		"Enqueue again": func(ctx context.Context) error {
			_, _, err := r.Enqueue(ctx, "waiting", message.Draft{Payload: big, Key: "k"})
			return err
		},
		"Get": func(ctx context.Context) error { _, _, err := r.Get(ctx, m.Queue, m.ID); return err },
		"List": func(ctx context.Context) error {
			_, _, err := r.List(ctx, message.List{Queue: "held", Limit: 9})
			return err
		},
		"Claim": func(ctx context.Context) error {
			_, err := r.Claim(ctx, "waiting", message.ClaimOptions{})
			return err
		},
		"Succeed": func(ctx context.Context) error { _, err := r.Succeed(ctx, m.Queue, m.ID, &m.Receipt); return err },
		"Succeed without a receipt": func(ctx context.Context) error {
			_, err := r.Succeed(ctx, m.Queue, m.ID, nil)
			return err
		},
		"Fail": func(ctx context.Context) error {
			_, err := r.Fail(ctx, m.Queue, m.ID, message.Failure{Receipt: &m.Receipt})
			return err
		},
		"Extend": func(ctx context.Context) error {
			_, err := r.Extend(ctx, m.Queue, m.ID, message.Extension{Receipt: &m.Receipt})
			return err
		},
		"Release":     func(ctx context.Context) error { _, err := r.Release(ctx, m.Queue, m.ID, &m.Receipt); return err },
		"Replay":      func(ctx context.Context) error { _, err := r.Replay(ctx, "dead", dead.ID); return err },
		"Delete":      func(ctx context.Context) error { return r.Delete(ctx, "dead", dead.ID) },
		"Queue":       func(ctx context.Context) error { _, err := r.Queue(ctx, "dying"); return err },
		"DeleteQueue": func(ctx context.Context) error { return r.DeleteQueue(ctx, "dying") },
		"ListQueues":  func(ctx context.Context) error { _, _, err := r.ListQueues(ctx, "", "", 9); return err },
		"PutQueue": func(ctx context.Context) error {
			_, _, err := r.PutQueue(ctx, "new", message.DefaultSettings())
			return err
		},
		"Sweep": func(ctx context.Context) error { _, err := r.Sweep(ctx, message.SweepOptions{Count: true}); return err },
		"Sweep with an end": func(ctx context.Context) error {
			_, err := r.Sweep(ctx, message.SweepOptions{Until: r.clock.Now().Add(time.Minute)})
			return err
		},
		"Stall": func(ctx context.Context) error {
			_, err := r.store.Apply(ctx, "dying", dying.ID, message.Stall{At: r.clock.Now(), Lease: dying.Due})
			return err
		},
	}
}

func TestAnOutageChangesNothing(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	all := maps.Clone(outages)
	delete(all, "a connection cut before the answer") // that one does: see TestACrash
	all["a missing table"] = wire.Refuse(http.StatusBadRequest, "ResourceNotFoundException")
	for name, fault := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			calls := everyVerb(t, r)
			before := r.dump(t)
			r.wire.Set(fault)
			for call, do := range calls {
				wantErr(t, call, do(t.Context()), message.ErrUnavailable)
			}
			wantEqual(t, "what is stored", r.dump(t), before)
		})
	}
}

func TestATimeThatIsUpIsAnOutage(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	calls := everyVerb(t, r)
	before := r.dump(t)
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for call, do := range calls {
		wantErr(t, call+" that is too late", do(ctx), message.ErrUnavailable)
	}
	for call, do := range calls {
		ctx, cancel := context.WithCancel(t.Context())
		r.wire.Set(func(*wire.Request, wire.Send) (*http.Response, error) {
			cancel() // no answer comes until then
			return nil, ctx.Err()
		})
		wantErr(t, call+" that hears nothing", do(ctx), message.ErrUnavailable)
		cancel()
	}
	wantEqual(t, "what is stored", r.dump(t), before)
}

func TestARequestThatDynamoDBRefusesIsNoOutage(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	calls := everyVerb(t, r)
	for _, code := range []string{"ValidationException", "SerializationException", "AccessDeniedException"} {
		r.wire.Set(wire.Refuse(http.StatusBadRequest, code))
		for call, do := range calls {
			if err := do(t.Context()); err == nil || errors.Is(err, message.ErrUnavailable) {
				t.Errorf("%s = %v, want an error that is not %v", call, err, message.ErrUnavailable)
			}
		}
	}
}

func TestAMissingTableIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	calls := everyVerb(t, r)
	r.store.Table = "no-such-table"
	for call, do := range calls {
		err := do(t.Context())
		wantErr(t, call, err, message.ErrUnavailable)
		if err != nil && !strings.Contains(err.Error(), `"no-such-table"`) {
			t.Errorf("%s = %v, want an error that names the table", call, err)
		}
	}
}

// A real connection, closed by the other side in the middle of an answer.
func TestAnAnswerThatIsCutIsAskedForAgain(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	r := newRig(t, engine)
	target, err := url.Parse(*engine.Options().BaseEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	var count atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(resp *http.Response) error {
		if count.Add(1)%2 == 1 {
			resp.Body = io.NopCloser(io.LimitReader(resp.Body, resp.ContentLength/2))
		}
		return nil
	}
	proxy.ErrorLog = nil
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() { _ = recover() }() // the proxy's way to close a connection
		proxy.ServeHTTP(w, req)
		panic(http.ErrAbortHandler)
	}))
	server.Start()
	defer server.Close()
	client := dynamodb.New(engine.Options(), func(o *dynamodb.Options) {
		o.BaseEndpoint = &server.URL
		o.Retryer = hasty{o.Retryer.(aws.RetryerV2)}
	})
	svc, _ := r.on(t, client, r.clock.Now)
	m, created, err := svc.Enqueue(t.Context(), "q", message.Draft{Payload: big, Key: "k"})
	if err != nil || !created || m.Payload != big {
		t.Errorf("Enqueue = created %v, %v, want a new message", created, err)
	}
	got, err := svc.Claim(t.Context(), "q", message.ClaimOptions{})
	if err != nil || len(got) != 1 || got[0].Payload != big {
		t.Fatalf("Claim = %d messages, %v, want the one", len(got), err)
	}
	_, err = svc.Succeed(t.Context(), "q", m.ID, &got[0].Receipt)
	wantErr(t, "Succeed", err, nil)
	r.wantSound(t, 0)
}

// aws-sdk-go-v2 loses an answer now and then, if it has to read it itself: so all
// of it is there before it sees it, and what becomes of the connection is nothing
// to it.
func TestAnAnswerIsThereAsAWhole(t *testing.T) {
	t.Parallel()
	want := make([]byte, 32<<20) // more than a connection holds back
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(want) }))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := dynamo.NewClient(aws.Config{}).Options().HTTPClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	server.CloseClientConnections()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the answer = %d bytes, %v, want all %d", len(got), err, len(want))
	}
}

func TestLargeAnswersAreNotLost(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	r := newRig(t, engine)
	m := r.send(t, "q", message.Draft{Payload: noise(100_000)})
	store := newStore(t, dynamodb.New(engine.Options(), func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }),
		r.table, r.clock.Now)
	lost := 0
	for range 400 {
		got, _, err := store.Get(t.Context(), "q", m.ID)
		if err != nil || got.Payload != m.Payload {
			lost++
		}
	}
	wantEqual(t, "the number of answers lost", lost, 0)
}

// unprocessed leaves the last n keys of a batch unread, as DynamoDB may.
func unprocessed(n int, next aws.HTTPClient) wire.Fault {
	return func(r *wire.Request, _ wire.Send) (*http.Response, error) {
		tables := r.Params["RequestItems"].(map[string]any)
		asked, left := make(map[string]any), make(map[string]any)
		for table, in := range tables {
			in := in.(map[string]any)
			keys := in["Keys"].([]any)
			cut := max(len(keys)-n, 0)
			some, rest := maps.Clone(in), maps.Clone(in)
			some["Keys"], rest["Keys"] = keys[:cut], keys[cut:]
			left[table] = rest
			if cut > 0 {
				asked[table] = some
			}
		}
		out := map[string]any{"Responses": map[string]any{}}
		if len(asked) > 0 {
			params := maps.Clone(r.Params)
			params["RequestItems"] = asked
			resp, err := r.With(params).SendTo(next)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
				return nil, err
			}
		}
		out["UnprocessedKeys"] = left
		body, err := json.Marshal(out)
		return wire.Respond(r, http.StatusOK, string(body)), err
	}
}

func isBatch(r *wire.Request) bool { return r.Action == "BatchGetItem" }

func TestS108WhatABatchLeavesUnprocessedIsAskedForAgain(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	list := message.List{Queue: "q", Status: message.Pending, Limit: 20, Payload: true}
	fill := func(t *testing.T) *rig {
		t.Helper()
		r := newRig(t, engine)
		for range 10 {
			r.send(t, "q", message.Draft{Payload: big})
		}
		return r
	}
	next := engine.Options().HTTPClient
	var batches atomic.Int32
	twice := func(r *wire.Request) bool { return isBatch(r) && batches.Add(1) <= 2 }
	for name, fault := range map[string]wire.Fault{
		"3 of 10, twice":          wire.Each(twice, unprocessed(3, next)),
		"all, once":               wire.Only(0, isBatch, unprocessed(10, next)),
		"all payloads, once":      wire.Only(1, isBatch, unprocessed(10, next)),
		"half, each time":         wire.Each(isBatch, halved(next)),
		"all but one, every time": wire.Each(isBatch, allButOne(next)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := fill(t)
			want, _, err := r.plain.List(t.Context(), list)
			wantErr(t, "List", err, nil)
			wantEqual(t, "the number of messages", len(want), 10)
			r.wire.Set(fault)
			got, more, err := r.List(t.Context(), list)
			if err != nil || more {
				t.Errorf("List = more %v, %v, want all", more, err)
			}
			wantEqual(t, "the messages", got, want)
		})
	}
	t.Run("all, always: the list is unavailable", func(t *testing.T) {
		t.Parallel()
		r := fill(t)
		r.wire.Set(wire.Each(isBatch, unprocessed(10, next)))
		got, _, err := r.List(t.Context(), list)
		wantErr(t, "List", err, message.ErrUnavailable)
		wantEqual(t, "the number of messages", len(got), 0)
	})
	t.Run("all, until the time is up: the list is unavailable", func(t *testing.T) {
		t.Parallel()
		r := fill(t)
		ctx, cancel := context.WithCancel(t.Context())
		r.wire.Set(wire.Each(isBatch, func(req *wire.Request, send wire.Send) (*http.Response, error) {
			defer cancel()
			return unprocessed(10, next)(req, send)
		}))
		_, _, err := r.List(ctx, list)
		wantErr(t, "List", err, message.ErrUnavailable)
	})
}

// keysOf returns how many items a batch asks for.
func keysOf(r *wire.Request) (n int) {
	for _, in := range r.Params["RequestItems"].(map[string]any) {
		n += len(in.(map[string]any)["Keys"].([]any))
	}
	return n
}

func halved(next aws.HTTPClient) wire.Fault {
	return func(r *wire.Request, send wire.Send) (*http.Response, error) {
		return unprocessed(keysOf(r)/2, next)(r, send)
	}
}

func allButOne(next aws.HTTPClient) wire.Fault {
	return func(r *wire.Request, send wire.Send) (*http.Response, error) {
		return unprocessed(keysOf(r)-1, next)(r, send)
	}
}

// stale answers what is not read consistently from before the last write of the
// item. Index reads are never consistent, and are left alone.
func stale(t *testing.T, r *rig) wire.Fault {
	t.Helper()
	var mu sync.Mutex
	old := make(map[string]map[string]any) // by key; nil for none
	return func(req *wire.Request, send wire.Send) (*http.Response, error) {
		pk, sk := req.Key()
		consistent, _ := req.Params["ConsistentRead"].(bool)
		switch {
		case req.Writes():
			resp, err := req.As("GetItem", map[string]any{"ConsistentRead": true, "Key": map[string]any{
				"pk": map[string]any{"S": pk}, "sk": map[string]any{"S": sk},
			}}).SendTo(r.wire.Next)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			var out struct{ Item map[string]any }
			if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
				return nil, err
			}
			mu.Lock()
			old[pk+" "+sk] = out.Item
			mu.Unlock()
		case req.Action == "GetItem" && !consistent:
			mu.Lock()
			m, known := old[pk+" "+sk]
			mu.Unlock()
			if !known {
				break
			}
			out := map[string]any{}
			if m != nil {
				out["Item"] = m
			}
			body, err := json.Marshal(out)
			return wire.Respond(req, http.StatusOK, string(body)), err
		case req.Action == "Query" && !consistent && req.Params["IndexName"] == nil,
			req.Action == "BatchGetItem" && !strings.Contains(string(req.Payload), `"ConsistentRead":true`):
			t.Errorf("%s is not consistent", req)
		}
		return send()
	}
}

func TestS113AReadThatIsBehindTheWriteDecidesNothing(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for name, payload := range map[string]string{"inline": "p", "apart": big} {
		for _, key := range []string{"", "k"} {
			t.Run(fmt.Sprintf("a payload %s, key %q", name, key), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, engine)
				r.wire.Set(stale(t, r))
				shows := func(status message.Status, m message.Message) {
					t.Helper()
					got, _, err := r.Get(t.Context(), "q", m.ID)
					if err != nil || got.Status != status || got.Payload != payload {
						t.Errorf("Get = %s, %v, want it %s and whole", got.Status, err, status)
					}
				}
				m, _, err := r.Enqueue(t.Context(), "q", message.Draft{Payload: payload, Key: key})
				wantErr(t, "Enqueue", err, nil)
				shows(message.Pending, m)
				got, err := r.Claim(t.Context(), "q", message.ClaimOptions{})
				if err != nil || len(got) != 1 || got[0].Payload != payload {
					t.Fatalf("Claim = %d messages, %v, want the one", len(got), err)
				}
				shows(message.Processing, m)
				for range 2 {
					_, err = r.Succeed(t.Context(), "q", m.ID, &got[0].Receipt)
					wantErr(t, "Succeed", err, nil)
					shows(message.Succeeded, m)
				}
				r.wantSound(t, 0)
			})
		}
	}
	t.Run("every verb", func(t *testing.T) {
		t.Parallel()
		quiet, r := newRig(t, engine), newRig(t, engine)
		r.wire.Set(stale(t, r))
		wantEqual(t, "what every verb answers", lifeCycle(t, r), lifeCycle(t, quiet))
		wantEqual(t, "what is stored", r.dump(t), quiet.dump(t))
	})
}

// altered changes the answer to a request.
func altered(change func(out map[string]any)) wire.Fault {
	return func(r *wire.Request, send wire.Send) (*http.Response, error) {
		resp, err := send()
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		out := make(map[string]any)
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			return nil, err
		}
		change(out)
		body, err := json.Marshal(out)
		return wire.Respond(r, http.StatusOK, string(body)), err
	}
}

// A message that moves while the index is read, or faster than the index follows,
// stands in it twice.
func TestAListShowsAMessageOnceThatTheIndexShowsTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	for range 3 {
		r.send(t, "q", message.Draft{})
	}
	list := message.List{Queue: "q", Status: message.Pending, Limit: 10}
	want, _, err := r.plain.List(t.Context(), list)
	wantErr(t, "List", err, nil)
	r.wire.Set(wire.Each(func(r *wire.Request) bool { return r.Action == "Query" }, altered(func(out map[string]any) {
		items := out["Items"].([]any)
		first := maps.Clone(items[0].(map[string]any))
		first["due"] = map[string]any{"S": "9" + wire.At(first, "due", "S")[1:]}
		out["Items"] = append(items, first)
	})))
	got, _, err := r.List(t.Context(), list)
	wantErr(t, "List", err, nil)
	wantEqual(t, "the messages", got, want)
}

// A success may fall on the very millisecond in which the lease ends: then the due
// time alone does not tell the one from the other.
func TestAListShowsNoMessageOfAnotherStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	m := r.held(t, "q", "p")
	var page []byte
	r.wire.Set(wire.Each(func(r *wire.Request) bool { return r.String() == "Query processing" },
		func(_ *wire.Request, send wire.Send) (*http.Response, error) {
			resp, err := send()
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			if page == nil { // the index is still there afterwards
				page, err = io.ReadAll(resp.Body)
			}
			resp.Body = io.NopCloser(bytes.NewReader(page))
			return resp, err
		}))
	list := message.List{Queue: "q", Status: message.Processing, Limit: 10}
	got, _, err := r.List(t.Context(), list)
	wantErr(t, "List", err, nil)
	wantEqual(t, "the number of messages being processed", len(got), 1)
	r.clock.at(m.Due.Sub(began))
	_, err = r.plain.Succeed(t.Context(), "q", m.ID, &m.Receipt)
	wantErr(t, "Succeed", err, nil)
	got, _, err = r.List(t.Context(), list)
	wantErr(t, "List", err, nil)
	wantEqual(t, "the number of messages being processed", len(got), 0)
}
