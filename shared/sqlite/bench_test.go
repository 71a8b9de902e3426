package sqlite

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

const benchPayload = `{"to":"alice@example.com","subject":"Welcome","template":"welcome-2","locale":"de"}`

// benchmark opens a store in a file, with a queue that holds so many messages.
func benchmark(b *testing.B, waiting int) (*message.Service, *clock) {
	b.Helper()
	s, c := mustOpen(b, newPath(b)), newClock()
	svc := newService(s, c)
	if waiting > 0 {
		fill(b, s, waiting, c.now())
	}
	b.ReportAllocs()
	return svc, c
}

// fill stores messages that are due, all in one transaction.
func fill(b *testing.B, s *Store, n int, now time.Time) {
	b.Helper()
	onWriter(b, s, func(c *conn) error {
		if err := s.useQueue(c, "q", now); err != nil {
			return err
		}
		for i := range n {
			due := now.Add(time.Duration(i-n) * time.Millisecond)
			err := c.insert(message.Message{
				ID: fmt.Sprintf("msg_%026d", i), Queue: "q", Status: message.Pending, Due: due, Receipt: "0123456789abcdef",
				Payload: benchPayload, PayloadBytes: len(benchPayload), MaxRetries: 3, MaxStalls: 3,
				CreatedAt: due, UpdatedAt: due,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// inParallel runs do in so many goroutines on each processor at a time.
func inParallel(b *testing.B, goroutines int, do func() error) {
	b.Helper()
	b.SetParallelism(goroutines)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := do(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkEnqueue(b *testing.B) {
	for _, bytes := range []int{len(benchPayload), 10_000, message.MaxPayloadBytes} {
		draft := message.Draft{Payload: strings.Repeat("x", bytes)}
		b.Run(fmt.Sprintf("alone/%d bytes", bytes), func(b *testing.B) {
			svc, _ := benchmark(b, 0)
			for b.Loop() {
				if _, _, err := svc.Enqueue(b.Context(), "q", draft); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	draft := message.Draft{Payload: benchPayload}
	for _, goroutines := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("together/%d goroutines a processor", goroutines), func(b *testing.B) {
			svc, _ := benchmark(b, 0)
			inParallel(b, goroutines, func() error {
				_, _, err := svc.Enqueue(b.Context(), "q", draft)
				return err
			})
		})
	}
}

// What is claimed is released at once, outside the time, so that the same
// number of messages waits for the next.
func BenchmarkClaim(b *testing.B) {
	for _, waiting := range []int{1e3, 1e5, 1e6} {
		b.Run(fmt.Sprintf("among %d", waiting), func(b *testing.B) {
			svc, c := benchmark(b, waiting)
			for b.Loop() {
				m := mustClaim(b, svc, "q")
				b.StopTimer()
				c.advance(time.Millisecond)
				if err := answer(b.Context(), svc, "release", m); err != nil {
					b.Fatal(err)
				}
				c.advance(time.Millisecond)
				b.StartTimer()
			}
		})
	}
	b.Run("ten among 100000", func(b *testing.B) {
		svc, c := benchmark(b, 1e5)
		for b.Loop() {
			claimed, err := svc.Claim(b.Context(), "q", message.ClaimOptions{Max: new(10)})
			if err != nil || len(claimed) != 10 {
				b.Fatalf("claimed %d messages, %v", len(claimed), err)
			}
			b.StopTimer()
			c.advance(time.Millisecond)
			for _, m := range claimed {
				if err := answer(b.Context(), svc, "release", m); err != nil {
					b.Fatal(err)
				}
			}
			c.advance(time.Millisecond)
			b.StartTimer()
		}
	})
	b.Run("none", func(b *testing.B) {
		svc, _ := benchmark(b, 0)
		for b.Loop() {
			if _, err := svc.Claim(b.Context(), "q", message.ClaimOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSucceed(b *testing.B) {
	svc, _ := benchmark(b, 1)
	for b.Loop() {
		b.StopTimer()
		mustEnqueue(b, svc, "q", benchPayload)
		m := mustClaim(b, svc, "q")
		b.StartTimer()
		if _, err := svc.Succeed(b.Context(), "q", m.ID, &m.Receipt); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRound is enqueue, claim and succeed of one message.
func BenchmarkRound(b *testing.B) {
	for _, goroutines := range []int{1, 16} {
		b.Run(fmt.Sprintf("%d goroutines a processor", goroutines), func(b *testing.B) {
			svc, _ := benchmark(b, 0)
			inParallel(b, goroutines, func() error {
				_, _, err := svc.Enqueue(b.Context(), "q", message.Draft{Payload: benchPayload})
				if err != nil {
					return err
				}
				claimed, err := svc.Claim(b.Context(), "q", message.ClaimOptions{})
				for _, m := range claimed {
					_, err = svc.Succeed(b.Context(), "q", m.ID, &m.Receipt)
				}
				return err
			})
		})
	}
}

func BenchmarkGet(b *testing.B) {
	svc, _ := benchmark(b, 1e5)
	for b.Loop() {
		if _, _, err := svc.Get(b.Context(), "q", "msg_00000000000000000000050000"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCount(b *testing.B) {
	svc, _ := benchmark(b, 1e5) // of which 10,001 are counted
	for b.Loop() {
		if _, err := svc.Queue(b.Context(), "q"); err != nil {
			b.Fatal(err)
		}
	}
}
