package storetest

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

const day = 24 * time.Hour

// testExpiry has what becomes of settled messages.
func testExpiry(t *testing.T, open Open) {
	for _, tt := range []struct {
		name string
		days float64
		at   time.Duration
		want int64 // seconds since 1970
	}{
		{"S109 seven days", 7, 0, 1767830400},
		{"seven days and a millisecond", 7, ms, 1767830401},
		{"seven days and 999 ms", 7, 999 * ms, 1767830401},
		{"seven days and a second", 7, time.Second, 1767830401},
		{"the least, 86.4 s", 0.001, 0, 1767225600 + 87},
		{"the least, ending on a second", 0.001, 600 * ms, 1767225600 + 87},
		{"the least, ending behind a second", 0.001, 601 * ms, 1767225600 + 88},
		{"half a day", 0.5, 0, 1767225600 + 43200},
		{"the most", 365, 0, 1767225600 + 365*86400},
	} {
		t.Run("S110 nothing shows a succeeded message after "+tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			f.put(t, emails, func(set *message.Settings) { set.SucceededDays = tt.days })
			f.enqueue(t, "p")
			held := f.claim(t)
			f.at(tt.at)
			got := f.succeed(t, held)
			wantSame(t, "expires_at", got.ExpiresAt, time.Unix(tt.want, 0).UTC())
			f.wantExpiry(t, got)
		})
		if tt.days < 0.01 {
			continue
		}
		t.Run("S110 nothing shows a dead message after "+tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			f.put(t, emails, func(set *message.Settings) { set.DeadDays = &tt.days })
			f.at(-time.Second) // or the failure would be moved behind the claim
			f.enqueue(t, "p")
			held := f.claim(t)
			f.at(tt.at)
			got := f.reject(t, held, "x")
			wantSame(t, "expires_at", got.ExpiresAt, time.Unix(tt.want, 0).UTC())
			f.wantExpiry(t, got)
		})
	}
	runRows(t, open, []row{
		{"a dead message is kept for ever where the queue does not say how long", func(t *testing.T, f *fixture) {
			m := f.dead(t, emails)
			f.at(200 * 365 * day)
			f.wantStatus(t, m, message.Dead)
			f.replay(t, m)
			f.wantStatus(t, m, message.Pending)
		}},
		{"a dead message that stalled expires too", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.MaxStalls, set.DeadDays = 1, new(0.01) })
			m := f.held(t, emails)
			f.at(sweptAfter)
			f.sweep(t, 0, 1)
			m = f.get(t, m).Message
			wantSame(t, "expires_at", m.ExpiresAt, T(sweptAfter+864*time.Second))
			f.wantExpiry(t, m)
		}},
		{"a replayed message does not expire", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.DeadDays = new(1.0) })
			m := f.dead(t, emails)
			f.clock.set(m.ExpiresAt.Add(-ms))
			f.replay(t, m)
			f.clock.set(m.ExpiresAt.Add(day))
			f.wantStatus(t, m, message.Pending)
			f.succeed(t, f.claim(t))
		}},
		{"the retention is that of the queue when the message settles", func(t *testing.T, f *fixture) {
			a := f.held(t, emails)
			f.put(t, emails, func(set *message.Settings) { set.SucceededDays = 2 })
			a = f.succeed(t, a)
			f.put(t, emails, func(set *message.Settings) { set.SucceededDays = 1 })
			wantSame(t, "expires_at", f.get(t, a).Message.ExpiresAt, T(answeredAfter+2*day))
			f.clock.set(a.ExpiresAt.Add(-ms))
			f.wantStatus(t, a, message.Succeeded)
		}},
		{"messages that expired do not take the place of others on a page", func(t *testing.T, f *fixture) {
			var want []string
			for i := range 30 {
				f.at(0)
				f.enqueue(t, "p")
				held := f.claim(t)
				if i >= 20 {
					f.at(time.Hour)
				}
				m := f.succeed(t, held)
				if i >= 20 {
					want = append(want, m.ID)
				}
			}
			f.at(week)
			l := message.List{Queue: emails, Status: message.Succeeded}
			wantSame(t, "the list", ids(f.list(t, l)), want)
			l.Limit = 5
			f.wantPages(t, l, 5, 5)
			l.Descending = true
			f.wantPages(t, l, 5, 5)
			l.Status, l.Limit = "", 10
			f.wantPages(t, l, 10)
			wantSame(t, "the count", f.count(t, emails), [4]int{0, 0, 0, 10})
			wantError(t, "DeleteQueue", f.DeleteQueue(t.Context(), emails), message.ErrQueueNotEmpty)
			f.at(week + time.Hour)
			wantSame(t, "the list", ids(f.list(t, l)), []string{})
			wantError(t, "DeleteQueue", f.DeleteQueue(t.Context(), emails), nil)
		}},
		{"pending and processing messages do not expire", func(t *testing.T, f *fixture) {
			a := f.enqueue(t, "p")
			f.claim(t)
			b := f.enqueue(t, "p")
			f.at(100 * 365 * day)
			f.wantStatus(t, a, message.Processing)
			f.wantStatus(t, b, message.Pending)
			f.sweep(t, 1, 0)
			f.wantStatus(t, a, message.Pending)
		}},
	})
}

// wantExpiry checks that the message is there until its time, and from then on
// nowhere (S110), although it may still be stored.
func (f *fixture) wantExpiry(t *testing.T, m message.Message) {
	t.Helper()
	depth := map[message.Status][4]int{message.Dead: {0, 0, 1, 0}, message.Succeeded: {0, 0, 0, 1}}[m.Status]
	f.clock.set(m.ExpiresAt.Add(-ms))
	f.wantStatus(t, m, m.Status)
	wantSame(t, "the count before the expiry", f.count(t, m.Queue), depth)
	wantError(t, "DeleteQueue before the expiry", f.DeleteQueue(t.Context(), m.Queue), message.ErrQueueNotEmpty)

	f.clock.set(m.ExpiresAt)
	f.wantGone(t, m)
	if got := f.list(t, message.List{Queue: m.Queue, Status: m.Status}); len(got) > 0 {
		t.Errorf("List(%s) after the expiry = %v, want none", m.Status, ids(got))
	}
	wantSame(t, "the count after the expiry", f.count(t, m.Queue), [4]int{})
	counts, err := f.store.Count(t.Context(), m.Queue, f.clock.Now())
	if err != nil || !counts.OldestDead.IsZero() || !counts.OldestPending.IsZero() {
		t.Errorf("Count after the expiry = %+v, %v, want no oldest", counts, err)
	}
	for _, verb := range refusalVerbs() {
		_, err := f.do(t, m.Queue, m.ID, verb, m)
		wantError(t, string(verb)+" after the expiry", err, message.ErrNotFound)
	}
	f.sweep(t, 0, 0)
	f.clock.set(m.ExpiresAt.Add(-ms))
	f.wantStatus(t, m, m.Status) // nothing was changed
	f.clock.set(m.ExpiresAt.Add(day))
	f.wantGone(t, m)
}
