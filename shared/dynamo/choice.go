package dynamo

import (
	"math"
	"slices"
	"time"
)

// What one claimer does not know of the others it learns from lost writes. Each
// instance keeps for a shard how many others seem to be at it, its spread, and
// picks its entry among so many at random. A lone claimer has a spread of 1 and
// takes the first, always. The numbers were found by measurement: see
// docs/decisions/0014-claims.md.

// entry is what the index shows of a message.
type entry struct {
	pk  string
	due string // the sort key
}

// shard is what an instance remembers of one shard of a queue. Any of it may be
// lost at any time.
type shard struct {
	spread  float64             // how many blocks to choose from, at least 1; 0 before the first claim
	widened time.Time           // when a write was last lost
	nothing time.Time           // when the shard last gave nothing
	recent  map[entry]time.Time // tried here a short while ago, and perhaps still in the index
}

const (
	recentFor   = 2 * time.Second        // how long an entry that was tried is left alone
	widenedFor  = 10 * time.Second       // how long the others are believed to be there
	nothingFor  = time.Second            // how long an empty shard is passed over
	patience    = 200 * time.Millisecond // how long an overdue message may be left to others, times spread
	lostMost    = 3                      // lost writes before the next shard is tried
	pagesMost   = 4                      // read to choose one message; twice as many for a block
	blocksMost  = 32                     // that claims of several messages spread over
	recentMost  = 512                    // entries remembered; past it the old ones are dropped
	pageBytes   = 4096                   // of index for one read unit, rounded up
	entryBytes  = 106                    // of an index entry, without twice the queue's name
	wideFactor  = 4                      // by which a lost write widens the spread
	narrowWon   = 7.0 / 8                // by which a claim that got what it tried narrows it
	narrowEmpty = 0.95                   // by which one that found nothing does
)

// pageOf returns how many entries of the queue one read unit holds.
func pageOf(queue string) int { return pageBytes / (entryBytes + 2*len(queue)) }

// empty reports whether the shard gave nothing a moment ago.
func (sh *shard) empty(now time.Time) bool {
	age := now.Sub(sh.nothing)
	return !sh.nothing.IsZero() && age >= 0 && age < nothingFor
}

// hunt is one claim's choice in one shard. Its methods are called in turn, under
// the lock of the shard: limit, seen, then pick and, for each pick, won or lost,
// until pick returns nothing.
type hunt struct {
	*shard
	block  int // messages wanted: neighbours are taken together
	page   int
	random func() float64

	slot    int
	entries []entry
	full    bool // there are more than those
	lost    int
	left    bool // to others
}

// begin returns a hunt for up to block messages.
func (sh *shard) begin(block, page int, now time.Time, random func() float64) *hunt {
	if age := now.Sub(sh.widened); sh.spread < 1 || age < 0 || age > widenedFor {
		sh.spread = 1
	}
	h := &hunt{shard: sh, block: block, page: page, random: random}
	h.redraw()
	return h
}

func (h *hunt) redraw() { h.slot = h.draw(int(math.Ceil(h.spread))) }

// draw returns a random number in [0, n).
func (h *hunt) draw(n int) int { return min(int(h.random()*float64(n)), n-1) }

// limit is how many entries to read.
func (h *hunt) limit() int {
	pages := pagesMost
	if h.block > 1 {
		pages *= 2
	}
	return h.page * min(((h.slot+1)*h.block-1)/h.page+1, pages)
}

// seen takes the entries that the index shows, in order, and drops those tried a
// short while ago. It reports false if that leaves nothing of a full page: then
// the page behind it is worth a look.
func (h *hunt) seen(entries []entry, full bool, now time.Time) bool {
	h.entries, h.full = h.entries[:0], full
	for _, e := range entries {
		if tried, ok := h.recent[e]; !ok || now.Sub(tried) > recentFor || now.Before(tried) {
			h.entries = append(h.entries, e)
		}
	}
	return len(h.entries) > 0 || !full
}

// blocks is how many there are to choose from.
func (h *hunt) blocks() int { return (len(h.entries) + h.block - 1) / h.block }

// pick returns the entries to try: the first alone, and if it is won the rest of
// its block. Nothing to try, or others enough who try it: none.
func (h *hunt) pick(now time.Time) []entry {
	n := h.blocks()
	if n == 0 || h.lost == lostMost {
		return nil
	}
	if h.left = h.leave(n, now); h.left {
		return nil
	}
	if h.slot >= n {
		h.slot = h.draw(n)
	}
	from := h.slot * h.block
	block := h.entries[from:min(from+h.block, len(h.entries))]
	h.note(now, block...)
	return block
}

// leave decides whether the shard is left to the others who are at it: with fewer
// entries than claimers most would lose. Nothing waits long, as the chance to try
// grows with the time that the first entry is overdue.
func (h *hunt) leave(n int, now time.Time) bool {
	if h.full || h.spread <= float64(n) {
		return false
	}
	first, _ := splitSortKey(h.entries[0].due)
	overdue := max(now.Sub(first), 0)
	return h.random() >= float64(n)*(1+float64(overdue)/float64(patience))/h.spread
}

// note remembers that the entries are being tried.
func (sh *shard) note(now time.Time, entries ...entry) {
	if sh.recent == nil {
		sh.recent = make(map[entry]time.Time)
	}
	if len(sh.recent) >= recentMost {
		for e, tried := range sh.recent {
			if now.Sub(tried) > recentFor {
				delete(sh.recent, e)
			}
		}
	}
	for _, e := range entries {
		sh.recent[e] = now
	}
}

// won ends the hunt with a block of which so many were lost behind the first. So
// many that others must have been at it widen the spread.
func (h *hunt) won(lostBehind, tried int, now time.Time) {
	if lostBehind*4 > tried {
		h.widen(now)
		return
	}
	h.spread = max(1, h.spread*narrowWon)
}

// lose goes on after the first entry of a block was lost.
func (h *hunt) lose(block []entry, now time.Time) {
	first := block[0]
	h.free(block[1:])
	h.lost++
	h.widen(now)
	h.entries = slices.DeleteFunc(h.entries, func(e entry) bool { return e == first })
	h.redraw()
}

// free takes back that the entries are being tried.
func (sh *shard) free(entries []entry) {
	for _, e := range entries {
		delete(sh.recent, e)
	}
}

func (h *hunt) widen(now time.Time) {
	most := pagesMost * h.page
	if h.block > 1 {
		most = blocksMost
	}
	h.spread = min(float64(most), max(2, wideFactor*h.spread))
	h.widened = now
}

// none ends the hunt without a message.
func (h *hunt) none(now time.Time) {
	h.spread = max(1, h.spread*narrowEmpty)
	h.nothing = now
}
