package history

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/redrivehq/redrive/shared/message"
)

// Kind is what a violation is counted as.
type Kind string

// The kinds of violation.
const (
	Lost         Kind = "lost"          // an acknowledged message is not there
	HeldTwice    Kind = "held twice"    // two leases at a time, or one receipt for two
	CountedTwice Kind = "counted twice" // more failures, stalls or claims than there were
	Impossible   Kind = "impossible"    // no order of the calls explains their answers
	Undecided    Kind = "undecided"     // the checker gave up
	Misanswered  Kind = "misanswered"   // an answer that no server may give
)

// Violation is something that must not happen.
type Violation struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"` // of the message
	Text string `json:"text"`
}

// Report is the judgement on a history.
type Report struct {
	Operations   int
	Messages     int
	Acknowledged int // operations
	Unknown      int // operations whose outcome nobody knows
	Unseen       int // claims that no answer names
	Unfinished   int // messages that are neither dead nor succeeded in the end
	Violations   []Violation
}

// Count returns how many violations of the kind there are.
func (r *Report) Count(kind Kind) (n int) {
	for _, v := range r.Violations {
		if v.Kind == kind {
			n++
		}
	}
	return n
}

// patience is how long the checker may look at one message.
const patience = 20 * time.Second

// accuse adds a violation.
func (r *Report) accuse(kind Kind, id, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{kind, id, fmt.Sprintf(format, args...)})
}

// Check judges the history.
func (h *History) Check() *Report {
	r := &Report{Operations: len(h.Operations)}
	h.identify()
	messages := make(map[string][]*Operation)
	unanswered := make(map[string]int) // messages that claims without an answer asked for, by queue
	for i := range h.Operations {
		o := &h.Operations[i]
		if o.acknowledged() {
			r.Acknowledged++
		}
		if !o.known() {
			r.Unknown++
		}
		switch {
		case o.ID != "":
			messages[o.ID] = append(messages[o.ID], o)
		case o.Verb == message.VerbClaim:
			unanswered[o.Queue] += max(o.Max, 1)
		}
	}
	r.Messages = len(messages)
	h.receipts(r)
	unseen := h.judgeAll(r, messages, unanswered)
	for queue, n := range unseen {
		if most := unanswered[queue]; !h.Lossy && n > most {
			r.accuse(CountedTwice, "", "of queue %s, no answer names %d claims, and those without an answer asked for %d",
				queue, n, most)
		}
	}
	slices.SortStableFunc(r.Violations, func(a, b Violation) int { return cmp.Compare(a.ID, b.ID) })
	return r
}

// judgeAll looks at each message, several at a time, and returns how many claims
// of each queue no answer names.
func (h *History) judgeAll(r *Report, messages map[string][]*Operation, unanswered map[string]int) map[string]int {
	unseen := make(map[string]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, ops := range messages {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			queue := ops[0].Queue
			one := h.judge(ops, unanswered[queue] > 0)
			mu.Lock()
			defer mu.Unlock()
			unseen[queue] += one.Unseen
			r.Unseen += one.Unseen
			r.Unfinished += one.Unfinished
			r.Violations = append(r.Violations, one.Violations...)
		})
	}
	all.Wait()
	return unseen
}

// identify gives enqueues without an answer the identifier of the message that
// came of them, if anybody saw it.
func (h *History) identify() {
	ids := make(map[string]string) // by tag
	for _, o := range h.Operations {
		if o.Tag != "" && o.ID != "" {
			ids[o.Tag] = o.ID
		}
	}
	for i := range h.Operations {
		if o := &h.Operations[i]; o.Verb == Enqueue && o.ID == "" {
			o.ID = ids[o.Tag]
		}
	}
}

// receipts looks for one that was handed out twice.
func (h *History) receipts(r *Report) {
	seen := make(map[string]*Operation)
	for i := range h.Operations {
		o := &h.Operations[i]
		if o.Verb != message.VerbClaim || o.Shown == nil {
			continue
		}
		if was := seen[o.Receipt]; was != nil {
			r.accuse(HeldTwice, o.ID, "receipt %s was handed out for %s and %s", o.Receipt, was.ID, o.ID)
		}
		seen[o.Receipt] = o
	}
}

// judge looks at one message.
func (h *History) judge(ops []*Operation, unanswered bool) *Report {
	r := new(Report)
	slices.SortStableFunc(ops, func(a, b *Operation) int { return cmp.Compare(a.Start, b.Start) })
	m := &model{History: h, ghosts: h.Lossy || unanswered}
	lives := h.lives(ops)
	for _, l := range lives {
		r.Unseen += l.unseen()
		h.holds(r, l)
		counts(r, l)
		attempts(r, l)
	}
	if len(lives) == 1 { // else a number may be that of another life
		m.named = lives[0].named()
	}
	id, last := ops[0].ID, ops[len(ops)-1]
	h.lost(r, ops)
	if last.Verb == Get && last.Shown != nil &&
		(last.Shown.Status == message.Pending || last.Shown.Status == message.Processing) {
		r.Unfinished++
	}
	switch porcupine.CheckOperationsTimeout(m.porcupine(), h.porcupine(ops), patience) {
	case porcupine.Illegal:
		r.accuse(Impossible, id, "no order of the calls explains their answers")
	case porcupine.Unknown:
		r.accuse(Undecided, id, "%d calls are too many to decide on", len(ops))
	case porcupine.Ok:
	}
	return r
}

// porcupine returns the calls in the form of the checker. An enqueue may be answered
// with a message that it found, which is the one it made or has followed that, where
// the answer to its own write was lost: then it is two calls.
func (h *History) porcupine(ops []*Operation) []porcupine.Operation {
	all := make([]porcupine.Operation, 0, len(ops))
	for _, o := range ops {
		all = append(all, porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Start), Return: int64(o.End)})
		if o.Verb == Enqueue && o.known() && h.Lossy && (o.Status != 201 || o.Shown.ClaimCount > 0) {
			first := *o
			first.End, first.Status, first.Shown = Never, 0, nil
			all = append(all, porcupine.Operation{ClientId: o.Client, Input: &first, Call: int64(o.Start), Return: int64(Never)})
		}
	}
	return all
}

// life is what was seen of a message from one creation to its deletion. With an
// idempotency key, there may be several of one identifier.
type life struct {
	created time.Time
	seen    []*Operation // with an answer that shows it
	claims  []*Operation // of these, by number
	most    int          // the highest number that was seen
	// answers are what holders said, of any life: those that may have had an effect.
	answers []*Operation
}

func (h *History) lives(ops []*Operation) []*life {
	answers := slices.DeleteFunc(slices.Clone(ops), func(o *Operation) bool { return !h.mayEnd(o) })
	byCreation := make(map[int64]*life)
	for _, o := range ops {
		if o.Shown == nil {
			continue
		}
		at := o.Shown.CreatedAt
		l := byCreation[at.UnixMilli()]
		if l == nil {
			l = &life{created: at, answers: answers}
			byCreation[at.UnixMilli()] = l
		}
		l.seen = append(l.seen, o)
		l.most = max(l.most, o.Shown.ClaimCount)
		if o.Verb == message.VerbClaim {
			l.claims = append(l.claims, o)
		}
	}
	all := slices.Collect(maps.Values(byCreation))
	for _, l := range all {
		slices.SortStableFunc(l.claims, func(a, b *Operation) int { return a.Shown.ClaimCount - b.Shown.ClaimCount })
	}
	slices.SortFunc(all, func(a, b *life) int { return a.created.Compare(b.created) })
	return all
}

// unseen counts claims that no answer names.
func (l *life) unseen() int { return max(l.most-len(l.claims), 0) }

// named returns the claims that an answer names, by number.
func (l *life) named() map[int]*Operation {
	named := make(map[int]*Operation, len(l.claims))
	for _, o := range l.claims {
		named[o.Shown.ClaimCount] = o
	}
	return named
}

// holds looks for two leases at a time: each claim must follow the end of the one
// before, by an answer or by the clock.
func (h *History) holds(r *Report, l *life) {
	for i, o := range l.claims[:max(len(l.claims)-1, 0)] {
		next := l.claims[i+1]
		number, end := o.Shown.ClaimCount, l.leaseEnd(o)
		switch {
		case next.Shown.ClaimCount == number:
			r.accuse(HeldTwice, o.ID, "claim %d was handed out under %s and under %s", number, o.Receipt, next.Receipt)
		case next.Shown.ClaimCount > number+1: // others came between, which nobody saw
		case l.ended(o, next.End):
		case next.Shown.UpdatedAt.Before(end.Add(message.SweepGrace)):
			r.accuse(HeldTwice, o.ID, "claim %d was handed out at %s, and the lease of claim %d ends at %s",
				number+1, next.Shown.UpdatedAt.Format(time.RFC3339Nano), number, end.Format(time.RFC3339Nano))
		}
	}
}

// mayEnd reports whether the call may have ended a lease.
func (h *History) mayEnd(o *Operation) bool {
	switch o.Verb {
	case message.VerbSucceed, message.VerbFail, message.VerbRelease:
		return !o.known() || o.Status == 200 || h.Lossy
	default:
		return false
	}
}

// ended reports whether somebody may have ended the claim by an answer, before the
// time given.
func (l *life) ended(claim *Operation, before time.Duration) bool {
	return slices.ContainsFunc(l.answers, func(o *Operation) bool {
		return o.Start <= before && o.End >= claim.Start && (o.Receipt == "" || o.Receipt == claim.Receipt)
	})
}

// leaseEnd is the latest end of the claim's lease that was acknowledged.
func (l *life) leaseEnd(claim *Operation) time.Time {
	end := claim.Shown.LeaseExpiresAt
	for _, o := range l.seen {
		if o.Verb == message.VerbExtend && o.Receipt == claim.Receipt && o.Shown.LeaseExpiresAt.After(end) {
			end = o.Shown.LeaseExpiresAt
		}
	}
	return end
}

// counts compares the counts that were shown with the answers that were given.
func counts(r *Report, l *life) {
	failures := make(map[string]bool) // by receipt
	bare := 0                         // without one
	for _, o := range l.answers {
		switch {
		case o.Verb != message.VerbFail:
		case o.Receipt == "":
			bare++
		default:
			failures[o.Receipt] = true
		}
	}
	reported := len(failures) + bare
	for _, o := range l.seen {
		v := o.Shown
		switch {
		case v.RetryCount > reported:
			r.accuse(CountedTwice, v.ID, "%d failures are counted, and %d were reported", v.RetryCount, reported)
		case v.RetryCount+v.StallCount > v.ClaimCount:
			r.accuse(CountedTwice, v.ID, "%d failures and %d stalls are counted of %d claims",
				v.RetryCount, v.StallCount, v.ClaimCount)
		default:
			continue
		}
		return // the first says it
	}
}

// attempts compares each history that was shown with what is known of the claims.
func attempts(r *Report, l *life) {
	named := l.named()
	for _, o := range l.seen {
		if o.Verb != Get {
			continue
		}
		if text := o.Shown.disorder(); text != "" {
			r.accuse(Misanswered, o.ID, "the history shown %v after the beginning: %s", o.Start, text)
		}
		shown := make(map[int]*Attempt)
		for i := range o.Shown.Attempts {
			shown[o.Shown.Attempts[i].Number] = &o.Shown.Attempts[i]
		}
		for number, claim := range named {
			if number <= o.Shown.ClaimCount-message.HistorySize {
				continue // it may have made room for others
			}
			if text := l.denies(claim, o.Start, shown[number]); text != "" {
				r.accuse(Misanswered, o.ID, "the history shown %v after the beginning: claim %d %s", o.Start, number, text)
			}
		}
	}
}

// disorder says which attempt is not in its place; nothing if all are.
func (m *Message) disorder() string {
	before := 0
	for _, a := range m.Attempts {
		if a.Number <= before || a.Number > m.ClaimCount {
			return fmt.Sprintf("attempt %d of %d claims follows attempt %d", a.Number, m.ClaimCount, before)
		}
		before = a.Number
	}
	return ""
}

// denies says how an entry of the history, read at the time given, or the lack of
// one, contradicts what is known of its claim; nothing if it does not.
func (l *life) denies(claim *Operation, read time.Duration, a *Attempt) string {
	if a != nil && !a.ClaimedAt.Equal(claim.Shown.UpdatedAt) {
		return fmt.Sprintf("was handed out at %s, and is shown as of %s", claim.Shown.UpdatedAt, a.ClaimedAt)
	}
	end := l.ending(claim)
	if end == nil || end.End >= read {
		return ""
	}
	var want message.Outcome
	switch {
	case end.Verb == message.VerbRelease && a == nil:
		return ""
	case end.Verb == message.VerbRelease:
		return fmt.Sprintf("was released, and is shown as %s", a.Outcome)
	case a == nil:
		return fmt.Sprintf("was ended by %s, and is not shown", end.Verb)
	case end.Verb == message.VerbSucceed:
		want = message.OutcomeSucceeded
	case end.Shown.DeadReason == message.Rejected:
		want = message.OutcomeRejected
	default:
		want = message.OutcomeFailed
	}
	if a.Outcome != want || end.Verb == message.VerbFail && text(a.Error) != text(end.Shown.LastError) {
		return fmt.Sprintf("has %s with %q, and is shown as %s with %q",
			want, text(end.Shown.LastError), a.Outcome, text(a.Error))
	}
	return ""
}

// ending is the first answer that is known to have ended the claim.
func (l *life) ending(claim *Operation) *Operation {
	i := slices.IndexFunc(l.answers, func(o *Operation) bool { return o.Status == 200 && o.Receipt == claim.Receipt })
	if i < 0 {
		return nil
	}
	return l.answers[i]
}

// lost looks for a message that was acknowledged, that nobody deleted, and that is
// not there in the end.
func (h *History) lost(r *Report, ops []*Operation) {
	acknowledged, last := false, ops[len(ops)-1]
	for _, o := range ops {
		if o.Verb == message.VerbDelete && (!o.known() || o.Status == 204 || h.Lossy) {
			return
		}
		acknowledged = acknowledged || o.Verb == Enqueue && o.acknowledged()
	}
	if acknowledged && last.Verb == Get && last.Status == 404 {
		r.accuse(Lost, last.ID, "it was acknowledged, nobody deleted it, and it is not found")
	}
}
