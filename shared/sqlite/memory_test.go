package sqlite

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// In memory a read goes through the writer, and is run again where another write
// of its transaction fails.
func TestReadsInMemoryShowEachThingOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, InMemory)
		svc := newService(s, newClock())
		for range 3 {
			mustEnqueue(t, svc, "q", "p")
		}
		end, held := make(chan struct{}), make(chan error, 2)
		go func() { held <- s.write(t.Context(), func(*conn) error { <-end; return nil }) }()
		synctest.Wait() // the writer is busy: what follows waits, and shares one transaction
		go func() { held <- s.write(t.Context(), func(*conn) error { panic("on purpose") }) }()
		counts := make(chan [4]int, 4)
		go func() {
			page, _, _ := s.List(t.Context(), message.ListQuery{Queue: "q", Status: message.Pending, Limit: 9})
			counts <- [4]int{len(page)}
		}()
		go func() {
			marks, _ := s.InUse(t.Context(), "", 9)
			counts <- [4]int{0, len(marks)}
		}()
		go func() {
			queues, _ := s.ListQueues(t.Context(), "", "", 9)
			counts <- [4]int{0, 0, len(queues)}
		}()
		go func() {
			mustClaim(t, svc, "q")
			lapsed, _ := s.Lapsed(t.Context(), "q", svc.Now().Add(message.MaxTimeout), nil, 9)
			counts <- [4]int{0, 0, 0, len(lapsed)}
		}()
		synctest.Wait()
		close(end)
		var got [4]int
		for range 4 {
			for i, n := range <-counts {
				got[i] += n
			}
		}
		failed := 0
		for range 2 {
			if err := <-held; err != nil {
				failed++
			}
		}
		// The claim may have come before the list.
		if got[0] < 2 || got[0] > 3 || got[1] != 1 || got[2] != 1 || got[3] != 1 || failed != 1 {
			t.Errorf("messages, marks, queues, leases = %v, want 3 (or 2), 1, 1, 1; %d writes failed, want 1", got, failed)
		}
	})
}

// A lease begins when it is written, not when the claim was asked for: a claim
// that had to wait must not hand out what is over.
func TestALeaseBeginsWhenItIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, InMemory)
		svc := newService(s, newClock())
		began := svc.Now()
		var waited atomic.Int64
		svc.Now = func() time.Time { return began.Add(time.Duration(waited.Load())) }
		mustEnqueue(t, svc, "q", "p")
		end := make(chan struct{})
		go func() { _ = s.write(t.Context(), func(*conn) error { <-end; return nil }) }()
		synctest.Wait()
		claimed := make(chan message.Message, 1)
		go func() {
			got, err := svc.Claim(t.Context(), "q", message.ClaimOptions{Timeout: new(time.Second)})
			if err != nil || len(got) != 1 {
				t.Errorf("Claim = %v, %v, want one message", got, err)
			}
			claimed <- got[0]
		}()
		synctest.Wait()
		waited.Store(int64(3 * time.Second))
		close(end)
		if got, want := (<-claimed).Due, began.Add(4*time.Second); !got.Equal(want) {
			t.Errorf("the lease ends at %v, want %v", got, want)
		}
	})
}
