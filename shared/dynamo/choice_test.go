package dynamo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seeded returns random numbers that are the same each time.
func seeded() func() float64 { return rand.New(rand.NewPCG(1, 2)).Float64 }

// always returns the same number, as if it were random.
func always(x float64) func() float64 { return func() float64 { return x } }

const highest01 = 1 - 1.0/(1<<53) // the last number before 1

// queued returns n entries of messages that became due one millisecond after the
// other, the last one now.
func queued(n int) []entry {
	entries := make([]entry, n)
	for i := range entries {
		id := fmt.Sprintf("msg_%026d", i)
		entries[i] = entry{messagePK("emails", id), sortKey(simEpoch.Add(time.Duration(i-n+1)*time.Millisecond), id)}
	}
	return entries
}

func newShard(spread float64) *shard {
	return &shard{crowd: &crowd{spread: spread, widened: simEpoch}}
}

// hunting returns a hunt that sees the entries.
func hunting(sh *shard, block int, random func() float64, entries []entry, full bool) *hunt {
	h := sh.begin(block, pageOf("emails"), simEpoch, random)
	h.seen(slices.Clone(entries), full, simEpoch)
	return h
}

func TestAPageIsWhatOneReadUnitHolds(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]int{1: 37, 6: 34, 11: 32, 24: 26, 128: 11} {
		if got := pageOf(strings.Repeat("q", length)); got != want {
			t.Errorf("pageOf(a name of %d bytes) = %d, want %d", length, got, want)
		}
	}
}

func TestAnEntryIsAsLargeAsAssumed(t *testing.T) {
	t.Parallel()
	// A page that is a little too large costs twice as much.
	const queue = "emails"
	id := "msg_" + strings.Repeat("0", 26)
	e := primary(messagePK(queue, id), skMessage)
	e[attrQueueStatus], e[attrDue] = text(partition("pending", 1, queue)), text(sortKey(simEpoch, id))
	if got, want := itemSize(e), entryBytes+2*len(queue); got != want {
		t.Errorf("an index entry is %d bytes, want %d", got, want)
	}
}

func TestAsMuchIsReadAsTheSlotNeeds(t *testing.T) {
	t.Parallel()
	const page = 34
	for _, tt := range []struct {
		block, slot, pages int
	}{
		{1, 0, 1},
		{1, page - 1, 1},
		{1, page, 2},
		{1, 2*page - 1, 2},
		{1, 3 * page, 4},
		{1, 4*page - 1, 4},
		{1, 9 * page, 4},
		{10, 0, 1},
		{10, 2, 1}, // to entry 29
		{10, 3, 2}, // to entry 39
		{10, 26, 8},
		{10, 31, 8},
		{2, 16, 1},
		{2, 17, 2},
	} {
		h := &hunt{block: tt.block, page: page, slot: tt.slot}
		if got := h.limit(); got != tt.pages*page {
			t.Errorf("for slot %d of blocks of %d: limit %d, want %d pages", tt.slot, tt.block, got, tt.pages)
		}
	}
}

func TestALoneClaimerTakesTheFirstAlways(t *testing.T) {
	t.Parallel()
	sh, entries := newShard(0), queued(500)
	random := seeded()
	for i := range entries {
		// The index shows all that was claimed before.
		h := sh.begin(1, 34, simEpoch, random)
		for from := 0; !h.seen(slices.Clone(entries[from:min(from+34, len(entries))]), from+34 < len(entries), simEpoch); {
			from += 34
		}
		if got := h.pick(simEpoch); len(got) != 1 || got[0] != entries[i] {
			t.Fatalf("choice %d = %v, want %v", i, got, entries[i])
		}
		h.won(0, 0, simEpoch)
	}
}

func TestALostWriteWidensAndAWonOneNarrowsTheSpread(t *testing.T) {
	t.Parallel()
	const page = 34
	later := simEpoch.Add(time.Second)
	lose := func(h *hunt) { h.lost(h.pick(later), later) }
	for _, tt := range []struct {
		name   string
		block  int
		spread float64
		do     func(*hunt)
		want   float64
	}{
		{"a lost write", 1, 1, lose, 4},
		{"another", 1, 4, lose, 16},
		{"a lost write at the cap", 1, 100, lose, 4 * page},
		{"a lost block", 10, 1, lose, 4},
		{"a lost block at the cap", 10, 20, lose, 32},
		{"a won write", 1, 16, func(h *hunt) { h.won(0, 0, later) }, 14},
		{"a won write of a lone claimer", 1, 1, func(h *hunt) { h.won(0, 0, later) }, 1},
		{"a block won", 10, 16, func(h *hunt) { h.won(0, 9, later) }, 14},
		{"a quarter of the rest lost", 9, 16, func(h *hunt) { h.won(2, 8, later) }, 14},
		{"more than a quarter of the rest lost", 10, 4, func(h *hunt) { h.won(3, 9, later) }, 16},
		{"nothing won though something is due", 1, 20, func(h *hunt) { h.none(later) }, 19},
		{"nothing won by a lone claimer", 1, 1, func(h *hunt) { h.none(later) }, 1},
		{"nothing due", 1, 20, func(h *hunt) { h.entries = nil; h.none(later) }, 20},
		{"a write whose outcome is unknown", 1, 20, func(h *hunt) { h.failed(h.pick(later)) }, 20},
	} {
		sh := newShard(tt.spread)
		h := hunting(sh, tt.block, seeded(), queued(40), true)
		tt.do(h)
		if math.Abs(sh.spread-tt.want) > 1e-9 {
			t.Errorf("after %s the spread is %v, want %v", tt.name, sh.spread, tt.want)
		}
	}
}

func TestTheOthersAreForgottenTenSecondsAfterTheLastLostWrite(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]float64{
		-time.Second: 1, // the clock was set back
		0:            50, widenedFor - time.Millisecond: 50, widenedFor: 1, time.Hour: 1,
	} {
		sh := newShard(50)
		sh.begin(1, 34, simEpoch.Add(after), seeded())
		if sh.spread != want {
			t.Errorf("%v after a lost write the spread is %v, want %v", after, sh.spread, want)
		}
	}
	sh := new(shard{crowd: new(crowd)})
	if sh.begin(1, 34, simEpoch, always(highest01)); sh.spread != 1 {
		t.Errorf("at first the spread is %v, want 1", sh.spread)
	}
}

func TestTheSpreadOfClaimsAndOfBlocksHaveCapsOfTheirOwn(t *testing.T) {
	t.Parallel()
	sh := newShard(136)
	if sh.begin(10, 34, simEpoch, seeded()); sh.spread != blocksMost {
		t.Errorf("the spread of blocks is %v, want %v", sh.spread, blocksMost)
	}
	sh = newShard(136)
	if sh.begin(1, 11, simEpoch, seeded()); sh.spread != 44 {
		t.Errorf("the spread of entries by 11 is %v, want 44", sh.spread)
	}
}

func TestASlotIsAnyOfTheSpread(t *testing.T) {
	t.Parallel()
	random := seeded()
	seen := make(map[int]int)
	for range 10_000 {
		seen[newShard(3.5).begin(1, 34, simEpoch, random).slot]++
	}
	for slot := range 4 {
		if n := seen[slot]; n < 2_300 || n > 2_700 {
			t.Errorf("slot %d was drawn %d times of 10,000, want a quarter", slot, n)
		}
	}
	if len(seen) != 4 {
		t.Errorf("slots %v were drawn, want 0 to 3", seen)
	}
}

func TestASlotBehindTheLastEntryIsDrawnAgain(t *testing.T) {
	t.Parallel()
	entries, random := queued(5), seeded()
	seen := make(map[entry]int)
	for range 1_000 {
		h := hunting(newShard(100), 1, random, entries, true)
		for _, e := range h.pick(simEpoch) {
			seen[e]++
		}
	}
	for _, e := range entries {
		if seen[e] < 150 {
			t.Errorf("%v was chosen %d times of 1,000, want about 200", e, seen[e])
		}
	}
}

func TestAnEntryThatWasTriedIsLeftAloneForTwoSeconds(t *testing.T) {
	t.Parallel()
	entries := queued(3)
	sh := newShard(1)
	first := hunting(sh, 1, seeded(), entries, false)
	if got := first.pick(simEpoch); !slices.Equal(got, entries[:1]) {
		t.Fatalf("pick = %v, want the first", got)
	}
	for after, want := range map[time.Duration]entry{
		0: entries[1], recentFor - time.Millisecond: entries[1], recentFor: entries[0],
		-time.Second: entries[0], // the clock was set back
	} {
		now := simEpoch.Add(after)
		h := sh.begin(1, 34, now, seeded())
		h.seen(slices.Clone(entries), false, now)
		got := h.pick(now)
		if len(got) != 1 || got[0] != want {
			t.Errorf("%v later pick = %v, want %v", after, got, want)
		}
		h.failed(got) // as if it had not been
		sh.note(simEpoch, entries[0])
	}
}

func TestWhatOthersOfTheInstancePickedSinceIsLeftToThem(t *testing.T) {
	t.Parallel()
	entries := queued(30)
	sh := newShard(1)
	var hunts []*hunt
	for range 3 {
		hunts = append(hunts, hunting(sh, 10, seeded(), entries, false)) // all have seen the same
	}
	var got []entry
	for _, h := range hunts {
		got = append(got, h.pick(simEpoch)...)
	}
	if !slices.Equal(got, entries) {
		t.Errorf("three claims of ten picked %v, want each entry once", got)
	}
	if late := hunting(sh, 10, seeded(), entries, false); late.pick(simEpoch) != nil {
		t.Error("a fourth one picked something that was picked before")
	}
}

func TestAFullPageOfWhatIsTriedHereAsksForThePageBehindIt(t *testing.T) {
	t.Parallel()
	entries := queued(68)
	sh := newShard(1)
	sh.note(simEpoch, entries[:34]...)
	h := sh.begin(1, 34, simEpoch, seeded())
	if h.seen(slices.Clone(entries[:34]), true, simEpoch) {
		t.Error("seen = enough, want a look at the page behind")
	}
	if !h.seen(slices.Clone(entries[34:]), false, simEpoch) {
		t.Error("seen = not enough, of a page of new ones")
	}
	if got := h.pick(simEpoch); !slices.Equal(got, entries[34:35]) {
		t.Errorf("pick = %v, want the first of the second page", got)
	}
	sh.note(simEpoch, entries...)
	if !sh.begin(1, 34, simEpoch, seeded()).seen(slices.Clone(entries[:10]), false, simEpoch) {
		t.Error("seen = not enough, want the last page to be the last")
	}
}

func TestMemoryOfWhatWasTriedIsBounded(t *testing.T) {
	t.Parallel()
	sh := newShard(1)
	for i := range 100_000 { // 1,000 a second
		now := simEpoch.Add(time.Duration(i) * time.Millisecond)
		sh.note(now, entry{pk: strconv.Itoa(i)})
	}
	if n := len(sh.recent); n < 2_000 || n > 4_000 {
		t.Errorf("%d entries are remembered, want those of two to four seconds", n)
	}
}

func TestThreeLostWritesEndTheHunt(t *testing.T) {
	t.Parallel()
	sh, entries := newShard(1), queued(100)
	h := hunting(sh, 1, seeded(), entries, true)
	tried := make(map[entry]bool)
	for range lostMost {
		block := h.pick(simEpoch)
		if len(block) != 1 || tried[block[0]] {
			t.Fatalf("pick = %v, want another one", block)
		}
		tried[block[0]] = true
		h.lost(block, simEpoch)
	}
	if got := h.pick(simEpoch); got != nil {
		t.Errorf("the fourth pick = %v, want none", got)
	}
	for e := range tried { // they stay remembered: the index may show them for long
		if _, ok := sh.recent[e]; !ok {
			t.Errorf("%v was lost and is forgotten", e)
		}
	}
}

func TestTheRestOfABlockIsFreeWhenItsFirstIsLost(t *testing.T) {
	t.Parallel()
	sh, entries := newShard(1), queued(25)
	h := hunting(sh, 10, always(0), entries, false)
	block := h.pick(simEpoch)
	if !slices.Equal(block, entries[:10]) {
		t.Fatalf("pick = %v, want the first ten", block)
	}
	if got := hunting(sh, 10, always(0), entries, false).pick(simEpoch); !slices.Equal(got, entries[10:20]) {
		t.Fatalf("another pick = %v, want the ten behind", got)
	}
	h.lost(block, simEpoch)
	if got := h.pick(simEpoch); !slices.Equal(got, append(slices.Clone(entries[1:10]), entries[20])) {
		t.Errorf("pick after the loss = %v, want the nine others and the next", got)
	}
}

func TestTheLastBlockMayBeShort(t *testing.T) {
	t.Parallel()
	entries := queued(23)
	h := hunting(newShard(3), 10, always(highest01), entries, true)
	if got := h.pick(simEpoch); !slices.Equal(got, entries[20:]) {
		t.Errorf("pick = %v, want the last three", got)
	}
}

// TestAShardIsLeftToOthers compares how often it is with what the rule says.
func TestAShardIsLeftToOthers(t *testing.T) {
	t.Parallel()
	const times = 20_000
	for _, tt := range []struct {
		entries, block int
		spread         float64
		full           bool
		overdue        time.Duration
		want           float64 // of all times
	}{
		{1, 1, 1, false, 0, 0},
		{1, 1, 4, false, 0, 0.75},
		{1, 1, 4, false, patience, 0.5},
		{1, 1, 4, false, 3 * patience, 0},
		{1, 1, 4, false, time.Hour, 0},
		{1, 1, 4, false, -time.Hour, 0.75}, // by whatever clock
		{3, 1, 4, false, 0, 0.25},
		{4, 1, 4, false, 0, 0},
		{1, 1, 100, true, 0, 0}, // there are more than it has seen
		{10, 10, 4, false, 0, 0.75},
		{11, 10, 4, false, 0, 0.5},
	} {
		random := seeded()
		left := 0
		entries := queued(tt.entries)
		first, _ := splitSortKey(entries[0].due)
		for range times {
			h := newShard(tt.spread).begin(tt.block, 34, simEpoch, random)
			h.seen(slices.Clone(entries), tt.full, simEpoch)
			if got := h.pick(first.Add(tt.overdue)); (got == nil) != h.left {
				t.Fatalf("pick = %v, though left is %v", got, h.left)
			}
			if h.left {
				left++
			}
		}
		if got := float64(left) / times; math.Abs(got-tt.want) > 0.02 {
			t.Errorf("%d entries in blocks of %d, spread %v, overdue %v: left %.3f of the times, want %.3f",
				tt.entries, tt.block, tt.spread, tt.overdue, got, tt.want)
		}
	}
}

func TestTheOthersAreTheSameInAllShardsOfAQueue(t *testing.T) {
	t.Parallel()
	store := New(Options{})
	mail, orders := &claimer{Store: store, queue: "mail"}, &claimer{Store: store, queue: "orders"}
	mail.memory(3).begin(1, 34, simEpoch, seeded()).widen(simEpoch)
	for i := range 5 {
		if got := mail.memory(i).spread; got != wideFactor {
			t.Errorf("the spread in shard %d is %v, want %v", i, got, wideFactor)
		}
	}
	if got := orders.memory(3).spread; got > 1 {
		t.Errorf("the spread in another queue is %v, want none", got)
	}
	first := mail.memory(1)
	if again := mail.memory(1); again != first || again == mail.memory(2) {
		t.Error("what was tried is not remembered for each shard by itself")
	}
}

func TestAShardThatGaveNothingIsPassedOverForASecond(t *testing.T) {
	t.Parallel()
	sh := newShard(1)
	if sh.empty(simEpoch) {
		t.Error("a shard that nobody looked into is passed over")
	}
	hunting(sh, 1, seeded(), nil, false).none(simEpoch)
	for after, want := range map[time.Duration]bool{
		-time.Millisecond: false, 0: true, nothingFor - time.Millisecond: true, nothingFor: false, time.Hour: false,
	} {
		if got := sh.empty(simEpoch.Add(after)); got != want {
			t.Errorf("%v later empty = %v, want %v", after, got, want)
		}
	}
}

func TestAWalkGoesRoundAllShardsAndLooksIntoOneAtLeast(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		random float64
		empty  []int
		want   []int
	}{
		{"from the first", 0, nil, []int{0, 1, 2, 3}},
		{"from any", 0.5, nil, []int{2, 3, 0, 1}},
		{"from the last", highest01, nil, []int{3, 0, 1, 2}},
		{"past the empty ones", 0.5, []int{3, 1}, []int{2, 0}},
		{"past the first", 0.5, []int{2}, []int{3, 0, 1}},
		{"to the last if all are empty", 0.5, []int{0, 1, 2, 3}, []int{1}},
		{"to the last if all others are empty", 0.5, []int{0, 2, 3}, []int{1}},
	} {
		w := beginWalk(4, always(tt.random))
		var got []int
		for {
			shard, ok := w.next(func(shard int) bool { return slices.Contains(tt.empty, shard) })
			if !ok {
				break
			}
			got = append(got, shard)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("a walk %s goes %v, want %v", tt.name, got, tt.want)
		}
	}
}

// In virtual time: requests take 3 to 7 ms, the index lags, and each claimer has
// a memory of its own unless it says otherwise.

var crowded = scene{
	claimers: 64, work: 130 * time.Millisecond, lag: 20 * time.Millisecond, poll: 100 * time.Millisecond,
}

// with returns the scene changed.
func (s scene) with(change func(*scene)) scene {
	change(&s)
	return s
}

// TestClaimersSeldomTryTheSame has the goals of issue 4, and what they were
// derived from.
func TestClaimersSeldomTryTheSame(t *testing.T) {
	t.Parallel()
	backlog := crowded.with(func(s *scene) { s.backlog = 10_000 })
	busy := crowded.with(func(s *scene) { s.arrivals, s.rate = 6_000, 411 })
	idle := crowded.with(func(s *scene) { s.arrivals, s.rate = 2_000, 91 })
	sharded := func(s scene) scene { s.shards = 16; return s }
	tens := func(s scene) scene { s.batch = 10; return s }
	for _, tt := range []struct {
		name string
		scene
		lost float64       // writes per claim, at most
		wait time.Duration // on average, at most; zero: that of the backlog
	}{
		{"a backlog", backlog, 0.3, 0},
		{"a backlog, an index without a lag", backlog.with(func(s *scene) { s.lag = 0 }), 0.2, 0},
		{"a backlog in 16 shards", sharded(backlog), 0.3, 0},
		{"a backlog in one of 16 shards", sharded(backlog).with(func(s *scene) { s.filled = 1 }), 0.3, 0},
		{"as fast as worked off", busy, 0.45, 300 * time.Millisecond},
		{"as fast as worked off in 16 shards", sharded(busy), 0.45, 500 * time.Millisecond},
		{"mostly idle", idle, 0.8, 200 * time.Millisecond},
		{"mostly idle in 16 shards", sharded(idle), 0.8, 250 * time.Millisecond},
		{"batches of ten", tens(backlog), 0.1, 0},
		{"batches of ten in 16 shards", tens(sharded(backlog)), 0.1, 0},
		{"a few, mostly idle", scene{
			claimers: 8, arrivals: 1_000, rate: 11,
			work: 130 * time.Millisecond, lag: 20 * time.Millisecond, poll: 100 * time.Millisecond,
		}, 0.5, 250 * time.Millisecond},
		{"256 with a backlog", backlog.with(func(s *scene) {
			s.claimers, s.work = 256, 4*s.work
		}), 0.8, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := tt.play()
			t.Log(o)
			if o.twice != 0 || o.missing != 0 {
				t.Errorf("%d messages were handed out twice, %d not at all", o.twice, o.missing)
			}
			if got := o.lostPerClaim(); got > tt.lost {
				t.Errorf("%.3f writes were lost per claim, want at most %.2f", got, tt.lost)
			}
			if got := o.waited / time.Duration(o.claims); got > tt.wait {
				t.Errorf("messages waited %v on average, want at most %v", got, tt.wait)
			}
		})
	}
}

func TestALoneClaimerIsFirstInFirstOut(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond, 1_900 * time.Millisecond} {
		o := scene{claimers: 1, backlog: 3_000, lag: lag, poll: 100 * time.Millisecond}.play()
		if o.lost != 0 || o.maxOff != 0 || o.twice != 0 || o.missing != 0 {
			t.Errorf("an index that lags %v: %v, want all in order, and nothing lost", lag, o)
		}
	}
}

func TestALoneClaimerIsInOrderAgainSoonAfterACrowd(t *testing.T) {
	t.Parallel()
	crowd := crowded.with(func(s *scene) { s.backlog, s.arrivals, s.rate, s.leavers = 3_000, 100, 2, 63 })
	o := crowd.play()
	if got := o.waited / time.Duration(crowd.arrivals); got > time.Second || o.missing != 0 {
		t.Errorf("after the others went, messages waited %v: %v", got, o)
	}
	rest := o.order[crowd.backlog+30:]
	if !slices.IsSorted(rest) {
		t.Errorf("31 claims after the others went the order is %v", rest)
	}
}

func TestClaimersWithOneMemoryLoseNothing(t *testing.T) {
	t.Parallel()
	one := crowded.with(func(s *scene) { s.memories = 1 })
	for name, s := range map[string]scene{
		"a backlog":             one.with(func(s *scene) { s.backlog = 5_000 }),
		"a backlog, no work":    one.with(func(s *scene) { s.backlog, s.work = 5_000, 0 }),
		"as fast as worked off": one.with(func(s *scene) { s.arrivals, s.rate = 5_000, 411 }),
		"mostly idle":           one.with(func(s *scene) { s.arrivals, s.rate = 1_000, 91 }),
		"batches of ten":        one.with(func(s *scene) { s.backlog, s.batch = 5_000, 10 }),
		"16 shards":             one.with(func(s *scene) { s.backlog, s.shards = 5_000, 16 }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := s.play()
			t.Log(o)
			if o.lost != 0 || o.twice != 0 || o.missing != 0 {
				t.Errorf("%v, want nothing lost", o)
			}
			if s.shards < 2 && s.batch < 2 && o.maxOff > 40 {
				t.Errorf("a message was handed out %d places from its turn, want the order to be almost kept", o.maxOff)
			}
		})
	}
}
