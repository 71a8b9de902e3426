package message

import (
	"bytes"
	"context"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"time"
)

// Service carries out the verbs. Its methods are safe for concurrent use. The
// exported fields must be set before the first call and not changed after.
type Service struct {
	Store  Store
	Queues QueueStore
	Sweeps SweepStore
	// Now tells the time.
	Now func() time.Time
	// Random fills b with bytes that nobody can guess. Receipts, identifiers and
	// jitter come from here.
	Random func(b []byte)

	mu       sync.Mutex
	settings map[string]cachedSettings
	looks    map[string]time.Time // when an empty claim looks at the leases again
	lastID   [16]byte
}

// settingsAge is how long settings may be used without reading them again: the
// contract promises that a change applies within 10 s everywhere.
const settingsAge = 9 * time.Second

// settingsKept bounds the cache; past it, it is begun anew.
const settingsKept = 10_000

type cachedSettings struct {
	Settings
	readAt time.Time
}

// now is the time as it is stored: UTC, whole milliseconds.
func (s *Service) now() time.Time {
	return s.Now().UTC().Truncate(time.Millisecond)
}

// settingsOf returns the settings of the queue, the defaults if it is unknown.
func (s *Service) settingsOf(ctx context.Context, queue string) (Settings, error) {
	now := s.Now().Round(0) // a frozen Lambda may stop the other clock that Go keeps
	s.mu.Lock()
	cached, ok := s.settings[queue]
	s.mu.Unlock()
	if age := now.Sub(cached.readAt); ok && age >= 0 && age < settingsAge {
		return cached.Settings, nil
	}
	q, err := s.Queues.Queue(ctx, queue)
	if errors.Is(err, ErrQueueNotFound) {
		q.Settings = DefaultSettings()
	} else if err != nil {
		return Settings{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings == nil || len(s.settings) >= settingsKept {
		s.settings = make(map[string]cachedSettings)
	}
	s.settings[queue] = cachedSettings{q.Settings, now}
	return q.Settings, nil
}

// forget makes the next use of the queue's settings read them.
func (s *Service) forget(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.settings, queue)
}

// receiptBytes makes a receipt as hard to guess as a 96-bit key.
const receiptBytes = 12

// nonce returns a fresh receipt.
func (s *Service) nonce() string {
	var b [receiptBytes]byte
	s.Random(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// jitter returns a random number in [0, 1).
func (s *Service) jitter() float64 {
	var b [8]byte
	s.Random(b[:])
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}

const (
	idPrefix = "msg_"
	idDigits = 26 // of 128 bits
	alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

// crockford is Crockford's base32, whose text order is the order of the bytes.
var crockford = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// newID returns an identifier that sorts by time: 48 bits of milliseconds, then
// 80 random bits. The identifiers of one Service ascend, also within one
// millisecond, so that what one sender enqueues one after the other is claimed
// in that order.
func (s *Service) newID(now time.Time) string {
	const millisBytes = 6
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(now.UnixMilli())<<16)
	s.Random(b[millisBytes:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Compare(b[:millisBytes], s.lastID[:millisBytes]) <= 0 { // also if the clock was read before another's turn
		step := uint64(binary.BigEndian.Uint32(b[12:])) + 1 // random, so that the next one cannot be guessed
		low := binary.BigEndian.Uint64(s.lastID[8:])
		b = s.lastID
		binary.BigEndian.PutUint64(b[8:], low+step)
		if low+step < low { // carry
			binary.BigEndian.PutUint64(b[:], binary.BigEndian.Uint64(b[:])+1)
		}
	}
	s.lastID = b
	return idPrefix + crockford.EncodeToString(b[:])
}

// IsID reports whether text has the form of a message identifier.
func IsID(text string) bool {
	digits, ok := strings.CutPrefix(text, idPrefix)
	return ok && len(digits) == idDigits && strings.Trim(digits, alphabet) == ""
}
