package main

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/dynamotest"
	"github.com/redrivehq/redrive/shared/message"
)

var update = flag.Bool("update", false, "rewrite counts.json with what the engine reports")

// TestCounts measures what the model takes as given, on the store itself.
func TestCounts(t *testing.T) {
	t.Parallel()
	m := newMeasurement(t)
	var got Counts
	for _, bytes := range []int{100, 1 * kb, 4 * kb, 10 * kb, 16 * kb, 64 * kb, 256 * kb} {
		got.Orders = append(got.Orders, m.payload(orders(bytes)))
		got.Noise = append(got.Noise, m.payload(noise(bytes)))
	}
	got.Poll, got.Look = m.polls()
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("counts.json", append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(counts(), got); diff != "" {
		t.Errorf("what the store asks of the engine is not what counts.json says (-says +asks):\n%s"+
			"to take it over: go test -run TestCounts ./local/model -update, then make model", diff)
	}
}

// measurement is an instance whose settings are in memory and whose mark is set.
type measurement struct {
	t   *testing.T
	svc *message.Service
	now time.Time
}

func newMeasurement(t *testing.T) *measurement {
	client := dynamotest.Client(t)
	m := &measurement{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	store := dynamo.New(dynamo.Options{
		Client: client, Table: dynamotest.Table(t, client), Where: "on the engine under test",
		Now: func() time.Time { return m.now }, Log: slog.New(slog.DiscardHandler),
	})
	m.svc = &message.Service{
		Store: store, Queues: store, Sweeps: store, Now: store.Now,
		Random: func(b []byte) { _, _ = cryptorand.Read(b) }, // never fails: see its documentation
	}
	m.life("warm", 0)
	return m
}

// measure returns what the calls of do ask for.
func (m *measurement) measure(do func(context.Context) error) Units {
	m.t.Helper()
	ctx, meter := dynamo.WithMeter(m.t.Context())
	if err := do(ctx); err != nil {
		m.t.Fatal(err)
	}
	u := meter.Usage()
	return Units{Requests: u.Requests, Writes: u.WriteUnits, Reads: u.ReadUnits}
}

// payload measures lives of messages with that payload.
func (m *measurement) payload(text string) Payload {
	m.t.Helper()
	happy, once, twice := m.life(text, 0), m.life(text, 1), m.life(text, 2)
	failure := once.minus(happy)
	if second := twice.minus(once); second != failure {
		m.t.Errorf("with %d bytes the first failure costs %v, the next %v: the model knows one", len(text), failure, second)
	}
	return Payload{Bytes: len(text), Happy: happy, Failure: failure}
}

// life measures a message from enqueue to success, so many failed attempts between.
func (m *measurement) life(payload string, failures int) Units {
	m.t.Helper()
	return m.measure(func(ctx context.Context) error {
		if _, _, err := m.svc.Enqueue(ctx, "orders", message.Draft{Payload: payload}); err != nil {
			return err
		}
		for left := failures; ; left-- {
			held, err := m.svc.Claim(ctx, "orders", message.ClaimOptions{})
			if err != nil || len(held) != 1 {
				return fmt.Errorf("claimed %d messages: %w", len(held), err)
			}
			h := held[0]
			if left == 0 {
				_, err = m.svc.Succeed(ctx, "orders", h.ID, &h.Receipt)
				return err
			}
			if _, err := m.svc.Fail(ctx, "orders", h.ID, message.Failure{
				Receipt: &h.Receipt, Error: "connection refused", RetryAfter: new(time.Duration(0)),
			}); err != nil {
				return err
			}
			m.now = m.now.Add(10 * time.Millisecond) // nothing is due in the millisecond of its last change
		}
	})
}

// polls measures a claim of nothing, and what one adds that looks at the leases too.
func (m *measurement) polls() (poll, look Units) {
	m.t.Helper()
	claim := func(ctx context.Context) error {
		held, err := m.svc.Claim(ctx, "idle", message.ClaimOptions{})
		if err == nil && len(held) > 0 {
			err = errors.New("there was a message")
		}
		return err
	}
	m.measure(claim)
	poll = m.measure(claim)
	m.now = m.now.Add(lookEvery)
	return poll, m.measure(claim).minus(poll)
}

// orders returns the beginning of a JSON text as orders are, the same each time.
func orders(bytes int) string {
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("blue cotton shirt large wooden chair garden lamp steel bottle coffee beans dark roast " +
		"running shoes winter jacket notebook ruled pencil set kitchen knife paper towels phone case travel mug")
	var b strings.Builder
	b.WriteString(`{"order_id":"ord_20260101_000042","customer_email":"ada@example.com","line_items":[`)
	for b.Len() < bytes {
		fmt.Fprintf(&b, `{"line_id":"li_%016x","sku":"SKU-%06d","title":"%s %s %s","quantity":%d,"unit_price":"%d.%02d"},`,
			r.Uint64(), r.IntN(1_000_000), words[r.IntN(len(words))], words[r.IntN(len(words))], words[r.IntN(len(words))],
			1+r.IntN(5), r.IntN(200), r.IntN(100))
	}
	return b.String()[:bytes]
}

// noise returns base64 of random bytes, as encrypted or compressed content
// travels.
func noise(bytes int) string {
	b := make([]byte, bytes)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return base64.StdEncoding.EncodeToString(b)[:bytes]
}
