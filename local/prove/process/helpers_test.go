package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/local/prove/process"
)

// binary builds the server, once.
var binary func() (path string, err error)

func TestMain(m *testing.M) {
	if os.Getenv(orphan) != "" {
		runOrphan()
	}
	if slices.Contains(os.Args, clumsy) {
		runClumsy()
	}
	folder, err := os.MkdirTemp("", "redrive-process-test-")
	if err != nil {
		panic(err)
	}
	binary = sync.OnceValues(func() (string, error) { return process.Build(context.Background(), folder) })
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// within bounds every wait. It is not what the tests measure.
const within = 60 * time.Second

func start(t *testing.T, disk *process.Disk, args ...string) *process.Server {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s, err := process.Start(bounded(t), path, disk, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	return ctx
}

// small makes a disk, on machines that can.
func small(t *testing.T, size int64) *process.Disk {
	t.Helper()
	disk, err := process.Small(bounded(t), size)
	if err != nil && os.Getenv("REDRIVE_REQUIRE_DISKS") == "" {
		t.Skip("no disks here (REDRIVE_REQUIRE_DISKS makes this a failure): ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// until asks again and again, and fails the test if it is never so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for ctx := bounded(t); !so(); {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", within, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// client sends requests to one server, in all its lives.
type client struct {
	url  string
	http *http.Client
}

func newClient(t *testing.T, s *process.Server) *client {
	t.Helper()
	c := &client{s.URL, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: writers}, Timeout: within}}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// unavailable is all that a client may read of a fault.
const unavailable = `{"type":"/problems/unavailable","title":"Unavailable","status":503,"detail":"The queue cannot ` +
	`do this now. Try again; this answer does not prove that the call had no effect."}`

// call sends a request. What it answers is a success, a conflict, or a 503 as it
// should be.
func (c *client) call(ctx context.Context, method, path, body, key string) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close() // it has been read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", err
	}
	switch status, answer = resp.StatusCode, string(text); {
	case status == http.StatusServiceUnavailable && (answer != unavailable || resp.Header.Get("Retry-After") == ""):
		return status, answer, fmt.Errorf("%s %s = 503 %v %s, want %s", method, path, resp.Header, answer, unavailable)
	case status >= 300 && status != http.StatusConflict && status != http.StatusServiceUnavailable:
		return status, answer, fmt.Errorf("%s %s = %d %s", method, path, status, answer)
	}
	return status, answer, nil
}

// must sends a request that is to be answered so.
func (c *client) must(t *testing.T, want int, method, path, body string) string {
	t.Helper()
	status, answer, err := c.call(t.Context(), method, path, body, "")
	if err != nil {
		t.Error(err)
	} else if status != want {
		t.Errorf("%s %s %s = %d %s, want %d", method, path, body, status, answer, want)
	}
	return answer
}

// health is not among the routes of the queue, and has its own form.
func (c *client) health(t *testing.T) int {
	t.Helper()
	resp, err := c.http.Get(c.url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// shown is a message in an answer.
type shown struct {
	ID, Payload, Status, Receipt string
	StallCount                   int `json:"stall_count"`
}

func parse(t *testing.T, answer string) shown {
	t.Helper()
	var m shown
	if err := json.Unmarshal([]byte(answer), &m); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return m
}

// claim takes a message for an hour, or for so many seconds.
func (c *client) claim(t *testing.T, seconds int) shown {
	t.Helper()
	return parse(t, c.must(t, http.StatusOK, http.MethodPost, "/queues/q/claim",
		fmt.Sprintf(`{"processing_timeout":%d}`, seconds)))
}

// writers is how many enqueue at a time.
const writers = 8

// ledger is what was acknowledged to writers, and what they do not know.
type ledger struct {
	mu     sync.Mutex
	sent   int
	acked  map[string]string // ID to payload
	unsure []string          // payloads, which are keys too
}

// write has writers enqueue until each has met something else than success. They
// end in any case.
func (l *ledger) write(t *testing.T, c *client) (ended func()) {
	t.Helper()
	var working sync.WaitGroup
	for range writers {
		working.Go(func() {
			for range 20_000 {
				l.mu.Lock()
				l.sent++
				payload := fmt.Sprintf("%d-%s", l.sent, strings.Repeat("x", l.sent%5000))
				l.mu.Unlock()
				if !l.enqueue(t, c, payload) {
					return
				}
			}
			t.Error("nothing has stopped the writers")
		})
	}
	return working.Wait
}

func (l *ledger) enqueue(t *testing.T, c *client, payload string) (acked bool) {
	t.Helper()
	key, _, _ := strings.Cut(payload, "-")
	status, answer, err := c.call(t.Context(), http.MethodPost, "/queues/q/messages", `{"payload":"`+payload+`"}`, key)
	if err != nil && status != 0 {
		t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if status != http.StatusCreated && status != http.StatusOK {
		l.unsure = append(l.unsure, payload)
		return false
	}
	l.acked[parse(t, answer).ID] = payload
	return true
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// repeat sends what is in doubt once more, which must now be stored.
func (l *ledger) repeat(t *testing.T, c *client) {
	t.Helper()
	unsure := l.unsure
	l.unsure = nil
	for _, payload := range unsure {
		if !l.enqueue(t, c, payload) {
			t.Errorf("message %.10s cannot be enqueued again", payload)
		}
	}
}

// isStored compares what was acknowledged with what can be read.
func (l *ledger) isStored(t *testing.T, c *client) {
	t.Helper()
	for id, payload := range l.acked {
		m := parse(t, c.must(t, http.StatusOK, http.MethodGet, "/queues/q/messages/"+id, ""))
		if m.Payload != payload {
			t.Errorf("message %s has payload %.20q, want %.20q", id, m.Payload, payload)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// isAll sees that nothing else is there.
func (l *ledger) isAll(t *testing.T, c *client) {
	t.Helper()
	for cursor, more := "", true; more; more = cursor != "" {
		var page struct {
			Messages []shown
			Next     string `json:"next_cursor"`
		}
		path := "/queues/q/messages?limit=250"
		if cursor != "" {
			path += "&cursor=" + cursor
		}
		answer := c.must(t, http.StatusOK, http.MethodGet, path, "")
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			if _, is := l.acked[m.ID]; !is {
				t.Errorf("message %+v is stored, and nobody knows it", m)
			}
		}
		cursor = page.Next
	}
}
