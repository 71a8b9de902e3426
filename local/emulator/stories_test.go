package emulator_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/local/stack"
	"github.com/redrivehq/redrive/local/stories"
)

// TestStories tells the stories to the functions, then what they do not tell, and
// looks at all that the functions asked DynamoDB for.
func TestStories(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	sweeping := d.sweep(t)
	stories.Run(t, d.gateway.URL, stories.Options{})
	if n := sweeping(); n < 2 {
		t.Errorf("%d sweeps beside the stories, want several", n)
	}
	for _, tt := range rarities {
		step(t, tt.name, func(t *testing.T) { tt.tell(t, d) })
	}
	if t.Failed() {
		return // what follows would be consequences
	}
	for _, f := range d.template.Functions {
		used := map[stack.Grant]int{}
		for _, i := range d.fleets[f.Name].all {
			i.check(t)
			for grant, n := range i.calls {
				used[grant] += n
			}
		}
		compareGrants(t, f, used)
	}
}

// step runs a row of a table whose rows share a deployment, and so come one after
// the other.
func step(t *testing.T, name string, do func(*testing.T)) {
	t.Helper()
	t.Run(name, do)
}

// compareGrants compares what a function asked for with what it may do.
func compareGrants(t *testing.T, f stack.Function, used map[stack.Grant]int) {
	t.Helper()
	for _, grant := range slices.SortedFunc(maps.Keys(used), byAction) {
		if !slices.Contains(f.Grants, grant) {
			t.Errorf("%s lacks %s on the %s, which it has done %d times", f.ID, grant.Action, grant.On, used[grant])
		}
	}
	for _, grant := range f.Grants {
		if used[grant] == 0 {
			t.Errorf("%s may do %s on the %s, and never does", f.ID, grant.Action, grant.On)
		}
	}
}

func byAction(a, b stack.Grant) int {
	return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.On, b.On))
}

// check looks at all that the function has logged and asked DynamoDB for.
func (i *instance) check(t *testing.T) {
	t.Helper()
	logged := 0
	for _, msg := range []string{"request", "sweep"} {
		for _, r := range records(t, i.Function, msg) {
			logged += r.int("dynamodb_requests")
			if r["level"] != "INFO" {
				t.Errorf("%s logs an error: %v", i.name, r)
			}
		}
	}
	// S102 of CASES.md: what goes on after the answer is in no line. Nor is a look
	// into one shard of many that was given up because another had decided.
	if given := i.asked - logged; given < 0 || given > 0 && i.name != "queues" && i.name != "sweep" {
		t.Errorf("%s has logged %d requests to DynamoDB and made %d", i.name, logged, i.asked)
	}
	slices.Sort(i.faults)
	for _, fault := range slices.Compact(i.faults) {
		t.Errorf("%s: %s", i.name, fault)
	}
}

// sweepEvery is shorter than the schedule of a deployed stack, so that no story
// waits for a minute.
const sweepEvery = time.Second

// sweep invokes the sweeper again and again, as the schedule does in a deployed
// stack, until the function it returns is called, which says how often it has.
func (d *deployment) sweep(t *testing.T) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	swept := make(chan int)
	go func() {
		for n := 1; ; n++ {
			// Not under ctx: what a sweep has begun, it ends.
			if _, err := d.invoke(context.WithoutCancel(ctx), t, "sweep", struct{}{}); err != nil {
				t.Errorf("sweep: %v", err)
			}
			select {
			case <-ctx.Done():
				swept <- n
				return
			case <-time.After(sweepEvery):
			}
		}
	}()
	return func() int {
		cancel()
		return <-swept
	}
}
