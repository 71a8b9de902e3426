package main

import (
	"cmp"
	"container/heap"
	"iter"
	"math/rand/v2"
	"time"
)

// world is time without waiting. What happens in it happens in the order of its
// clock, one thing at a time, and the same way for the same seed.
type world struct {
	now    time.Time
	random *rand.Rand
	events events
	seq    int
}

func newWorld(seed uint64) *world {
	return &world{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), random: seeded(seed)}
}

// seeded returns random numbers that are the same each time.
func seeded(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // nobody has to be unable to guess them
}

// event is when something goes on that has waited.
type event struct {
	at   time.Time
	seq  int // of what waits for the same time the first goes on first
	next func() (time.Duration, bool)
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(e[i].at.Compare(e[j].at), cmp.Compare(e[i].seq, e[j].seq)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) } //nolint:errcheck,forcetypeassert // of wake
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// begin lets something happen from now on. It waits by calling sleep.
func (w *world) begin(do func(sleep func(time.Duration))) {
	next, _ := iter.Pull(func(yield func(time.Duration) bool) { do(func(d time.Duration) { yield(d) }) })
	w.wake(0, next)
}

func (w *world) wake(after time.Duration, next func() (time.Duration, bool)) {
	w.seq++
	heap.Push(&w.events, event{w.now.Add(after), w.seq, next})
}

// run returns when nothing happens any more.
func (w *world) run() {
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(event) //nolint:errcheck,forcetypeassert // of wake
		w.now = e.at
		if after, ok := e.next(); ok {
			w.wake(after, e.next)
		}
	}
}

// between draws a duration.
func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.random.Float64()*float64(b-a))
}
