package message

import (
	"errors"
	"fmt"
)

// The kinds of error that a Service returns. Ask with errors.Is.
var (
	// ErrNotFound: no such message in that queue, or one past its retention.
	ErrNotFound = errors.New("message not found")
	// ErrQueueNotFound: no such queue.
	ErrQueueNotFound = errors.New("queue not found")
	// ErrConflict: the message is not in a state, or not under a lease, that
	// allows the verb. Always a *ConflictError.
	ErrConflict = errors.New("message conflict")
	// ErrQueueNotEmpty: a queue that holds messages cannot be deleted.
	ErrQueueNotEmpty = errors.New("queue holds messages")
	// ErrInvalid: values are outside their range. Always a *ValidationError.
	ErrInvalid = errors.New("validation failed")
	// ErrPayloadTooLarge: the payload exceeds MaxPayloadBytes or
	// MaxPayloadJSONBytes.
	ErrPayloadTooLarge = errors.New("payload too large")
	// ErrKeyReused: the idempotency key belongs to a message with other content.
	ErrKeyReused = errors.New("idempotency key reused")
	// ErrUnavailable: the store cannot do it now; the same call may succeed
	// later. It does not prove that the call had no effect.
	ErrUnavailable = errors.New("store unavailable")
)

// Reason is why a verb is refused.
type Reason string

// The reasons of a ConflictError.
const (
	ReasonState    Reason = "state"    // the verb does not start from the message's status
	ReasonReceipt  Reason = "receipt"  // the receipt is not the current one
	ReasonHeldLong Reason = "held"     // extend: the message has been held for MaxHold
	ReasonNotDue   Reason = "not due"  // claim: the due time is to come
	ReasonReplayed Reason = "replayed" // replay: it was replayed, and has died again, since the call began
	ReasonAlive    Reason = "has time" // stall: the lease is not over, or not the one seen
)

// ConflictError says which verb was refused, and in which state the message was
// found. It unwraps to ErrConflict.
type ConflictError struct {
	Verb   Verb
	Status Status
	Reason Reason
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s refused: message is %s (%s)", e.Verb, e.Status, e.Reason)
}

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Code classifies a fault for machines.
type Code string

// The codes of a Fault.
const (
	CodeRequired Code = "required"
	CodeInvalid  Code = "invalid"
	CodeUnknown  Code = "unknown"
	CodeTooLong  Code = "too_long"
)

// Fault is one thing wrong with a request.
type Fault struct {
	Field   string // as in the request; nested as in backoff.factor
	Code    Code
	Message string // a sentence for people, naming the field
}

// ValidationError lists every fault of a request. It unwraps to ErrInvalid.
type ValidationError struct {
	Faults []Fault
}

// Error implements error.
func (e *ValidationError) Error() string {
	return fmt.Sprintf("validation failed: %d faults", len(e.Faults))
}

// Unwrap returns ErrInvalid.
func (e *ValidationError) Unwrap() error { return ErrInvalid }

// invalid returns nil for no faults.
func invalid(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	return &ValidationError{Faults: faults}
}
