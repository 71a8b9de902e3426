package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testCounts has how many messages a queue holds, and how old they are.
func testCounts(t *testing.T, open Open) {
	runRows(t, open, []row{
		{"a queue counts its own messages by state", func(t *testing.T, f *fixture) {
			f.stock(t, emails)
			f.stock(t, "emails2")
			f.send(t, emails, message.Draft{Delay: new(time.Hour)})
			wantSame(t, "the count", f.count(t, emails), [4]int{9, 4, 4, 4})
			wantSame(t, "the count of the other", f.count(t, "emails2"), [4]int{8, 4, 4, 4})
			wantSame(t, "the count of none", f.count(t, "nobody's"), [4]int{})
		}},
		{"the oldest pending message is the one longest due, not one to come", func(t *testing.T, f *fixture) {
			oldest := func(want time.Time) {
				t.Helper()
				f.settle()
				q, err := f.Queue(t.Context(), emails)
				if err != nil || !q.Counts.OldestPending.Equal(want) {
					t.Errorf("oldest pending = %v, %v, want %v", q.Counts.OldestPending, err, want)
				}
			}
			f.send(t, emails, message.Draft{Delay: new(time.Minute)})
			oldest(time.Time{})
			f.at(time.Minute - ms)
			oldest(time.Time{})
			f.at(time.Minute)
			oldest(T(time.Minute))
			f.enqueue(t, "later")
			f.at(2 * time.Minute)
			oldest(T(time.Minute))
			f.claim(t)
			f.at(3 * time.Minute)
			oldest(T(time.Minute)) // the second was due then too
			f.claim(t)
			oldest(time.Time{})
		}},
		{"the oldest dead message is the one that died first", func(t *testing.T, f *fixture) {
			oldest := func(want time.Time) {
				t.Helper()
				f.settle()
				q, err := f.Queue(t.Context(), emails)
				if err != nil || !q.Counts.OldestDead.Equal(want) {
					t.Errorf("oldest dead = %v, %v, want %v", q.Counts.OldestDead, err, want)
				}
			}
			f.enqueue(t, "a")
			f.enqueue(t, "b")
			oldest(time.Time{})
			held := f.claimN(t, emails, 2)
			f.at(time.Second)
			f.reject(t, held[1], "x")
			oldest(T(time.Second))
			f.at(2 * time.Second)
			f.reject(t, held[0], "x")
			oldest(T(time.Second))
			f.replay(t, held[1])
			oldest(T(2 * time.Second))
		}},
		{"counts are saved for the list of queues", func(t *testing.T, f *fixture) {
			f.stock(t, emails)
			f.put(t, "idle", func(*message.Settings) {})
			f.settle()
			page, _, err := f.ListQueues(t.Context(), "", "", 10)
			if err != nil || len(page) != 2 || page[0].Counts != nil || page[1].Counts != nil {
				t.Fatalf("ListQueues before a visit = %+v, %v, want two queues without counts", page, err)
			}
			f.at(2 * time.Minute)
			f.sweep(t, 4, 0) // a count does not show yet what the same sweep has done
			f.countAll(t)
			f.at(time.Hour)
			f.enqueue(t, "since then")
			page, _, err = f.ListQueues(t.Context(), "", "", 10)
			if err != nil || len(page) != 2 || page[0].Counts == nil {
				t.Fatalf("ListQueues = %+v, %v, want two queues, %s with counts", page, err, emails)
			}
			got := *page[0].Counts
			wantSame(t, "the counts", [4]int{
				got.Depth[message.Pending], got.Depth[message.Processing],
				got.Depth[message.Dead], got.Depth[message.Succeeded],
			}, [4]int{12, 0, 4, 4})
			wantSame(t, "the time of the counts", got.At, T(2*time.Minute))
			wantSame(t, "the oldest pending", got.OldestPending, T(time.Minute))
			wantSame(t, "the oldest dead", got.OldestDead, T(time.Second))
		}},
		{"the counts of a deleted queue are not those of the next one of its name", func(t *testing.T, f *fixture) {
			m := f.dead(t, emails)
			f.countAll(t)
			wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)
			wantError(t, "DeleteQueue", f.DeleteQueue(t.Context(), emails), nil)
			f.put(t, emails, func(*message.Settings) {})
			page, _, err := f.ListQueues(t.Context(), "", "", 10)
			if err != nil || len(page) != 1 || page[0].Counts != nil {
				t.Errorf("ListQueues = %+v, %v, want a queue without counts", page, err)
			}
		}},
		{"messages are counted to ten thousand, and more is said to be more", func(t *testing.T, f *fixture) {
			const workers = 50
			together(workers, func(i int) {
				for n := range message.CountLimit / workers {
					_, _, err := f.Enqueue(t.Context(), emails, message.Draft{Payload: fmt.Sprint(i, n)})
					wantError(t, "Enqueue", err, nil)
				}
			})
			for _, more := range []bool{false, true, true} {
				f.settle()
				got, err := f.store.Count(t.Context(), emails, f.clock.Now())
				if err != nil || got.Depth[message.Pending] != message.CountLimit || got.More[message.Pending] != more ||
					slices.Contains([]bool{
						got.More[message.Processing], got.More[message.Dead], got.More[message.Succeeded],
					}, true) {
					t.Errorf("Count = %+v, %v, want %d pending, more %v", got, err, message.CountLimit, more)
				}
				f.enqueue(t, "p")
			}
		}},
	})
}
