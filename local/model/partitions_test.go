package main

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redrivehq/redrive/shared/virtual"
)

// bound is how many messages a second a shard carries: each attempt brings an
// entry into a partition of 1,000 units a second, and takes it out again.
func bound(failing float64) float64 { return 500 * (1 - failing) }

func TestNothingIsThrottledBelowTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tr := traffic{
			shards: rapid.IntRange(1, 16).Draw(t, "shards"), failing: rapid.SampledFrom(retryRates()).Draw(t, "failing"),
			warmUp: 10 * time.Second, last: 20 * time.Second, seed: rapid.Uint64().Draw(t, "seed"),
		}
		tr.rate = rapid.Float64Range(0.1, 0.9).Draw(t, "load") * bound(tr.failing) * float64(tr.shards)
		if f := tr.run(); f.refused != 0 || f.throttled() != 0 || f.tries == 0 {
			t.Errorf("of %d writes %d were refused, and %.3f throttled, want none", f.tries, f.refused, f.throttled())
		}
	})
}

func TestMoreThanTheBoundIsNotCarried(t *testing.T) {
	t.Parallel()
	for _, load := range []float64{1.25, 2, 4} {
		f := traffic{
			shards: 4, rate: load * 4 * bound(0), warmUp: 10 * time.Second, last: 20 * time.Second, seed: seed,
		}.run()
		if got, want := f.throttled(), 1-1/load; got < want-0.02 || got > want+0.02 {
			t.Errorf("of %v times what four shards carry %.3f is throttled, want %.3f", load, got, want)
		}
	}
}

func TestEveryMessageIsSomewhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tr := traffic{
			shards: rapid.IntRange(1, 8).Draw(t, "shards"), rate: rapid.Float64Range(1, 5_000).Draw(t, "rate"),
			failing: rapid.Float64Range(0, 0.9).Draw(t, "failing"), cold: rapid.Bool().Draw(t, "cold"),
			last: 20 * time.Second, seed: rapid.Uint64().Draw(t, "seed"),
		}
		f := tr.run()
		if f.arrived != f.done+f.inside+f.outside || f.arrived == 0 || f.behind > f.inside+f.outside {
			t.Errorf("%d arrived, %d are done, %d inside, %d outside; of those %d behind",
				f.arrived, f.done, f.inside, f.outside, f.behind)
		}
		if most := bound(0) * tr.last.Seconds() * float64(tr.shards); float64(f.done) > most {
			t.Errorf("%d done, more than the units of %v", f.done, most)
		}
	})
}

func TestTheSameSeedIsTheSameTraffic(t *testing.T) {
	t.Parallel()
	tr := traffic{shards: 4, rate: 2_500, failing: 0.1, cold: true, last: 10 * time.Minute, seed: 1}
	first := tr.run()
	if again := tr.run(); again != first {
		t.Errorf("the same traffic gives %+v, then %+v", first, again)
	}
	tr.seed = 2
	if other := tr.run(); other == first {
		t.Errorf("another seed gives the same: %+v", other)
	}
}

func TestAHotPartitionIsSplit(t *testing.T) {
	t.Parallel()
	f := traffic{shards: 4, rate: 1_200, cold: true, last: time.Hour, seed: seed}.run()
	late := f.split < splitAfter || f.split%time.Minute != 0
	if f.partitions <= firstPartitions || late || f.calm < f.split || f.behind != 0 {
		t.Errorf("a new index for four shards ended as %+v, want splits, and all caught up", f)
	}
}

func TestOneKeyIsNotSplit(t *testing.T) {
	t.Parallel()
	f := traffic{shards: 1, rate: 2 * bound(0), cold: true, last: time.Hour, seed: seed}.run()
	if f.partitions != statuses || f.split != 0 || f.throttled() < 0.4 {
		t.Errorf("one shard with twice what it carries ended as %+v, want a partition for each of its three keys", f)
	}
}

// The contract says: a shard carries about 500 messages a second, 250 if each
// fails once.
func TestAShardCarriesWhatTheContractSays(t *testing.T) {
	t.Parallel()
	for failing, want := range map[float64]int{0: 500, 0.5: 250} {
		if got := mostCarried(1, failing); got > want || got < want*95/100 {
			t.Errorf("with %v failing a shard carries %d a second, want a little less than %d", failing, got, want)
		}
	}
	for rate, want := range map[int]int{400: 1, 700: 2, 1_400: 3} {
		if got := needed(rate, 0); got != want {
			t.Errorf("%d a second need %d shards, want %d", rate, got, want)
		}
	}
}

func TestPoisson(t *testing.T) {
	t.Parallel()
	for _, mean := range []float64{0.5, 20, 95} {
		const n = 20_000
		s := &simulation{random: virtual.Seeded(seed)}
		sum, squares := 0.0, 0.0
		for range n {
			x := float64(s.poisson(mean))
			sum += x
			squares += x * x
		}
		got, variance := sum/n, squares/n-(sum/n)*(sum/n)
		if got < 0.97*mean || got > 1.03*mean || variance < 0.93*mean || variance > 1.07*mean {
			t.Errorf("numbers of mean %v have mean %v and variance %v, want both alike", mean, got, variance)
		}
	}
}

func TestAWriteTakesAUnitOfEachKeyThatItChanges(t *testing.T) {
	t.Parallel()
	for v, want := range map[verb][statuses]float64{
		enqueue: {1, 0, 0}, claim: {1, 1, 0}, succeed: {0, 1, 1}, fail: {1, 1, 0},
	} {
		// In each turn one key has nothing left.
		for empty := -1; empty < statuses; empty++ {
			s := &simulation{traffic: traffic{shards: 1}}
			for key := range statuses {
				p := &partition{keys: []int{key}, units: 5}
				if key == empty {
					p.units = 0
				}
				s.of = append(s.of, p)
			}
			refused := empty >= 0 && want[empty] > 0
			if got := s.take(0, v); got == refused {
				t.Errorf("write %d with nothing left of %d: made %v", v, empty, got)
			}
			for key, p := range s.of {
				left := 5 - want[key]
				if refused {
					left = 5
				}
				if key == empty {
					left = 0
				}
				if p.units != left || p.refused != (refused && key == empty) {
					t.Errorf("write %d with nothing left of %d: of %d there are %v units, refused %v; want %v", v, empty, key,
						p.units, p.refused, left)
				}
			}
		}
	}
}

func TestASplitHalvesTheKeys(t *testing.T) {
	t.Parallel()
	s := &simulation{traffic: traffic{shards: 4}, of: make([]*partition, 5)}
	hot := &partition{refused: true, minutes: int(splitAfter/time.Minute) - 1}
	s.partitions = []*partition{hot}
	s.give(hot, []int{3, 1, 4, 0, 2})
	s.divideHot()
	if len(s.partitions) != 2 || len(s.partitions[0].keys) != 2 || len(s.partitions[1].keys) != 3 {
		t.Fatalf("the partitions are %+v and %+v, want one of two and one of three keys", s.partitions[0], s.partitions[1:])
	}
	for _, p := range s.partitions {
		for _, key := range p.keys {
			if s.of[key] != p {
				t.Errorf("key %d is not where its writes go", key)
			}
		}
	}
}
