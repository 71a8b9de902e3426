package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redrivehq/redrive/local/prove/history"
	"github.com/redrivehq/redrive/shared/message"
)

// system is what a campaign tries: servers on a store, and faults.
type system interface {
	// urls are the base URLs of the servers.
	urls() []string
	// spoil makes faults until ctx ends, then ends them all: everything works from
	// then on.
	spoil(ctx context.Context) error
	// faults counts those made, by kind, and the deaths of functions by place: between
	// which calls.
	faults() (made, deaths map[string]int)
	// lossy and skew are as in history.History.
	lossy() bool
	skew() time.Duration
	close(ctx context.Context) error
}

// strict is the queue that requires receipts.
const strict = "strict"

// queues are those of every part, with settings that let all happen soon.
func queues() map[string]message.Settings {
	soon := message.DefaultSettings()
	soon.ProcessingTimeout = time.Second
	soon.Backoff.Initial, soon.Backoff.Max = 100*time.Millisecond, 400*time.Millisecond
	sharded, careful := soon, soon
	sharded.Shards, sharded.MaxRetries, sharded.MaxStalls = new(4), 2, 2
	careful.RequireReceipt = true
	careful.Backoff = message.Backoff{
		Schedule: []time.Duration{200 * time.Millisecond, 100 * time.Millisecond}, Jitter: message.JitterNone,
		Factor: soon.Backoff.Factor, Initial: soon.Backoff.Initial, Max: soon.Backoff.Max,
	}
	return map[string]message.Settings{"plain": soon, "sharded": sharded, strict: careful}
}

// settingsBody is the settings as PUT takes them.
func settingsBody(set message.Settings) map[string]any {
	backoff := map[string]any{
		"initial_seconds": set.Backoff.Initial.Seconds(), "factor": set.Backoff.Factor,
		"max_seconds": set.Backoff.Max.Seconds(), "jitter": set.Backoff.Jitter,
	}
	if len(set.Backoff.Schedule) > 0 {
		var schedule []float64
		for _, d := range set.Backoff.Schedule {
			schedule = append(schedule, d.Seconds())
		}
		backoff = map[string]any{"schedule_seconds": schedule, "jitter": set.Backoff.Jitter}
	}
	return map[string]any{
		"max_retries": set.MaxRetries, "processing_timeout": set.ProcessingTimeout.Seconds(), "max_stalls": set.MaxStalls,
		"require_receipt": set.RequireReceipt, "shards": set.Shards, "backoff": backoff,
	}
}

// outcome is what came of a part.
type outcome struct {
	Part       int                 `json:"part"`
	Operations int                 `json:"operations"` // calls, without those that read all in the end
	Messages   int                 `json:"messages"`
	Known      int                 `json:"acknowledged"`
	Unknown    int                 `json:"unknown"`
	Unseen     int                 `json:"unseen"`
	Unfinished int                 `json:"unfinished"`
	Faults     map[string]int      `json:"faults"`
	Deaths     map[string]int      `json:"deaths,omitempty"`
	Violations []history.Violation `json:"violations"`
	Took       time.Duration       `json:"took"`
}

// plan is what a part is made of.
type plan struct {
	part, operations, workers int
	seed                      uint64
	progress                  func(operations int)
}

// run makes one part of a campaign on the system, and judges it.
func (p plan) run(ctx context.Context, sys system) (*outcome, *history.History, error) {
	random := rand.New(rand.NewPCG(p.seed, uint64(p.part)<<32))
	c := &crowd{recorder: newRecorder(p.workers), part: strconv.Itoa(p.part), sys: sys, random: random}
	defer c.http.CloseIdleConnections()
	set := queues()
	for name := range set {
		c.names = append(c.names, name)
	}
	slices.Sort(c.names)
	for _, name := range c.names {
		if !c.put(ctx, name, set[name]) {
			return nil, nil, fmt.Errorf("PUT of %s failed before there were faults: %v", name, c.wrong)
		}
	}
	c.set = set
	c.left.Store(int64(p.operations))
	began := time.Now()
	spoiling, heal := context.WithCancel(ctx)
	defer heal()
	spoiled := make(chan error, 1)
	working, giveUp := context.WithCancel(ctx)
	defer giveUp()
	go func() {
		err := sys.spoil(spoiling)
		if err != nil {
			giveUp() // whatever is wrong with the experiment
		}
		spoiled <- err
	}()
	c.crowded(working, p)
	heal()
	if err := errors.Join(<-spoiled, ctx.Err()); err != nil {
		return nil, nil, err
	}
	operations := len(c.operations)
	unlisted, err := c.finish(ctx)
	if err != nil {
		return nil, nil, err
	}
	h := &history.History{
		Began: c.began, Queues: set, Skew: sys.skew(), Lossy: sys.lossy(), Operations: c.operations,
	}
	r := h.Check()
	made, deaths := sys.faults()
	return &outcome{
		Part: p.part, Operations: operations, Messages: r.Messages, Known: r.Acknowledged, Unknown: r.Unknown,
		Unseen: r.Unseen, Unfinished: r.Unfinished, Faults: made, Deaths: deaths, Took: time.Since(began),
		Violations: slices.Concat(r.Violations, c.wrong, unlisted),
	}, h, nil
}

// crowded has the workers do all their calls.
func (c *crowd) crowded(ctx context.Context, p plan) {
	var all sync.WaitGroup
	for n := range p.workers {
		w := &worker{crowd: c, number: n, random: rand.New(rand.NewPCG(p.seed, uint64(p.part)<<32+uint64(n)+1))}
		all.Go(func() { w.work(ctx) })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-done:
			tick.Stop()
			return
		case <-tick.C:
			p.progress(p.operations - max(int(c.left.Load()), 0))
		}
	}
}

// put sets a queue, and reports whether it was answered.
func (c *crowd) put(ctx context.Context, name string, set message.Settings) bool {
	q := &request{url: c.url(), method: http.MethodPut, path: "/queues/" + name, body: settingsBody(set)}
	return c.ask(ctx, q, http.StatusOK, http.StatusCreated) != nil
}

// finishWithin bounds how long it may take until every message is settled.
const finishWithin = time.Minute

// finish works off what is left, then reads every message, and reports those that
// cannot be read, or that no list shows as they are.
func (c *crowd) finish(ctx context.Context) ([]history.Violation, error) {
	w := &worker{crowd: c, random: rand.New(rand.NewPCG(0, 0))}
	listed, err := w.settle(ctx)
	if err != nil {
		return nil, err
	}
	queues := make(map[string]string) // of each message that anybody saw
	for id, m := range listed {
		queues[id] = m.Queue
	}
	for _, o := range c.operations {
		if o.ID != "" {
			queues[o.ID] = o.Queue
		}
	}
	var unlisted []history.Violation
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(16)
	for id, queue := range queues {
		all.Go(func() error {
			if text := w.compare(ctx, ref{queue, id, ""}, listed[id].Status); text != "" {
				mu.Lock()
				defer mu.Unlock()
				unlisted = append(unlisted, history.Violation{Kind: history.Lost, ID: id, Text: text})
			}
			return ctx.Err()
		})
	}
	return unlisted, all.Wait()
}

// settle works off what is left, and returns what the lists show then.
func (w *worker) settle(ctx context.Context) (map[string]history.Message, error) {
	for end := time.Now().Add(finishWithin); ; {
		for _, name := range w.names {
			w.drain(ctx, name)
		}
		listed, err := w.list(ctx)
		open := 0
		for _, m := range listed {
			if m.Status == message.Pending || m.Status == message.Processing {
				open++
			}
		}
		if err != nil || open == 0 || time.Now().After(end) {
			return listed, err
		}
		time.Sleep(100 * time.Millisecond) // leases have to run out
	}
}

// compare reads the message, and says what is wrong if it is not as the lists show
// it: nothing if it is.
func (w *worker) compare(ctx context.Context, r ref, listed message.Status) string {
	done := w.do(ctx, w.request(history.Get, r, http.MethodGet, "/messages/"+r.id, nil))
	if len(done) == 0 {
		return "it cannot be read, though there are no faults any more"
	}
	var status message.Status
	if shown := done[0].Shown; shown != nil {
		status = shown.Status
	}
	if status != listed {
		return fmt.Sprintf("it is %q, and the lists show it as %q", status, listed)
	}
	return ""
}

// drain claims what is due, and finishes it.
func (w *worker) drain(ctx context.Context, queue string) {
	for ctx.Err() == nil {
		most := map[string]any{"max_messages": message.MaxClaim}
		q := w.request(message.VerbClaim, ref{queue: queue}, http.MethodPost, "/claim", most)
		q.several, q.Max = true, message.MaxClaim
		claimed := w.do(ctx, q)
		for _, o := range claimed {
			q := w.request(message.VerbSucceed, ref{queue, o.ID, ""}, http.MethodPost, "/messages/"+o.ID+"/succeed",
				map[string]any{"receipt": o.Receipt})
			q.Receipt = o.Receipt
			w.do(ctx, q)
		}
		if len(claimed) == 0 {
			return
		}
	}
}

// list returns every message that the lists show.
func (c *crowd) list(ctx context.Context) (map[string]history.Message, error) {
	listed := make(map[string]history.Message)
	for _, name := range c.names {
		for cursor := ""; ; {
			query := url.Values{"limit": {strconv.Itoa(message.MaxListLimit)}}
			if cursor != "" {
				query.Set("cursor", cursor)
			}
			page, next, ok := c.page(ctx, name, query)
			if !ok {
				return nil, fmt.Errorf("the list of %s cannot be read, though there are no faults any more", name)
			}
			for _, m := range page {
				listed[m.ID] = m
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return listed, ctx.Err()
}

// page reads a page of a list.
func (c *crowd) page(
	ctx context.Context, queue string, query url.Values,
) (all []history.Message, next string, ok bool) {
	q := &request{url: c.url(), method: http.MethodGet, path: "/queues/" + queue + "/messages?" + query.Encode()}
	answer := c.ask(ctx, q, http.StatusOK)
	if answer == nil {
		return nil, "", false
	}
	var page struct {
		Messages []history.Message
		Next     string `json:"next_cursor"`
	}
	err := json.Unmarshal(answer, &page)
	for _, m := range page.Messages {
		if status := query.Get("status"); m.Queue != queue || status != "" && string(m.Status) != status {
			err = errors.New("a message is not of this list")
		}
	}
	if err != nil {
		c.accuse(q, http.StatusOK, answer)
	}
	return page.Messages, page.Next, err == nil
}
