package sqlite

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
)

// FuzzMessage stores any message, and reads it.
func FuzzMessage(f *testing.F) {
	f.Add("{\"a\":1}", "receipt", "fail", "no such mailbox", "rejected",
		int64(1_767_225_600_000), int64(30_000), 3, 2, true)
	f.Add("\x00\xff", "", "", "\xff\x00", "", int64(1), int64(0), 0, math.MaxInt, true)
	f.Add("", "' OR 1=1 --", "\"; DROP TABLE message", "", "%", int64(1), int64(math.MaxInt64), -1, math.MinInt, false)
	s, err := Open(InMemory)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { mustClose(f, s) })
	f.Fuzz(func(
		t *testing.T, payload, receipt, verb, text, reason string, at, later int64, count, other int, failed bool,
	) {
		when := func(millis int64) time.Time { // zero stands for none
			if millis == 0 {
				return time.Time{}
			}
			return time.UnixMilli(millis).UTC()
		}
		m := message.Message{
			ID: "msg_01KB9Z0000000000000000000A", Queue: "a b", Status: message.Processing, Due: when(at), Payload: payload,
			PayloadBytes: count, RetryCount: other, MaxRetries: count, StallCount: other, MaxStalls: count, ClaimCount: other,
			ReplayCount: count, DeadReason: message.DeadReason(reason), Receipt: receipt, LastVerb: message.Verb(verb),
			ClaimedAt: when(later), CreatedAt: when(at), UpdatedAt: when(later), ExpiresAt: when(later), Fingerprint: reason,
		}
		if failed {
			m.LastError = &text
		}
		a := message.Attempt{
			Number: other, ClaimedAt: when(at), EndedAt: when(later), Outcome: message.Outcome(verb), Error: text,
		}
		ctx := t.Context()
		defer onWriter(t, s, func(c *conn) error {
			stored, err := c.find(m.Queue, m.ID, false)
			if err != nil {
				return err
			}
			return c.remove(stored)
		})
		onWriter(t, s, func(c *conn) error {
			if err := c.insert(m); err != nil {
				return err
			}
			return c.keep(m, a)
		})
		got, attempts, err := s.Get(ctx, m.Queue, m.ID)
		if err != nil {
			t.Fatalf("Get() = %v", err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("the message comes back as another (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]message.Attempt{a}, attempts); diff != "" {
			t.Errorf("the attempt comes back as another (-want +got):\n%s", diff)
		}
	})
}

// damageable are the columns that may be damaged: not the keys by which rows are
// found.
var damageable = []struct{ table, numbers, texts, blobs string }{
	{
		"message", "due payload payload_bytes retry_count max_retries stall_count max_stalls claim_count replay_count " +
			"claimed_at created_at updated_at expires_at", "status dead_reason receipt last_verb fingerprint", "last_error",
	},
	{"payload", "", "", "body"},
	{"attempt", "number claimed_at ended_at", "outcome", "error"},
	{"queue", "created_at deleted", "settings", ""},
	{"mark", "marked_at", "", ""},
}

// FuzzDamage damages what stands in the tables, in two columns: no call panics,
// or takes much memory. What it answers may be an error.
func FuzzDamage(f *testing.F) {
	const settings = 27 // among what may be damaged
	for which := range byte(32) {
		f.Add(which, "", int64(-1), which+1, "fail", int64(math.MaxInt64))
	}
	for _, text := range []string{`{"shards":0}`, `{"shards":1000000000}`, "null", "[]", "\xff", "\x00"} {
		f.Add(byte(settings), text, int64(1), byte(0), text, int64(0))
	}
	f.Fuzz(func(t *testing.T, which byte, text string, number int64, which2 byte, text2 string, number2 int64) {
		const allowed = 64 << 20 // bytes
		s, c := mustOpen(t, InMemory), newClock()
		svc := newService(s, c)
		mustEnqueue(t, svc, "q", "1")
		failed := mustClaim(t, svc, "q")
		if err := answer(t.Context(), svc, "fail", failed); err != nil {
			t.Fatal(err)
		}
		mustEnqueue(t, svc, "q", "2")
		held := mustClaim(t, svc, "q")
		onWriter(t, s, func(c *conn) error {
			for _, all := range [][]func() error{c.damages(text, number), c.damages(text2, number2)} {
				if err := all[int(which)%len(all)](); err != nil {
					return err
				}
				which = which2
			}
			clear(s.queues)
			clear(s.marks)
			return nil
		})
		c.advance(time.Minute)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		svc = newService(s, c) // remembers nothing
		for i, call := range append(callsOf(t.Context(), svc, failed), callsOf(t.Context(), svc, held)...) {
			if err := call(); err != nil && strings.Contains(err.Error(), "panic") {
				t.Errorf("call %d: %v", i, err)
			}
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > allowed {
			t.Errorf("the calls take %d bytes of memory", used)
		}
	})
}

// damages returns the statements that set one column in every row, to a number or
// to a text, whichever it takes.
func (c *conn) damages(text string, number int64) (all []func() error) {
	set := func(table, name string, value func(*query) *query) {
		all = append(all, func() error { return value(c.prepare(`UPDATE ` + table + ` SET ` + name + ` = ?`)).run() })
	}
	for _, of := range damageable {
		for name := range strings.FieldsSeq(of.numbers) {
			set(of.table, name, func(q *query) *query { return q.number(number) })
		}
		for name := range strings.FieldsSeq(of.texts) {
			set(of.table, name, func(q *query) *query { return q.text(text) })
		}
		for name := range strings.FieldsSeq(of.blobs) {
			set(of.table, name, func(q *query) *query { return q.bytes(text) })
		}
	}
	return append(all,
		c.prepare(`UPDATE message SET last_error = NULL`).run,
		c.prepare(`DELETE FROM payload`).run,
		c.prepare(`DELETE FROM queue`).run,
	)
}

// callsOf returns calls of everything that reads what is stored.
func callsOf(ctx context.Context, svc *message.Service, m message.Message) []func() error {
	list := message.List{Queue: m.Queue, Limit: 10, Payload: true, PayloadBytes: 1_000}
	return []func() error{
		func() error { _, _, err := svc.Get(ctx, m.Queue, m.ID); return err },
		func() error { _, _, err := svc.List(ctx, list); return err },
		func() error { _, err := svc.Queue(ctx, m.Queue); return err },
		func() error { _, _, err := svc.ListQueues(ctx, "", "", 10); return err },
		func() error { return answer(ctx, svc, "fail", m) }, // a repeat for one that failed
		func() error { return answer(ctx, svc, "succeed", m) },
		func() error { return answer(ctx, svc, "release", m) },
		func() error {
			_, err := svc.Extend(ctx, m.Queue, m.ID, message.Extension{Receipt: &m.Receipt})
			return err
		},
		func() error { _, err := svc.Replay(ctx, m.Queue, m.ID); return err },
		func() error { _, err := svc.Claim(ctx, m.Queue, message.ClaimOptions{Max: new(10)}); return err },
		func() error {
			report, err := svc.Sweep(ctx, message.SweepOptions{Count: true})
			return errors.Join(err, report.Err)
		},
		func() error { _, _, err := svc.PutQueue(ctx, m.Queue, message.DefaultSettings()); return err },
		func() error { return svc.Delete(ctx, m.Queue, m.ID) },
		func() error { return svc.DeleteQueue(ctx, m.Queue) },
		func() error { _, _, err := svc.Enqueue(ctx, m.Queue, message.Draft{Payload: "x"}); return err },
	}
}
