package storetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/redrivehq/redrive/shared/message"
)

// testModel does random things to two queues, and to a map that asks the same
// rules. Each answer must agree, and from time to time all that is stored.
func testModel(t *testing.T, open Open) {
	f := newFixture(t, open)
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		run := runs.Add(1)
		m := &model{
			ctx: t.Context(), store: f.store, f: f, now: epoch,
			queues:   []string{fmt.Sprintf("model-%d-a", run), fmt.Sprintf("model-%d-b", run)},
			messages: make(map[place]*kept),
		}
		set := message.DefaultSettings()
		set.DeadDays = m.deadDays(m.queues[0])
		_, _, err := m.store.PutQueue(m.ctx, message.Queue{Name: m.queues[0], CreatedAt: epoch, Settings: set})
		agree(rt, "PutQueue", err, nil)
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue": m.enqueue,
			"claim":   m.claim,
			"answer":  m.answer,
			"answer2": m.answer, // more often than the rest
			"again":   m.again,
			"replay":  m.replay,
			"delete":  m.delete,
			"sweep":   m.sweep,
			"wait":    m.wait,
			"": func(rt *rapid.T) {
				if m.steps++; m.steps%5 == 0 { // reading all of it takes longest
					m.check(rt)
				}
			},
		})
		m.check(rt)
	})
}

// place is where a message stands.
type place struct{ queue, id string }

// kept is what the model knows of a message.
type kept struct {
	message.Message
	attempts []message.Attempt
	receipts []string // that were ever handed out under its id
	versions []message.Message
}

// changed records the message as it is now. What identifies a version changes
// with every transition and never comes back; that is what makes a late write
// harmless. A count of events never falls, and a success is final.
func (k *kept) changed(rt *rapid.T, next message.Message) {
	rt.Helper()
	for _, was := range k.versions {
		if was.Status == next.Status && was.Due.Equal(next.Due) && was.Receipt == next.Receipt {
			rt.Fatalf("version came back: %+v, after %+v", next, k.Message)
		}
	}
	if now := k.Message; now.ID != "" && now.CreatedAt.Equal(next.CreatedAt) && now.Payload == next.Payload &&
		(next.ClaimCount < now.ClaimCount || next.ReplayCount < now.ReplayCount || now.Status == message.Succeeded) {
		rt.Fatalf("%+v became %+v", now, next)
	}
	k.Message = next
	k.versions = append(k.versions, next)
}

// model is a store that is a map.
type model struct {
	ctx      context.Context // of the whole test
	store    Store
	f        *fixture // says how far the index has settled
	now      time.Time
	queues   []string
	messages map[place]*kept
	done     []step
	fresh    int
	steps    int
}

// step is a transition that was asked for.
type step struct {
	place
	tr message.Transition
}

func same(rt *rapid.T, what string, got, want any) {
	rt.Helper()
	if reflect.DeepEqual(got, want) {
		return // as nearly always, and much faster
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		rt.Fatalf("%s differs (-model +store):\n%s", what, diff)
	}
}

func agree(rt *rapid.T, call string, got, want error) {
	rt.Helper()
	if !sameError(got, want) {
		rt.Fatalf("%s = %v, the model says %v", call, got, want)
	}
}

// unique returns a text that was not used before.
func (m *model) unique(prefix string) string {
	m.fresh++
	return fmt.Sprintf("%s%012d", prefix, m.fresh)
}

func (m *model) queue(rt *rapid.T) string { return rapid.SampledFrom(m.queues).Draw(rt, "queue") }

// place draws a message that is stored, or one that is not.
func (m *model) place(rt *rapid.T) place {
	var places []place
	for p := range m.messages {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b place) int {
		return slices.Compare([]string{a.queue, a.id}, []string{b.queue, b.id})
	})
	places = append(places, place{m.queues[0], keyed(0)}, place{m.queues[1], keyed(9)})
	return rapid.SampledFrom(places).Draw(rt, "message")
}

// keyed returns one of a few identifiers that are used again and again.
func keyed(n int) string { return fmt.Sprintf("msg_KEY%023d", n) }

func (m *model) wait(rt *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{
		ms, ms, time.Second, 2 * time.Second, 5 * time.Second, 33 * time.Second,
		time.Hour, 13 * time.Hour, 8 * day, 91 * day,
	}).Draw(rt, "wait"))
}

func (m *model) enqueue(rt *rapid.T) {
	msg := message.Message{
		Queue: m.queue(rt), Status: message.Pending, Payload: m.unique("payload "), Receipt: m.unique("nonce"),
		MaxRetries: rapid.IntRange(1, 3).Draw(rt, "max_retries"), MaxStalls: rapid.IntRange(1, 2).Draw(rt, "max_stalls"),
		CreatedAt: m.now, UpdatedAt: m.now,
	}
	msg.PayloadBytes = len(msg.Payload)
	msg.Due = m.now.Add(rapid.SampledFrom([]time.Duration{0, 0, 0, ms, 5 * time.Second}).Draw(rt, "delay"))
	if n := rapid.IntRange(0, 6).Draw(rt, "key"); n < 3 {
		msg.ID, msg.Fingerprint = keyed(n), "fingerprint"
	} else {
		msg.ID = m.unique("msg_00000000000000")
	}
	at := place{msg.Queue, msg.ID}
	was := m.messages[at]
	wantNew := was == nil || was.Expired(m.now)
	stored, created, err := m.store.Enqueue(m.ctx, msg)
	agree(rt, "Enqueue", err, nil)
	if created != wantNew {
		rt.Fatalf("Enqueue(%s) = created %v, the model says %v", msg.ID, created, wantNew)
	}
	if wantNew {
		next := &kept{}
		if was != nil {
			next.receipts, next.versions = was.receipts, was.versions
		}
		next.changed(rt, msg)
		m.messages[at] = next
	}
	same(rt, "Enqueue", stored, m.messages[at].Message)
}

func (m *model) claim(rt *rapid.T) {
	queue := m.queue(rt)
	timeout := rapid.SampledFrom([]time.Duration{time.Second, 30 * time.Second}).Draw(rt, "timeout")
	limit := rapid.IntRange(1, 3).Draw(rt, "max")
	claims := make(map[string]message.Claim)
	m.f.settle()
	got, err := m.store.Claim(m.ctx, queue, limit, func() message.Claim {
		c := message.Claim{At: m.now, Receipt: m.unique("receipt"), Timeout: timeout}
		claims[c.Receipt] = c
		return c
	})
	agree(rt, "Claim", err, nil)
	var due []string // in the order in which they should come
	for _, msg := range m.listed(queue, message.Pending) {
		if !msg.Due.After(m.now) {
			due = append(due, msg.ID)
		}
	}
	if want := due[:min(limit, len(due))]; !m.f.hasty && !slices.Equal(ids(got), want) {
		rt.Fatalf("Claim = %v, the model says %v", ids(got), want)
	}
	last := -1
	for _, msg := range got {
		i := slices.Index(due, msg.ID)
		if i <= last {
			rt.Fatalf("Claim = %v, of which the model says %v are due", ids(got), due)
		}
		last = i
		s := step{place{queue, msg.ID}, claims[msg.Receipt]}
		want, err := m.decide(rt, s.place, s.tr)
		agree(rt, "the claim of the model", err, nil)
		same(rt, "Claim", msg, want)
		m.done = append(m.done, s)
	}
}

func (m *model) answer(rt *rapid.T) {
	at := m.place(rt)
	a := message.Answer{At: m.now, Receipt: "nobody's"}
	if k := m.messages[at]; k != nil {
		a.Receipt = rapid.SampledFrom(append([]string{k.Receipt, k.Receipt, k.Receipt, a.Receipt, ""}, k.receipts...)).
			Draw(rt, "receipt")
	}
	deadDays := m.deadDays(at.queue)
	var tr message.Transition
	switch rapid.IntRange(0, 6).Draw(rt, "verb") {
	case 0:
		tr = message.Succeed{Answer: a, KeepDays: 7}
	case 1:
		tr = message.Fail{Answer: a, Error: m.unique("rejected "), Permanent: true, DeadDays: deadDays}
	case 2:
		tr = message.Fail{Answer: a, Error: m.unique("error "), RetryAfter: new(time.Duration(0)), DeadDays: deadDays}
	case 3:
		a.Receipt = orNobody(a.Receipt)
		tr = message.Release{Answer: a}
	case 4:
		a.Receipt = orNobody(a.Receipt)
		tr = message.Extend{Answer: a, Timeout: rapid.SampledFrom([]time.Duration{
			time.Second, time.Minute, 13 * time.Hour,
		}).Draw(rt, "timeout")}
	default:
		tr = message.Fail{
			Answer: a, Error: m.unique("error "), DeadDays: deadDays, Backoff: message.DefaultSettings().Backoff,
		}
	}
	m.apply(rt, step{at, tr})
}

// orNobody is for verbs that need a receipt.
func orNobody(receipt string) string {
	if receipt == "" {
		return "nobody's"
	}
	return receipt
}

// again sends a late copy of something that was sent before.
func (m *model) again(rt *rapid.T) {
	if len(m.done) == 0 {
		rt.Skip("nothing was sent before")
	}
	m.apply(rt, rapid.SampledFrom(m.done).Draw(rt, "copy of"))
}

func (m *model) replay(rt *rapid.T) {
	m.apply(rt, step{m.place(rt), message.Replay{At: m.now, Nonce: m.unique("nonce")}})
}

func (m *model) delete(rt *rapid.T) {
	at := m.place(rt)
	want := message.ErrNotFound
	if k := m.messages[at]; k != nil {
		want = message.MayDelete(k.Message, m.now)
	}
	agree(rt, "Delete", m.store.Delete(m.ctx, at.queue, at.id, m.now), want)
	if want == nil {
		delete(m.messages, at)
	}
}

func (m *model) sweep(rt *rapid.T) {
	queue := m.queue(rt)
	until := m.now.Add(-message.SweepGrace)
	var want []message.Position
	for _, held := range m.listed(queue, message.Processing) {
		if !held.Due.After(until) {
			want = append(want, held.Place())
		}
	}
	m.f.settle()
	lapsed, err := m.store.Lapsed(m.ctx, queue, until, nil, 100)
	agree(rt, "Lapsed", err, nil)
	if !m.f.hasty { // else what has changed may be missing, or still be there
		same(rt, "Lapsed", lapsed, want)
	}
	for _, seen := range lapsed {
		m.apply(rt, step{place{queue, seen.ID}, message.Stall{
			At: m.now, Lease: seen.Due, Backoff: message.DefaultSettings().Backoff, DeadDays: m.deadDays(queue),
		}})
	}
}

// deadDays is how long a queue keeps dead messages. It does not change: counts
// are exact only then.
func (m *model) deadDays(queue string) *float64 {
	if queue == m.queues[0] {
		return new(0.01)
	}
	return nil
}

// apply carries the step out in both, and compares.
func (m *model) apply(rt *rapid.T, s step) {
	got, err := m.store.Apply(m.ctx, s.queue, s.id, s.tr)
	want, wantErr := m.decide(rt, s.place, s.tr)
	agree(rt, fmt.Sprintf("Apply(%+v)", s), err, wantErr)
	if err == nil {
		same(rt, fmt.Sprintf("Apply(%+v)", s), got, without(want))
	}
	m.done = append(m.done, s)
}

// decide carries the transition out in the model.
func (m *model) decide(rt *rapid.T, at place, tr message.Transition) (message.Message, error) {
	k := m.messages[at]
	if k == nil {
		return message.Message{}, message.ErrNotFound
	}
	change, err := message.Decide(k.Message, tr)
	if err != nil {
		return message.Message{}, err
	}
	if change.Changed {
		k.changed(rt, change.Message)
	}
	if change.Changed && change.Attempt != nil {
		k.attempts = append(k.attempts, *change.Attempt)
	}
	if claim, ok := tr.(message.Claim); ok && change.Changed {
		k.receipts = append(k.receipts, claim.Receipt)
	}
	return k.Message, nil
}

// listed returns the messages of that status as a list shows them.
func (m *model) listed(queue string, status message.Status) []message.Message {
	var all []message.Message
	for at, k := range m.messages {
		if at.queue == queue && k.Status == status && !k.Expired(m.now) {
			all = append(all, k.Message)
		}
	}
	slices.SortFunc(all, byPlace)
	return all
}

// check compares all that can be seen, and looks for what must never be.
func (m *model) check(rt *rapid.T) {
	m.f.catchUp()
	leases := make(map[string]bool)
	for _, queue := range m.queues {
		counts, err := m.store.Count(m.ctx, queue, m.now)
		agree(rt, "Count", err, nil)
		inUse := false
		for _, status := range message.Statuses() {
			want := m.listed(queue, status)
			inUse = inUse || status != message.Succeeded && len(want) > 0
			got, more, err := m.store.List(m.ctx, message.ListQuery{
				Queue: queue, Status: status, Limit: message.MaxListLimit, Payload: true, Now: m.now,
			})
			agree(rt, "List", err, nil)
			same(rt, "List "+string(status), got, want)
			same(rt, "more", more, false)
			same(rt, "Count "+string(status), counts.Depth[status], len(want))
			for _, msg := range got {
				m.checkHistory(rt, msg)
				if msg.Status == message.Processing && leases[msg.Receipt] {
					rt.Fatalf("two live leases have the receipt %q", msg.Receipt)
				}
				leases[msg.Receipt] = true
			}
		}
		marks, err := m.store.InUse(m.ctx, queue[:len(queue)-1], len(m.queues))
		agree(rt, "InUse", err, nil)
		isMarked := slices.ContainsFunc(marks, func(mark message.Mark) bool { return mark.Queue == queue })
		if inUse && !isMarked {
			rt.Fatalf("queue %s is in use and not marked", queue)
		}
	}
}

func (m *model) checkHistory(rt *rapid.T, msg message.Message) {
	k := m.messages[place{msg.Queue, msg.ID}]
	got, attempts, err := m.store.Get(m.ctx, msg.Queue, msg.ID)
	agree(rt, "Get", err, nil)
	same(rt, "Get", got, k.Message)
	shown := message.History(got, attempts, m.now)
	same(rt, "the history", shown, message.History(k.Message, k.attempts, m.now))
	for i, a := range shown {
		if i > 0 && a.Number <= shown[i-1].Number || a.Number > got.ClaimCount || a.EndedAt.Before(a.ClaimedAt) {
			rt.Fatalf("history of a message with %d hand-outs: %+v", got.ClaimCount, shown)
		}
	}
}
