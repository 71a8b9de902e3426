package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// flaky loses the first writes: before they happen, or their answers.
type flaky struct {
	message.Store
	late bool         // the write happens, its answer is lost
	left atomic.Int32 // how many are still to be lost
}

func (s *flaky) lose() bool { return s.left.Add(-1) >= 0 }

func (s *flaky) Enqueue(ctx context.Context, m message.Message) (message.Message, bool, error) {
	lose := s.lose()
	if lose && !s.late {
		return message.Message{}, false, message.ErrUnavailable
	}
	stored, created, err := s.Store.Enqueue(ctx, m)
	if lose {
		return message.Message{}, false, message.ErrUnavailable
	}
	return stored, created, err
}

func (s *flaky) Apply(ctx context.Context, queue, id string, tr message.Transition) (message.Message, error) {
	lose := s.lose()
	if lose && !s.late {
		return message.Message{}, message.ErrUnavailable
	}
	m, err := s.Store.Apply(ctx, queue, id, tr)
	if lose {
		return message.Message{}, message.ErrUnavailable
	}
	return m, err
}

func (s *flaky) Delete(ctx context.Context, queue, id string, at time.Time) error {
	lose := s.lose()
	if lose && !s.late {
		return message.ErrUnavailable
	}
	err := s.Store.Delete(ctx, queue, id, at)
	if lose {
		return message.ErrUnavailable
	}
	return err
}

// testLostAnswers has callers that hear "unavailable" and call again.
func testLostAnswers(t *testing.T, open Open) {
	for _, tt := range []struct {
		name    string
		prepare func(*testing.T, *fixture) message.Message
		call    func(*testing.T, *fixture, message.Message) error
		status  message.Status
		late    error // what the second call may say if the first one happened
	}{
		{
			"S106 a success", prepareHeld, func(t *testing.T, f *fixture, m message.Message) error {
				t.Helper()
				_, err := f.Succeed(t.Context(), emails, m.ID, &m.Receipt)
				return err
			}, message.Succeeded, nil,
		},
		{
			"S106 a failure", prepareHeld, func(t *testing.T, f *fixture, m message.Message) error {
				t.Helper()
				_, err := f.Fail(t.Context(), emails, m.ID, message.Failure{Receipt: &m.Receipt, Error: "x"})
				return err
			}, message.Pending, nil,
		},
		{
			"S094 a last failure",
			func(t *testing.T, f *fixture) message.Message { t.Helper(); return f.tired(t) },
			func(t *testing.T, f *fixture, m message.Message) error {
				t.Helper()
				_, err := f.Fail(t.Context(), emails, m.ID, message.Failure{Receipt: &m.Receipt, Error: "x"})
				return err
			}, message.Dead, nil,
		},
		{
			"a release", prepareHeld, func(t *testing.T, f *fixture, m message.Message) error {
				t.Helper()
				_, err := f.Release(t.Context(), emails, m.ID, &m.Receipt)
				return err
			}, message.Pending, nil,
		},
		{
			"an extension", prepareHeld, func(t *testing.T, f *fixture, m message.Message) error {
				t.Helper()
				_, err := f.Extend(t.Context(), emails, m.ID, message.Extension{Receipt: &m.Receipt})
				return err
			}, message.Processing, nil,
		},
		{
			"S093 a replay",
			func(t *testing.T, f *fixture) message.Message { t.Helper(); return f.dead(t, emails) },
			func(t *testing.T, f *fixture, m message.Message) error {
				t.Helper()
				_, err := f.Replay(t.Context(), emails, m.ID)
				return err
			}, message.Pending, conflict(message.VerbReplay, message.Pending, message.ReasonState),
		},
	} {
		for _, late := range []bool{false, true} {
			lost := "request"
			if late {
				lost = "answer"
			}
			t.Run(fmt.Sprintf("%s whose %s is lost is called again and counts once", tt.name, lost), func(t *testing.T) {
				t.Parallel()
				once := newFixture(t, open)
				m := tt.prepare(t, once)
				wantError(t, "the call without a loss", tt.call(t, once, m), nil)
				want := once.get(t, m)

				f := newFixture(t, open)
				m = tt.prepare(t, f)
				lossy := &flaky{Store: f.store, late: late}
				lossy.left.Store(1)
				f.Store = lossy
				wantError(t, "the first call", tt.call(t, f, m), message.ErrUnavailable)
				var wantErr error
				if late {
					wantErr = tt.late
				}
				wantError(t, "the second call", tt.call(t, f, m), wantErr)
				got := f.get(t, m)
				// The two messages differ by name only.
				got.Message.ID, got.Message.Receipt = want.Message.ID, want.Message.Receipt
				wantSame(t, "what is stored", got, want)
				f.wantStatus(t, m, tt.status)
				wantSame(t, "the number of messages", len(f.list(t, message.List{Queue: emails})), 1)
			})
		}
	}
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("a keyed enqueue that is lost (happened: %v) is called again and stored once", late),
			func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, open)
				lossy := &flaky{Store: f.store, late: late}
				lossy.left.Store(1)
				f.Store = lossy
				d := message.Draft{Payload: "p", Key: "k"}
				_, _, err := f.Enqueue(t.Context(), emails, d)
				wantError(t, "Enqueue", err, message.ErrUnavailable)
				m, created, err := f.Enqueue(t.Context(), emails, d)
				if err != nil || created == late {
					t.Errorf("Enqueue again = created %v, %v, want created %v", created, err, !late)
				}
				wantSame(t, "the messages", f.list(t, message.List{Queue: emails, Payload: true}), []message.Message{m})
			})
		t.Run(fmt.Sprintf("a delete that is lost (happened: %v) is called again", late), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			m := f.dead(t, emails)
			lossy := &flaky{Store: f.store, late: late}
			lossy.left.Store(1)
			f.Store = lossy
			wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), message.ErrUnavailable)
			var wantErr error
			if late {
				wantErr = message.ErrNotFound
			}
			wantError(t, "Delete again", f.Delete(t.Context(), emails, m.ID), wantErr)
			f.wantGone(t, m)
		})
	}
	runRows(t, open, []row{
		{"S094 a sweep that is lost is done by the next one", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { set.MaxStalls = 1 })
			m := f.enqueue(t, "p")
			f.claim(t)
			f.at(sweptAfter)
			lossy := &flaky{Store: f.store}
			lossy.left.Store(1)
			f.Store = lossy
			f.catchUp()
			got, err := f.Sweep(t.Context(), message.SweepOptions{})
			if err != nil || got.Failed != 1 || got.Buried != 0 {
				t.Errorf("Sweep = %+v, %v, want one that failed", got, err)
			}
			f.wantStatus(t, m, message.Processing)
			f.sweep(t, 0, 1)
			f.wantStatus(t, m, message.Dead)
			f.sweep(t, 0, 0)
			wantSame(t, "the number of messages", len(f.list(t, message.List{Queue: emails})), 1)
		}},
		{"S094 a sweep whose answer is lost buries the message once", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			f.claim(t)
			f.at(sweptAfter)
			lossy := &flaky{Store: f.store, late: true}
			lossy.left.Store(1)
			f.Store = lossy
			f.catchUp()
			_, err := f.Sweep(t.Context(), message.SweepOptions{})
			wantError(t, "Sweep", err, nil)
			f.sweep(t, 0, 0)
			if got := f.get(t, m); got.Message.StallCount != 1 || len(got.Attempts) != 1 {
				t.Errorf("message has %d stalls and %d attempts, want 1 and 1", got.Message.StallCount, len(got.Attempts))
			}
			f.wantStatus(t, m, message.Pending)
		}},
	})
}
