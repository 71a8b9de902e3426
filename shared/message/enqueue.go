package message

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"
)

// Draft is a message to be enqueued. Nil means that the sender did not say.
type Draft struct {
	Payload    string
	MaxRetries *int           // 1 to 10; the queue's if nil
	Delay      *time.Duration // 0 to MaxDelay, before the first claim
	// Key makes a repeat of the call answer with the same message; empty for
	// none. It is known within the queue for as long as the message is stored.
	Key string
}

// Faults lists what is outside its range.
func (d Draft) Faults() []Fault {
	var faults []Fault
	if d.MaxRetries != nil {
		faults = appendRange(faults, "max_retries", *d.MaxRetries, 1, MaxRetries)
	}
	if d.Delay != nil {
		faults = appendSecondsRange(faults, "delay_seconds", *d.Delay, 0, MaxDelay)
	}
	return faults
}

// Enqueue stores a message, and its queue if that is new. A repeat under the
// same key and with the same content returns the message as it is now, and
// false. Errors: *ValidationError, ErrPayloadTooLarge, ErrKeyReused,
// ErrUnavailable.
func (s *Service) Enqueue(ctx context.Context, queue string, d Draft) (m Message, created bool, err error) {
	if err = invalid(d.Faults()); err != nil {
		return Message{}, false, err
	}
	if !payloadFits(d.Payload) {
		return Message{}, false, ErrPayloadTooLarge
	}
	set, err := s.settingsOf(ctx, queue)
	if err != nil {
		return Message{}, false, err
	}
	now := s.now()
	m = Message{
		Queue: queue, Status: Pending, Due: now,
		Payload: d.Payload, PayloadBytes: len(d.Payload),
		MaxRetries: set.MaxRetries, MaxStalls: set.MaxStalls,
		Receipt:   s.nonce(), // never handed out: it only makes this version unique
		CreatedAt: now, UpdatedAt: now,
	}
	if d.MaxRetries != nil {
		m.MaxRetries = *d.MaxRetries
	}
	if d.Delay != nil {
		m.Due = now.Add(*d.Delay)
	}
	if d.Key == "" {
		m.ID = s.newID(now)
	} else {
		m.ID, m.Fingerprint = keyedID(queue, d.Key), d.fingerprint()
	}
	stored, created, err := s.Store.Enqueue(ctx, m)
	if err != nil {
		return Message{}, false, err
	}
	if !created && stored.Fingerprint != m.Fingerprint {
		return Message{}, false, ErrKeyReused
	}
	return stored, created, nil
}

// keyedID derives the identifier from queue and key, so that the store's own
// uniqueness is the check. A queue's name holds no NUL: the pair is unambiguous.
func keyedID(queue, key string) string {
	sum := sha256.Sum256([]byte(queue + "\x00" + key))
	return idPrefix + crockford.EncodeToString(sum[:16])
}

// fingerprint covers the payload and the options as given: an absent option
// differs from one that names the default.
func (d Draft) fingerprint() string {
	h := sha256.New()
	if d.MaxRetries != nil {
		fmt.Fprintf(h, "max_retries=%d\n", *d.MaxRetries)
	}
	if d.Delay != nil {
		fmt.Fprintf(h, "delay_ms=%d\n", d.Delay.Milliseconds())
	}
	fmt.Fprintf(h, "payload=%s", d.Payload)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
