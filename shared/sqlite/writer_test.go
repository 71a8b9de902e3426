package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// clock stands still until it is told to go on.
type clock struct{ millis atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.millis.Store(time.Date(2026, 11, 30, 13, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.millis.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.millis.Add(d.Milliseconds()) }

// newService returns the rules of the queue on the store.
func newService(s *Store, c *clock) *message.Service {
	return &message.Service{
		Store: s, Queues: s, Sweeps: s, Now: c.now,
		Random: func(b []byte) { _, _ = rand.Read(b) }, // never fails
	}
}

// newPath returns the path of a file that is not there yet, in a folder of its
// own.
func newPath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "queue.db")
}

// mustOpen opens a store, which the end of the test closes.
func mustOpen(tb testing.TB, path string) *Store {
	tb.Helper()
	s, err := Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { mustClose(tb, s) })
	return s
}

// mustClose closes the store, unless that has been done.
func mustClose(tb testing.TB, s *Store) {
	tb.Helper()
	select {
	case <-s.closing:
	default:
		if err := s.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	}
}

func mustEnqueue(tb testing.TB, svc *message.Service, queue, payload string) message.Message {
	tb.Helper()
	m, _, err := svc.Enqueue(tb.Context(), queue, message.Draft{Payload: payload})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// mustClaim claims one message, which must be there.
func mustClaim(tb testing.TB, svc *message.Service, queue string) message.Message {
	tb.Helper()
	claimed, err := svc.Claim(tb.Context(), queue, message.ClaimOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	if len(claimed) != 1 {
		tb.Fatalf("claimed %d messages, want 1", len(claimed))
	}
	return claimed[0]
}

// onWriter runs do inside a transaction of the writing goroutine.
func onWriter(tb testing.TB, s *Store, do func(*conn) error) {
	tb.Helper()
	if err := s.write(tb.Context(), do); err != nil {
		tb.Fatal(err)
	}
}

// number returns what the statement says, as the writing goroutine sees it.
func number(tb testing.TB, s *Store, sql string) (n int) {
	tb.Helper()
	onWriter(tb, s, func(c *conn) (err error) {
		n, err = c.prepare(sql).one()
		return err
	})
	return n
}

// countCommits counts the transactions that the engine commits from now on.
func countCommits(tb testing.TB, s *Store) *atomic.Int64 {
	tb.Helper()
	commits := new(atomic.Int64)
	onWriter(tb, s, func(c *conn) error {
		c.db.CommitHook(func() bool { commits.Add(1); return true })
		return nil
	})
	commits.Store(0) // its own
	return commits
}

// holdWriter has the writing goroutine run a write that ends when release is
// called. Until then others wait.
func holdWriter(tb testing.TB, s *Store) (release func()) {
	tb.Helper()
	held, end, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- s.write(tb.Context(), func(*conn) error {
			close(held)
			<-end
			return nil
		})
	}()
	<-held
	return func() {
		tb.Helper()
		close(end)
		if err := <-done; err != nil {
			tb.Errorf("the write under way: %v", err)
		}
	}
}

// unavailableSaying fails unless err is ErrUnavailable and its text holds each
// of the phrases.
func unavailableSaying(tb testing.TB, err error, phrases ...string) {
	tb.Helper()
	if !errors.Is(err, message.ErrUnavailable) {
		tb.Errorf("error %v, want ErrUnavailable", err)
	}
	saying(tb, err, phrases...)
}

func saying(tb testing.TB, err error, phrases ...string) {
	tb.Helper()
	if err == nil {
		tb.Errorf("no error, want one that says %q", phrases)
		return
	}
	for _, phrase := range phrases {
		if !strings.Contains(err.Error(), phrase) {
			tb.Errorf("error %q does not say %q", err, phrase)
		}
	}
}

func TestWritesThatWaitShareATransaction(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		writes, commits int
	}{
		{"a write alone has one of its own", 1, 1},
		{"a hundred share one", 100, 1},
		{"no more share one than the first of them can wait for", 2*maxTogether + 88, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				path := newPath(t)
				s := mustOpen(t, path)
				svc := newService(s, newClock())
				commits := countCommits(t, s)
				release := holdWriter(t, s)
				results := make(chan error, tt.writes)
				for i := range tt.writes {
					go func() {
						_, _, err := svc.Enqueue(t.Context(), "q", message.Draft{Payload: strconv.Itoa(i)})
						results <- err
					}()
				}
				synctest.Wait() // all have come to the writer
				if n := len(results); n > 0 {
					t.Errorf("%d writes were answered before their turn", n)
				}
				release()
				for range tt.writes {
					if err := <-results; err != nil {
						t.Error(err)
					}
				}
				if n := int(commits.Load()) - 1; n != tt.commits { // without the one that held the writer
					t.Errorf("%d writes took %d transactions, want %d", tt.writes, n, tt.commits)
				}
				mustClose(t, s)
				if n := number(t, mustOpen(t, path), `SELECT count(*) FROM message`); n != tt.writes {
					t.Errorf("%d messages in the file, want %d", n, tt.writes)
				}
			})
		})
	}
}

func TestAWriteThatTheEngineRefusesTakesNoOtherWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		s := mustOpen(t, path)
		svc := newService(s, newClock())
		first := mustEnqueue(t, svc, "q", "first")
		twice := message.Message{ID: "msg_twice", Queue: "q", Status: message.Pending, Payload: "twice"}
		refused := []struct {
			name string
			do   func(*conn) error
			says string
		}{
			{"unknown table", func(c *conn) error { return c.exec(`INSERT INTO nowhere VALUES (1)`) }, "nowhere"},
			{"not SQL", func(c *conn) error { return c.exec(`no SQL at all`) }, "syntax error"},
			{"constraint", func(c *conn) error {
				return errors.Join(c.insert(twice), c.insert(twice))
			}, "UNIQUE constraint failed: message.queue, message.id"},
			{"a panic", func(c *conn) error {
				c.prepare(selectMessage + byID).text("q").text(first.ID).next()
				panic("in the middle of a query")
			}, "in the middle of a query"},
		}
		const good = 30
		release := holdWriter(t, s)
		stored, failed := make(chan error, good), make([]error, len(refused))
		for i := range good {
			go func() {
				_, _, err := svc.Enqueue(t.Context(), "q", message.Draft{Payload: strconv.Itoa(i)})
				stored <- err
			}()
		}
		notFound := make(chan error, 1) // refused by a rule, not by the engine
		go func() { notFound <- svc.Delete(t.Context(), "q", "msg_unknown") }()
		var all sync.WaitGroup
		for i, r := range refused {
			all.Go(func() { failed[i] = s.write(t.Context(), r.do) })
		}
		synctest.Wait()
		release()
		for range good {
			if err := <-stored; err != nil {
				t.Errorf("a good write: %v", err)
			}
		}
		if err := <-notFound; !errors.Is(err, message.ErrNotFound) {
			t.Errorf("deleting an unknown message: %v, want ErrNotFound", err)
		}
		all.Wait()
		for i, r := range refused {
			text, _, _ := strings.Cut(fmt.Sprint(failed[i]), "\n") // a stack may follow
			t.Logf("%s: %s", r.name, text)
			saying(t, failed[i], "sqlite: ", r.says)
			if errors.Is(failed[i], message.ErrUnavailable) {
				t.Errorf("%s: %v is ErrUnavailable, but trying again is no use", r.name, failed[i])
			}
		}
		if err := svc.Delete(t.Context(), "q", first.ID); err != nil { // with the statement of the panic
			t.Errorf("Delete: %v", err)
		}
		mustClose(t, s)
		s = mustOpen(t, path)
		for table, want := range map[string]int{"message": good, "payload": good, "queue": 1, "mark": 1} {
			if n := number(t, s, `SELECT count(*) FROM `+table); n != want {
				t.Errorf("table %s holds %d rows, want %d", table, n, want)
			}
		}
	})
}

// Whoever calls recovers from panics and goes on, so the readers must be fit for it.
func TestAPanicInAReadHarmsNoOther(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, newPath(t))
	svc := newService(s, newClock())
	m := mustEnqueue(t, svc, "q", "1")
	for range readers {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach its caller")
				}
			}()
			_ = s.read(t.Context(), func(c *conn) error {
				c.prepare(selectWithPayload + byID).text("q").text(m.ID).next()
				panic("in the middle of a query")
			})
		}()
	}
	for range 2 * readers {
		if _, _, err := svc.Get(t.Context(), "q", m.ID); err != nil {
			t.Errorf("Get: %v", err)
		}
	}
}

// What the store remembers to be in the file must not outlive the transaction
// that put it there.
func TestAQueueIsMadeAgainAfterItsTransactionWasUndone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, newPath(t))
		c := newClock()
		undone := s.write(t.Context(), func(conn *conn) error {
			if err := s.useQueue(conn, "q", c.now()); err != nil {
				return err
			}
			return conn.exec(`INSERT INTO nowhere VALUES (1)`)
		})
		saying(t, undone, "nowhere")
		mustEnqueue(t, newService(s, c), "q", "1")
		if _, err := s.Queue(t.Context(), "q"); err != nil {
			t.Errorf("Queue: %v", err)
		}
		if marks, err := s.InUse(t.Context(), "", 10); err != nil || len(marks) != 1 {
			t.Errorf("InUse = %v, %v, want the queue", marks, err)
		}
	})
}

func TestACancelledCallHasNoEffect(t *testing.T) {
	t.Parallel()
	enqueue := func(ctx context.Context, s *Store, id string) error {
		_, _, err := s.Enqueue(ctx, message.Message{ID: id, Queue: "q", Status: message.Pending})
		return err
	}
	check := func(t *testing.T, s *Store, err error) {
		t.Helper()
		unavailableSaying(t, err, "waiting for a turn")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v does not tell that the context was cancelled", err)
		}
		if n := number(t, s, `SELECT count(*) FROM message`); n != 0 {
			t.Errorf("%d messages were stored", n)
		}
	}
	t.Run("before it began", func(t *testing.T) {
		t.Parallel()
		s := mustOpen(t, newPath(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 20 { // select chooses at random
			check(t, s, enqueue(ctx, s, strconv.Itoa(i)))
		}
	})
	t.Run("while it waits for the writer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := mustOpen(t, newPath(t))
			release := holdWriter(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error, 1)
			go func() { result <- enqueue(ctx, s, "a") }()
			synctest.Wait()
			cancel()
			err := <-result // though the writer is still held
			release()
			check(t, s, err)
		})
	})
	t.Run("while another of the same transaction runs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := mustOpen(t, newPath(t))
			release := holdWriter(t, s)
			running, end := make(chan struct{}), make(chan struct{})
			first, second := make(chan error, 1), make(chan error, 1)
			go func() {
				first <- s.write(t.Context(), func(*conn) error { close(running); <-end; return nil })
			}()
			synctest.Wait() // it is the first to wait
			ctx, cancel := context.WithCancel(t.Context())
			go func() { second <- enqueue(ctx, s, "a") }()
			synctest.Wait()
			release()
			<-running
			synctest.Wait() // the second has been taken into the transaction of the first
			cancel()
			synctest.Wait()
			if len(second) > 0 {
				t.Error("a write that has been taken was answered before its transaction ended")
			}
			close(end)
			if err := <-first; err != nil {
				t.Error(err)
			}
			check(t, s, <-second)
		})
	})
	t.Run("while all readers are busy", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := mustOpen(t, newPath(t))
			end := make(chan struct{})
			results := make(chan error, readers)
			for range readers {
				go func() { results <- s.read(t.Context(), func(*conn) error { <-end; return nil }) }()
			}
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			ping := make(chan error, 1)
			go func() {
				_, err := s.Queue(ctx, "q")
				ping <- err
			}()
			synctest.Wait()
			cancel()
			check(t, s, <-ping)
			close(end)
			for range readers {
				if err := <-results; err != nil {
					t.Error(err)
				}
			}
		})
	})
}

func TestCloseLetsWhatIsUnderWayFinish(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*Store, context.Context, func(*conn) error) error{
		"a write": (*Store).write, "a read": (*Store).read,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := mustOpen(t, newPath(t))
				mustEnqueue(t, newService(s, newClock()), "q", "1")
				running, end := make(chan struct{}), make(chan struct{})
				result, closed := make(chan error, 1), make(chan error, 1)
				found := 0
				go func() {
					result <- call(s, t.Context(), func(c *conn) (err error) {
						close(running)
						<-end
						found, err = c.prepare(`SELECT count(*) FROM message`).one()
						return err
					})
				}()
				<-running
				go func() { closed <- s.Close() }()
				synctest.Wait()
				if len(closed) > 0 {
					t.Error("Close did not wait")
				}
				close(end)
				if err := <-result; err != nil || found != 1 {
					t.Errorf("the call under way: %v, found %d messages, want 1", err, found)
				}
				if err := <-closed; err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
	t.Run("but turns away those that still wait", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			path := newPath(t)
			s := mustOpen(t, path)
			release := holdWriter(t, s)
			results, closed := make(chan error, 10), make(chan error, 1)
			for range cap(results) {
				go func() {
					_, _, err := newService(s, newClock()).Enqueue(t.Context(), "q", message.Draft{})
					results <- err
				}()
			}
			synctest.Wait()
			go func() { closed <- s.Close() }()
			for range cap(results) { // though the writer is still held
				err := <-results
				unavailableSaying(t, err, "the store is closed")
			}
			release()
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
			}
			if n := number(t, mustOpen(t, path), `SELECT count(*) FROM message`); n != 0 {
				t.Errorf("%d messages were stored", n)
			}
		})
	})
}

func TestCallsAfterCloseAreUnavailable(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"in a file": newPath(t), "in memory": InMemory} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mustOpen(t, path)
			mustClose(t, s)
			svc := newService(s, newClock())
			ctx := t.Context()
			for call, do := range map[string]func() error{
				"Enqueue": func() error { _, _, err := s.Enqueue(ctx, message.Message{}); return err },
				"Get":     func() error { _, _, err := s.Get(ctx, "q", "a"); return err },
				"List":    func() error { _, _, err := s.List(ctx, message.ListQuery{}); return err },
				"Claim": func() error {
					_, err := s.Claim(ctx, "q", 1, func() message.Claim { return message.Claim{} })
					return err
				},
				"Apply":         func() error { _, err := s.Apply(ctx, "q", "a", message.Release{}); return err },
				"Delete":        func() error { return s.Delete(ctx, "q", "a", time.Time{}) },
				"RemoveExpired": func() error { _, err := s.RemoveExpired(ctx, time.Time{}, 1); return err },
				"Queue":         func() error { _, err := s.Queue(ctx, "q"); return err },
				"PutQueue":      func() error { _, _, err := s.PutQueue(ctx, message.Queue{}); return err },
				"DeleteQueue":   func() error { return s.DeleteQueue(ctx, "q", time.Time{}) },
				"ListQueues":    func() error { _, err := s.ListQueues(ctx, "", "", 1); return err },
				"Count":         func() error { _, err := s.Count(ctx, "q", time.Time{}); return err },
				"InUse":         func() error { _, err := s.InUse(ctx, "", 1); return err },
				"Lapsed":        func() error { _, err := s.Lapsed(ctx, "q", time.Time{}, nil, 1); return err },
				"Unmark":        func() error { return s.Unmark(ctx, message.Mark{}) },
				"Check":         func() error { return s.Check(ctx) },
				"Sweep":         func() error { _, err := svc.Sweep(ctx, message.SweepOptions{}); return err },
			} {
				if err := do(); !errors.Is(err, message.ErrUnavailable) {
					t.Errorf("%s: %v, want ErrUnavailable", call, err)
				}
			}
		})
	}
}
