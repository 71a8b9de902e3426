package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrivehq/redrive/local/prove/history"
	"github.com/redrivehq/redrive/shared/message"
)

// crowd is the workers of a part of a campaign, and what they tell each other.
type crowd struct {
	*recorder
	part  string
	sys   system
	names []string // of the queues
	set   map[string]message.Settings
	left  atomic.Int64 // calls
	turn  atomic.Int64 // of the servers

	mu     sync.Mutex
	random *rand.Rand
	recent []ref // messages that somebody may interfere with
	dead   []ref
	keys   []draft // enqueues that somebody may repeat
}

// ref is a message, and a receipt of it if there was one.
type ref struct{ queue, id, receipt string }

// draft is an enqueue.
type draft struct {
	queue, tag string
	size       int
	key        string // for idempotency; empty for none
	delay      time.Duration
	maxRetries int
}

// remembered bounds what workers tell each other.
const remembered = 200

// remember adds to a list, and forgets something of it if it is long.
func remember[T any](c *crowd, list *[]T, add T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(*list) < remembered {
		*list = append(*list, add)
		return
	}
	(*list)[c.random.IntN(remembered)] = add
}

// pick returns one of the list.
func pick[T any](c *crowd, list *[]T) (one T, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(*list) == 0 {
		return one, false
	}
	return (*list)[c.random.IntN(len(*list))], true
}

// worker is a client that does everything that clients do, at random.
type worker struct {
	*crowd
	number int
	random *rand.Rand
	sent   int
	held   []ref
}

// work makes calls until the crowd has made all it is to make.
func (w *worker) work(ctx context.Context) {
	for w.left.Add(-1) >= 0 && ctx.Err() == nil {
		w.act(ctx)
	}
}

// act makes one call.
func (w *worker) act(ctx context.Context) {
	const manyHeld = 6
	n := w.random.IntN(100)
	switch {
	case n < 20, n < 40 && len(w.held) == 0:
		w.enqueue(ctx)
	case n < 40 && len(w.held) < manyHeld:
		w.claim(ctx, w.random.IntN(4))
	case n < 46:
		w.interfere(ctx)
	case n < 50:
		w.replay(ctx)
	case n < 53:
		w.remove(ctx)
	case n < 56:
		w.look(ctx)
	case n < 57:
		w.operate(ctx)
	case len(w.held) == 0:
		w.claim(ctx, w.random.IntN(11))
	case n < 60:
		w.held = slices.Delete(w.held, 0, 1) // it crashed: no call
	default:
		w.answer(ctx, w.take(), false)
	}
}

// take picks one of the leases held: it is held no longer, as far as the worker
// knows.
func (w *worker) take() ref {
	i := w.random.IntN(len(w.held))
	r := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	return r
}

// url returns the base URL of the server whose turn it is.
func (c *crowd) url() string {
	urls := c.sys.urls()
	return urls[int(c.turn.Add(1))%len(urls)]
}

func (w *worker) request(verb history.Verb, r ref, method, path string, body map[string]any) *request {
	return &request{
		Operation: history.Operation{Client: w.number, Verb: verb, Queue: r.queue, ID: r.id},
		url:       w.url(), method: method, path: "/queues/" + r.queue + path, body: body,
	}
}

func (w *worker) enqueue(ctx context.Context) {
	d := w.draft()
	body := map[string]any{"payload": payload(d.tag, d.size)}
	if d.delay > 0 {
		body["delay_seconds"] = d.delay.Seconds()
	}
	if d.maxRetries > 0 {
		body["max_retries"] = d.maxRetries
	}
	q := w.request(history.Enqueue, ref{queue: d.queue}, http.MethodPost, "/messages", body)
	q.Tag, q.Key, q.Delay, q.MaxRetries, q.key = d.tag, d.key != "", d.delay, d.maxRetries, d.key
	for _, o := range w.do(ctx, q) {
		if o.ID != "" {
			remember(w.crowd, &w.recent, ref{o.Queue, o.ID, ""})
		}
	}
}

// draft is a message of its own, one that was sent before under its key, or another
// one under the key of that.
func (w *worker) draft() draft {
	old, found := pick(w.crowd, &w.keys)
	n := w.random.IntN(25)
	if found && n < 4 {
		return old
	}
	w.sent++
	d := draft{
		queue: w.names[w.random.IntN(len(w.names))], tag: fmt.Sprintf("%s-%d-%d", w.part, w.number, w.sent),
		size: []int{0, 20, 20, 20, 500, 500, 500, 2_000, 2_000, 2_000, 20_000, 20_000}[w.random.IntN(12)],
	}
	if w.random.IntN(8) == 0 {
		d.delay = time.Duration(w.random.IntN(300)) * time.Millisecond
	}
	if w.random.IntN(8) == 0 {
		d.maxRetries = 1 + w.random.IntN(4)
	}
	switch {
	case found && n == 4:
		d.queue, d.key = old.queue, old.key
	case w.random.IntN(3) == 0:
		d.key = d.tag
		remember(w.crowd, &w.keys, d)
	}
	return d
}

// claim asks for so many messages; 0 is a claim of one, in its own form.
func (w *worker) claim(ctx context.Context, several int) {
	body := make(map[string]any)
	q := w.request(message.VerbClaim, ref{queue: w.names[w.random.IntN(len(w.names))]}, http.MethodPost, "/claim", body)
	q.several, q.Max = several > 0, max(several, 1)
	if several > 0 {
		body["max_messages"] = several
	}
	if w.random.IntN(3) == 0 {
		q.Timeout = time.Duration(1+w.random.IntN(3)) * time.Second
		body["processing_timeout"] = q.Timeout.Seconds()
	}
	for _, o := range w.do(ctx, q) {
		r := ref{o.Queue, o.ID, o.Receipt}
		w.held = append(w.held, r)
		remember(w.crowd, &w.recent, r)
	}
}

// answer ends a lease in one of the ways there are, or extends it. Bare: without
// the receipt, where that is allowed.
func (w *worker) answer(ctx context.Context, r ref, bare bool) {
	verb := []history.Verb{
		message.VerbSucceed, message.VerbSucceed, message.VerbSucceed, message.VerbFail, message.VerbFail, message.VerbFail,
		message.VerbFail, message.VerbRelease, message.VerbExtend,
	}[w.random.IntN(9)]
	body := map[string]any{"receipt": r.receipt}
	q := w.request(verb, r, http.MethodPost, "/messages/"+r.id+"/"+string(verb), body)
	q.Receipt = r.receipt
	if bare && (verb == message.VerbSucceed || verb == message.VerbFail) {
		q.Receipt = ""
		delete(body, "receipt")
	}
	if verb == message.VerbFail {
		w.report(q)
	}
	if verb == message.VerbExtend && w.random.IntN(3) > 0 {
		q.Timeout = time.Duration(1+w.random.IntN(3)) * time.Second
		body["processing_timeout"] = q.Timeout.Seconds()
	}
	done := w.do(ctx, q)
	if verb == message.VerbExtend {
		w.held = append(w.held, r)
	}
	w.mourn(r, done)
	if len(done) == 0 && w.random.IntN(2) == 0 { // no answer: say it again
		w.answer(ctx, r, bare)
	}
}

// report says of a failure what there is to say.
func (w *worker) report(q *request) {
	q.Error = fmt.Sprintf("worker %d: connection refused", w.number)
	q.body["error"] = q.Error
	switch w.random.IntN(8) {
	case 0:
		q.Permanent, q.body["permanent"] = true, true
	case 1:
		q.RetryAfter = new(time.Duration(w.random.IntN(300)) * time.Millisecond)
		q.body["retry_after_seconds"] = q.RetryAfter.Seconds()
	}
}

// interfere answers for a message that somebody else may hold, or that has been
// answered for.
func (w *worker) interfere(ctx context.Context) {
	r, ok := pick(w.crowd, &w.recent)
	if !ok {
		w.enqueue(ctx)
		return
	}
	if r.receipt == "" {
		r.receipt = "nobody's"
	}
	w.answer(ctx, r, w.random.IntN(4) == 0 && r.queue != strict)
}

func (w *worker) replay(ctx context.Context) {
	r, ok := pick(w.crowd, &w.dead)
	if !ok {
		w.look(ctx)
		return
	}
	w.do(ctx, w.request(message.VerbReplay, r, http.MethodPost, "/messages/"+r.id+"/replay", nil))
}

func (w *worker) remove(ctx context.Context) {
	r, ok := pick(w.crowd, &w.recent)
	if !ok {
		w.enqueue(ctx)
		return
	}
	w.do(ctx, w.request(message.VerbDelete, r, http.MethodDelete, "/messages/"+r.id, nil))
}

func (w *worker) look(ctx context.Context) {
	r, ok := pick(w.crowd, &w.recent)
	if !ok {
		w.enqueue(ctx)
		return
	}
	w.mourn(r, w.do(ctx, w.request(history.Get, r, http.MethodGet, "/messages/"+r.id, nil)))
}

// mourn remembers the message if an answer shows it dead.
func (w *worker) mourn(r ref, answers []history.Operation) {
	for _, o := range answers {
		if o.Shown != nil && o.Shown.Status == message.Dead {
			remember(w.crowd, &w.dead, r)
		}
	}
}

// operate does what operators do beside all this: looks through a list, or writes
// settings, which stay what they are.
func (w *worker) operate(ctx context.Context) {
	name := w.names[w.random.IntN(len(w.names))]
	if w.random.IntN(4) == 0 {
		w.put(ctx, name, w.set[name])
		return
	}
	query := url.Values{
		"limit":  {strconv.Itoa(1 + w.random.IntN(message.MaxListLimit))},
		"order":  {[]string{"asc", "desc"}[w.random.IntN(2)]},
		"status": {string(message.Statuses()[w.random.IntN(len(message.Statuses()))])},
	}
	w.page(ctx, name, query)
}
