package sqlite

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// briefly is how long settled messages are kept here: 86.4 s, the shortest time
// that a queue may set.
const briefly = 0.001

// putBrief creates the queue with short retentions.
func putBrief(tb testing.TB, svc *message.Service, queue string) {
	tb.Helper()
	set := message.DefaultSettings()
	set.SucceededDays = briefly
	set.DeadDays = new(0.01) // 864 s
	if _, _, err := svc.PutQueue(tb.Context(), queue, set); err != nil {
		tb.Fatal(err)
	}
}

// settle enqueues a message, fails it once and lets it end as the verb says.
func settle(tb testing.TB, svc *message.Service, c *clock, queue, verb string) message.Message {
	tb.Helper()
	mustEnqueue(tb, svc, queue, verb)
	if err := answer(tb.Context(), svc, "fail", mustClaim(tb, svc, queue)); err != nil {
		tb.Fatal(err)
	}
	c.advance(3 * time.Second)
	m := mustClaim(tb, svc, queue)
	if err := answer(tb.Context(), svc, verb, m); err != nil {
		tb.Fatal(err)
	}
	return m
}

func rows(tb testing.TB, s *Store) string {
	tb.Helper()
	var counts []string
	for _, table := range []string{"message", "payload", "attempt"} {
		counts = append(counts, fmt.Sprintf("%d %s", number(tb, s, `SELECT count(*) FROM `+table), table))
	}
	return strings.Join(counts, ", ")
}

func TestRemoveExpired(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, c := mustOpen(t, newPath(t)), newClock()
	svc := newService(s, c)
	putBrief(t, svc, "q")
	var succeeded, dead []message.Message
	for range 7 {
		succeeded = append(succeeded, settle(t, svc, c, "q", "succeed"))
	}
	for range 3 {
		dead = append(dead, settle(t, svc, c, "q", "reject"))
	}
	mustEnqueue(t, svc, "q", "claimed")
	claimed := mustClaim(t, svc, "q")
	pending := mustEnqueue(t, svc, "q", "pending")
	remove := func(limit, want int, left string) {
		t.Helper()
		if n, err := s.RemoveExpired(ctx, c.now(), limit); n != want || err != nil {
			t.Errorf("RemoveExpired = %d, %v, want %d", n, err, want)
		}
		if got := rows(t, s); got != left { //nolint:contextcheck // its own is the test's, too
			t.Errorf("left are %s, want %s", got, left)
		}
	}

	remove(100, 0, "12 message, 12 payload, 13 attempt") // nothing is past its retention

	last, _, err := s.Get(ctx, "q", succeeded[6].ID)
	if err != nil {
		t.Fatal(err)
	}
	c.millis.Store(last.ExpiresAt.UnixMilli() - 1)
	remove(100, 6, "6 message, 6 payload, 7 attempt") // 1 ms short for the last
	c.millis.Store(last.ExpiresAt.UnixMilli())
	remove(100, 1, "5 message, 5 payload, 6 attempt") // reached

	c.advance(time.Hour)
	remove(2, 2, "3 message, 3 payload, 2 attempt") // no more than was said
	remove(2, 1, "2 message, 2 payload, 0 attempt")
	remove(2, 0, "2 message, 2 payload, 0 attempt") // those that are not settled stay
	for _, m := range append(succeeded, dead...) {
		if _, _, err := s.Get(ctx, "q", m.ID); !errors.Is(err, message.ErrNotFound) {
			t.Errorf("Get of a removed message: %v, want ErrNotFound", err)
		}
	}
	for _, m := range []message.Message{claimed, pending} {
		if _, _, err := s.Get(ctx, "q", m.ID); err != nil {
			t.Errorf("Get of an unsettled message: %v", err)
		}
	}
}

func TestARepeatedKeyMakesANewMessageAfterExpiry(t *testing.T) {
	t.Parallel()
	s, c := mustOpen(t, newPath(t)), newClock()
	svc := newService(s, c)
	putBrief(t, svc, "q")
	enqueue := func(payload string, wantCreated bool) message.Message {
		t.Helper()
		m, created, err := svc.Enqueue(t.Context(), "q", message.Draft{Payload: payload, Key: "k"})
		if err != nil || created != wantCreated {
			t.Fatalf("Enqueue = created %t, %v, want %t", created, err, wantCreated)
		}
		return m
	}
	first := enqueue("first", true)
	m := mustClaim(t, svc, "q")
	f := message.Failure{Receipt: &m.Receipt, Error: "no", Permanent: true}
	if _, err := svc.Fail(t.Context(), "q", m.ID, f); err != nil {
		t.Fatal(err)
	}
	enqueue("first", false)
	c.advance(time.Hour) // past its retention, but still stored
	second := enqueue("second", true)
	if second.ID != first.ID {
		t.Errorf("the key gave %s, then %s", first.ID, second.ID)
	}
	if got, want := rows(t, s), "1 message, 1 payload, 0 attempt"; got != want {
		t.Errorf("stored are %s, want %s", got, want)
	}
	got, attempts, err := svc.Get(t.Context(), "q", second.ID)
	if err != nil || got.Payload != "second" || got.Status != message.Pending || len(attempts) != 0 {
		t.Errorf("Get = %+v, %v, %v", got, attempts, err)
	}
	if n, err := s.RemoveExpired(t.Context(), c.now(), 10); n != 0 || err != nil {
		t.Errorf("RemoveExpired = %d, %v, want 0", n, err)
	}
}

// Under steady load the file finds a size, and so does its log.
func TestTheFileDoesNotGrowForEver(t *testing.T) {
	t.Parallel()
	const cycles, each, warm = 30, 10, 10
	path := newPath(t)
	s, c := mustOpen(t, path), newClock()
	svc := newService(s, c)
	putBrief(t, svc, "q")
	payload := strings.Repeat("x", 100_000)
	commits := countCommits(t, s)
	pages, removed, longest := 0, 0, int64(0)
	for cycle := range cycles {
		done := make(chan error, each)
		for i := range each {
			go func() {
				_, _, err := svc.Enqueue(t.Context(), "q", message.Draft{Payload: payload[i*1000:]})
				done <- err
			}()
		}
		for range each {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		for i := range each {
			m := mustClaim(t, svc, "q")
			if err := answer(t.Context(), svc, []string{"succeed", "reject"}[i%2], m); err != nil {
				t.Fatal(err)
			}
		}
		c.advance(864*time.Second + time.Second) // past both retentions
		for {
			n, err := s.RemoveExpired(t.Context(), c.now(), 4)
			if err != nil {
				t.Fatal(err)
			}
			if removed += n; n == 0 {
				break
			}
		}
		switch n := number(t, s, `PRAGMA page_count`); {
		case cycle < warm:
			pages = max(pages, n)
		case n > pages+pages/10: // concurrent writes come in another order each time
			t.Errorf("cycle %d: the file has %d pages, had at most %d", cycle, n, pages)
		}
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, info.Size())
	}
	t.Logf("%d pages, the log at most %d bytes, %d commits", pages, longest, commits.Load())
	if removed != cycles*each {
		t.Errorf("%d messages were removed, want %d", removed, cycles*each)
	}
	if got, want := rows(t, s), "0 message, 0 payload, 0 attempt"; got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
	// A checkpoint at 16 MB, and what the transaction that reaches it adds.
	if limit := int64(16<<20 + 2*each*len(payload)); longest > limit || longest < 16<<20 {
		t.Errorf("the log grew to %d bytes, want between 16 MB, for this test to be of use, and %d", longest, limit)
	}
	c.advance(time.Hour)
	if _, err := svc.Sweep(t.Context(), message.SweepOptions{Count: true}); err != nil {
		t.Fatal(err)
	}
	if n := number(t, s, `SELECT count(*) FROM mark`); n != 0 {
		t.Errorf("%d queues are still marked", n)
	}
	mustClose(t, s)
	if _, err := os.Stat(path + "-wal"); err == nil {
		t.Error("Close left the log behind")
	}
}
