package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testDelays has when a message is due, and in which order messages come.
func testDelays(t *testing.T, open Open) {
	runRows(t, open, []row{
		{"S034 messages come by due time to the millisecond", func(t *testing.T, f *fixture) {
			// In the order of their ids they would come the other way round.
			for _, delay := range []time.Duration{5150 * ms, 5100 * ms, 5001 * ms, 5000 * ms} {
				f.send(t, emails, message.Draft{Payload: delay.String(), Delay: &delay})
			}
			f.at(6 * time.Second)
			var got []string
			for range 4 {
				got = append(got, f.claim(t).Payload)
			}
			wantSame(t, "the order", got, []string{"5s", "5.001s", "5.1s", "5.15s"})
		}},
		{"messages enqueued in one millisecond come in the order of their sending", func(t *testing.T, f *fixture) {
			want := numbered("p", 60)
			for _, payload := range want {
				f.enqueue(t, payload)
			}
			var got []string
			for len(got) < 20 {
				got = append(got, f.claim(t).Payload)
			}
			for len(got) < len(want) {
				got = append(got, payloads(f.claimN(t, emails, 10))...)
			}
			wantSame(t, "the order", got, want)
			f.claimNone(t)
		}},
		{
			"S057 a message whose time passed while nothing ran is handed out at the first claim",
			func(t *testing.T, f *fixture) {
				m := f.enqueue(t, "p")
				f.fail(t, f.claim(t), "x")
				f.at(2 * time.Hour)
				held := f.claim(t)
				if held.ID != m.ID || held.ClaimCount != 2 || held.RetryCount != 1 {
					t.Errorf("Claim = %+v, want hand-out 2 after 1 failure", held)
				}
				f.claimNone(t)
			},
		},
		{"identifiers ascend though the clock was read before another's turn", func(t *testing.T, f *fixture) {
			last := ""
			for _, at := range []time.Duration{ms, 0, ms, 2 * ms, ms} {
				f.at(at)
				if m := f.enqueue(t, "p"); m.ID <= last {
					t.Errorf("Enqueue at %v = %s, want it after %s", at, m.ID, last)
				} else {
					last = m.ID
				}
			}
		}},
		{"S058 a message that waits long does not block those behind it", func(t *testing.T, f *fixture) {
			for _, delay := range []time.Duration{180 * time.Second, 3600 * time.Second, 1800 * time.Second} {
				f.send(t, emails, message.Draft{Payload: delay.String(), Delay: &delay})
			}
			for _, tt := range []struct {
				at   time.Duration
				want []string
			}{
				{180*time.Second - ms, []string{}},
				{180 * time.Second, []string{"3m0s"}},
				{1800*time.Second - ms, []string{}},
				{1800 * time.Second, []string{"30m0s"}},
				{3600 * time.Second, []string{"1h0m0s"}},
			} {
				f.at(tt.at)
				got := f.claimN(t, emails, 10)
				wantSame(t, "what is claimed", payloads(got), tt.want)
				for _, m := range got {
					f.succeed(t, m)
				}
			}
		}},
		{"a delayed message is due to the millisecond", func(t *testing.T, f *fixture) {
			for _, delay := range []time.Duration{ms, 999 * ms, 86_400_001 * ms, message.MaxDelay} {
				f.at(0)
				m := f.send(t, emails, message.Draft{Delay: &delay})
				if !m.Due.Equal(T(delay)) {
					t.Errorf("Enqueue(delay %v) = due %v, want %v", delay, m.Due, T(delay))
				}
				f.at(delay - ms)
				f.claimNone(t)
				f.at(delay)
				f.succeed(t, f.claim(t))
			}
		}},
		{"a fraction of a millisecond does not count", func(t *testing.T, f *fixture) {
			f.clock.set(T(ms - time.Nanosecond))
			m := f.enqueue(t, "p")
			if !m.CreatedAt.Equal(epoch) || !m.Due.Equal(epoch) {
				t.Errorf("Enqueue at %v = created %v, due %v, want %v", f.clock.Now(), m.CreatedAt, m.Due, epoch)
			}
			wantSame(t, "what is stored", f.get(t, m).Message, m)
		}},
		{"S111 times come back to the millisecond", func(t *testing.T, f *fixture) {
			for _, nanos := range []int64{1_556_893_286_484_340_854, 1_767_225_600_123_456_789, 4_102_444_799_999_000_000} {
				f.clock.set(time.Unix(0, nanos))
				m := f.send(t, emails, message.Draft{Delay: new(ms)})
				want := nanos / 1_000_000
				got := f.get(t, m).Message
				if got.CreatedAt.UnixMilli() != want || got.Due.UnixMilli() != want+1 || got.CreatedAt.Location() != time.UTC {
					t.Errorf("stored %v, due %v, want %d ms since 1970 in UTC", got.CreatedAt, got.Due, want)
				}
			}
		}},
		{"S113 what was written is read at once", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			read := func(want message.Status) {
				t.Helper()
				got, _, err := f.Get(t.Context(), emails, m.ID) // no time to settle
				if err != nil || got.Status != want {
					t.Errorf("Get = %s, %v, want %s", got.Status, err, want)
				}
			}
			read(message.Pending)
			held := f.claim(t)
			read(message.Processing)
			f.succeed(t, held)
			read(message.Succeeded)
			f.succeed(t, held)
			read(message.Succeeded)
		}},
		{"a retried message takes its place by its due time", func(t *testing.T, f *fixture) {
			f.enqueue(t, "retried")
			f.fail(t, f.claim(t), "x") // due at 2.001 s
			f.at(2 * time.Second)
			f.enqueue(t, "before")
			f.at(2*time.Second + 2*ms)
			f.enqueue(t, "after")
			f.at(3 * time.Second)
			wantSame(t, "the order", payloads(f.claimN(t, emails, 10)), []string{"before", "retried", "after"})
		}},
		{"messages due together come by id", func(t *testing.T, f *fixture) {
			var want []string
			for i := range 20 { // keyed ids are in no order
				want = append(want, f.send(t, emails, message.Draft{Key: numbered("k", 20)[i]}).ID)
			}
			slices.Sort(want)
			got := ids(f.claimN(t, emails, 7))
			got = append(got, ids(f.claimN(t, emails, 10))...)
			got = append(got, ids(f.claimN(t, emails, 10))...)
			wantSame(t, "the order", got, want)
		}},
	})
}
