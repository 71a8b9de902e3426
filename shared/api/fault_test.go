package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// faulty is a store with a fault, as long as one is set.
type faulty struct {
	store
	mu    sync.Mutex
	fault func() error
}

func (s *faulty) set(fault func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *faulty) err() error {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault()
}

func (s *faulty) Enqueue(ctx context.Context, m message.Message) (message.Message, bool, error) {
	if err := s.err(); err != nil {
		return message.Message{}, false, err
	}
	return s.store.Enqueue(ctx, m)
}

func (s *faulty) Get(ctx context.Context, queue, id string) (message.Message, []message.Attempt, error) {
	if err := s.err(); err != nil {
		return message.Message{}, nil, err
	}
	return s.store.Get(ctx, queue, id)
}

func (s *faulty) List(ctx context.Context, q message.ListQuery) ([]message.Message, bool, error) {
	if err := s.err(); err != nil {
		return nil, false, err
	}
	return s.store.List(ctx, q)
}

func (s *faulty) Claim(
	ctx context.Context, queue string, limit int, next func() message.Claim,
) ([]message.Message, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.store.Claim(ctx, queue, limit, next)
}

func (s *faulty) Apply(ctx context.Context, queue, id string, tr message.Transition) (message.Message, error) {
	if err := s.err(); err != nil {
		return message.Message{}, err
	}
	return s.store.Apply(ctx, queue, id, tr)
}

func (s *faulty) Delete(ctx context.Context, queue, id string, at time.Time) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.store.Delete(ctx, queue, id, at)
}

func (s *faulty) Queue(ctx context.Context, name string) (message.Queue, error) {
	if err := s.err(); err != nil {
		return message.Queue{}, err
	}
	return s.store.Queue(ctx, name)
}

func (s *faulty) PutQueue(ctx context.Context, q message.Queue) (message.Queue, bool, error) {
	if err := s.err(); err != nil {
		return message.Queue{}, false, err
	}
	return s.store.PutQueue(ctx, q)
}

func (s *faulty) DeleteQueue(ctx context.Context, name string, now time.Time) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.store.DeleteQueue(ctx, name, now)
}

func (s *faulty) ListQueues(ctx context.Context, prefix, after string, limit int) ([]message.Queue, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.store.ListQueues(ctx, prefix, after, limit)
}

// noMessage returns nil, in a way that no tool sees through.
func noMessage() (m *message.Message) { return m }

func newFaultyFixture(t *testing.T) (*fixture, *faulty) {
	t.Helper()
	inner, err := sqlite.Open(sqlite.InMemory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inner.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	s := &faulty{store: inner}
	return fixtureOn(s), s
}

// TestFaultOfTheStore asks for every route while the store fails in every way.
// S008 of CASES.md.
func TestFaultOfTheStore(t *testing.T) {
	t.Parallel()
	const internals = "dial tcp 10.0.0.7:443: secret-table-name"
	internal := document{Type: "about:blank", Title: "Internal Server Error", Status: 500}
	for _, tt := range []struct {
		name   string
		fault  func() error
		status int
		logged string
	}{
		{"it is throttled", func() error { return fmt.Errorf("%s: %w", internals, message.ErrUnavailable) }, 503, internals},
		{
			"it cannot be reached, and says so twice",
			func() error { return errors.Join(errors.New(internals), message.ErrUnavailable) }, 503, "secret-table-name",
		},
		{"it returns an error that nobody knows", func() error { return errors.New(internals) }, 500, internals},
		{
			"it returns a cancelled context", func() error { return fmt.Errorf("%s: %w", internals, context.Canceled) },
			500, internals,
		},
		{"it panics with an error", func() error { panic(errors.New(internals)) }, 500, internals},
		{"it panics with a text", func() error { panic(internals) }, 500, internals},
		{
			"it reads through a nil pointer",
			func() error { return errors.New(noMessage().ID) }, 500, "nil pointer dereference",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, s := newFaultyFixture(t)
			all := append(targets(t, f),
				target{"list", "GET", emailsMessages, "", true}, target{"list queues", "GET", "/queues", "", true},
				target{"get", "GET", f.pending(t).path(), "", true}, target{"get queue", "GET", "/queues/emails", "", true})
			for _, to := range all {
				before := f.stored(t)
				f.log.take()
				s.set(tt.fault)
				a := f.do(t, to.method, to.path, to.body)
				s.set(nil)
				f.unchanged(t, before)
				if tt.status == 503 {
					if a.refused(t, 503, "unavailable"); a.header["retry-after"] != "1" {
						t.Errorf("%s: retry-after = %q, want 1", to.verb, a.header["retry-after"])
					}
				} else {
					var got document
					if a.into(t, 500, &got); !cmp.Equal(internal, got) {
						t.Errorf("%s: problem = %+v, want %+v", to.verb, got, internal)
					}
				}
				for _, secret := range []string{"10.0.0.7", "secret-table-name", "goroutine", ".go:", "nil pointer", "panic"} {
					if strings.Contains(a.body, secret) {
						t.Errorf("%s: the body shows %q: %s", to.verb, secret, a.body)
					}
				}
				line := f.log.take()
				for _, want := range []string{
					tt.logged, `"level":"ERROR"`, `"request_id":"JKJaXmPLvHcESHA="`,
					fmt.Sprintf(`"status":%d`, tt.status),
				} {
					if !strings.Contains(line, want) {
						t.Errorf("%s: the log has no %q: %s", to.verb, want, line)
					}
				}
				// The store is well again, and so is the handler.
				f.do(t, to.method, to.path, to.body).refusedNot(t)
			}
		})
	}
}

func TestClosedStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(sqlite.InMemory)
	if err != nil {
		t.Fatal(err)
	}
	f := fixtureOn(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f.do(t, "POST", emailsMessages, `{"payload":"x"}`).refused(t, 503, "unavailable")
	f.do(t, "GET", "/queues", "").refused(t, 503, "unavailable")
}

// TestWhatIsWrongWithARequestIsToldBeforeTheStoreIsAsked: none of these needs the
// store.
func TestWhatIsWrongWithARequestIsToldBeforeTheStoreIsAsked(t *testing.T) {
	t.Parallel()
	f, s := newFaultyFixture(t)
	s.set(func() error { panic("the store was asked") })
	f.do(t, "POST", emailsMessages, `{"payload":1}`).
		refused(t, 422, "validation-failed", invalidIn("payload", "must be a string.")...)
	f.do(t, "POST", emailsMessages, body("payload", strings.Repeat("a", 262_145))).refused(t, 413, "payload-too-large")
	f.do(t, "POST", emailsMessages, `{`).refused(t, 400, "malformed-body")
	f.do(t, "POST", emailsMessages, `{"payload":""}`, key("a,b")).refused(t, 400, "bad-request")
	f.do(t, "GET", emailsMessages+"?cursor=x", "").refused(t, 400, "bad-request")
	f.do(t, "GET", "/queues/emails/messages/x", "").refused(t, 404, "not-found")
	f.do(t, "GET", "/queues/..", "").refused(t, 400, "bad-request")
}
