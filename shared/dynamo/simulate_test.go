package dynamo

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redrivehq/redrive/shared/virtual"
)

// simEpoch is when every world begins.
var simEpoch = virtual.New(0).Now

// scene is a queue with its claimers.
type scene struct {
	claimers int
	memories int // of so many instances; zero for one each
	batch    int
	shards   int
	filled   int           // shards that hold messages; zero for all
	lag      time.Duration // of the index
	work     time.Duration // on a message
	backlog  int
	arrivals int     // if there is a backlog, when that is done
	rate     float64 // arrivals a second
	leavers  int     // claimers that go when the backlog is done
	poll     time.Duration
	queue    string
	seed     uint64
}

// simMessage is a message of a scene.
type simMessage struct {
	entry
	due     time.Time
	put     time.Time
	claimed time.Time // zero: it is pending
}

// drama is a scene in progress.
type drama struct {
	scene
	*virtual.World
	pending [][]*simMessage // by shard, in the order of the index
	byPK    map[string]*simMessage
	sent    int
	won     []*simMessage // in order
	outcome
}

// outcome is what has been counted.
type outcome struct {
	claims    int // messages handed out
	calls     int // that handed something out
	lost      int // writes
	queries   int
	readUnits float64
	empty     int // answers, though something was due
	left      int
	twice     int
	missing   int
	waited    time.Duration // from due to claimed, all together
	took      time.Duration
	meanOff   float64 // places from first in, first out
	maxOff    int
	order     []int // in which the messages were handed out
}

func (o outcome) String() string {
	n := float64(max(o.claims, 1))
	return fmt.Sprintf("%6d claims, %4.0f/s: %5.3f lost, %4.2f RRU, %4.2f queries, %5.3f empty, %5.3f left, "+
		"wait %6.1f ms, off %.1f/%d, %d twice, %d missing", o.claims, n/o.took.Seconds(), float64(o.lost)/n,
		o.readUnits/n, float64(o.queries)/n, float64(o.empty)/n, float64(o.left)/n,
		o.waited.Seconds()*1e3/n, o.meanOff, o.maxOff, o.twice, o.missing)
}

func (o outcome) lostPerClaim() float64 { return float64(o.lost) / float64(max(o.claims, 1)) }

// run plays the scene to its end.
func (s scene) play() outcome {
	s.batch, s.shards = max(s.batch, 1), max(s.shards, 1)
	s.filled = cmp.Or(s.filled, s.shards)
	s.queue = cmp.Or(s.queue, "emails")
	s.memories = cmp.Or(s.memories, s.claimers)
	p := &drama{
		scene: s, World: virtual.New(s.seed), pending: make([][]*simMessage, s.shards), byPK: make(map[string]*simMessage),
	}
	for i := range s.backlog {
		p.put(p.Now.Add(-time.Minute + time.Duration(i)*time.Millisecond))
	}
	for _, m := range p.byPK { // they have been in the index for long
		m.put = m.due
	}
	if s.arrivals > 0 {
		p.Begin(func(sleep func(time.Duration)) {
			for len(p.won) < p.backlog {
				sleep(p.poll)
			}
			for range s.arrivals {
				sleep(time.Duration(-math.Log(1-p.Random.Float64()) / s.rate * float64(time.Second)))
				p.put(p.Now.Truncate(time.Millisecond))
			}
		})
	}
	memories := make([][]*shard, s.memories)
	for i := range memories {
		c := new(crowd)
		for range s.shards {
			memories[i] = append(memories[i], &shard{crowd: c})
		}
	}
	for i := range s.claimers {
		memory := memories[i%s.memories]
		p.Begin(func(sleep func(time.Duration)) {
			sleep(p.Between(0, time.Duration(s.batch)*s.work))
			p.claimAll(sleep, memory, i < s.leavers)
		})
	}
	p.Run()
	return p.count()
}

func (p *drama) put(due time.Time) {
	i := p.sent
	p.sent++
	id := fmt.Sprintf("msg_%026d", i)
	m := &simMessage{entry: entry{messagePK(p.queue, id), sortKey(due, id)}, due: due, put: p.Now}
	sh := i % p.filled
	p.byPK[m.pk] = m
	p.pending[sh] = append(p.pending[sh], m)
}

// claimAll claims and works until all is done.
func (p *drama) claimAll(sleep func(time.Duration), memory []*shard, leaves bool) {
	for len(p.won) < p.backlog+p.arrivals && (!leaves || len(p.won) < p.backlog) {
		won := p.claim(sleep, memory)
		p.claims += len(won)
		if len(won) > 0 {
			p.calls++
			sleep(time.Duration(len(won)) * p.work)
			continue
		}
		for _, sh := range p.pending {
			if slices.ContainsFunc(sh[:min(len(sh), 1_000)], func(m *simMessage) bool { return m.claimed.IsZero() }) {
				p.empty++
				break
			}
		}
		sleep(p.poll)
	}
}

// claim is Store.claim, and waits for the requests in virtual time.
func (p *drama) claim(sleep func(time.Duration), memory []*shard) (won []entry) {
	way := beginWalk(p.shards, p.Random.Float64)
	for len(won) < p.batch {
		i, ok := way.next(func(i int) bool { return memory[i].empty(p.Now) })
		if !ok {
			break
		}
		h := memory[i].begin(p.batch-len(won), pageOf(p.queue), p.Now, p.Random.Float64)
		p.look(sleep, h, i)
		won = append(won, p.take(sleep, h)...)
		if h.left {
			p.left++
		}
	}
	return won
}

func (p *drama) look(sleep func(time.Duration), h *hunt, i int) {
	limit, behind, now := h.limit(), "", p.Now
	for range 2 {
		half := p.Between(3*time.Millisecond, 7*time.Millisecond) / 2
		sleep(half)
		page := p.query(i, until(now), behind, limit)
		sleep(half)
		if h.seen(slices.Clone(page), len(page) == limit, p.Now) || len(page) < limit {
			return
		}
		behind = page[len(page)-1].due
	}
}

// query returns what the index showed a while ago.
func (p *drama) query(i int, high, behind string, limit int) []entry {
	p.queries++
	at := p.Now.Add(-p.lag)
	for len(p.pending[i]) > 0 && !p.pending[i][0].claimed.IsZero() && !p.pending[i][0].claimed.After(at) {
		p.pending[i] = p.pending[i][1:]
	}
	var page []entry
	for _, m := range p.pending[i] {
		if len(page) == limit || m.entry.due > high {
			break
		}
		if m.put.After(at) || m.entry.due <= behind || !m.claimed.IsZero() && !m.claimed.After(at) {
			continue
		}
		page = append(page, m.entry)
	}
	bytes := max(len(page)*(entryBytes+2*len(p.queue)), 1)
	p.readUnits += float64((bytes+pageBytes-1)/pageBytes) / 2
	return page
}

func (p *drama) take(sleep func(time.Duration), h *hunt) (won []entry) {
	for block := h.pick(p.Now); len(block) > 0; block = h.pick(p.Now) {
		if len(p.write(sleep, block[:1])) == 0 {
			h.lost(block, p.Now)
			continue
		}
		rest := p.write(sleep, block[1:])
		h.won(len(block)-1-len(rest), len(block)-1, p.Now)
		return append(block[:1], rest...)
	}
	h.none(p.Now)
	return nil
}

// write writes all at once, and returns what is won.
func (p *drama) write(sleep func(time.Duration), entries []entry) (won []entry) {
	if len(entries) == 0 {
		return nil
	}
	half := make([]time.Duration, len(entries))
	for i := range half {
		half[i] = p.Between(3*time.Millisecond, 7*time.Millisecond) / 2
	}
	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(half[a], half[b]) })
	begun := p.Now
	for _, i := range order {
		sleep(begun.Add(half[i]).Sub(p.Now))
		m := p.byPK[entries[i].pk]
		if m.claimed.IsZero() {
			m.claimed = p.Now
			p.won = append(p.won, m)
			won = append(won, m.entry)
		} else {
			p.lost++
		}
	}
	sleep(half[order[len(order)-1]])
	return won
}

func (p *drama) count() outcome {
	o := p.outcome
	order := slices.Clone(p.won)
	slices.SortStableFunc(order, func(a, b *simMessage) int { return cmp.Compare(a.entry.due, b.entry.due) })
	place := make(map[*simMessage]int)
	for i, m := range order {
		place[m] = i
	}
	o.twice = len(p.won) - len(place)
	o.missing = p.sent - len(place)
	var end time.Time
	for i, m := range p.won {
		o.order = append(o.order, place[m])
		off := i - place[m]
		off = max(off, -off)
		o.meanOff += float64(off) / float64(len(p.won))
		o.maxOff = max(o.maxOff, off)
		if i >= p.backlog {
			o.waited += m.claimed.Sub(m.due)
		}
		if m.claimed.After(end) {
			end = m.claimed
		}
	}
	o.took = end.Sub(simEpoch)
	return o
}
