package message_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// memory keeps what these tests need of a store: settings, and the messages that
// were enqueued. What calls anything else ends in a panic.
type memory struct {
	message.Store
	message.QueueStore
	mu       sync.Mutex
	settings map[string]message.Settings
	reads    int
	err      error // of the next reads of settings
	enqueued []message.Message
	applied  []message.Transition
}

func (s *memory) Enqueue(_ context.Context, m message.Message) (message.Message, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueued = append(s.enqueued, m)
	return m, true, nil
}

func (s *memory) Apply(_ context.Context, _, _ string, tr message.Transition) (message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied = append(s.applied, tr)
	return message.Message{}, nil
}

func (s *memory) Queue(_ context.Context, name string) (message.Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return message.Queue{}, s.err
	}
	set, ok := s.settings[name]
	if !ok {
		return message.Queue{}, message.ErrQueueNotFound
	}
	return message.Queue{Name: name, Settings: set}, nil
}

func (s *memory) PutQueue(_ context.Context, q message.Queue) (message.Queue, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings[q.Name] = q.Settings
	return q, true, nil
}

func (s *memory) Count(context.Context, string, time.Time, ...message.Status) (message.Counts, error) {
	return message.Counts{}, nil
}

// newService returns a Service on an empty memory, at the epoch.
func newService(t *testing.T) *message.Service {
	t.Helper()
	store := &memory{settings: make(map[string]message.Settings)}
	return &message.Service{
		Store: store, Queues: store,
		Now:    func() time.Time { return epoch },
		Random: func(b []byte) { _, _ = rand.Read(b) },
	}
}

func TestIsID(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("0", 26)
	for _, tt := range []struct {
		text string
		want bool
	}{
		{"msg_" + digits, true},
		{"msg_01KB9Z3NDEKTSV4RRFFQ69G5FA", true},
		{"msg_" + strings.Repeat("Z", 26), true},
		{"", false},
		{"msg_", false},
		{digits, false},
		{"msg_" + digits[1:], false},
		{"msg_" + digits + "0", false},
		{"MSG_" + digits, false},
		{"msg-" + digits, false},
		{"msg_" + digits[1:] + "z", false},
		{"msg_" + digits[1:] + "I", false},
		{"msg_" + digits[1:] + "L", false},
		{"msg_" + digits[1:] + "O", false},
		{"msg_" + digits[1:] + "U", false},
		{"msg_" + digits[1:] + "=", false},
		{"msg_" + digits[1:] + "#", false},
		{"msg_" + digits[1:] + "\x00", false},
		{"msg_" + digits[2:] + "é", false},
		{"msg_" + digits[1:] + "\n", false},
		{"msg_" + digits[2:] + "\r\n", false},
		{"msg_\n\n" + digits[2:], false},
		{" msg_" + digits[1:], false},
	} {
		if got := message.IsID(tt.text); got != tt.want {
			t.Errorf("IsID(%q) = %v, want %v", tt.text, got, tt.want)
		}
	}
}

func TestNewIDs(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	now := epoch
	svc.Now = func() time.Time { return now }
	var ids []string
	enqueue := func(n int) {
		for range n {
			m, _, err := svc.Enqueue(t.Context(), "q", message.Draft{})
			if err != nil || !message.IsID(m.ID) {
				t.Fatalf("Enqueue = %q, %v, want an id", m.ID, err)
			}
			ids = append(ids, m.ID)
		}
	}
	for range 20 { // within a millisecond, and from one to the next
		enqueue(100)
		now = now.Add(ms)
	}
	const day = 24 * time.Hour
	for _, step := range []time.Duration{time.Second, time.Hour, day, 365 * day, 100 * 365 * day} {
		now = now.Add(step)
		enqueue(1)
	}
	if !slices.IsSorted(ids) {
		t.Error("identifiers do not ascend in the order of their making")
	}
	slices.Sort(ids)
	if unique := slices.Compact(slices.Clone(ids)); len(unique) != len(ids) {
		t.Errorf("%d identifiers are given twice", len(ids)-len(unique))
	}
	// The time is its first ten characters, five bits each, two bits of them random.
	if first, later := ids[0][:13], ids[len(ids)-1][:13]; first >= later {
		t.Errorf("identifiers begin with %s and, a century later, %s", first, later)
	}
}

func TestNewIDsOfManyInstances(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := make(map[string]bool)
	for range 4 {
		svc := newService(t)
		for range 2 {
			wg.Go(func() {
				for range 200 {
					m, _, err := svc.Enqueue(t.Context(), "q", message.Draft{})
					mu.Lock()
					if err != nil || seen[m.ID] || seen[m.Receipt] {
						t.Errorf("Enqueue = id %s, %v, want one that is new", m.ID, err)
					}
					seen[m.ID], seen[m.Receipt] = true, true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
}

// Within a millisecond the random part is counted up by a random step, across
// every byte.
func TestNewIDsCarry(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	svc.Random = func(b []byte) {
		for i := range b {
			b[i] = 0xff
		}
		b[0], b[1] = 0, 0 // room for the carry
	}
	first, _, err := svc.Enqueue(t.Context(), "q", message.Draft{})
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := svc.Enqueue(t.Context(), "q", message.Draft{})
	if err != nil || second.ID <= first.ID {
		t.Errorf("Enqueue = %s, %v, want an id after %s", second.ID, err, first.ID)
	}
	// 48 bits of time are nine characters and three bits of the tenth.
	if first.ID[:13] != second.ID[:13] {
		t.Errorf("ids of one millisecond begin with %s and %s", first.ID[:13], second.ID[:13])
	}
}

func TestKeyedIDs(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, queue := range []string{"a", "ab", "b"} {
		for _, key := range []string{"a", "ba", "a0", "k1", "k2", strings.Repeat("k", 255)} {
			a, _, err := newService(t).Enqueue(t.Context(), queue, message.Draft{Key: key})
			if err != nil {
				t.Fatal(err)
			}
			b, _, err := newService(t).Enqueue(t.Context(), queue, message.Draft{Key: key})
			if err != nil || a.ID != b.ID || a.Fingerprint != b.Fingerprint || !message.IsID(a.ID) {
				t.Errorf("Enqueue(%q, key %q) = %s and %s, %v, want one id and fingerprint", queue, key, a.ID, b.ID, err)
			}
			if other, ok := seen[a.ID]; ok {
				t.Errorf("queue %q with key %q has the id of %s", queue, key, other)
			}
			seen[a.ID] = queue + " with " + key
			if a.Receipt == b.Receipt {
				t.Errorf("two messages have the nonce %q", a.Receipt)
			}
		}
	}
}

// The secrets of a Service come from its source of randomness, and are long
// enough not to be guessed.
func TestReceiptsAreRandom(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	var asked []int
	svc.Random = func(b []byte) {
		asked = append(asked, len(b))
		for i := range b {
			b[i] = byte(len(asked))
		}
	}
	m, _, err := svc.Enqueue(t.Context(), "q", message.Draft{})
	if err != nil || m.Receipt != strings.Repeat("AQEB", 4) {
		t.Errorf("Enqueue = nonce %q, %v, want the base64 of twelve random bytes", m.Receipt, err)
	}
	if len(asked) != 2 || asked[0] < 12 || asked[1] < 10 {
		t.Errorf("Enqueue asked for %v random bytes, want 12 or more for the nonce and 10 for the id", asked)
	}
}

func TestJitterIsRandom(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	store, _ := svc.Store.(*memory)
	for _, tt := range []struct {
		fill byte
		want float64
	}{{0, 0}, {0x80, 0.50196}, {0xff, 1}} {
		svc.Random = func(b []byte) {
			for i := range b {
				b[i] = tt.fill
			}
		}
		if _, err := svc.Fail(t.Context(), "q", "m", message.Failure{}); err != nil {
			t.Fatal(err)
		}
		fail, _ := store.applied[len(store.applied)-1].(message.Fail)
		if fail.Jitter >= 1 || fail.Jitter < tt.want-1e-4 || fail.Jitter > tt.want+1e-4 {
			t.Errorf("jitter of bytes %#x = %v, want %v and below 1", tt.fill, fail.Jitter, tt.want)
		}
	}
}

func TestSettingsCache(t *testing.T) {
	t.Parallel()
	now := epoch
	a := newService(t)
	store, _ := a.Store.(*memory)
	a.Now = func() time.Time { return now }
	b := newService(t)
	b.Store, b.Queues, b.Now = store, store, a.Now
	retries := func(svc *message.Service) int {
		t.Helper()
		m, _, err := svc.Enqueue(t.Context(), "q", message.Draft{})
		if err != nil {
			t.Fatalf("Enqueue = %v", err)
		}
		return m.MaxRetries
	}
	put := func(n int) {
		t.Helper()
		set := message.DefaultSettings()
		set.MaxRetries = n
		if _, _, err := a.PutQueue(t.Context(), "q", set); err != nil {
			t.Fatalf("PutQueue = %v", err)
		}
	}
	want := func(what string, svc *message.Service, n int) {
		t.Helper()
		if got := retries(svc); got != n {
			t.Errorf("max_retries %s = %d, want %d", what, got, n)
		}
	}
	want("of an unknown queue", a, 3)
	want("of an unknown queue elsewhere", b, 3)
	put(5)
	want("at once, on the instance that changed it", a, 5)
	now = epoch.Add(10 * time.Second)
	want("10 s later, on another instance", b, 5)

	// Not a read for each message.
	reads := store.reads
	for range 50 {
		now = now.Add(100 * ms)
		want("meanwhile", b, 5)
	}
	if store.reads > reads+1 {
		t.Errorf("50 messages in 5 s read the settings %d times, want at most once", store.reads-reads)
	}
	// A clock that goes back does not make settings last.
	now = epoch.Add(24 * time.Hour)
	want("a day later", b, 5)
	put(6)
	now = epoch
	want("on a clock that was set back", b, 6)

	// What could not be read is not remembered as the default.
	now = epoch.Add(time.Hour)
	store.err = message.ErrUnavailable
	if _, _, err := b.Enqueue(t.Context(), "q", message.Draft{}); !errors.Is(err, message.ErrUnavailable) {
		t.Errorf("Enqueue while settings cannot be read = %v, want %v", err, message.ErrUnavailable)
	}
	store.err = nil
	want("after that", b, 6)
}

func TestSettingsCacheIsBounded(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	for i := range message.SettingsKept + 100 {
		if _, err := svc.Succeed(t.Context(), fmt.Sprint("queue-", i), "m", nil); err != nil {
			t.Fatalf("Succeed = %v", err)
		}
		if got := svc.CachedSettings(); got > message.SettingsKept {
			t.Fatalf("after %d queues %d settings are kept, want at most %d", i+1, got, message.SettingsKept)
		}
	}
}

func TestSettingsCacheIsSafe(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				queue := fmt.Sprint("queue-", n%3)
				var err error
				if i%4 == 0 {
					_, _, err = svc.PutQueue(t.Context(), queue, message.DefaultSettings())
				} else {
					_, _, err = svc.Enqueue(t.Context(), queue, message.Draft{})
				}
				if err != nil {
					t.Errorf("call %d = %v", n, err)
				}
			}
		})
	}
	wg.Wait()
}

// Time is stored in whole milliseconds of UTC, whatever the clock says.
func TestTimes(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	svc.Now = func() time.Time {
		return time.Date(2026, 1, 1, 1, 0, 0, 123_999_999, time.FixedZone("somewhere", 3600))
	}
	m, _, err := svc.Enqueue(t.Context(), "q", message.Draft{Delay: new(1500 * ms)})
	want := epoch.Add(123 * ms)
	if err != nil || m.CreatedAt != want || m.UpdatedAt != want || m.Due != want.Add(1500*ms) {
		t.Errorf("Enqueue = created %v, due %v, %v, want %v and 1.5 s later", m.CreatedAt, m.Due, err, want)
	}
}
