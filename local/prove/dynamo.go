package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/setup"
)

// clockApart is how far the clock of an instance is from that of the next one: of
// three, two are a second apart.
const clockApart = 500 * time.Millisecond

// onDynamoDB is three instances of the functions on one table, with faults between
// them and the engine.
type onDynamoDB struct {
	*faulty
	engine    *dynamodb.Client
	table     string
	instances []*instance
}

// instance is the functions as one process of Lambda would run them, one beside
// the other: they share what they have in memory.
type instance struct {
	*onDynamoDB
	clock  time.Duration
	url    string
	server *http.Server

	mu   sync.Mutex
	svc  *message.Service
	http map[string]api.Handler
}

// newOnDynamoDB makes a table and starts the instances.
func newOnDynamoDB(ctx context.Context, endpoint string, random *rand.Rand) (*onDynamoDB, error) {
	// Of its own, too, where a part is made again because it was stopped.
	table := fmt.Sprintf("prove-%016x", rand.Uint64())
	d := &onDynamoDB{faulty: newFaulty(random), table: table}
	d.engine = dynamo.NewLocalClient(endpoint, func(o *dynamodb.Options) { o.HTTPClient = d.index(o.HTTPClient) })
	if err := dynamo.CreateTable(ctx, d.engine, d.table); err != nil {
		return nil, fmt.Errorf("the engine at %s cannot be used: %w", endpoint, err)
	}
	for n := range 3 {
		i := &instance{onDynamoDB: d, clock: time.Duration(n-1) * clockApart}
		i.begin()
		if err := i.listen(ctx); err != nil {
			return nil, errors.Join(err, d.close(ctx))
		}
		d.instances = append(d.instances, i)
	}
	return d, nil
}

// begin starts the instance anew, with nothing in memory.
func (i *instance) begin() {
	client := dynamodb.New(i.engine.Options(), func(o *dynamodb.Options) {
		w := &wire.Wire{Next: o.HTTPClient}
		w.Set(i.fault)
		o.HTTPClient = w
	})
	now := func() time.Time { return time.Now().Add(i.clock) }
	log := slog.New(slog.DiscardHandler)
	svc := setup.NewService(dynamo.New(dynamo.Options{Client: client, Table: i.table, Where: "here", Now: now, Log: log}))
	svc.Now = now
	functions := make(map[string]api.Handler)
	for _, r := range append(api.Routes, api.Route{Function: api.Fallback}) {
		functions[r.Function] = (&api.API{Service: svc, Log: log}).Function(r.Function)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.svc, i.http = svc, functions
}

// service returns what the instance runs at the moment.
func (i *instance) service() *message.Service {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.svc
}

var errKilled = errors.New("the function was killed")

// function returns the handler of that name, which may be killed between any two
// of its calls.
func (i *instance) function(name string) api.Handler {
	return func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		i.mu.Lock()
		handle := i.http[name]
		i.mu.Unlock()
		ctx, run := i.invoke(ctx, name)
		resp, err := handle(ctx, e)
		if run.ended() {
			i.begin()
			return events.APIGatewayV2HTTPResponse{}, errKilled
		}
		return resp, err
	}
}

func (i *instance) listen(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	i.url = "http://" + listener.Addr().String()
	gateway := server.NewGateway(i.function, slog.New(slog.DiscardHandler))
	i.server = &http.Server{
		Handler: gateway, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	go i.server.Serve(listener) //nolint:errcheck // it ends with Close
	return nil
}

func (d *onDynamoDB) urls() []string {
	var all []string
	for _, i := range d.instances {
		all = append(all, i.url)
	}
	return all
}

func (d *onDynamoDB) lossy() bool { return true }

func (d *onDynamoDB) skew() time.Duration { return 600 * time.Millisecond }

// sweepEvery is how often each instance sweeps.
const sweepEvery = time.Second

// spoil makes faults, and sweeps, until ctx ends. Sweeping goes on after that.
func (d *onDynamoDB) spoil(ctx context.Context) error {
	d.on.Store(true)
	for _, i := range d.instances {
		d.sweeps.Go(i.sweep)
	}
	<-ctx.Done()
	d.on.Store(false)
	d.late.Wait()
	return nil
}

func (i *instance) sweep() {
	for {
		select {
		case <-i.stop:
			return
		case <-time.After(sweepEvery):
		}
		ctx, run := i.invoke(context.Background(), "sweep")
		_, _ = i.service().Sweep(ctx, message.SweepOptions{Count: true}) // the next one does what this could not
		if run.ended() {
			i.begin()
		}
	}
}

func (d *onDynamoDB) close(ctx context.Context) error {
	close(d.stop)
	d.sweeps.Wait()
	d.late.Wait()
	var err error
	for _, i := range d.instances {
		err = errors.Join(err, i.server.Close())
	}
	_, dropErr := d.engine.DeleteTable(context.WithoutCancel(ctx), &dynamodb.DeleteTableInput{TableName: &d.table})
	return errors.Join(err, dropErr)
}

// faulty makes the faults between the functions and the engine.
type faulty struct {
	on     atomic.Bool
	stop   chan struct{}
	sweeps sync.WaitGroup
	late   sync.WaitGroup // requests that are still to arrive

	mu     sync.Mutex
	random *rand.Rand
	made   map[string]int
	killed map[string]int    // by place
	places map[string]*place // of the functions
}

// place is where a function is killed next.
type place struct {
	calls int // that it was seen to make, at most
	next  int // twice the number of the call, and one more if that still arrives
}

func newFaulty(random *rand.Rand) *faulty {
	return &faulty{
		random: random, stop: make(chan struct{}), made: make(map[string]int), killed: make(map[string]int),
		places: make(map[string]*place),
	}
}

// faults returns copies: a sweep may still die.
func (f *faulty) faults() (made, deaths map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.made), maps.Clone(f.killed)
}

// maxLag is how far the index may be behind.
const maxLag = 2 * time.Second

// index is the engine with an index that lags: mostly little, now and then much.
func (f *faulty) index(next aws.HTTPClient) aws.HTTPClient {
	began := time.Now()
	return wire.NewIndex(next, func() int64 { return int64(time.Since(began)) }, int64(maxLag), func() int64 {
		if !f.on.Load() {
			return 0
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.made["index lagged"]++
		if f.random.IntN(8) == 0 {
			return f.random.Int64N(int64(maxLag))
		}
		return f.random.Int64N(int64(maxLag / 50))
	})
}

// invocation is one run of a function.
type invocation struct {
	name    string
	calls   atomic.Int32
	killAt  int  // the call at which it ends; -1 for none
	arrives bool // that call is made, and its answer is not seen
	killed  atomic.Bool
}

type invocationKey struct{}

// invoke begins a run of the function.
func (f *faulty) invoke(ctx context.Context, name string) (context.Context, *invocation) {
	run := &invocation{name: name, killAt: -1}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.places[name]
	if p == nil {
		p = new(place)
		f.places[name] = p
	}
	const seldom = 60
	if f.on.Load() && p.calls > 0 && f.random.IntN(seldom) == 0 {
		run.killAt, run.arrives = p.next/2, p.next%2 == 1
		p.next = (p.next + 1) % (2 * p.calls)
	}
	return context.WithValue(ctx, invocationKey{}, run), run
}

// ended reports whether the run was killed.
func (run *invocation) ended() bool { return run.killed.Load() }

// fault decides what becomes of a request of a function.
func (f *faulty) fault(r *wire.Request, send wire.Send) (*http.Response, error) {
	run, _ := r.HTTP.Context().Value(invocationKey{}).(*invocation)
	if run == nil {
		return send()
	}
	if run.ended() {
		return nil, context.Canceled // the SDK does not ask again
	}
	n := int(run.calls.Add(1))
	if n == run.killAt+1 && run.killed.CompareAndSwap(false, true) {
		kind := "before"
		if run.arrives {
			kind = "after"
			_, _ = wire.Lose(r, send)
		}
		f.count("function killed " + kind + " a call")
		f.mu.Lock()
		f.killed[fmt.Sprintf("%s: %s call %d", run.name, kind, n)]++
		f.mu.Unlock()
		return nil, context.Canceled
	}
	f.mu.Lock()
	if p := f.places[run.name]; n > p.calls {
		p.calls = n
	}
	dice, wait, code := f.random.IntN(1000), time.Duration(f.random.Int64N(int64(30*time.Millisecond))), f.random.IntN(3)
	f.mu.Unlock()
	if !f.on.Load() {
		return send()
	}
	return f.spoiled(r, send, dice, wait, code)
}

func (f *faulty) count(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made[kind]++
}

var errTorn = fmt.Errorf("read the answer: %w", io.ErrUnexpectedEOF)

// spoiled does to a request what the dice say: nothing, in nineteen of twenty cases.
func (f *faulty) spoiled(
	r *wire.Request, send wire.Send, dice int, wait time.Duration, code int,
) (*http.Response, error) {
	switch {
	case dice < 20:
		f.count("delayed")
		time.Sleep(wait)
		return send()
	case dice < 28:
		f.count("throttled (400)")
		return wire.Refuse(http.StatusBadRequest, []string{
			"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded",
		}[code])(r, send)
	case dice < 32:
		f.count("error 500")
		return wire.Refuse(http.StatusInternalServerError, "InternalServerError")(r, send)
	case dice < 36:
		f.count("error 503")
		return wire.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable")(r, send)
	case dice < 42:
		f.count("answer lost")
		return wire.Lose(r, send)
	case dice < 46:
		f.count("answer cut in the middle")
		_, _ = wire.Lose(r, send)
		return nil, errTorn
	case dice < 48:
		f.count("connection refused")
		return wire.Cut(r, send)
	case dice < 54:
		f.count("sent twice")
		first, err := send()
		second, again := send()
		if code == 0 {
			return second, again
		}
		return first, err
	case dice < 58:
		f.count("arrived late")
		f.late.Go(func() {
			time.Sleep(wait * 60)     // up to 2 s
			_, _ = wire.Lose(r, send) //nolint:bodyclose // there is none
		})
		return wire.Cut(r, send)
	}
	return send()
}
