package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testMarks has which queues the sweeper visits.
func testMarks(t *testing.T, open Open) {
	for _, tt := range []struct {
		name  string
		stays bool
		make  func(*testing.T, *fixture)
	}{
		{"holds a pending message", true, func(t *testing.T, f *fixture) { f.enqueue(t, "p") }},
		{"holds a message to come", true, func(t *testing.T, f *fixture) {
			f.send(t, emails, message.Draft{Delay: new(message.MaxDelay)})
		}},
		{"holds a message that is processed", true, func(t *testing.T, f *fixture) { f.held(t, emails) }},
		{"holds a dead message", true, func(t *testing.T, f *fixture) { f.dead(t, emails) }},
		{"holds a replayed message", true, func(t *testing.T, f *fixture) { f.replay(t, f.dead(t, emails)) }},
		{"holds a succeeded message", false, func(t *testing.T, f *fixture) { f.succeed(t, f.held(t, emails)) }},
		{"holds no message", false, func(t *testing.T, f *fixture) {
			m := f.dead(t, emails)
			wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)
		}},
	} {
		t.Run("the mark of a queue that "+tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			f.send(t, "aaa", message.Draft{})
			f.send(t, "zzz", message.Draft{})
			tt.make(t, f)
			want := []string{"aaa", emails, "zzz"}
			if tt.stays {
				wantSame(t, "the queues in use", f.inUse(t, 100), want)
			}
			for _, mark := range f.marks(t, 100) {
				if mark.Queue != emails {
					continue
				}
				f.settle()
				wantError(t, "Unmark", f.store.Unmark(t.Context(), mark), nil)
			}
			if !tt.stays {
				want = []string{"aaa", "zzz"}
			}
			wantSame(t, "the queues in use after Unmark", f.inUse(t, 100), want)
		})
	}
	runRows(t, open, []row{
		{"a queue is marked again when it comes into use again", func(t *testing.T, f *fixture) {
			f.succeed(t, f.held(t, emails))
			f.settle()
			for _, mark := range f.marks(t, 100) {
				wantError(t, "Unmark", f.store.Unmark(t.Context(), mark), nil)
			}
			wantSame(t, "the queues in use", f.inUse(t, 100), nil)
			f.at(time.Hour)
			f.enqueue(t, "p")
			wantSame(t, "the queues in use then", f.inUse(t, 100), []string{emails})
		}},
		{"a mark stays that was read before the queue came into use", func(t *testing.T, f *fixture) {
			f.succeed(t, f.held(t, emails))
			marks := f.marks(t, 100)
			if len(marks) != 1 {
				t.Fatalf("InUse = %v, want one mark", marks)
			}
			f.at(time.Hour)
			f.enqueue(t, "p")
			f.settle()
			wantError(t, "Unmark", f.store.Unmark(t.Context(), marks[0]), nil)
			wantSame(t, "the queues in use", f.inUse(t, 100), []string{emails})
		}},
		{"a queue in use is found by a sweep after every mark was to be taken away", func(t *testing.T, f *fixture) {
			f.lapse(t, emails, 3)
			for range 2 {
				for _, mark := range f.marks(t, 100) {
					f.settle()
					wantError(t, "Unmark", f.store.Unmark(t.Context(), mark), nil)
				}
			}
			f.sweep(t, 3, 0)
		}},
		{"marks come by name and page by page", func(t *testing.T, f *fixture) {
			want := []string{"a", "ab", "b", "ä", "😀"}
			for _, queue := range []string{"ä", "b", "a", "😀", "ab"} {
				f.send(t, queue, message.Draft{})
			}
			for limit := 1; limit <= 6; limit++ {
				wantSame(t, "the queues in use", f.inUse(t, limit), want)
			}
		}},
		{"a queue that is only set is not in use", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(*message.Settings) {})
			wantSame(t, "the queues in use", f.inUse(t, 100), nil)
		}},
		{"counting takes the marks of queues away that have long been idle", func(t *testing.T, f *fixture) {
			f.succeed(t, f.held(t, "idle"))
			f.succeed(t, f.held(t, "idle2"))
			f.send(t, "waiting", message.Draft{})
			f.dead(t, "dead")
			all := []string{"dead", "idle", "idle2", "waiting"}
			f.at(9 * time.Minute)
			f.settle()
			f.countAll(t)
			wantSame(t, "the queues in use after 9 minutes", f.inUse(t, 100), all)
			f.at(20 * time.Minute)
			f.settle()
			f.countAll(t)
			wantSame(t, "the queues in use after 20 minutes", f.inUse(t, 100), []string{"dead", "waiting"})
		}},
		{"counting goes on behind the first page of marks", func(t *testing.T, f *fixture) {
			queues := numbered("queue-", 130)
			for _, queue := range queues {
				f.send(t, queue, message.Draft{})
			}
			f.settle()
			f.countAll(t)
			page, _, err := f.ListQueues(t.Context(), "", "", 200)
			wantError(t, "ListQueues", err, nil)
			counted := 0
			for _, q := range page {
				if q.Counts != nil && q.Counts.Depth[message.Pending] == 1 {
					counted++
				}
			}
			wantSame(t, "the number of queues counted", counted, 130)
		}},
	})
}

// marks returns all marks, read so many at a time.
func (f *fixture) marks(t *testing.T, limit int) []message.Mark {
	t.Helper()
	var all []message.Mark
	for after := ""; ; {
		page, err := f.store.InUse(t.Context(), after, limit)
		if err != nil || len(page) > limit {
			t.Fatalf("InUse = %d marks, %v, want at most %d", len(page), err, limit)
		}
		all = append(all, page...)
		if len(page) < limit {
			return all
		}
		after = page[limit-1].Queue
	}
}

// inUse returns the names of the queues that are marked.
func (f *fixture) inUse(t *testing.T, limit int) []string {
	t.Helper()
	var names []string
	for _, mark := range f.marks(t, limit) {
		names = append(names, mark.Queue)
	}
	if !slices.IsSorted(names) {
		t.Errorf("InUse = %q, want them by name", names)
	}
	return names
}
