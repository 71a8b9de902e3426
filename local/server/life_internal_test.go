package server

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// everything is what a store does.
type everything interface {
	message.Store
	message.QueueStore
	message.SweepStore
}

func serviceOn(store everything, now func() time.Time) *message.Service {
	return &message.Service{
		Store: store, Queues: store, Sweeps: store, Now: now,
		Random: func(b []byte) { rand.Read(b) }, // crypto/rand never fails
	}
}

// watched counts the calls of a store, and complains about those that are not
// allowed.
type watched struct {
	everything
	t       *testing.T
	allowed atomic.Bool
	calls   atomic.Int64
}

func (w *watched) call(method string) {
	w.calls.Add(1)
	if !w.allowed.Load() {
		w.t.Errorf("%s is called after the handler has returned", method)
	}
}

func (w *watched) Enqueue(ctx context.Context, m message.Message) (message.Message, bool, error) {
	w.call("Enqueue")
	defer w.call("Enqueue")
	return w.everything.Enqueue(ctx, m)
}

func (w *watched) Get(ctx context.Context, queue, id string) (message.Message, []message.Attempt, error) {
	w.call("Get")
	defer w.call("Get")
	return w.everything.Get(ctx, queue, id)
}

func (w *watched) List(ctx context.Context, q message.ListQuery) ([]message.Message, bool, error) {
	w.call("List")
	defer w.call("List")
	return w.everything.List(ctx, q)
}

func (w *watched) Claim(
	ctx context.Context, queue string, limit int, next func() message.Claim,
) ([]message.Message, error) {
	w.call("Claim")
	defer w.call("Claim")
	return w.everything.Claim(ctx, queue, limit, next)
}

func (w *watched) Apply(ctx context.Context, queue, id string, tr message.Transition) (message.Message, error) {
	w.call("Apply")
	defer w.call("Apply")
	return w.everything.Apply(ctx, queue, id, tr)
}

func (w *watched) Delete(ctx context.Context, queue, id string, at time.Time) error {
	w.call("Delete")
	defer w.call("Delete")
	return w.everything.Delete(ctx, queue, id, at)
}

func (w *watched) Queue(ctx context.Context, name string) (message.Queue, error) {
	w.call("Queue")
	defer w.call("Queue")
	return w.everything.Queue(ctx, name)
}

func (w *watched) PutQueue(ctx context.Context, q message.Queue) (message.Queue, bool, error) {
	w.call("PutQueue")
	defer w.call("PutQueue")
	return w.everything.PutQueue(ctx, q)
}

func (w *watched) DeleteQueue(ctx context.Context, name string, now time.Time) error {
	w.call("DeleteQueue")
	defer w.call("DeleteQueue")
	return w.everything.DeleteQueue(ctx, name, now)
}

func (w *watched) ListQueues(ctx context.Context, prefix, after string, limit int) ([]message.Queue, error) {
	w.call("ListQueues")
	defer w.call("ListQueues")
	return w.everything.ListQueues(ctx, prefix, after, limit)
}

func (w *watched) Count(
	ctx context.Context, name string, now time.Time, statuses ...message.Status,
) (message.Counts, error) {
	w.call("Count")
	defer w.call("Count")
	return w.everything.Count(ctx, name, now, statuses...)
}

// TestS102NothingGoesOnAfterTheAnswer calls every function in a bubble: whatever
// a handler left running would call the store in the hour that passes there, or
// not end, which the bubble reports.
func TestS102NothingGoesOnAfterTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := sqlite.Open(sqlite.InMemory)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close() // in memory
		w := &watched{everything: store, t: t}
		g := newGateway(serviceOn(w, time.Now), slog.New(slog.DiscardHandler))
		served := make(map[string]bool)
		do := func(method, path, body string, want int) string {
			t.Helper()
			route, _, _ := api.Match(method, path)
			served[route.Function] = true
			before := w.calls.Load()
			w.allowed.Store(true)
			rec := httptest.NewRecorder()
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			g.ServeHTTP(rec, r)
			w.allowed.Store(false)
			if rec.Code != want {
				t.Fatalf("%s %s = %d %s, want %d", method, path, rec.Code, rec.Body, want)
			}
			if route.Function != api.Fallback && w.calls.Load() == before {
				t.Errorf("%s %s did not call the store: the test watches nothing", method, path)
			}
			synctest.Wait()
			time.Sleep(time.Hour) // of the bubble
			return rec.Body.String()
		}
		id := func(body string) string {
			_, rest, _ := strings.Cut(body, `"id":"`)
			text, _, _ := strings.Cut(rest, `"`)
			return text
		}
		do("PUT", "/queues/q", `{"max_retries":1,"processing_timeout":43200}`, http.StatusCreated)
		first := "/queues/q/messages/" + id(do("POST", "/queues/q/messages", `{"payload":"x"}`, http.StatusCreated))
		claimed := do("POST", "/queues/q/claim", "", http.StatusOK)
		_, rest, _ := strings.Cut(claimed, `"receipt":"`)
		receipt, _, _ := strings.Cut(rest, `"`)
		do("POST", first+"/extend", `{"receipt":"`+receipt+`"}`, http.StatusOK)
		do("POST", first+"/release", `{"receipt":"`+receipt+`"}`, http.StatusOK)
		do("POST", "/queues/q/claim", `{"max_messages":2}`, http.StatusOK)
		do("POST", first+"/fail", `{"error":"x"}`, http.StatusOK)
		do("POST", first+"/replay", "", http.StatusOK)
		do("POST", "/queues/q/claim", "", http.StatusOK)
		do("POST", first+"/succeed", "", http.StatusOK)
		do("GET", first, "", http.StatusOK)
		do("GET", "/queues/q/messages", "", http.StatusOK)
		do("DELETE", first, "", http.StatusNoContent)
		do("GET", "/queues", "", http.StatusOK)
		do("GET", "/queues/q", "", http.StatusOK)
		do("DELETE", "/queues/q", "", http.StatusNoContent)
		do("GET", "/nowhere", "", http.StatusNotFound)
		for name := range g.functions {
			if !served[name] {
				t.Errorf("function %s is not in the test", name)
			}
		}
	})
}

// TestS099SweepsAtTheSameTime has two sweeps end the same leases.
func TestS099SweepsAtTheSameTime(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var passed atomic.Int64
	now := func() time.Time { return began.Add(time.Duration(passed.Load())) }
	svc, store := open(t, now)
	defer store.Close() // in memory
	ctx := t.Context()
	const lapsed = 5
	for range lapsed {
		if _, _, err := svc.Enqueue(ctx, "q", message.Draft{Payload: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if claimed, err := svc.Claim(ctx, "q", message.ClaimOptions{Max: new(lapsed)}); err != nil || len(claimed) != lapsed {
		t.Fatalf("Claim = %d messages, %v, want %d", len(claimed), err, lapsed)
	}
	passed.Store(int64(33 * time.Second)) // the lease of 30 s, and the grace
	var sweeps sync.WaitGroup
	reports := make([]message.SweepReport, 2)
	for i := range reports {
		sweeps.Go(func() {
			var err error
			if reports[i], err = svc.Sweep(ctx, message.SweepOptions{}); err != nil {
				t.Errorf("Sweep = %v, want nil", err)
			}
		})
	}
	sweeps.Wait()
	third, err := svc.Sweep(ctx, message.SweepOptions{})
	if got := reports[0].Returned + reports[1].Returned; got != lapsed || third.Returned != 0 || err != nil {
		t.Errorf("two sweeps at once returned %d, a third %d, %v, want %d and 0", got, third.Returned, err, lapsed)
	}
	stored, _, err := svc.List(ctx, message.List{Queue: "q", Limit: lapsed + 1})
	if err != nil || len(stored) != lapsed {
		t.Fatalf("List = %d messages, %v, want %d", len(stored), err, lapsed)
	}
	for _, m := range stored {
		if due := now().Add(2 * time.Second); m.Status != message.Pending || m.StallCount != 1 || m.RetryCount != 0 ||
			!m.Due.Equal(due) {
			t.Errorf("stored %+v, want pending with 1 stall, due at %v", m, due)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	for _, path := range []string{sqlite.InMemory, t.TempDir() + "/redrive.db"} {
		store, err := sqlite.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		h := health(embedded(store))
		status, header, body := serveOne(t, h, httptest.NewRequest(http.MethodGet, "/health", nil))
		if status != 200 || header.Get("Content-Type") != "application/json" ||
			!strings.HasPrefix(body, `{"status":"ok","store":"sqlite","version":"`) {
			t.Errorf("GET /health = %d %s, want 200, ok", status, body)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		status, _, body = serveOne(t, h, httptest.NewRequest(http.MethodGet, "/health", nil))
		if status != 503 || !strings.HasPrefix(body, `{"status":"unavailable","store":"sqlite",`) {
			t.Errorf("GET /health after the store has failed = %d %s, want 503, unavailable", status, body)
		}
	}
}

func TestSweeperSaysWhenItFailsAndThenGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		svc, store := open(t, time.Now)
		var log strings.Builder
		ctx, stop := context.WithCancel(t.Context())
		var sweeper sync.WaitGroup
		sweeper.Go(func() { sweep(ctx, svc, embedded(store), slog.New(slog.NewTextHandler(&log, nil))) })
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of the bubble
		stop()
		sweeper.Wait()
		if got := strings.Count(log.String(), "the sweeper fails"); got != 1 {
			t.Errorf("a minute without a store is told %d times, want once:\n%s", got, log.String())
		}
	})
}
