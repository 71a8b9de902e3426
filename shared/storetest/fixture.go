package storetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/redrivehq/redrive/shared/message"
)

// emails is the queue of a test that needs only one.
const emails = "emails"

// epoch is when the clock of a test begins: T0 of CASES.md.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// T returns the time so long after the epoch.
func T(after time.Duration) time.Time { return epoch.Add(after) }

// clock tells the time that the test has set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = to
}

// fixture is a Service on a store of its own.
type fixture struct {
	*message.Service
	store   Store
	another func(*testing.T) Store
	clock   *clock
	// catchUp lets the indexes show all that was written.
	catchUp func()
	// hasty rows do not wait for that: see RunLagging.
	hasty bool
}

func newFixture(t *testing.T, open Open) *fixture {
	t.Helper()
	f := &fixture{clock: &clock{now: epoch}}
	h := open(t, f.clock.Now)
	f.store, f.another, f.catchUp, f.hasty = h.Store, h.Another, h.Settle, h.hasty
	if f.catchUp == nil {
		f.catchUp = func() {}
	}
	if f.another == nil {
		f.another = func(*testing.T) Store { return f.store }
	}
	f.Service = f.on(f.store)
	return f
}

// settle comes before each claim and sweep. In a hasty row it does nothing.
func (f *fixture) settle() {
	if !f.hasty {
		f.catchUp()
	}
}

// asks is how often something is asked for that an index may not show yet: once,
// but in a hasty row until it has had time to show it, and a claimer that has lost
// a write time to try again.
func (f *fixture) asks() int {
	if f.hasty {
		return 200
	}
	return 1
}

// instance returns another Service on the same data and clock.
func (f *fixture) instance(t *testing.T) *message.Service {
	t.Helper()
	return f.on(f.another(t))
}

func (f *fixture) on(store Store) *message.Service {
	return &message.Service{
		Store: store, Queues: store, Sweeps: store, Now: f.clock.Now,
		Random: func(b []byte) { _, _ = rand.Read(b) }, // never fails: see its documentation
	}
}

// at moves the clock to so long after the epoch.
func (f *fixture) at(after time.Duration) { f.clock.set(T(after)) }

// put sets the queue to the defaults, changed by change. The counts that come
// with the answer are left out.
func (f *fixture) put(t *testing.T, queue string, change func(*message.Settings)) message.Queue {
	t.Helper()
	set := message.DefaultSettings()
	set.Shards = nil
	change(&set)
	q, _, err := f.PutQueue(t.Context(), queue, set)
	if err != nil {
		t.Fatalf("PutQueue(%q) = %v", queue, err)
	}
	q.Counts = nil
	return q
}

func (f *fixture) send(t *testing.T, queue string, d message.Draft) message.Message {
	t.Helper()
	m, created, err := f.Enqueue(t.Context(), queue, d)
	if err != nil || !created {
		t.Fatalf("Enqueue(%q) = created %v, %v, want a new message", queue, created, err)
	}
	return m
}

func (f *fixture) enqueue(t *testing.T, payload string) message.Message {
	t.Helper()
	return f.send(t, emails, message.Draft{Payload: payload})
}

// claimWith claims with those options.
func (f *fixture) claimWith(t *testing.T, queue string, o message.ClaimOptions) []message.Message {
	t.Helper()
	f.settle()
	for range f.asks() {
		messages, err := f.Claim(t.Context(), queue, o)
		if err != nil {
			t.Fatalf("Claim(%q, %+v) = %v", queue, o, err)
		}
		if len(messages) > 0 {
			return messages
		}
	}
	return nil
}

// claimN claims up to n messages.
func (f *fixture) claimN(t *testing.T, queue string, n int) []message.Message {
	t.Helper()
	var all []message.Message
	for {
		messages := f.claimWith(t, queue, message.ClaimOptions{Max: new(n - len(all))})
		all = append(all, messages...)
		if !f.hasty || len(messages) == 0 || len(all) == n {
			return all
		}
	}
}

// claimFrom claims the one message that the queue must hand out.
func (f *fixture) claimFrom(t *testing.T, queue string) message.Message {
	t.Helper()
	messages := f.claimN(t, queue, 1)
	if len(messages) != 1 {
		t.Fatalf("Claim(%q) at %v = no message, want one", queue, f.clock.Now())
	}
	return messages[0]
}

func (f *fixture) claim(t *testing.T) message.Message {
	t.Helper()
	return f.claimFrom(t, emails)
}

func (f *fixture) claimNone(t *testing.T) {
	t.Helper()
	if messages := f.claimN(t, emails, message.MaxClaim); len(messages) > 0 {
		t.Errorf("Claim at %v = %v, want none", f.clock.Now(), ids(messages))
	}
}

func (f *fixture) succeed(t *testing.T, m message.Message) message.Message {
	t.Helper()
	got, err := f.Succeed(t.Context(), m.Queue, m.ID, &m.Receipt)
	if err != nil {
		t.Fatalf("Succeed(%s) = %v", m.ID, err)
	}
	return got
}

func (f *fixture) fail(t *testing.T, m message.Message, text string) message.Message {
	t.Helper()
	got, err := f.Fail(t.Context(), m.Queue, m.ID, message.Failure{Receipt: &m.Receipt, Error: text})
	if err != nil {
		t.Fatalf("Fail(%s) = %v", m.ID, err)
	}
	return got
}

// reject fails the message for good.
func (f *fixture) reject(t *testing.T, m message.Message, text string) message.Message {
	t.Helper()
	got, err := f.Fail(t.Context(), m.Queue, m.ID, message.Failure{Receipt: &m.Receipt, Error: text, Permanent: true})
	if err != nil {
		t.Fatalf("Fail(%s, permanent) = %v", m.ID, err)
	}
	return got
}

func (f *fixture) release(t *testing.T, m message.Message) message.Message {
	t.Helper()
	got, err := f.Release(t.Context(), m.Queue, m.ID, &m.Receipt)
	if err != nil {
		t.Fatalf("Release(%s) = %v", m.ID, err)
	}
	return got
}

func (f *fixture) extend(t *testing.T, m message.Message, timeout time.Duration) message.Message {
	t.Helper()
	e := message.Extension{Receipt: &m.Receipt, Timeout: &timeout}
	got, err := f.Extend(t.Context(), m.Queue, m.ID, e)
	if err != nil {
		t.Fatalf("Extend(%s, %v) at %v = %v", m.ID, timeout, f.clock.Now(), err)
	}
	return got
}

func (f *fixture) replay(t *testing.T, m message.Message) message.Message {
	t.Helper()
	got, err := f.Replay(t.Context(), m.Queue, m.ID)
	if err != nil {
		t.Fatalf("Replay(%s) = %v", m.ID, err)
	}
	return got
}

// stall ends the lease of m, as a sweep does that has seen it so.
func (f *fixture) stall(t *testing.T, m message.Message) message.Message {
	t.Helper()
	got, err := f.store.Apply(t.Context(), m.Queue, m.ID, f.stallOf(m))
	if err != nil {
		t.Fatalf("Apply(%s, stall) at %v = %v", m.ID, f.clock.Now(), err)
	}
	return got
}

func (f *fixture) stallOf(seen message.Message) message.Stall {
	return message.Stall{
		At: f.clock.Now(), Lease: seen.Due, Backoff: message.DefaultSettings().Backoff,
	}
}

// sweep runs one sweep and compares what it reports.
func (f *fixture) sweep(t *testing.T, returned, buried int) {
	t.Helper()
	f.settle()
	var sum message.SweepReport
	for range f.asks() {
		got, err := f.Sweep(t.Context(), message.SweepOptions{})
		wantError(t, "Sweep", err, nil)
		wantError(t, "the report of Sweep", got.Err, nil)
		sum.Returned += got.Returned
		sum.Buried += got.Buried
		if sum.Returned+sum.Buried > 0 && sum.Returned+sum.Buried >= returned+buried {
			break
		}
	}
	if sum.Returned != returned || sum.Buried != buried {
		t.Errorf("Sweep at %v returned %d and buried %d, want %d and %d",
			f.clock.Now(), sum.Returned, sum.Buried, returned, buried)
	}
}

// countAll counts every queue in use.
func (f *fixture) countAll(t *testing.T) {
	t.Helper()
	f.catchUp()
	report, err := f.Sweep(t.Context(), message.SweepOptions{Count: true})
	if err != nil || report.Err != nil || !report.Done || report.Totals == nil {
		t.Fatalf("Sweep with counts = %+v, %v", report, err)
	}
}

// snapshot is all that is stored of a message.
type snapshot struct {
	Message  message.Message
	Attempts []message.Attempt
}

func (f *fixture) get(t *testing.T, m message.Message) snapshot {
	t.Helper()
	got, attempts, err := f.Get(t.Context(), m.Queue, m.ID)
	if err != nil {
		t.Fatalf("Get(%s) = %v", m.ID, err)
	}
	return snapshot{got, attempts}
}

// wantGone checks that nothing shows the message any more.
func (f *fixture) wantGone(t *testing.T, m message.Message) {
	t.Helper()
	_, _, err := f.Get(t.Context(), m.Queue, m.ID)
	wantError(t, "Get", err, message.ErrNotFound)
	f.settle()
	if slices.Contains(ids(f.pages(t, message.List{Queue: m.Queue})), m.ID) {
		t.Errorf("List(%q) shows %s, want it gone", m.Queue, m.ID)
	}
}

// wantStatus checks where the message stands, in Get and in the lists. A list may
// show it late, but never where it is not.
func (f *fixture) wantStatus(t *testing.T, m message.Message, want message.Status) {
	t.Helper()
	if got := f.get(t, m).Message.Status; got != want {
		t.Errorf("message is %s, want %s", got, want)
	}
	f.settle()
	for _, status := range message.Statuses() {
		expected := 0
		if status == want {
			expected = 1
		}
		found := 0
		for range f.asks() {
			found = 0
			for _, id := range ids(f.pages(t, message.List{Queue: m.Queue, Status: status})) {
				if id == m.ID {
					found++
				}
			}
			if found >= expected {
				break
			}
		}
		if found != expected {
			t.Errorf("List(%s) shows the message %d times, want %d", status, found, expected)
		}
	}
}

// list returns all pages of a list, when it has had time to show everything.
func (f *fixture) list(t *testing.T, l message.List) []message.Message {
	t.Helper()
	f.catchUp()
	return f.pages(t, l)
}

// pages returns all pages of a list.
func (f *fixture) pages(t *testing.T, l message.List) []message.Message {
	t.Helper()
	if l.Limit == 0 {
		l.Limit = message.MaxListLimit
	}
	var all []message.Message
	for {
		page, more, err := f.List(t.Context(), l)
		if err != nil {
			t.Fatalf("List(%+v) = %v", l, err)
		}
		all = append(all, page...)
		if !more {
			return all
		}
		if len(page) == 0 {
			t.Fatalf("List(%+v) = an empty page, and more", l)
		}
		l.After = new(page[len(page)-1].Place())
	}
}

// count returns how many messages of the queue are pending, processing, dead
// and succeeded.
func (f *fixture) count(t *testing.T, queue string) [4]int {
	t.Helper()
	f.catchUp()
	counts, err := f.store.Count(t.Context(), queue, f.clock.Now())
	if err != nil {
		t.Fatalf("Count(%q) = %v", queue, err)
	}
	return depths(counts)
}

// late is a claim that arrives again, whatever it is tried on.
func late(c message.Claim) func() message.Claim { return func() message.Claim { return c } }

// depths are the counts in the order of the statuses.
func depths(counts message.Counts) [4]int {
	var depth [4]int
	for i, status := range message.Statuses() {
		depth[i] = counts.Depth[status]
	}
	return depth
}

func ids(messages []message.Message) []string {
	all := make([]string, len(messages))
	for i, m := range messages {
		all[i] = m.ID
	}
	return all
}

func payloads(messages []message.Message) []string {
	all := make([]string, len(messages))
	for i, m := range messages {
		all[i] = m.Payload
	}
	return all
}

// repeated returns the names that stand in the list more than once.
func repeated(names []string) []string {
	slices.Sort(names)
	var twice []string
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			twice = append(twice, names[i])
		}
	}
	return twice
}

// without returns m as it is shown where the payload is left out.
func without(m message.Message) message.Message {
	m.Payload = ""
	return m
}

func conflict(verb message.Verb, status message.Status, reason message.Reason) error {
	return &message.ConflictError{Verb: verb, Status: status, Reason: reason}
}

// wantError compares errors as sameError does.
func wantError(t *testing.T, call string, got, want error) {
	t.Helper()
	if !sameError(got, want) {
		t.Errorf("%s = %v, want %v", call, got, want)
	}
}

// sameError compares a ConflictError with all it says, and any other error by
// its kind.
func sameError(got, want error) bool {
	if conflict, ok := errors.AsType[*message.ConflictError](want); ok {
		found, ok := errors.AsType[*message.ConflictError](got)
		return ok && *found == *conflict
	}
	return errors.Is(got, want)
}

func wantSame[V any](t *testing.T, what string, got, want V) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

// together runs do n times at once, and returns when all are done.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}

// numbered returns so many names in ascending order.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return names
}
