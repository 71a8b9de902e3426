// Package virtual is time without waiting, for simulations: what happens in a world
// happens in the order of its clock, one thing at a time, and the same way for
// the same seed. It knows nothing of what is simulated.
package virtual

import (
	"cmp"
	"container/heap"
	"iter"
	"math/rand/v2"
	"time"
)

// World is a clock, and what waits for it.
type World struct {
	Now    time.Time
	Random *rand.Rand // for all that happens by chance

	events events
	seq    int
}

// New returns a world in which nothing happens yet. All begin at the same time.
func New(seed uint64) *World {
	return &World{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Random: Seeded(seed)}
}

// Seeded returns random numbers that are the same each time.
func Seeded(seed uint64) *rand.Rand {
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

// Begin lets something happen from now on. It waits by calling sleep.
func (w *World) Begin(do func(sleep func(time.Duration))) {
	next, _ := iter.Pull(func(yield func(time.Duration) bool) { do(func(d time.Duration) { yield(d) }) })
	w.wake(0, next)
}

func (w *World) wake(after time.Duration, next func() (time.Duration, bool)) {
	w.seq++
	heap.Push(&w.events, event{w.Now.Add(after), w.seq, next})
}

// Run returns when nothing happens any more.
func (w *World) Run() {
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(event) //nolint:errcheck,forcetypeassert // of wake
		w.Now = e.at
		if after, ok := e.next(); ok {
			w.wake(after, e.next)
		}
	}
}

// Between draws a duration, from a to below b.
func (w *World) Between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.Random.Float64()*float64(b-a))
}
