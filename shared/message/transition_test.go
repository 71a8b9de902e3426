package message_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
)

// at returns the time so long after the epoch.
func at(after time.Duration) time.Time { return epoch.Add(after) }

// held is a message claimed at 10 s until 40 s.
func held() message.Message {
	return message.Message{
		ID: "m1", Queue: "q", Status: message.Processing, Due: at(40 * time.Second), Receipt: "r1",
		RetryCount: 1, MaxRetries: 3, StallCount: 1, MaxStalls: 3, ClaimCount: 4, LastError: new("old"),
		ClaimedAt: at(10 * time.Second), CreatedAt: epoch, UpdatedAt: at(10 * time.Second),
	}
}

// as returns the message changed.
func as(m message.Message, change func(*message.Message)) message.Message {
	change(&m)
	return m
}

func TestDecide(t *testing.T) {
	t.Parallel()
	holder := func(after time.Duration) message.Answer { return message.Answer{At: at(after), Receipt: "r1"} }
	backoff := message.DefaultSettings().Backoff
	failed := as(held(), func(m *message.Message) {
		m.Status, m.Due, m.UpdatedAt = message.Pending, at(24*time.Second), at(20*time.Second)
		m.RetryCount, m.LastError, m.LastVerb = 2, new("x"), message.VerbFail
	})
	succeeded := as(held(), func(m *message.Message) {
		m.Status, m.Due, m.UpdatedAt = message.Succeeded, at(20*time.Second), at(20*time.Second)
		m.LastVerb, m.ExpiresAt = message.VerbSucceed, at(20*time.Second+24*time.Hour)
	})
	dead := as(held(), func(m *message.Message) {
		m.Status, m.Due, m.UpdatedAt = message.Dead, at(20*time.Second), at(20*time.Second)
		m.RetryCount, m.LastError, m.LastVerb, m.DeadReason = 2, new("x"), message.VerbFail, message.Rejected
		m.ExpiresAt = at(21 * time.Second)
	})
	ended := func(after time.Duration, outcome message.Outcome, text string) *message.Attempt {
		return &message.Attempt{
			Number: 4, ClaimedAt: at(10 * time.Second), EndedAt: at(after), Outcome: outcome, Error: text,
		}
	}
	const leaseText = "lease ran out at 2026-01-01T00:00:40.000Z without an answer"
	for _, tt := range []struct {
		name    string
		m       message.Message
		tr      message.Transition
		want    message.Change
		wantErr error
	}{
		{
			"a success", held(),
			message.Succeed{Answer: holder(20 * time.Second), KeepDays: 1},
			message.Change{Message: succeeded, Changed: true},
			nil,
		},
		{
			"a success repeated", succeeded,
			message.Succeed{Answer: holder(time.Hour), KeepDays: 9},
			message.Change{Message: succeeded},
			nil,
		},
		{
			"a failure", held(),
			message.Fail{Answer: holder(20 * time.Second), Error: "x", Backoff: backoff},
			message.Change{Message: failed, Attempt: ended(20*time.Second, message.OutcomeFailed, "x"), Changed: true},
			nil,
		},
		{
			"a failure repeated", failed,
			message.Fail{Answer: holder(time.Hour), Error: "other", Permanent: true},
			message.Change{Message: failed, Attempt: ended(20*time.Second, message.OutcomeFailed, "x")},
			nil,
		},
		{
			"a failure repeated, on what a store shows that keeps the beginning of the text",
			as(failed, func(m *message.Message) { m.LastError = new(strings.Repeat("x", 200)) }),
			message.Fail{Answer: holder(time.Hour), Error: strings.Repeat("x", 300)},
			message.Change{
				Message: as(failed, func(m *message.Message) { m.LastError = new(strings.Repeat("x", 200)) }),
				Attempt: ended(20*time.Second, message.OutcomeFailed, strings.Repeat("x", 300)),
			},
			nil,
		},
		{
			"a claim that finds the payload missing", held(),
			message.Bury{Answer: holder(20 * time.Second)},
			message.Change{Changed: true, Message: as(held(), func(m *message.Message) {
				m.Status, m.Due, m.UpdatedAt = message.Dead, at(20*time.Second), at(20*time.Second)
				m.LastError, m.LastVerb = new("the payload is missing from the store"), message.VerbBury
				m.DeadReason = message.PayloadMissing
			})},
			nil,
		},
		{
			"a failure by a former holder", held(),
			message.Fail{Answer: message.Answer{At: at(20 * time.Second), Receipt: "r0"}},
			message.Change{},
			refused(message.VerbFail, message.Processing, message.ReasonReceipt),
		},
		{
			"a permanent failure", held(),
			message.Fail{Answer: holder(20 * time.Second), Error: "x", Permanent: true, DeadDays: new(1.0 / 86400)},
			message.Change{Message: dead, Attempt: ended(20*time.Second, message.OutcomeRejected, "x"), Changed: true},
			nil,
		},
		{
			"an answer by a clock that is behind", held(),
			message.Release{Answer: holder(0)},
			message.Change{Changed: true, Message: as(held(), func(m *message.Message) {
				m.Status, m.LastVerb = message.Pending, message.VerbRelease
				m.Due, m.UpdatedAt = at(10*time.Second+ms), at(10*time.Second+ms)
			})},
			nil,
		},
		{
			"an extension", held(),
			message.Extend{Answer: holder(20 * time.Second), Timeout: time.Minute},
			message.Change{Changed: true, Message: as(held(), func(m *message.Message) {
				m.Due, m.UpdatedAt = at(80*time.Second), at(20*time.Second)
			})},
			nil,
		},
		{
			"an extension that is not later", held(),
			message.Extend{Answer: holder(20 * time.Second), Timeout: 20 * time.Second},
			message.Change{Message: held()},
			nil,
		},
		{
			"a stall", held(),
			message.Stall{At: at(42 * time.Second), Lease: at(40 * time.Second), Backoff: backoff},
			message.Change{
				Changed: true, Attempt: ended(42*time.Second, message.OutcomeStalled, leaseText),
				Message: as(held(), func(m *message.Message) {
					m.Status, m.Due, m.UpdatedAt = message.Pending, at(46*time.Second), at(42*time.Second)
					m.StallCount, m.LastError, m.LastVerb = 2, new(leaseText), message.VerbStall
				}),
			},
			nil,
		},
		{
			"a stall of a lease that has 1 ms of grace", held(),
			message.Stall{At: at(42*time.Second - ms), Lease: at(40 * time.Second)},
			message.Change{},
			refused(message.VerbStall, message.Processing, message.ReasonAlive),
		},
		{
			"a stall of a lease that was extended", held(),
			message.Stall{At: at(time.Hour), Lease: at(30 * time.Second)},
			message.Change{},
			refused(message.VerbStall, message.Processing, message.ReasonAlive),
		},
		{
			"a claim by a clock that is ahead of the message", failed,
			message.Claim{At: at(30 * time.Second), Receipt: "r2", Timeout: time.Minute},
			message.Change{Changed: true, Message: as(failed, func(m *message.Message) {
				m.Status, m.Receipt, m.LastVerb, m.ClaimCount = message.Processing, "r2", "", 5
				m.Due, m.ClaimedAt, m.UpdatedAt = at(90*time.Second), at(30*time.Second), at(30*time.Second)
			})},
			nil,
		},
		{
			"a claim before the due time", failed,
			message.Claim{At: at(24*time.Second - ms), Receipt: "r2"},
			message.Change{},
			refused(message.VerbClaim, message.Pending, message.ReasonNotDue),
		},
		{
			"a claim that has been made", held(),
			message.Claim{At: at(10 * time.Second), Receipt: "r1", Timeout: time.Hour},
			message.Change{Message: held()},
			nil,
		},
		{
			"a replay in the millisecond of death", dead,
			message.Replay{At: at(20 * time.Second), Nonce: "n"},
			message.Change{Changed: true, Message: as(dead, func(m *message.Message) {
				m.Status, m.Due, m.UpdatedAt = message.Pending, at(20*time.Second+ms), at(20*time.Second+ms)
				m.RetryCount, m.StallCount, m.ReplayCount, m.LastError, m.DeadReason = 0, 0, 1, nil, ""
				m.Receipt, m.LastVerb, m.ExpiresAt = "n", "", time.Time{}
			})},
			nil,
		},
		{
			"a replay of what is past its retention", dead,
			message.Replay{At: at(21 * time.Second), Nonce: "n"},
			message.Change{},
			message.ErrNotFound,
		},
		{
			"a repeat on what is past its retention", succeeded,
			message.Succeed{Answer: holder(20*time.Second + 24*time.Hour)},
			message.Change{},
			message.ErrNotFound,
		},
		{
			"a replay of what is not dead", succeeded,
			message.Replay{At: at(time.Minute), Nonce: "n"},
			message.Change{},
			refused(message.VerbReplay, message.Succeeded, message.ReasonState),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := tt.m
			got, err := message.Decide(tt.m, tt.tr)
			if want, ok := errors.AsType[*message.ConflictError](tt.wantErr); ok {
				if found, ok := errors.AsType[*message.ConflictError](err); !ok || *found != *want {
					t.Errorf("Decide = %v, want %v", err, want)
				}
			} else if !errors.Is(err, tt.wantErr) {
				t.Errorf("Decide = %v, want %v", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Decide differs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tt.m); diff != "" {
				t.Errorf("Decide changed what it was given:\n%s", diff)
			}
		})
	}
}

func refused(verb message.Verb, status message.Status, reason message.Reason) error {
	return &message.ConflictError{Verb: verb, Status: status, Reason: reason}
}

func TestARepeatSurvivesAStoreThatLostTheError(t *testing.T) {
	t.Parallel()
	failed := as(held(), func(m *message.Message) {
		m.Status, m.RetryCount, m.LastError, m.LastVerb = message.Pending, 2, nil, message.VerbFail
	})
	tr := message.Fail{Answer: message.Answer{At: at(20 * time.Second), Receipt: "r1"}, Error: "x"}
	change, err := message.Decide(failed, tr)
	if err != nil || change.Changed || change.Attempt.Error != "" {
		t.Errorf("Decide = %+v, %v, want a repeat whose error is empty", change, err)
	}
	if attempt := (message.Stall{}).Ended(failed); attempt.Error != "" {
		t.Errorf("Ended = %+v, want no error", attempt)
	}
}

func TestMayDelete(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status  message.Status
		expires time.Time
		want    error
	}{
		{message.Pending, time.Time{}, nil},
		{message.Processing, time.Time{}, message.ErrConflict},
		{message.Dead, time.Time{}, nil},
		{message.Succeeded, at(ms), nil},
		{message.Succeeded, epoch, message.ErrNotFound},
		{message.Dead, epoch, message.ErrNotFound},
	} {
		err := message.MayDelete(message.Message{Status: tt.status, ExpiresAt: tt.expires}, epoch)
		if !errors.Is(err, tt.want) {
			t.Errorf("MayDelete(%s until %v) = %v, want %v", tt.status, tt.expires, err, tt.want)
		}
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	now := at(100 * 24 * time.Hour)
	attempt := func(number int, age time.Duration) message.Attempt {
		return message.Attempt{
			Number: number, ClaimedAt: now.Add(-age - time.Second), EndedAt: now.Add(-age), Outcome: message.OutcomeFailed,
		}
	}
	const hour = time.Hour
	pending := message.Message{Status: message.Pending, ClaimCount: 25, CreatedAt: epoch}
	succeeded := message.Message{
		Status: message.Succeeded, ClaimCount: 25, CreatedAt: epoch, Due: now.Add(-hour), ClaimedAt: now.Add(-2 * hour),
	}
	success := message.Attempt{
		Number: 25, ClaimedAt: now.Add(-2 * hour), EndedAt: now.Add(-hour), Outcome: message.OutcomeSucceeded,
	}
	young := pending
	young.CreatedAt = now.Add(-2 * hour)
	old := succeeded
	old.Due = now.Add(-message.HistoryAge)
	stored := success
	stored.Error = "as the store kept it"
	for _, tt := range []struct {
		name   string
		m      message.Message
		stored []message.Attempt
		want   []message.Attempt
	}{
		{"of nothing is empty", pending, nil, []message.Attempt{}},
		{
			"is sorted by number", pending,
			[]message.Attempt{attempt(9, hour), attempt(25, hour), attempt(7, 2*hour)},
			[]message.Attempt{attempt(7, 2*hour), attempt(9, hour), attempt(25, hour)},
		},
		{
			"covers the newest 20 hand-outs", pending,
			[]message.Attempt{attempt(5, hour), attempt(6, hour)},
			[]message.Attempt{attempt(6, hour)},
		},
		{
			"covers 90 days", pending,
			[]message.Attempt{attempt(7, message.HistoryAge), attempt(8, message.HistoryAge-ms)},
			[]message.Attempt{attempt(8, message.HistoryAge-ms)},
		},
		{
			"leaves out what is older than the message", young,
			[]message.Attempt{attempt(7, 2*hour), attempt(8, 2*hour-time.Second)},
			[]message.Attempt{attempt(8, 2*hour-time.Second)},
		},
		{
			"shows a success that was not stored", succeeded,
			[]message.Attempt{attempt(24, 3*hour)},
			[]message.Attempt{attempt(24, 3*hour), success},
		},
		{"shows a success once where it was stored", succeeded, []message.Attempt{stored}, []message.Attempt{stored}},
		{"shows a success for 90 days", old, nil, []message.Attempt{}},
	} {
		t.Run("history "+tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, message.History(tt.m, tt.stored, now)); diff != "" {
				t.Errorf("History differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	conflict := refused(message.VerbSucceed, message.Dead, message.ReasonState)
	if !errors.Is(conflict, message.ErrConflict) ||
		!strings.Contains(conflict.Error(), "succeed refused: message is dead") {
		t.Errorf("ConflictError = %v, want a conflict that names verb and status", conflict)
	}
	invalid := &message.ValidationError{Faults: make([]message.Fault, 2)}
	if !errors.Is(invalid, message.ErrInvalid) || !strings.Contains(invalid.Error(), "2 faults") {
		t.Errorf("ValidationError = %v, want it invalid, with the number of its faults", invalid)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	want := []message.Status{message.Pending, message.Processing, message.Dead, message.Succeeded}
	if diff := cmp.Diff(want, message.Statuses()); diff != "" {
		t.Errorf("Statuses differs (-want +got):\n%s", diff)
	}
}
