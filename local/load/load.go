// Package load puts load on a Redrive server through HTTP, as producers and
// workers do, and measures how long the answers take.
//
// A round is what one message needs: it is enqueued, and messages are claimed
// and answered until one has succeeded, or none is due. In a closed loop each
// client begins a round when its last one is over, so that a slow server gets
// less to do. In an open loop messages come when they come; every latency counts
// from the time at which the message came, so that a server which stalls is
// charged for all who had to wait, and not only for the few that were let in.
package load

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options say how to load which server.
type Options struct {
	URL         string // of the server
	Token       string // goes into the header Authorization, if it is not empty
	AllowRemote bool   // the URL may be that of another machine
	Queue       string
	Clients     int // rounds under way at once, at most
	// Rate is the mean number of messages a second in an open loop; the times
	// between them are random (Poisson). Zero is a closed loop.
	Rate        float64
	FailPercent float64 // of what is claimed
	Payload     int     // bytes
	Waiting     int     // messages that are enqueued before anything is measured, and stay
	Duration    time.Duration
	Drain       time.Duration // how long to wait, after that, for messages that came back or were lost on the way
	Window      time.Duration // how often Each is called
	// Each is told, if it is not nil, of each window as soon as it is over.
	Each func(Window)
}

// Limits of the options, against slips of the hand.
const (
	maxDuration = 2 * time.Hour
	maxClients  = 4096
	maxRate     = 100_000 // a second
	maxPayload  = 262_144 // bytes, the server's
)

func (o Options) check() error {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("%q is no URL of a server, such as http://127.0.0.1:3000", o.URL)
	case !o.AllowRemote && !isLoopback(u.Hostname()):
		return fmt.Errorf("%s is not this machine; -allow-remote loads it all the same, if it is yours to load", u.Hostname())
	case o.Queue == "":
		return errors.New("the queue needs a name")
	case o.Clients < 1 || o.Clients > maxClients:
		return fmt.Errorf("there can be 1 to %d clients, not %d", maxClients, o.Clients)
	case !(o.Rate >= 0 && o.Rate <= maxRate):
		return fmt.Errorf("the rate can be 0 to %d messages a second, not %g", maxRate, o.Rate)
	case !(o.FailPercent >= 0 && o.FailPercent <= 100):
		return fmt.Errorf("0 to 100 percent can fail, not %g", o.FailPercent)
	case o.Payload < 0 || o.Payload > maxPayload:
		return fmt.Errorf("a payload has 0 to %d bytes, not %d", maxPayload, o.Payload)
	case o.Waiting < 0:
		return fmt.Errorf("%d messages cannot wait", o.Waiting)
	case o.Duration <= 0 || o.Duration > maxDuration:
		return fmt.Errorf("it can take up to %v, not %v", maxDuration, o.Duration)
	case o.Drain < 0 || o.Window <= 0:
		return errors.New("times must not be negative, and a window takes some")
	}
	return nil
}

// isLoopback reports whether the host is a name of this machine for itself.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// Run loads the server until the duration is over or ctx ends, and returns what
// it measured. What the server refuses is counted, and no error.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	t := newTarget(o)
	if err := fill(ctx, o, t); err != nil {
		return nil, err
	}
	rec := newRecorder()
	stop := rec.watch(o.Window, o.Each)
	loading, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	var notStarted int64
	if o.Rate > 0 {
		notStarted = open(loading, o, t, rec)
	} else {
		closed(loading, o, t, rec)
	}
	stop()
	report := rec.report()
	report.NotStarted = notStarted
	report.Drained = drain(ctx, o, t, report.Enqueued-report.Succeeded-report.Dead)
	report.Succeeded += report.Drained
	report.Left = report.Enqueued - report.Succeeded - report.Dead
	return report, nil
}

// afterRefusal is how long a client of a closed loop waits when it is refused,
// or a server that is down would take all of the processor.
const afterRefusal = 100 * time.Millisecond

// closed has each client do one round after the other.
func closed(ctx context.Context, o Options, t *target, rec *recorder) {
	var clients sync.WaitGroup
	for range o.Clients {
		clients.Go(func() {
			c := newClient(t, rec)
			for ctx.Err() == nil {
				if !c.round(time.Now(), o.FailPercent) {
					wait(ctx, afterRefusal)
				}
			}
		})
	}
	clients.Wait()
}

// queueing is how many messages may have come that no client is free for. It is
// more than a minute's worth at a thousand a second.
const queueing = 1 << 16

// open has messages come at random times, and returns how many of them no client
// could begin with.
func open(ctx context.Context, o Options, t *target, rec *recorder) (notStarted int64) {
	var (
		clients sync.WaitGroup
		late    atomic.Int64
		came    = make(chan time.Time, queueing)
	)
	for range o.Clients {
		clients.Go(func() {
			c := newClient(t, rec)
			for at := range came {
				if ctx.Err() != nil {
					late.Add(1)
					continue
				}
				c.round(at, o.FailPercent)
			}
		})
	}
	for next := time.Now(); ; {
		apart := -math.Log(1-random()) / o.Rate // an exponential distribution
		next = next.Add(time.Duration(apart * float64(time.Second)))
		if wait(ctx, time.Until(next)); ctx.Err() != nil {
			break
		}
		select {
		case came <- next:
		default:
			late.Add(1)
		}
	}
	close(came)
	clients.Wait()
	return late.Load()
}

// fill enqueues the messages that are to wait.
func fill(ctx context.Context, o Options, t *target) error {
	var (
		clients sync.WaitGroup
		begun   atomic.Int64
		rec     = newRecorder()
	)
	for range o.Clients {
		clients.Go(func() {
			c := newClient(t, rec)
			for ctx.Err() == nil && begun.Add(1) <= int64(o.Waiting) {
				c.enqueue(time.Now())
			}
		})
	}
	clients.Wait()
	if n := rec.report().Enqueued; n < int64(o.Waiting) {
		return fmt.Errorf("only %d of %d messages could be enqueued to wait", n, o.Waiting)
	}
	return nil
}

// whenEmpty is how long drain waits before it claims again.
const whenEmpty = 50 * time.Millisecond

// drain succeeds with up to so many messages, those that come back after a while
// among them, and returns how many there were.
func drain(ctx context.Context, o Options, t *target, left int64) (drained int64) {
	ctx, cancel := context.WithTimeout(ctx, o.Drain)
	defer cancel()
	c := newClient(t, newRecorder())
	for drained < left && ctx.Err() == nil {
		if m, _ := c.claim(); m != nil && c.succeed(m) {
			drained++
			continue
		}
		wait(ctx, whenEmpty)
	}
	return drained
}

// wait returns when the time is over, or ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// random is a number from zero to below one.
func random() float64 {
	const bits = 53 // of a float64's fraction
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return float64(binary.NativeEndian.Uint64(b[:])>>(64-bits)) / (1 << bits)
}
