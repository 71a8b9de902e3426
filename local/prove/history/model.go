package history

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redrivehq/redrive/shared/message"
)

// state is what a message may be at one moment. The zero value: there is none.
type state struct {
	message.Message

	exists bool
	// loose says that the message came to be so by something that nobody saw: its
	// times are the earliest possible, and LastError may be another if it tells of a
	// lease.
	loose bool
	// changed is when the last call that changed or deleted it can have done so, at the
	// latest; zero before the first.
	changed time.Time
}

const leaseRanOut = "lease ran out at "

func text(s *string) string {
	if s == nil {
		return "\x00none"
	}
	return *s
}

func equal(a, b state) bool {
	if !a.exists || !b.exists {
		return a.exists == b.exists && a.changed.Equal(b.changed)
	}
	same := text(a.LastError) == text(b.LastError)
	a.LastError, b.LastError = nil, nil
	return same && a == b
}

// sum is equal for equal states.
func (s state) sum() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.exists, s.Status, s.RetryCount, s.StallCount, s.ClaimCount, s.ReplayCount, s.Receipt, s.LastVerb)
	return h.Sum64()
}

// model is the specification of one message: what every step of it may lead to.
type model struct {
	*History
	// ghosts says that a claim whose answer is missing may have taken the message,
	// unless the number of that claim is among those named.
	ghosts bool
	named  map[int]*Operation
}

// step returns what the message may be after the call, if it was s before.
func (m *model) step(s state, o *Operation) []state {
	switch {
	case !o.known():
		return m.unknown(s, o)
	case o.Shown != nil && o.Shown.UpdatedAt.After(m.latest(o)):
		return nil // a change to come: a claim before the message was due shows its due time
	case o.Verb == Enqueue:
		return m.enqueued(s, o)
	case o.Verb == Get && o.Status == 200:
		return m.read(s, o)
	case o.Status == 404:
		return m.absent(s, o)
	case o.Status == 409:
		return m.refused(s, o)
	case o.Verb == message.VerbDelete:
		return m.deleted(s, o)
	}
	return m.applied(s, o)
}

// since returns s and what it may have become by itself, before the time given:
// leases run out, claims that nobody knows of take messages, and give those back
// that they cannot hand out.
func (m *model) since(s state, latest time.Time) []state {
	all := []state{s}
	add := func(tr message.Transition, of state) {
		all = append(all, state{Message: tr.Apply(of.Message), exists: true, loose: true})
	}
	const most = 10 // states; more would need a campaign of its own
	for i := 0; i < len(all) && i < most; i++ {
		next := all[i]
		switch {
		case !next.exists:
		case next.Status == message.Pending && m.haunts(next.ClaimCount+1) && !next.Due.After(latest):
			receipt := unseen(next.ClaimCount + 1)
			add(message.Claim{At: next.Due, Receipt: receipt, Timeout: shortestLease}, next)
		case next.Status == message.Processing:
			if next.Receipt == unseen(next.ClaimCount) {
				add(message.Release{Answer: message.Answer{At: next.ClaimedAt}}, next)
			}
			if over := next.Due.Add(message.SweepGrace); !over.After(latest) {
				set := m.Queues[next.Queue]
				add(message.Stall{At: over, Lease: next.Due, Backoff: set.Backoff, DeadDays: set.DeadDays}, next)
			}
		}
	}
	return all
}

// unseen stands for the receipt of a claim that nobody knows of.
func unseen(claim int) string { return fmt.Sprintf("unseen %d", claim) }

// haunts reports whether the claim of that number may be one that nobody knows of.
func (m *model) haunts(number int) bool { return m.ghosts && m.named[number] == nil }

// shortestLease is the least that a claim can ask for.
const shortestLease = time.Second

// unknown is a call that may have had its effect or not.
func (m *model) unknown(s state, o *Operation) []state {
	all := []state{s}
	at := m.earliest(o)
	switch o.Verb {
	case Enqueue:
		if !s.exists {
			all = append(all, m.fresh(o))
		}
	case Get:
	default:
		for _, was := range m.since(s, m.latest(o)) {
			all = append(all, m.effect(was, o, at)...)
		}
	}
	return all
}

// fresh is the message that an enqueue makes, as far as one can know without its
// answer.
func (m *model) fresh(o *Operation) state {
	set, at := m.Queues[o.Queue], m.earliest(o)
	made := message.Message{
		ID: o.ID, Queue: o.Queue, Status: message.Pending, Due: at.Add(o.Delay), MaxRetries: set.MaxRetries,
		MaxStalls: set.MaxStalls, Receipt: "fresh", CreatedAt: at, UpdatedAt: at,
	}
	if o.MaxRetries > 0 {
		made.MaxRetries = o.MaxRetries
	}
	return state{Message: made, exists: true, loose: true}
}

// effect is what the call makes of the message, if it does, and nobody sees it.
func (m *model) effect(s state, o *Operation, at time.Time) []state {
	if !s.exists {
		return nil
	}
	if o.Verb == message.VerbDelete {
		if message.MayDelete(s.Message, at) != nil {
			return nil
		}
		return []state{m.without(o)}
	}
	change, err := message.Decide(s.Message, m.transition(o, at))
	switch {
	case err != nil:
		return nil
	case change.Changed:
	case o.Verb == message.VerbExtend: // at the earliest it would change nothing, and later it does
		change.Message.UpdatedAt = at
	default:
		return nil
	}
	return []state{{Message: unkept(change.Message), exists: true, loose: true, changed: m.latest(o)}}
}

// unkept forgets when a settled message is removed: no answer shows it.
func unkept(msg message.Message) message.Message {
	msg.ExpiresAt = time.Time{}
	return msg
}

func (m *model) enqueued(s state, o *Operation) []state {
	switch o.Status {
	case 200: // a repeat
		if !o.Key {
			return nil
		}
		return m.read(s, o)
	case 422: // the key belongs to another content
		if !s.exists {
			return nil
		}
		return []state{s}
	}
	if s.exists {
		// The answer to its own write was lost, and then the message had moved on.
		if !m.Lossy || s.CreatedAt.Before(m.earliest(o)) {
			return nil
		}
		return m.read(s, o)
	}
	made := m.fresh(o)
	made.CreatedAt, made.Due = o.Shown.CreatedAt, o.Shown.CreatedAt.Add(o.Delay)
	made.UpdatedAt = made.CreatedAt
	made.loose = false
	return m.matching(made, o.Shown)
}

func (m *model) read(s state, o *Operation) []state {
	var all []state
	for _, was := range m.since(s, m.latest(o)) {
		all = append(all, m.matching(was, o.Shown)...)
	}
	return all
}

func (m *model) absent(s state, o *Operation) []state {
	if !s.exists {
		return []state{s}
	}
	return m.hidden(s, o)
}

// hidden is a call that was refused although it had its effect: the answer to its
// own write was lost, and then the message had moved on.
func (m *model) hidden(s state, o *Operation) []state {
	if !m.Lossy || o.Verb == Get {
		return nil
	}
	var all []state
	for _, was := range m.since(s, m.latest(o)) {
		all = append(all, m.effect(was, o, m.earliest(o))...)
	}
	return all
}

func (m *model) refused(s state, o *Operation) []state {
	// From a success, there is no way on that a refusal could have met with.
	all := slices.DeleteFunc(m.hidden(s, o), func(s state) bool { return s.Status == message.Succeeded })
	for _, was := range m.since(s, m.latest(o)) {
		if !was.exists || was.Status != o.Found {
			continue
		}
		err := message.MayDelete(was.Message, m.latest(o))
		if o.Verb != message.VerbDelete {
			_, err = message.Decide(was.Message, m.transition(o, m.latest(o)))
		}
		if err != nil {
			all = append(all, was)
		}
	}
	return all
}

func (m *model) deleted(s state, o *Operation) []state {
	for _, was := range m.since(s, m.latest(o)) {
		if was.exists && message.MayDelete(was.Message, m.latest(o)) == nil {
			return []state{m.without(o)}
		}
	}
	// Where the answer to its own write may have been lost, a delete that finds nothing
	// any more takes that for its own work, if there was a message when it began.
	if m.Lossy && !s.changed.Before(m.earliest(o)) {
		return []state{s}
	}
	return nil
}

// without is what a delete leaves.
func (m *model) without(o *Operation) state { return state{changed: m.latest(o)} }

// applied is a call that was carried out, or repeated.
func (m *model) applied(s state, o *Operation) []state {
	var all []state
	for _, was := range m.since(s, m.latest(o)) {
		if !was.exists {
			continue
		}
		if m.unchanging(was, o) {
			all = append(all, m.matching(was, o.Shown)...)
		}
		change, err := message.Decide(was.Message, m.transition(o, o.Shown.UpdatedAt))
		switch {
		case err != nil:
		case !change.Changed:
			all = append(all, m.matching(was, o.Shown)...)
		default:
			all = append(all, m.matching(m.after(was, change.Message, o), o.Shown)...)
		}
	}
	return all
}

// unchanging reports whether the call may have been answered with the message as
// it was, though the rules would have changed or refused it.
func (m *model) unchanging(was state, o *Operation) bool {
	if o.Verb == message.VerbExtend { // it asked for less than there was
		return was.Receipt == o.Receipt && was.Status == message.Processing
	}
	// Without a receipt: it was processing when the call began, and somebody else said
	// the same meanwhile.
	return o.Receipt == "" && was.LastVerb == o.Verb && !was.changed.Before(m.earliest(o))
}

// after is what the call has left. What was not seen before may be seen in its
// answer.
func (m *model) after(was state, left message.Message, o *Operation) state {
	next := state{Message: unkept(left), exists: true, changed: m.latest(o)}
	next.loose = was.loose && o.Verb == message.VerbExtend
	if !was.loose {
		return next
	}
	if ofLease(next.LastError, o.Shown.LastError) {
		next.LastError = o.Shown.LastError
	}
	if !o.Shown.CreatedAt.Before(next.CreatedAt) {
		next.CreatedAt = o.Shown.CreatedAt
	}
	return next
}

// ofLease reports whether both texts tell of a lease that ran out.
func ofLease(a, b *string) bool {
	return strings.HasPrefix(text(a), leaseRanOut) && strings.HasPrefix(text(b), leaseRanOut)
}

// matching returns s as the answer shows it, if it can be the one that the answer
// shows.
func (m *model) matching(s state, v *Message) []state {
	if !s.exists || s.ID != v.ID || s.Queue != v.Queue || s.Status != v.Status ||
		s.RetryCount != v.RetryCount || s.MaxRetries != v.MaxRetries || s.StallCount != v.StallCount ||
		s.MaxStalls != v.MaxStalls || s.ClaimCount != v.ClaimCount || s.ReplayCount != v.ReplayCount ||
		s.DeadReason != v.DeadReason {
		return nil
	}
	if v.Receipt != "" && s.Receipt != v.Receipt {
		return nil
	}
	if !s.loose {
		if text(s.LastError) != text(v.LastError) || !s.Due.Equal(v.due()) || !s.UpdatedAt.Equal(v.UpdatedAt) ||
			!s.CreatedAt.Equal(v.CreatedAt) {
			return nil
		}
		return []state{s}
	}
	if text(s.LastError) != text(v.LastError) && !ofLease(s.LastError, v.LastError) {
		return nil
	}
	if v.due().Before(s.Due) || v.UpdatedAt.Before(s.UpdatedAt) || v.CreatedAt.Before(s.CreatedAt) {
		return nil
	}
	// Whenever it was, the delay after it is known. A lease may be as long as one likes.
	if s.Status != message.Processing && v.due().Sub(v.UpdatedAt) != s.Due.Sub(s.UpdatedAt) {
		return nil
	}
	s.Due, s.UpdatedAt, s.CreatedAt, s.LastError, s.loose = v.due(), v.UpdatedAt, v.CreatedAt, v.LastError, false
	return []state{s}
}

// porcupine is the model in the form of the checker.
func (m *model) porcupine() porcupine.Model {
	spec := porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, in, _ any) []any {
			next := m.step(stateOf(s), operationOf(in))
			all := make([]any, len(next))
			for i, s := range next {
				all[i] = s
			}
			return all
		},
		Equal:             func(a, b any) bool { return equal(stateOf(a), stateOf(b)) },
		Hash:              func(s any) uint64 { return stateOf(s).sum() },
		DescribeOperation: func(in, _ any) string { return operationOf(in).String() },
		DescribeState:     func(s any) string { return stateOf(s).String() },
	}
	return spec.ToModel()
}

// What the checker hands back is what it was given.

func stateOf(s any) state { return s.(state) } //nolint:errcheck,forcetypeassert // see above

func operationOf(in any) *Operation { return in.(*Operation) } //nolint:errcheck,forcetypeassert // see above

// String shows the state in the picture of a history.
func (s state) String() string {
	if !s.exists {
		return "no message"
	}
	t := fmt.Sprintf("%s, %d claims, %d failures, %d stalls, %d replays",
		s.Status, s.ClaimCount, s.RetryCount, s.StallCount, s.ReplayCount)
	if s.Receipt != "" {
		t += ", receipt " + s.Receipt
	}
	if s.loose {
		t += ", not seen"
	}
	return t
}

// String shows the call in the picture of a history.
func (o *Operation) String() string {
	t := string(o.Verb)
	if o.Receipt != "" {
		t += " " + o.Receipt
	}
	switch {
	case !o.known():
		return t + " → ?"
	case o.Shown != nil:
		return fmt.Sprintf("%s → %d %s, claim %d, %d failures, %d stalls",
			t, o.Status, o.Shown.Status, o.Shown.ClaimCount, o.Shown.RetryCount, o.Shown.StallCount)
	case o.Found != "":
		return fmt.Sprintf("%s → %d, is %s", t, o.Status, o.Found)
	}
	return fmt.Sprintf("%s → %d", t, o.Status)
}
