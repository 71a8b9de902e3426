package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// nobodys is a well-formed receipt that was never handed out.
const nobodys = "AAAAAAAAAAAAAAAA"

// refusalVerbs are the columns of the table below.
func refusalVerbs() []message.Verb {
	return []message.Verb{
		message.VerbClaim, message.VerbSucceed, message.VerbFail, message.VerbRelease, message.VerbExtend,
		message.VerbStall, message.VerbReplay, message.VerbDelete,
	}
}

// refusalReasons are those of the cells below.
func refusalReasons() map[byte]message.Reason {
	return map[byte]message.Reason{
		'.': message.ReasonState, 'R': message.ReasonReceipt, 'D': message.ReasonNotDue,
		'A': message.ReasonAlive, 'H': message.ReasonHeldLong,
	}
}

// testRefusals tries every verb on every state, with a receipt that the row
// names. A cell says what comes of it:
//
//   - it is carried out (testTransitions says how)
//     =  it is answered with the message as it is, which does not change
//     .  it is refused because of the state, and changes nothing; so are
//     R  because of the receipt,
//     D  because the message is not due,
//     A  because the lease has not ended and been left alone for long enough,
//     H  because the message has been held for twelve hours
func testRefusals(t *testing.T, open Open) {
	rows := []struct {
		name    string
		cells   string // one for each of refusalVerbs: claim, succeed, fail, release, extend, stall, replay, delete
		prepare func(t *testing.T, f *fixture, queue string) (m message.Message, receipt string)
	}{
		{
			"pending and never claimed", "+......+",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				return f.send(t, queue, message.Draft{}), nobodys
			},
		},
		{
			"pending, and the receipt is what stands in for one", "+......+",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.send(t, queue, message.Draft{})
				return m, m.Receipt
			},
		},
		{
			"pending and not due", "D......+",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				f.at(0)
				m := f.send(t, queue, message.Draft{Delay: new(time.Minute)})
				f.at(time.Minute - ms)
				return m, nobodys
			},
		},
		{
			"pending after the holder failed", "D.=....+",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				return f.fail(t, m, "x"), m.Receipt
			},
		},
		{
			"pending after the holder released", "+..=...+",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				return f.release(t, m), m.Receipt
			},
		},
		{
			"pending after the holder stalled", "D......+",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.at(sweptAfter)
				return f.stall(t, m), m.Receipt
			},
		},
		{
			"pending after a replay", "+......+",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.reject(t, m, "x")
				f.at(time.Hour)
				return f.replay(t, m), m.Receipt
			},
		},
		{
			"processing by the holder", ".++++A..",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				return m, m.Receipt
			},
		},
		{
			"processing, and the receipt is nobody's", ".RRRRA..",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				return f.held(t, queue), nobodys
			},
		},
		{
			"processing by another after the holder failed", ".RRRRA..",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.fail(t, m, "x")
				f.at(time.Hour)
				return f.claimFrom(t, queue), m.Receipt
			},
		},
		{
			"processing by another after the holder released", ".RRRRA..",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.release(t, m)
				f.at(time.Hour)
				return f.claimFrom(t, queue), m.Receipt
			},
		},
		{
			"processing by another after the holder stalled", ".RRRRA..",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.at(sweptAfter)
				f.stall(t, m)
				f.at(time.Hour)
				return f.claimFrom(t, queue), m.Receipt
			},
		},
		{
			"processing 1 ms before the lease may be swept", ".++++A..",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.at(sweptAfter - ms)
				return m, m.Receipt
			},
		},
		{
			"processing on a lease that may be swept", ".+++++..",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.at(sweptAfter)
				return m, m.Receipt
			},
		},
		{
			"processing on a lease that ran out long ago", ".+++++..",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.at(claimedAfter + message.MaxHold - ms)
				return m, m.Receipt
			},
		},
		{
			"processing for twelve hours", ".+++H+..",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.at(claimedAfter + message.MaxHold)
				return m, m.Receipt
			},
		},
		{
			"succeeded by the holder", ".=.....+",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				return f.succeed(t, m), m.Receipt
			},
		},
		{
			"succeeded by another", ".......+",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				f.release(t, m)
				f.at(time.Hour)
				return f.succeed(t, f.claimFrom(t, queue)), m.Receipt
			},
		},
		{
			"dead because its holder rejected it", "..=...++",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				m := f.held(t, queue)
				return f.reject(t, m, "x"), m.Receipt
			},
		},
		{
			"dead because its retries are exhausted", "..=...++",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				f.put(t, queue, func(set *message.Settings) { set.MaxRetries = 1 })
				m := f.held(t, queue)
				return f.fail(t, m, "x"), m.Receipt
			},
		},
		{
			"dead because it stalled", "......++",
			func(t *testing.T, f *fixture, queue string) (message.Message, string) {
				f.put(t, queue, func(set *message.Settings) { set.MaxStalls = 1 })
				m := f.held(t, queue)
				f.at(sweptAfter)
				return f.stall(t, m), m.Receipt
			},
		},
	}
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			for i, verb := range refusalVerbs() {
				m, receipt := tt.prepare(t, f, "try-"+string(verb))
				f.try(t, m, verb, receipt, tt.cells[i])
			}
		})
	}
	t.Run("an unknown message is not found by any verb, nor is one of another queue", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, open)
		m := f.dead(t, emails)
		unknown := "msg_" + strings.Repeat("0", 26)
		for _, verb := range refusalVerbs() {
			_, err := f.do(t, emails, unknown, verb, m)
			wantError(t, string(verb)+" of an unknown message", err, message.ErrNotFound)
			_, err = f.do(t, "orders", m.ID, verb, m)
			wantError(t, string(verb)+" in another queue", err, message.ErrNotFound)
		}
		_, _, err := f.Get(t.Context(), "orders", m.ID)
		wantError(t, "Get in another queue", err, message.ErrNotFound)
		f.wantStatus(t, m, message.Dead)
	})
	t.Run("S091 a replay of what is not dead is refused", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, open)
		held := f.held(t, emails)
		done := f.succeed(t, f.held(t, "done"))
		waiting := f.send(t, "waiting", message.Draft{})
		for _, m := range []message.Message{held, done, waiting} {
			before := f.get(t, m)
			_, err := f.Replay(t.Context(), m.Queue, m.ID)
			wantError(t, "Replay", err, conflict(message.VerbReplay, m.Status, message.ReasonState))
			wantSame(t, "what is stored", f.get(t, m), before)
		}
	})
}

// try carries the verb out on m and compares with what the cell says.
func (f *fixture) try(t *testing.T, m message.Message, verb message.Verb, receipt string, cell byte) {
	t.Helper()
	before := f.get(t, m)
	seen := m
	seen.Receipt = receipt
	got, err := f.do(t, m.Queue, m.ID, verb, seen)
	switch cell {
	case '+':
		wantError(t, string(verb), err, nil)
		return
	case '=':
		wantError(t, string(verb), err, nil)
		wantSame(t, "the answer to "+string(verb), got, without(before.Message))
	default:
		reason := refusalReasons()[cell]
		wantError(t, string(verb), err, conflict(verb, before.Message.Status, reason))
	}
	wantSame(t, "what is stored after "+string(verb), f.get(t, m), before)
}

// do carries the verb out, with the receipt and the lease of m as seen.
func (f *fixture) do(
	t *testing.T, queue, id string, verb message.Verb, seen message.Message,
) (m message.Message, err error) {
	t.Helper()
	switch verb {
	case message.VerbClaim:
		return f.store.Apply(t.Context(), queue, id, message.Claim{
			At: f.clock.Now(), Receipt: "a fresh one", Timeout: time.Minute,
		})
	case message.VerbSucceed:
		return f.Succeed(t.Context(), queue, id, &seen.Receipt)
	case message.VerbFail:
		// Other words than before: they do not matter.
		return f.Fail(t.Context(), queue, id, message.Failure{Receipt: &seen.Receipt, Error: "y", RetryAfter: new(ms)})
	case message.VerbRelease:
		return f.Release(t.Context(), queue, id, &seen.Receipt)
	case message.VerbExtend:
		return f.Extend(t.Context(), queue, id, message.Extension{Receipt: &seen.Receipt})
	case message.VerbStall:
		return f.store.Apply(t.Context(), queue, id, f.stallOf(seen))
	case message.VerbReplay:
		return f.Replay(t.Context(), queue, id)
	case message.VerbBury:
		return f.store.Apply(t.Context(), queue, id, message.Bury{
			Answer: message.Answer{At: f.clock.Now(), Receipt: seen.Receipt},
		})
	case message.VerbDelete:
		return message.Message{}, f.Delete(t.Context(), queue, id)
	}
	t.Fatalf("no such verb: %s", verb)
	return message.Message{}, nil
}
