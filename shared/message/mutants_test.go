package message_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
)

// TestDecideRefuses has what a condition less would let through.
func TestDecideRefuses(t *testing.T) {
	t.Parallel()
	ends := func(tr message.Transition) message.Message {
		change, err := message.Decide(held(), tr)
		if err != nil {
			t.Fatal(err)
		}
		return change.Message
	}
	holder := message.Answer{At: at(20 * time.Second), Receipt: "r1"}
	whoever := message.Answer{At: at(20 * time.Second)}
	failed, succeeded := ends(message.Fail{Answer: holder}), ends(message.Succeed{Answer: holder, KeepDays: 1})
	released := ends(message.Release{Answer: holder})
	stall := message.Stall{At: at(42 * time.Second), Lease: at(40 * time.Second)}
	for _, tt := range []struct {
		name   string
		m      message.Message
		tr     message.Transition
		reason message.Reason
	}{
		{"a claim of what is held", held(), message.Claim{At: at(time.Hour), Receipt: "r2"}, message.ReasonState},
		{"a claim of what has succeeded", succeeded, message.Claim{At: at(time.Hour)}, message.ReasonState},
		{"a success after a failure", failed, message.Succeed{Answer: holder}, message.ReasonState},
		{"a failure after a success", succeeded, message.Fail{Answer: holder}, message.ReasonState},
		{"a release after a failure", failed, message.Release{Answer: holder}, message.ReasonState},
		{"a failure after a release", released, message.Fail{Answer: holder}, message.ReasonState},
		{"a failure without a receipt after a failure", failed, message.Fail{Answer: whoever}, message.ReasonState},
		{"a success without a receipt after a success", succeeded, message.Succeed{Answer: whoever}, message.ReasonState},
		{"an extension after a failure", failed, message.Extend{Answer: holder}, message.ReasonState},
		{"a stall after a stall", ends(stall), stall, message.ReasonState},
		{
			"an extension after twelve hours", held(),
			message.Extend{Answer: message.Answer{At: at(12*time.Hour + 10*time.Second), Receipt: "r1"}, Timeout: time.Second},
			message.ReasonHeldLong,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := message.Decide(tt.m, tt.tr)
			want := message.ConflictError{Verb: tt.tr.Verb(), Status: tt.m.Status, Reason: tt.reason}
			if conflict, ok := errors.AsType[*message.ConflictError](err); !ok || *conflict != want {
				t.Errorf("Decide = %v, want %v", err, &want)
			}
		})
	}
}

// TestDecideAtTheEdges has the last value before something else happens, and the
// first at which it does.
func TestDecideAtTheEdges(t *testing.T) {
	t.Parallel()
	holder := message.Answer{At: at(20 * time.Second), Receipt: "r1"}
	stall := message.Stall{At: at(42 * time.Second), Lease: at(40 * time.Second)}
	used := func(retries, stalls int) message.Message {
		return as(held(), func(m *message.Message) { m.RetryCount, m.StallCount = retries, stalls })
	}
	type shown struct {
		Status          message.Status
		Reason          message.DeadReason
		Retries, Stalls int
		Due             time.Time
	}
	for _, tt := range []struct {
		name string
		m    message.Message
		tr   message.Transition
		want shown
	}{
		{
			"the last retry but one", used(1, 2),
			message.Fail{Answer: holder},
			shown{message.Pending, "", 2, 2, at(20 * time.Second)},
		},
		{
			"the last retry", used(2, 0),
			message.Fail{Answer: holder},
			shown{message.Dead, message.RetriesExhausted, 3, 0, at(20 * time.Second)},
		},
		{"the last stall but one", used(2, 1), stall, shown{message.Pending, "", 2, 2, at(42 * time.Second)}},
		{"the last stall", used(0, 2), stall, shown{message.Dead, message.Stalled, 0, 3, at(42 * time.Second)}},
		{
			"a delay that the worker asks for", used(0, 0),
			message.Fail{Answer: holder, RetryAfter: new(time.Hour), Backoff: message.DefaultSettings().Backoff},
			shown{message.Pending, "", 1, 0, at(20*time.Second + time.Hour)},
		},
		{
			"an extension to less", held(),
			message.Extend{Answer: holder, Timeout: time.Second},
			shown{message.Processing, "", 1, 1, at(40 * time.Second)},
		},
		{
			"an extension to twelve hours", held(),
			message.Extend{Answer: holder, Timeout: 12 * time.Hour},
			shown{message.Processing, "", 1, 1, at(12*time.Hour + 10*time.Second)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			change, err := message.Decide(tt.m, tt.tr)
			m := change.Message
			got := shown{m.Status, m.DeadReason, m.RetryCount, m.StallCount, m.Due}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("Decide: %v, differs (-want +got):\n%s", err, diff)
			}
			if !m.ExpiresAt.IsZero() {
				t.Errorf("it expires at %v, though nobody said so", m.ExpiresAt)
			}
		})
	}
}

// TestAClaimNeverBeginsBeforeTheDueTime is for a store that found the message due
// by another clock than the claim's.
func TestAClaimNeverBeginsBeforeTheDueTime(t *testing.T) {
	t.Parallel()
	waiting := message.Message{Status: message.Pending, Due: at(time.Minute)}
	m := message.Claim{At: at(59 * time.Second), Receipt: "r", Timeout: time.Second}.Apply(waiting)
	if !m.ClaimedAt.Equal(at(time.Minute)) || !m.Due.Equal(at(61*time.Second)) {
		t.Errorf("claimed at %v until %v, want from the due time on", m.ClaimedAt, m.Due)
	}
}

// TestPin has a call without a receipt that finds another attempt than it began
// with.
func TestPin(t *testing.T) {
	t.Parallel()
	next := as(held(), func(m *message.Message) { m.Receipt, m.ClaimCount = "r2", 5 })
	whoever := message.Answer{At: at(20 * time.Second)}
	for _, tr := range []message.Transition{message.Succeed{Answer: whoever}, message.Fail{Answer: whoever}} {
		if _, err := message.Decide(next, tr); err != nil {
			t.Errorf("%s without a receipt = %v", tr.Verb(), err)
		}
		if _, err := message.Decide(next, message.Pin(tr, held())); !errors.Is(err, message.ErrConflict) {
			t.Errorf("%s that began with the attempt before = %v, want a conflict", tr.Verb(), err)
		}
	}
	given := message.Fail{Answer: message.Answer{At: whoever.At, Receipt: "r2"}}
	if _, err := message.Decide(next, message.Pin(given, held())); err != nil {
		t.Errorf("a receipt that was given is replaced: %v", err)
	}
}
