package api

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/redrivehq/redrive/shared/message"
)

// encode writes JSON: no escapes but those that JSON demands.
func encode(value any) ([]byte, error) {
	return json.Marshal(value, json.FormatNilSliceAsNull(true))
}

// timestamp is a time as the contract writes it.
type timestamp time.Time

// AppendText implements encoding.TextAppender.
func (t timestamp) AppendText(b []byte) ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z"), nil
}

// MarshalText implements encoding.TextMarshaler.
func (t timestamp) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// stamp returns nil for the zero time.
func stamp(t time.Time) *timestamp {
	if t.IsZero() {
		return nil
	}
	return (*timestamp)(&t)
}

// messageView is a message as clients see it.
type messageView struct {
	ID             string              `json:"id"`
	Queue          string              `json:"queue"`
	Status         message.Status      `json:"status"`
	Payload        *string             `json:"payload,omitzero"`
	PayloadBytes   int                 `json:"payload_bytes"`
	RetryCount     int                 `json:"retry_count"`
	MaxRetries     int                 `json:"max_retries"`
	RetryAfter     *timestamp          `json:"retry_after"`
	LastError      *string             `json:"last_error"`
	StallCount     int                 `json:"stall_count"`
	MaxStalls      int                 `json:"max_stalls"`
	ClaimCount     int                 `json:"claim_count"`
	ReplayCount    int                 `json:"replay_count"`
	LeaseExpiresAt *timestamp          `json:"lease_expires_at"`
	DeadReason     *message.DeadReason `json:"dead_reason"`
	DeadAt         *timestamp          `json:"dead_at"`
	CreatedAt      timestamp           `json:"created_at"`
	UpdatedAt      timestamp           `json:"updated_at"`
	Receipt        string              `json:"receipt,omitzero"`
	Attempts       []attemptView       `json:"attempts,omitzero"`
}

type attemptView struct {
	Number    int             `json:"number"`
	ClaimedAt timestamp       `json:"claimed_at"`
	EndedAt   timestamp       `json:"ended_at"`
	Outcome   message.Outcome `json:"outcome"`
	Error     *string         `json:"error"`
}

// viewOf shows a message without its payload, and with a short error.
func viewOf(m message.Message) messageView {
	v := messageView{
		ID: m.ID, Queue: m.Queue, Status: m.Status, PayloadBytes: m.PayloadBytes,
		RetryCount: m.RetryCount, MaxRetries: m.MaxRetries,
		StallCount: m.StallCount, MaxStalls: m.MaxStalls,
		ClaimCount: m.ClaimCount, ReplayCount: m.ReplayCount,
		CreatedAt: timestamp(m.CreatedAt), UpdatedAt: timestamp(m.UpdatedAt),
	}
	if m.LastError != nil {
		v.LastError = new(message.CutError(*m.LastError, message.ShortErrorBytes))
	}
	switch m.Status {
	case message.Pending:
		if m.Due.After(m.UpdatedAt) {
			v.RetryAfter = stamp(m.Due)
		}
	case message.Processing:
		v.LeaseExpiresAt = stamp(m.Due)
	case message.Dead:
		v.DeadReason, v.DeadAt = &m.DeadReason, stamp(m.Due)
	case message.Succeeded:
	}
	return v
}

func (v messageView) withPayload(m message.Message) messageView {
	v.Payload = &m.Payload
	return v
}

func (v messageView) withFullError(m message.Message) messageView {
	v.LastError = m.LastError
	return v
}

// claimedView is what a claim hands out.
func claimedView(m message.Message) messageView {
	v := viewOf(m).withPayload(m)
	v.Receipt = m.Receipt
	return v
}

func (v messageView) withAttempts(attempts []message.Attempt) messageView {
	v.Attempts = make([]attemptView, 0, len(attempts))
	for _, a := range attempts {
		shown := attemptView{
			Number: a.Number, ClaimedAt: timestamp(a.ClaimedAt), EndedAt: timestamp(a.EndedAt), Outcome: a.Outcome,
		}
		if a.Outcome != message.OutcomeSucceeded {
			shown.Error = &a.Error
		}
		v.Attempts = append(v.Attempts, shown)
	}
	return v
}
