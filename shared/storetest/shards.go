package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testShards lets a queue grow while it is full. A message is found where it
// was put.
func testShards(t *testing.T, open Open) {
	grow := func(t *testing.T, f *fixture, shards int) {
		t.Helper()
		f.put(t, emails, func(set *message.Settings) { set.Shards = &shards })
	}
	// fill puts 20 messages into each number of shards and claims 5 of them.
	fill := func(t *testing.T, f *fixture) (sent []string, held []message.Message) {
		t.Helper()
		stale := f.instance(t) // never hears of a change within the test
		for _, shards := range []int{1, 8, 64} {
			grow(t, f, shards)
			for i := range 20 {
				svc := f.Service
				if i%4 == 0 {
					svc = stale
				}
				m, _, err := svc.Enqueue(t.Context(), emails, message.Draft{Payload: fmt.Sprint(shards, i)})
				wantError(t, "Enqueue", err, nil)
				sent = append(sent, m.ID)
			}
			held = append(held, f.claimN(t, emails, 5)...)
		}
		if len(held) == 0 {
			t.Fatal("Claim handed nothing out of 60 messages")
		}
		return sent, held
	}
	// drain claims until nothing has come for a while.
	drain := func(t *testing.T, f *fixture) []message.Message {
		t.Helper()
		var all []message.Message
		for empty := 0; empty < 5; {
			got := f.claimWith(t, emails, message.ClaimOptions{
				Max: new(message.MaxClaim), Timeout: new(message.MaxTimeout),
			})
			all = append(all, got...)
			if len(got) == 0 {
				empty++
				f.clock.set(f.clock.Now().Add(time.Second))
			}
		}
		return all
	}
	runRows(t, open, []row{
		{"every message is handed out once while the shards grow", func(t *testing.T, f *fixture) {
			sent, held := fill(t, f)
			all := append(slices.Clone(held), drain(t, f)...)
			got := ids(all)
			slices.Sort(got)
			slices.Sort(sent)
			wantSame(t, "what was handed out", got, sent)
			for _, m := range all {
				if m.ClaimCount != 1 {
					t.Errorf("%s was handed out %d times", m.ID, m.ClaimCount)
				}
				f.succeed(t, m)
			}
			wantSame(t, "the count", f.count(t, emails), [4]int{0, 0, 0, 60})
		}},
		{"every verb finds its message while the shards grow", func(t *testing.T, f *fixture) {
			_, held := fill(t, f)
			want := make(map[string]message.Status)
			for i, m := range held {
				f.clock.set(f.clock.Now().Add(ms))
				var got message.Message
				switch i % 5 {
				case 0:
					got = f.succeed(t, m)
				case 1:
					got = f.fail(t, m, "x")
				case 2:
					got = f.release(t, m)
				case 3:
					got = f.extend(t, m, time.Hour)
				default:
					got = f.replay(t, f.reject(t, m, "x"))
				}
				want[m.ID] = got.Status
			}
			for _, m := range held {
				f.wantStatus(t, m, want[m.ID])
			}
			before := f.count(t, emails)
			wantError(t, "DeleteQueue", f.DeleteQueue(t.Context(), emails), message.ErrQueueNotEmpty)
			deleted := 0
			for _, m := range f.list(t, message.List{Queue: emails, Status: message.Pending}) {
				wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)
				deleted++
			}
			wantSame(t, "the number of pending messages", deleted, before[0])
			wantSame(t, "the count", f.count(t, emails), [4]int{0, before[1], before[2], before[3]})
		}},
		{"every message is listed and counted once while the shards grow", func(t *testing.T, f *fixture) {
			sent, held := fill(t, f)
			slices.Sort(sent)
			for _, limit := range []int{7, 60, 250} {
				for _, descending := range []bool{false, true} {
					all := f.list(t, message.List{Queue: emails, Limit: limit, Descending: descending})
					got := ids(all)
					slices.Sort(got)
					wantSame(t, fmt.Sprintf("the list by %d", limit), got, sent)
				}
			}
			pending := f.list(t, message.List{Queue: emails, Status: message.Pending, Limit: 9})
			if !slices.IsSortedFunc(pending, byPlace) {
				t.Error("the list of pending messages is out of order")
			}
			wantSame(t, "the count", f.count(t, emails), [4]int{60 - len(held), len(held)})
		}},
		{"every lapsed lease is swept while the shards grow", func(t *testing.T, f *fixture) {
			_, held := fill(t, f)
			grow(t, f, 64)
			f.at(32 * time.Second)
			f.sweep(t, len(held), 0)
			f.sweep(t, 0, 0)
			wantSame(t, "the count", f.count(t, emails), [4]int{60})
			for _, m := range held {
				f.wantStatus(t, m, message.Pending)
			}
		}},
		{"a dead message of few shards is replayed into many", func(t *testing.T, f *fixture) {
			f.enqueue(t, "p")
			m := f.reject(t, f.claim(t), "x")
			grow(t, f, 64)
			f.at(time.Minute)
			f.replay(t, m)
			f.wantStatus(t, m, message.Pending)
			all := drain(t, f)
			wantSame(t, "what is handed out", ids(all), []string{m.ID})
		}},
		{"a keyed message is found under its key after the shards grew", func(t *testing.T, f *fixture) {
			d := message.Draft{Payload: "p", Key: "k"}
			m := f.send(t, emails, d)
			grow(t, f, 64)
			got, created, err := f.Enqueue(t.Context(), emails, d)
			if err != nil || created || got.ID != m.ID {
				t.Errorf("Enqueue again = %s, created %v, %v, want %s", got.ID, created, err, m.ID)
			}
			wantSame(t, "the count", f.count(t, emails), [4]int{1})
		}},
	})
}
