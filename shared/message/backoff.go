package message

import (
	"math"
	"time"
)

// Jitter spreads the delays of messages that failed together.
type Jitter string

// The kinds of jitter. A jittered delay is never longer than the plain one.
const (
	JitterNone  Jitter = "none"
	JitterEqual Jitter = "equal" // half fixed, half random
	JitterFull  Jitter = "full"  // all random
)

// Backoff says how long a message waits after its n-th failure, or its n-th
// stall. With a Schedule the other delays are not used.
type Backoff struct {
	Initial time.Duration // after the first failure
	Factor  float64       // each further delay is this many times the one before
	Max     time.Duration // no delay is longer
	// Schedule lists the delay after the first failure, the second, and so on;
	// the last repeats.
	Schedule []time.Duration
	Jitter   Jitter
}

// Delay returns the wait after the n-th failure, n ≥ 1, in whole milliseconds.
// Random is in [0, 1) and decides the jitter. No n and no setting overflows:
// the product is formed where it cannot, and clamped to Max before it becomes a
// duration.
func (b Backoff) Delay(n int, random float64) time.Duration {
	plain := b.plain(max(n, 1))
	switch b.Jitter {
	case JitterEqual:
		half := (plain / 2).Truncate(time.Millisecond)
		plain = half + time.Duration(random*float64(plain-half))
	case JitterFull:
		plain = time.Duration(random * float64(plain))
	case JitterNone:
	}
	return plain.Truncate(time.Millisecond)
}

func (b Backoff) plain(n int) time.Duration {
	if len(b.Schedule) > 0 {
		return b.Schedule[min(n, len(b.Schedule))-1]
	}
	delay := float64(b.Initial) * math.Pow(b.Factor, float64(n-1)) // +Inf for large n
	if delay >= float64(b.Max) {
		return b.Max
	}
	return time.Duration(delay).Round(time.Millisecond)
}
