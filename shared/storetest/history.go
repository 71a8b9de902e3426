package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testHistory has the attempts that a message shows.
func testHistory(t *testing.T, open Open) {
	runRows(t, open, []row{
		{
			"the history keeps the newest 20 hand-outs, whose numbers ascend through replays",
			func(t *testing.T, f *fixture) {
				m := f.enqueue(t, "p")
				var want []message.Attempt
				for n := 1; n <= 45; n++ {
					f.at(time.Duration(n) * time.Minute)
					held := f.claim(t)
					f.at(time.Duration(n)*time.Minute + time.Second)
					f.replay(t, f.reject(t, held, fmt.Sprintf("error %d", n)))
					want = append(want, message.Attempt{
						Number: n, ClaimedAt: T(time.Duration(n) * time.Minute),
						EndedAt: T(time.Duration(n)*time.Minute + time.Second),
						Outcome: message.OutcomeRejected, Error: fmt.Sprintf("error %d", n),
					})
					want = want[max(len(want)-message.HistorySize, 0):]
					if n%9 == 1 || n > 19 && n < 23 || n == 45 {
						wantSame(t, fmt.Sprintf("the history after %d attempts", n), f.get(t, m).Attempts, want)
					}
				}
			},
		},
		{"releases leave gaps, and count among the 20", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			f.fail(t, f.claim(t), "first")
			f.at(time.Minute)
			f.release(t, f.claim(t))
			f.at(2 * time.Minute)
			f.fail(t, f.claim(t), "third")
			wantNumbers := func(want ...int) {
				t.Helper()
				numbers := []int{}
				for _, a := range f.get(t, m).Attempts {
					numbers = append(numbers, a.Number)
				}
				wantSame(t, "the numbers of the history", numbers, append([]int{}, want...))
			}
			wantNumbers(1, 3)
			for n := 4; n <= 23; n++ {
				f.at(time.Duration(n) * time.Minute)
				held := f.claim(t)
				switch {
				case n <= 20:
					wantNumbers(1, 3)
				case n <= 22:
					wantNumbers(3)
				default:
					wantNumbers()
				}
				f.at(time.Duration(n)*time.Minute + time.Second)
				f.release(t, held)
			}
		}},
		{"a running attempt is not in the history", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			wantSame(t, "the history", f.get(t, m).Attempts, []message.Attempt{})
		}},
		{"a success is the newest of the history, for 90 days", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.SucceededDays = 365 })
			m := f.held(t, emails)
			f.fail(t, m, "first")
			f.at(time.Hour)
			held := f.claim(t)
			f.at(time.Hour + time.Minute)
			f.succeed(t, held)
			want := []message.Attempt{
				{
					Number: 1, ClaimedAt: T(claimedAfter), EndedAt: T(answeredAfter),
					Outcome: message.OutcomeFailed, Error: "first",
				},
				{Number: 2, ClaimedAt: T(time.Hour), EndedAt: T(time.Hour + time.Minute), Outcome: message.OutcomeSucceeded},
			}
			f.at(90*day + answeredAfter - ms)
			wantSame(t, "the history", f.get(t, m).Attempts, want)
			f.at(90*day + answeredAfter + ms)
			wantSame(t, "the history 90 days after the failure", f.get(t, m).Attempts, want[1:])
			f.at(90*day + time.Hour + time.Minute - ms)
			wantSame(t, "the history before the end of the success", f.get(t, m).Attempts, want[1:])
			f.at(90*day + time.Hour + time.Minute + ms)
			wantSame(t, "the history 90 days after the success", f.get(t, m).Attempts, []message.Attempt{})
			f.wantStatus(t, m, message.Succeeded)
		}},
		{"the whole error is kept for 90 days, then its first 200 bytes", func(t *testing.T, f *fixture) {
			long := strings.Repeat("a", 199) + strings.Repeat("é", 900)
			m := f.held(t, emails)
			f.reject(t, m, long)
			f.at(90*day + answeredAfter - ms)
			got := f.get(t, m)
			if *got.Message.LastError != long || len(got.Attempts) != 1 || got.Attempts[0].Error != long {
				t.Errorf("after less than 90 days Get shows %+v, want the whole error", got)
			}
			f.at(90*day + answeredAfter + ms)
			got = f.get(t, m)
			if want := strings.Repeat("a", 199); *got.Message.LastError != want || len(got.Attempts) != 0 {
				t.Errorf("after 90 days Get shows %+v, want the first 199 bytes", got)
			}
		}},
		{"the whole error is shown after a success too", func(t *testing.T, f *fixture) {
			long := strings.Repeat("e", message.MaxErrorBytes)
			m := f.held(t, emails)
			f.fail(t, m, long)
			f.at(time.Hour)
			f.succeed(t, f.claim(t))
			if got := f.get(t, m).Message; got.LastError == nil || *got.LastError != long {
				t.Error("Get after a success does not show the whole error")
			}
		}},
		{
			"the whole error is shown for 90 days however often the message was released since",
			func(t *testing.T, f *fixture) {
				long := strings.Repeat("e", message.MaxErrorBytes)
				m := f.held(t, emails)
				f.fail(t, m, long)
				for n := range message.HistorySize + 1 {
					f.at(time.Hour + time.Duration(n)*time.Second)
					f.release(t, f.claim(t))
				}
				if got := f.get(t, m).Message; got.LastError == nil || *got.LastError != long {
					t.Errorf("Get shows %d bytes of the error, want all %d", len(*got.LastError), len(long))
				}
			},
		},
		{"a failure and a stall stand in one history", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			f.at(sweptAfter)
			f.sweep(t, 1, 0)
			f.at(time.Minute)
			held := f.claim(t)
			f.at(2 * time.Minute)
			f.fail(t, held, "x")
			wantSame(t, "the history", f.get(t, m).Attempts, []message.Attempt{
				{
					Number: 1, ClaimedAt: T(claimedAfter), EndedAt: T(sweptAfter),
					Outcome: message.OutcomeStalled, Error: leaseText,
				},
				{
					Number: 2, ClaimedAt: T(time.Minute), EndedAt: T(2 * time.Minute),
					Outcome: message.OutcomeFailed, Error: "x",
				},
			})
		}},
		{"each message has a history of its own", func(t *testing.T, f *fixture) {
			a, b := f.enqueue(t, "a"), f.enqueue(t, "b")
			held := f.claimN(t, emails, 2)
			f.fail(t, held[0], "of a")
			f.fail(t, held[1], "of b")
			for _, tt := range []struct {
				m    message.Message
				text string
			}{{a, "of a"}, {b, "of b"}} {
				if got := f.get(t, tt.m).Attempts; len(got) != 1 || got[0].Error != tt.text {
					t.Errorf("history = %+v, want one %q", got, tt.text)
				}
			}
		}},
	})
}
