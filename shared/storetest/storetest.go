// Package storetest is the suite that every store passes: the rules of the
// queue, seen through a [message.Service] on a real engine.
//
// A test has a store and a clock of its own. The clock stands still until the
// test moves it; nothing here sleeps or looks at the time of the machine. Before
// every read of an index a test lets the store settle, so that an engine whose
// index lags passes too. Names that begin with S and a number are rows of
// CASES.md, in the words of the contract.
package storetest

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// Store is all that an engine keeps.
type Store interface {
	message.Store
	message.QueueStore
	message.SweepStore
}

// Harness is an engine under test.
type Harness struct {
	Store Store
	// Another opens the same data once more, as another instance of the program
	// does. Nil for an engine that belongs to one process: then it is the same.
	Another func(*testing.T) Store
	// Settle returns when the indexes show all that was written. Nil where an
	// index never lags.
	Settle func()

	hasty bool // see RunLagging
}

// Open returns an empty store that is closed when t ends. Where a store looks at
// the time by itself, it is that of the test's clock.
type Open func(t *testing.T, now func() time.Time) Harness

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Helper()
	run(t, open, safety)
	run(t, open, visibility)
}

// RunLagging runs the suite where an index lags. What no lag excuses comes without
// Settle: claims, sweeps and lists may find less than there is, but nothing is
// handed out twice, and no answer is wrong. Where such a row needs to see more, it
// asks again.
func RunLagging(t *testing.T, open Open) {
	t.Helper()
	run(t, func(t *testing.T, now func() time.Time) Harness {
		t.Helper()
		h := open(t, now)
		h.hasty = true
		return h
	}, safety)
	run(t, open, visibility)
}

// group is a part of the suite.
type group struct {
	name string
	run  func(*testing.T, Open)
}

// safety is what no lag of an index excuses.
var safety = []group{
	{"transitions", testTransitions},
	{"refusals", testRefusals},
	{"leases", testLeases},
	{"extensions", testExtensions},
	{"budgets", testBudgets},
	{"repeats", testRepeats},
	{"lost answers", testLostAnswers},
	{"races", testRaces},
	{"idempotency", testIdempotency},
	{"history", testHistory},
	{"shards", testShards},
	{"model", testModel},
}

// visibility is what an index shows, and in which order.
var visibility = []group{
	{"delays", testDelays},
	{"sweep", testSweep},
	{"lists", testLists},
	{"sizes", testSizes},
	{"names", testNames},
	{"expiry", testExpiry},
	{"queues", testQueues},
	{"counts", testCounts},
	{"marks", testMarks},
}

func run(t *testing.T, open Open, groups []group) {
	t.Helper()
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			g.run(t, open)
		})
	}
}

// row is a subtest on a store of its own.
type row struct {
	name string // a sentence
	run  func(*testing.T, *fixture)
}

func runRows(t *testing.T, open Open, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, newFixture(t, open))
		})
	}
}
