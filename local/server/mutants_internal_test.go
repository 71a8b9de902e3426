package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// TestTheSweeperDoesAllOfItsWork lets it run for an hour of the bubble: a lease
// ends, the queue is counted, and what is past its retention is removed.
func TestTheSweeperDoesAllOfItsWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		svc, store := open(t, time.Now)
		defer store.Close() // in memory
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		set := message.DefaultSettings()
		set.SucceededDays = 0.001
		if _, _, err := svc.PutQueue(ctx, "q", set); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, _, err := svc.Enqueue(ctx, "q", message.Draft{Payload: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		claimed, err := svc.Claim(ctx, "q", message.ClaimOptions{Max: new(2)})
		if err != nil || len(claimed) != 2 {
			t.Fatalf("Claim = %d messages, %v, want 2", len(claimed), err)
		}
		if _, err := svc.Succeed(ctx, "q", claimed[0].ID, &claimed[0].Receipt); err != nil {
			t.Fatal(err)
		}
		var sweeper sync.WaitGroup
		sweeper.Go(func() { sweep(ctx, svc, embedded(store), slog.New(slog.DiscardHandler)) })
		time.Sleep(time.Hour) // of the bubble
		stop()
		sweeper.Wait()

		m, _, err := svc.Get(t.Context(), "q", claimed[1].ID)
		if err != nil || m.Status != message.Pending || m.StallCount != 1 {
			t.Errorf("what nobody answered is %+v, %v, want pending with a stall", m, err)
		}
		queues, _, err := svc.ListQueues(t.Context(), "", "", 10)
		if err != nil || len(queues) != 1 || queues[0].Counts == nil || queues[0].Counts.Depth[message.Pending] != 1 {
			t.Errorf("ListQueues = %+v, %v, want a queue with one message pending", queues, err)
		}
		if n, err := store.RemoveExpired(t.Context(), time.Now(), 10); n != 0 || err != nil {
			t.Errorf("%d messages are left that expired, %v, want 0", n, err)
		}
	})
}

var errBroken = errors.New("broken")

// blind is a store that does not tell which queues are in use.
type blind struct{ message.SweepStore }

func (blind) InUse(context.Context, string, int) ([]message.Mark, error) { return nil, errBroken }

// mute is a store that does not tell what a queue's settings are.
type mute struct{ message.QueueStore }

func (mute) Queue(context.Context, string) (message.Queue, error) { return message.Queue{}, errBroken }

func TestASweepThatLeavesSomethingUndoneSaysSo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		breakIt func(*message.Service)
	}{
		{"the queues in use", func(svc *message.Service) { svc.Sweeps = blind{svc.Sweeps} }},
		{"one queue", func(svc *message.Service) { svc.Queues = mute{svc.Queues} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			svc, store := open(t, time.Now)
			defer store.Close() // in memory
			if _, _, err := svc.Enqueue(t.Context(), "q", message.Draft{Payload: "x"}); err != nil {
				t.Fatal(err)
			}
			tt.breakIt(svc)
			err := sweepOnce(t.Context(), svc, embedded(store), slog.New(slog.DiscardHandler), false)
			if !errors.Is(err, errBroken) {
				t.Errorf("sweepOnce = %v, want the error of the store", err)
			}
		})
	}
}
