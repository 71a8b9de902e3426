package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redrivehq/redrive/shared/virtual"
)

// What is modelled of DynamoDB's index.
const (
	partitionUnits  = 1_000                  // write units a second of one partition
	firstPartitions = 4                      // of a new index: it takes 4,000 units a second
	splitAfter      = 5 * time.Minute        // in each of whose minutes a partition refused writes: it is split
	tick            = 100 * time.Millisecond // the step of the clock, and when a refused write is tried again
	worked          = 200 * time.Millisecond // from claim to answer
	retryAfter      = 2 * time.Second        // from a failure to the next time that the message is due
)

// traffic is messages that go through a queue, whose workers keep up.
type traffic struct {
	rate    float64 // messages that arrive a second
	shards  int
	failing float64 // the share of attempts that fail
	cold    bool    // the index is new; else each of its keys has a partition of its own
	warmUp  time.Duration
	last    time.Duration // after that, at most
	seed    uint64
}

// flow is what became of it.
type flow struct {
	arrived, done int
	inside        int // stored and not done
	outside       int // not stored yet: the enqueue was refused, and is tried again
	behind        int // of both, those that wait for a write which was refused
	// After the warm-up alone:
	tries, refused int // writes
	offered        int // messages that arrived
	fellBehind     int // by how many more were behind at the end
	// Of an index that was cold:
	partitions int
	split      time.Duration // when the last one was divided
	calm       time.Duration // when the last write was refused
	mostBehind int
}

// throttled is the share of the messages offered that the index did not carry.
func (f flow) throttled() float64 { return max(float64(f.fellBehind)/float64(max(f.offered, 1)), 0) }

// refusedShare is the share of refused writes.
func (f flow) refusedShare() float64 { return float64(f.refused) / float64(max(f.tries, 1)) }

// The keys of the index: a status of a shard.
const (
	pending = iota
	processing
	succeeded
	statuses
)

// verb is a write that waits in a shard, with the keys it changes: an entry is
// taken out of one and put into the other, a unit each.
type verb int

const (
	enqueue verb = iota
	claim
	succeed
	fail
	verbs
)

func (v verb) changes() []int {
	return [verbs][]int{{pending}, {pending, processing}, {processing, succeeded}, {processing, pending}}[v]
}

// shard is the messages of one shard, in numbers: waiting for a write, or for
// their time.
type shard struct {
	waiting [verbs]int
	working []int // that will be answered, by tick
	resting []int // that failed and will be due, by tick
}

// partition is a range of keys, in the order of their hashes.
type partition struct {
	keys    []int
	units   float64 // that were not used; not more than those of a second
	refused bool    // in this minute
	minutes int     // one after the other in which it refused
}

type simulation struct {
	traffic
	random     *rand.Rand
	shards     []shard
	partitions []*partition
	of         []*partition // by key
	now        int          // ticks
	flow
}

func ticks(d time.Duration) int { return int(d / tick) }

// calmFor is without a refusal: a cold index then has all the partitions it needs.
const calmFor = 2 * splitAfter

// run lets the traffic go through the index. A cold one is done when it is calm.
func (t traffic) run() flow {
	s := &simulation{traffic: t, random: virtual.Seeded(t.seed), shards: make([]shard, t.shards)}
	for i := range s.shards {
		s.shards[i].working = make([]int, ticks(worked))
		s.shards[i].resting = make([]int, ticks(retryAfter))
	}
	s.divide()
	for end := ticks(t.warmUp + t.last); s.now < end && (!t.cold || s.now-ticks(s.calm) <= ticks(calmFor)); s.now++ {
		if s.now == ticks(t.warmUp) {
			s.tries, s.refused, s.offered, s.fellBehind = 0, 0, 0, -s.countBehind()
		}
		s.step()
	}
	s.flow.partitions = len(s.partitions)
	s.count()
	s.fellBehind += s.behind
	return s.flow
}

// count counts where the messages are.
func (s *simulation) count() {
	for _, sh := range s.shards {
		s.outside += sh.waiting[enqueue]
		for _, numbers := range [][]int{sh.waiting[claim:], sh.working, sh.resting} {
			for _, n := range numbers {
				s.inside += n
			}
		}
	}
	s.behind = s.countBehind()
}

// divide lays the keys into partitions, in the order of their hashes, which is any.
func (s *simulation) divide() {
	keys := s.random.Perm(statuses * s.traffic.shards)
	n := len(keys)
	if s.cold {
		n = min(firstPartitions, n)
	}
	s.of = make([]*partition, len(keys))
	for i := range n {
		p := new(partition)
		s.partitions = append(s.partitions, p)
		s.give(p, keys[len(keys)*i/n:len(keys)*(i+1)/n])
	}
}

func (s *simulation) give(p *partition, keys []int) {
	p.keys = keys
	for _, key := range keys {
		s.of[key] = p
	}
}

func (s *simulation) step() {
	for _, p := range s.partitions {
		p.units = min(p.units+partitionUnits*tick.Seconds(), partitionUnits)
	}
	for i := range s.shards {
		s.turn((s.now + i) % len(s.shards)) // nobody is always the first
	}
	if (s.now+1)%ticks(time.Minute) == 0 {
		s.divideHot()
	}
	if behind := s.countBehind(); behind > 0 {
		s.calm, s.mostBehind = time.Duration(s.now+1)*tick, max(s.mostBehind, behind)
	}
}

// divideHot divides partitions that have refused writes for long, in the middle of
// their keys. One that holds a single key stays: all of its writes go to the ends
// of an order that ascends, and a cut between would leave them together.
func (s *simulation) divideHot() {
	for _, p := range slices.Clone(s.partitions) {
		if p.minutes++; !p.refused {
			p.minutes = 0
		}
		p.refused = false
		if p.minutes < int(splitAfter/time.Minute) || len(p.keys) == 1 {
			continue
		}
		half := len(p.keys) / 2
		other := new(partition)
		s.partitions = append(s.partitions, other)
		s.give(other, p.keys[half:])
		s.give(p, p.keys[:half])
		p.minutes = 0
		s.split = time.Duration(s.now+1) * tick
	}
}

// turn does what a shard can do in this tick.
func (s *simulation) turn(i int) {
	sh := &s.shards[i]
	n := s.poisson(s.rate / float64(len(s.shards)) * tick.Seconds())
	s.arrived += n
	s.offered += n
	sh.waiting[enqueue] += n
	due := &sh.resting[s.now%len(sh.resting)]
	sh.waiting[claim] += *due
	*due = 0
	answers := &sh.working[s.now%len(sh.working)]
	for range *answers {
		if s.random.Float64() < s.failing {
			sh.waiting[fail]++
		} else {
			sh.waiting[succeed]++
		}
	}
	*answers = 0
	s.write(i)
	for _, n := range sh.waiting {
		s.tries += n
		s.refused += n
	}
}

// write makes the writes that wait, one of each verb after the other as long as
// there are units: callers who wait between their tries share what there is.
func (s *simulation) write(i int) {
	sh := &s.shards[i]
	var refused [verbs]bool
	for again := true; again; {
		again = false
		for v := range verbs {
			if sh.waiting[v] == 0 || refused[v] {
				continue
			}
			if !s.take(i, v) {
				refused[v] = true
				continue
			}
			again = true
			sh.waiting[v]--
			s.tries++
			s.moved(sh, v)
		}
	}
}

// take takes the units for one write; none, if one of the partitions has none left.
func (s *simulation) take(i int, v verb) bool {
	for n, status := range v.changes() {
		p := s.of[status*s.traffic.shards+i]
		if p.units < 1 {
			p.refused = true
			for _, status := range v.changes()[:n] { // the write is not made
				s.of[status*s.traffic.shards+i].units++
			}
			return false
		}
		p.units--
	}
	return true
}

// moved says where a message is after the write.
func (s *simulation) moved(sh *shard, v verb) {
	switch v {
	case enqueue:
		sh.waiting[claim]++
	case claim:
		sh.working[(s.now+len(sh.working)-1)%len(sh.working)]++
	case succeed:
		s.done++
	case fail:
		sh.resting[(s.now+len(sh.resting)-1)%len(sh.resting)]++
	default:
	}
}

// countBehind counts the messages that wait for a write which was refused.
func (s *simulation) countBehind() (n int) {
	for _, sh := range s.shards {
		for _, waiting := range sh.waiting {
			n += waiting
		}
	}
	return n
}

// poisson draws how many of something happen where so many are expected.
func (s *simulation) poisson(mean float64) int {
	const piece = 30 // e^−30 is far from the smallest number
	n := 0
	for ; mean > piece; mean -= piece {
		n += s.poisson(piece)
	}
	for p, limit := s.random.Float64(), math.Exp(-mean); p > limit; p *= s.random.Float64() {
		n++
	}
	return n
}
