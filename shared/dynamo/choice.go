package dynamo

import (
	"math"
	"slices"
	"time"
)

// What one claimer does not know of the others it learns from lost writes. Each
// instance keeps for a queue how many others seem to be at a shard of it, its
// spread, and picks its entry among so many at random. A lone claimer has a spread
// of 1 and takes the first, always. The numbers were found by measurement: see
// docs/decisions/0014-claims.md. Nothing here waits, reads a clock or asks
// DynamoDB: tests run it in virtual time.

const (
	recentFor  = 2 * time.Second        // how long an entry that was tried is left alone
	widenedFor = 10 * time.Second       // how long the others are believed to be there
	nothingFor = time.Second            // how long an empty shard is passed over
	patience   = 400 * time.Millisecond // how long an overdue message may be left to others, times spread
	lostMost   = 3                      // lost writes before the next shard is tried
	pagesMost  = 4                      // read to choose one message; twice as many for a block of them
	blocksMost = 32                     // that claims of several messages spread over
	pageBytes  = 4096                   // of index for half a read unit
	entryBytes = 106                    // of an index entry, without twice the queue's name
	wideFactor = 4                      // by which a lost write widens the spread
	narrowWon  = 7.0 / 8                // by which a claim that got what it tried narrows it
	narrowLeft = 0.95                   // by which one that came away with nothing does
)

// pageOf returns how many entries of the queue DynamoDB reads for the price of one.
func pageOf(queue string) int { return pageBytes / (entryBytes + 2*len(queue)) }

// walk is the way of one claim through the shards of a queue: from a random one
// on, past those that gave nothing a moment ago, but into one at least.
type walk struct {
	begin, shards int
	gone          int // how far
	looked        bool
}

func beginWalk(shards int, random func() float64) *walk {
	return &walk{begin: draw(shards, random), shards: shards}
}

// next returns the shard to look into; false if there is none left.
func (w *walk) next(empty func(shard int) bool) (shard int, ok bool) {
	for w.gone < w.shards {
		shard := (w.begin + w.gone) % w.shards
		w.gone++
		if w.gone == w.shards && !w.looked || !empty(shard) {
			w.looked = true
			return shard, true
		}
	}
	return 0, false
}

// draw returns a random number in [0, n).
func draw(n int, random func() float64) int { return min(int(random()*float64(n)), n-1) }

// entry is what the index shows of a message.
type entry struct {
	pk  string
	due string // the sort key
}

// crowd is what an instance has learnt of the others who claim from a queue. They
// all walk through all shards: what shows in one of them holds for the others.
type crowd struct {
	spread  float64   // how many blocks to choose from; less than 1: that is not known
	widened time.Time // when a write was last lost
}

// shard is what an instance remembers of one shard of a queue. Any of it may be
// lost at any time.
type shard struct {
	*crowd
	nothing time.Time           // when the shard last gave nothing
	recent  map[entry]time.Time // tried here a short while ago, and perhaps still in the index
	cleared time.Time           // when recent was last cleared of old ones
}

// within reports whether now is less than so long after t, which is in the past.
func within(limit time.Duration, t, now time.Time) bool {
	age := now.Sub(t)
	return !t.IsZero() && age >= 0 && age < limit
}

// empty reports whether the shard gave nothing a moment ago.
func (sh *shard) empty(now time.Time) bool { return within(nothingFor, sh.nothing, now) }

// note remembers that the entries are being tried.
func (sh *shard) note(now time.Time, entries ...entry) {
	if !within(recentFor, sh.cleared, now) {
		for e, tried := range sh.recent {
			if !within(recentFor, tried, now) {
				delete(sh.recent, e)
			}
		}
		sh.cleared = now
	}
	if sh.recent == nil {
		sh.recent = make(map[entry]time.Time)
	}
	for _, e := range entries {
		sh.recent[e] = now
	}
}

// free takes back that the entries are being tried.
func (sh *shard) free(entries []entry) {
	for _, e := range entries {
		delete(sh.recent, e)
	}
}

// hunt is one claim's choice in one shard. Its methods are called in turn, under
// the lock of the store: seen, then pick, and for what it picked won, lost or
// failed, until one is won or nothing is picked: then none.
type hunt struct {
	*shard
	block  int // messages wanted: neighbours are taken together
	page   int
	random func() float64

	slot    int     // the block to try
	entries []entry // to choose from
	full    bool    // there are more than those
	losses  int
	left    bool // to others
}

// begin returns a hunt for up to block messages.
func (sh *shard) begin(block, page int, now time.Time, random func() float64) *hunt {
	h := &hunt{shard: sh, block: block, page: page, random: random}
	if !within(widenedFor, sh.widened, now) {
		h.spread = 1
	}
	h.spread = min(max(h.spread, 1), h.most())
	h.slot = h.anySlot()
	return h
}

// most is as wide as the spread may become.
func (h *hunt) most() float64 {
	if h.block > 1 {
		return blocksMost
	}
	return float64(pagesMost * h.page)
}

func (h *hunt) anySlot() int { return draw(int(math.Ceil(h.spread)), h.random) }

// limit is how many entries to read: whole pages, to the end of the block to try.
func (h *hunt) limit() int {
	pages := pagesMost
	if h.block > 1 {
		pages *= 2
	}
	return h.page * min(((h.slot+1)*h.block-1)/h.page+1, pages)
}

// seen takes the entries that the index shows, in order. It reports false if all
// of a full page are being tried here: then the page behind it is worth a look.
func (h *hunt) seen(entries []entry, full bool, now time.Time) bool {
	h.entries, h.full = entries, full
	h.dropTried(now)
	return len(h.entries) > 0 || !full
}

// dropTried leaves out the entries that this instance has tried or is trying.
func (h *hunt) dropTried(now time.Time) {
	h.entries = slices.DeleteFunc(h.entries, func(e entry) bool { return within(recentFor, h.recent[e], now) })
}

// pick returns the entries to try: the first alone, and if it is won the rest of
// its block. None, if there is nothing to try, or others enough who try it.
func (h *hunt) pick(now time.Time) []entry {
	h.dropTried(now) // what others have picked in between
	n := (len(h.entries) + h.block - 1) / h.block
	if n == 0 || h.losses == lostMost {
		return nil
	}
	if h.left = h.leave(n, now); h.left {
		return nil
	}
	if h.slot >= n {
		h.slot = draw(n, h.random)
	}
	from := h.slot * h.block
	block := slices.Clone(h.entries[from:min(from+h.block, len(h.entries))])
	h.note(now, block...)
	return block
}

// leave decides whether the shard is left to the others who are at it: with fewer
// blocks than claimers most would lose. Nothing waits long, as the chance to try
// grows with the time that the first entry is overdue.
func (h *hunt) leave(n int, now time.Time) bool {
	if h.full || h.spread <= float64(n) {
		return false
	}
	first, _ := splitSortKey(h.entries[0].due)
	overdue := max(now.Sub(first), 0)
	return h.random() >= float64(n)*(1+float64(overdue)/float64(patience))/h.spread
}

// won ends the hunt: the first entry of the block was won, and of the rest behind
// it so many were lost. More than a quarter: others are at it.
func (h *hunt) won(lost, rest int, now time.Time) {
	if lost*4 > rest {
		h.widen(now)
		return
	}
	h.spread = max(1, h.spread*narrowWon)
}

// lost goes on after the first entry of the block was lost. The others of the
// block are free again.
func (h *hunt) lost(block []entry, now time.Time) {
	h.free(block[1:])
	h.losses++
	h.widen(now)
	h.slot = h.anySlot()
}

// failed ends the hunt where nobody knows what became of the entries.
func (h *hunt) failed(entries []entry) { h.free(entries) }

// none ends the hunt without a message. An empty shard says nothing of the others.
func (h *hunt) none(now time.Time) {
	h.nothing = now
	if len(h.entries) > 0 {
		h.spread = max(1, h.spread*narrowLeft)
	}
}

func (h *hunt) widen(now time.Time) {
	h.spread = min(h.most(), max(2, wideFactor*h.spread))
	h.widened = now
}
