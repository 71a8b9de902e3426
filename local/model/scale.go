package main

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redrivehq/redrive/local/chart"
	"github.com/redrivehq/redrive/shared/message"

	"github.com/redrivehq/redrive/local/tables"
)

// refusedMost is the share of writes that may be refused where an index still
// carries what is offered.
const refusedMost = 0.001

const seed = 1

// carries reports whether the index of so many shards does.
func carries(rate float64, shards int, failing float64) bool {
	t := traffic{
		rate: rate, shards: shards, failing: failing, warmUp: 30 * time.Second, last: 30 * time.Second, seed: seed,
	}
	return t.run().refusedShare() <= refusedMost
}

// mostCarried returns the highest rate a shard, in steps of five messages a
// second, that so many shards carry.
func mostCarried(shards int, failing float64) int {
	const step = 5
	low, high := 0, partitionUnits/2/step+1 // each message takes two units
	for high-low > 1 {
		middle := (low + high) / 2
		if carries(float64(shards*middle*step), shards, failing) {
			low = middle
		} else {
			high = middle
		}
	}
	return low * step
}

// needed returns how few shards carry the rate.
func needed(rate int, failing float64) int {
	// Fewer cannot: each attempt brings an entry into the pending partition and takes
	// it out again.
	shards := int(math.Ceil(float64(rate) * 2 / (1 - failing) / partitionUnits))
	for !carries(float64(rate), shards, failing) {
		shards++
	}
	return shards
}

// shardCounts are those in tables and pictures.
func shardCounts() []int { return []int{1, 4, 16, message.MaxShards} }

// carried writes how much the index carries.
func carried(d *document) error {
	progress("what so many shards carry")
	most := newTable("carried", "shards", "no attempt fails", "10 % fail", "50 % fail")
	for _, shards := range shardCounts() {
		row := []string{strconv.Itoa(shards)}
		for _, failing := range retryRates() {
			row = append(row, tables.Count(shards*mostCarried(shards, failing)))
		}
		most.add(row...)
	}
	progress("how many shards are needed")
	least := newTable("needed", "messages a second", "no attempt fails", "10 % fail", "50 % fail")
	for _, rate := range []int{100, 1_000, 5_000, 10_000, 32_000, 50_000, 100_000} {
		row := []string{tables.Count(rate)}
		for _, failing := range retryRates() {
			shards := needed(rate, failing)
			text := strconv.Itoa(shards)
			if queues := ceil(shards, message.MaxShards); queues > 1 {
				text += fmt.Sprintf(", in %d queues", queues)
			}
			row = append(row, text)
		}
		least.add(row...)
	}
	return cmp.Or(d.replace(most), d.replace(least), d.draw("throttling", throttlingChart()))
}

// throttlingChart shows what is not carried, up to 10⁵ messages a second.
func throttlingChart() chart.Chart {
	progress("what is not carried")
	c := chart.Chart{
		Title: "Messages that the index does not carry",
		X:     chart.Axis{Label: "messages offered a second", Log: true},
		Y:     chart.Axis{Label: "throttled (% of the messages)"},
	}
	for _, shards := range shardCounts() {
		name := fmt.Sprintf("%d shards", shards)
		c.Series = append(c.Series, chart.Series{Name: name, Points: throttledAt(shards, 0)})
	}
	for _, shards := range []int{1, message.MaxShards} {
		name := fmt.Sprintf("%d, 50 %% fail", shards)
		c.Series = append(c.Series, chart.Series{Name: name, Points: throttledAt(shards, 0.5), Dashed: true})
	}
	return c
}

// throttledAt returns the share that is throttled, in percent, by the rate.
func throttledAt(shards int, failing float64) (points [][2]float64) {
	const decades, perDecade = 3, 8 // from 10² on
	for i := range decades*perDecade + 1 {
		t := traffic{
			rate: 100 * math.Pow(10, float64(i)/perDecade), shards: shards, failing: failing,
			warmUp: 10 * time.Second, last: 10 * time.Second, seed: seed,
		}
		points = append(points, [2]float64{t.rate, 100 * t.run().throttled()})
	}
	return points
}

// newIndex writes how a new index grows.
func newIndex(d *document) error {
	progress("how a new index grows")
	t := newTable("new index", "shards", "messages a second", "partitions", "the last split after", "all caught up after",
		"messages behind, at most")
	for _, shards := range shardCounts() {
		const each = 300 // well below what a shard carries
		f := traffic{rate: float64(each * shards), shards: shards, cold: true, last: 4 * time.Hour, seed: seed}.run()
		t.add(strconv.Itoa(shards), tables.Count(each*shards), tables.Count(f.partitions), minutes(f.split), minutes(f.calm),
			tables.Count(f.mostBehind))
	}
	return d.replace(t)
}

func minutes(t time.Duration) string { return fmt.Sprintf("%.0f min", t.Minutes()) }

// claimCosts writes what claims cost with many shards.
func claimCosts(d *document) error {
	t := newTable("claims", "workers", "shards", "messages a second", "queries", "RRU", "lost writes", "wait, ms",
		"$ per million claims", "RCU a second, a shard")
	c := chart.Chart{
		Title: "What the reads and the lost writes of claims cost",
		X:     chart.Axis{Label: "shards", Log: true},
		Y:     chart.Axis{Label: "dollars per million messages claimed", Log: true},
	}
	for _, of := range fleets() {
		s := chart.Series{Name: of.name, Dashed: of.own}
		for _, shards := range shardCounts() {
			progress("claims: %s, %d shards", of.name, shards)
			f := of.fleet(shards)
			got, err := f.run()
			if err != nil {
				return err
			}
			reads, lost := got.each(got.reads), got.each(float64(got.lost))
			dollars := usage{writes: lost, reads: reads}.database()
			s.Points = append(s.Points, [2]float64{float64(shards), dollars})
			t.add(of.name, strconv.Itoa(shards), tables.Count(int(f.rate)), fmt.Sprintf("%.2f", got.each(float64(got.queries))),
				fmt.Sprintf("%.2f", reads), fmt.Sprintf("%.2f", lost), fmt.Sprintf("%.0f", got.each(got.waited.Seconds()*1e3)),
				money(dollars), fmt.Sprintf("%.0f", got.reads/f.last.Seconds()/float64(shards)))
		}
		c.Series = append(c.Series, s)
	}
	return cmp.Or(d.replace(t), d.draw("claims", c))
}

// scene is a fleet for any number of shards.
type scene struct {
	name  string
	own   bool
	fleet func(shards int) fleet
}

func fleets() []scene {
	// Work, poll and lag are those of decision 14.
	base := fleet{
		work: 130 * time.Millisecond, poll: 100 * time.Millisecond, lag: 20 * time.Millisecond, seed: seed,
	}
	busy := func(own bool) func(int) fleet {
		return func(shards int) fleet {
			f := base
			f.own, f.shards = own, shards
			f.rate, f.workers = float64(350*shards), 57*shards // of which each can do 7 a second
			f.last = max(20*time.Second/time.Duration(shards), 4*time.Second)
			return f
		}
	}
	quiet := func(own bool) func(int) fleet {
		return func(shards int) fleet {
			f := base
			f.own, f.shards, f.rate, f.workers, f.last = own, shards, 91, 64, 20*time.Second
			return f
		}
	}
	return []scene{
		{"busy", false, busy(false)},
		{"busy, own instances", true, busy(true)},
		{"idle", false, quiet(false)},
		{"idle, own instances", true, quiet(true)},
	}
}
