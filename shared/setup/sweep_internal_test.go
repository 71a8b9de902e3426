package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// clock tells the time that the test has set, and moves on by step whenever it is
// asked.
type clock struct {
	mu   sync.Mutex
	now  time.Time
	step time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(c.step)
	return c.now
}

func (c *clock) set(now time.Time, step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.step = now, step
}

// epoch is when the clock of a test begins.
var epoch = time.Date(2026, 11, 30, 13, 0, 0, 0, time.UTC)

// fixture is a sweeper on a store of its own.
type fixture struct {
	*sweeper
	store   *sqlite.Store
	clock   *clock
	written *bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	store, err := sqlite.Open(sqlite.InMemory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	f := &fixture{store: store, clock: &clock{now: epoch}, written: new(bytes.Buffer)}
	svc := NewService(store)
	svc.Now = f.clock.Now
	withoutTime := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	f.sweeper = &sweeper{svc, slog.New(slog.NewJSONHandler(f.written, withoutTime)), "redrive-Table"}
	return f
}

func (f *fixture) enqueue(t *testing.T, queue string) {
	t.Helper()
	if _, _, err := f.Enqueue(t.Context(), queue, message.Draft{Payload: "x"}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) claim(t *testing.T, queue string) message.Message {
	t.Helper()
	claimed, err := f.Claim(t.Context(), queue, message.ClaimOptions{})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("Claim = %v, %v, want one message", claimed, err)
	}
	return claimed[0]
}

// take returns what was written since it was last called.
func (f *fixture) take() string {
	defer f.written.Reset()
	return f.written.String()
}

// TestSweepLine compares whole lines. CloudWatch makes metrics of what _aws names.
func TestSweepLine(t *testing.T) {
	t.Parallel()
	const aws = `"_aws":{"CloudWatchMetrics":[{"Dimensions":[["Table"]],"Metrics":[{"Name":"SweepRuns","Unit":"Count"},` +
		`{"Name":"PendingMessages","Unit":"Count"},{"Name":"OldestPendingSeconds","Unit":"Seconds"},` +
		`{"Name":"DeadMessages","Unit":"Count"},{"Name":"DeadMessagesMax","Unit":"Count"},` +
		`{"Name":"OldestDeadSeconds","Unit":"Seconds"}],"Namespace":"Redrive"}],"Timestamp":`
	for _, tt := range []struct {
		name string
		do   func(*testing.T, *fixture)
		want string
	}{
		{
			"nothing", func(*testing.T, *fixture) {},
			`{"level":"INFO","msg":"sweep","queues":0,"returned":0,"buried":0,"failed":0,"done":true,"duration_ms":0,` +
				`"Table":"redrive-Table","SweepRuns":1,"PendingMessages":0,"OldestPendingSeconds":0,"DeadMessages":0,` +
				`"DeadMessagesMax":0,"OldestDeadSeconds":0,` + aws + `1796043600000}}`,
		},
		{
			"something of each kind", func(t *testing.T, f *fixture) {
				for queue, stalls := range map[string]int{"buries": 1, "returns": 2} {
					set := message.DefaultSettings()
					set.MaxStalls = stalls
					if _, _, err := f.PutQueue(t.Context(), queue, set); err != nil {
						t.Fatal(err)
					}
				}
				for _, queue := range []string{"buries", "buries", "returns"} {
					f.enqueue(t, queue)
					f.claim(t, queue)
				}
				f.enqueue(t, "returns")
				m := f.claim(t, "returns")
				if _, err := f.Fail(t.Context(), "returns", m.ID, message.Failure{Permanent: true}); err != nil {
					t.Fatal(err)
				}
				f.clock.set(epoch.Add(90*time.Second), 0)
				f.enqueue(t, "waits")
				f.clock.set(epoch.Add(100*time.Second+time.Millisecond), 0)
			},
			`{"level":"INFO","msg":"sweep","queues":3,"returned":1,"buried":2,"failed":0,"done":true,"duration_ms":0,` +
				`"Table":"redrive-Table","SweepRuns":1,"PendingMessages":2,"OldestPendingSeconds":10.001,"DeadMessages":3,` +
				`"DeadMessagesMax":2,"OldestDeadSeconds":100,` + aws + `1796043700001}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			tt.do(t, f)
			if err := f.handle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want+"\n", f.take()); diff != "" {
				t.Errorf("the line (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSweepGoesOn has more queues than a run has time for: the next take up the
// rest, and the one that comes to the last queue tells the sums over all runs.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const queues = 250
	for n := range queues {
		f.enqueue(t, fmt.Sprintf("queue-%03d", n))
	}
	deadline := time.Now().Add(time.Hour) // far off: what ends a run is the sweeper's own clock
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	visited, runs := 0, 0
	for done := false; !done && runs < 20; runs++ {
		f.clock.set(deadline.Add(-stopBefore-time.Second), 3*time.Millisecond) // some 333 looks at it
		if err := f.handle(ctx); err != nil {
			t.Fatal(err)
		}
		var line struct {
			Queues          int
			Done            bool
			SweepRuns       int
			PendingMessages *int
		}
		text := f.take()
		if err := json.Unmarshal([]byte(text), &line); err != nil || strings.Count(text, "\n") != 1 {
			t.Fatalf("the run has written %q, want one line", text)
		}
		visited, done = visited+line.Queues, line.Done
		if line.Queues == 0 || line.SweepRuns != 1 || (line.PendingMessages != nil) != done {
			t.Errorf("run %d writes %s, want it to get on, and the sum in the last run only", runs+1, text)
		}
		if done && *line.PendingMessages != queues {
			t.Errorf("the last run counts %d messages, want %d", *line.PendingMessages, queues)
		}
	}
	if visited < queues || runs < 2 { // the last run may have begun anew
		t.Errorf("%d runs have visited %d queues, want several, and %d", runs, visited, queues)
	}
}

// faulty is a store that fails in one of its methods.
type faulty struct {
	message.SweepStore
	inUse func() error
}

func (s *faulty) InUse(ctx context.Context, after string, limit int) ([]message.Mark, error) {
	if err := s.inUse(); err != nil {
		return nil, err
	}
	return s.SweepStore.InUse(ctx, after, limit)
}

func (s *faulty) Lapsed(
	context.Context, string, time.Time, *message.Position, int,
) ([]message.Position, error) {
	return nil, errors.New("no look into this queue")
}

// TestSweepFails: the function fails, so that the alarm on its errors hears of it.
func TestSweepFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		inUse  func() error
		want   string // in the error and in the line
		looked any    // what SweepRuns is: the alarm on missing sweeps must hear of those that saw no queue
	}{
		{"nothing can be read", func() error { return message.ErrUnavailable }, message.ErrUnavailable.Error(), nil},
		{"a queue cannot be looked through", func() error { return nil }, "no look into this queue", 1.},
		{"a panic", func() error { panic("a fault of the program") }, "a fault of the program", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.enqueue(t, "emails")
			f.Sweeps = &faulty{f.store, tt.inUse}
			if err := f.handle(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("handle = %v, want %q", err, tt.want)
			}
			text := f.take()
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil || strings.Count(text, "\n") != 1 {
				t.Fatalf("written is %q, want one line of JSON", text)
			}
			if reason, _ := line["error"].(string); line["level"] != "ERROR" || line["msg"] != "sweep" ||
				!strings.Contains(reason, tt.want) {
				t.Errorf("the line is %v, want an error that says %q", line, tt.want)
			}
			if line["SweepRuns"] != tt.looked {
				t.Errorf("SweepRuns is %v, want %v", line["SweepRuns"], tt.looked)
			}
		})
	}
}
