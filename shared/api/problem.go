package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-lambda-go/events"

	"github.com/redrivehq/redrive/shared/message"
)

// problems says what an error is told as: the first row whose error it is. An
// error in no row is a 500, of which nothing is told.
var problems = []struct {
	err    error
	status int
	slug   string // the last part of the type, and the heading in docs/problems.md
	title  string
	detail string // where the error has no words of its own for the client
}{
	{errMalformed, 400, "malformed-body", "Malformed Body", ""},
	{errBadRequest, 400, "bad-request", "Bad Request", ""},
	{errNoRoute, 404, "not-found", "Not Found", "There is nothing at this path."},
	{message.ErrNotFound, 404, "not-found", "Not Found", "There is no such message in this queue."},
	{message.ErrQueueNotFound, 404, "not-found", "Not Found", "There is no such queue."},
	{errMethod, 405, "method-not-allowed", "Method Not Allowed", ""},
	{message.ErrConflict, 409, "message-conflict", "Message Conflict", ""},
	{
		message.ErrQueueNotEmpty, 409, "queue-conflict", "Queue Conflict",
		"The queue holds messages; only an empty queue can be deleted.",
	},
	{errTooLarge, 413, "payload-too-large", "Payload Too Large", ""},
	{message.ErrPayloadTooLarge, 413, "payload-too-large", "Payload Too Large", fmt.Sprintf(
		"The payload may have at most %d bytes of UTF-8, and %d bytes as JSON text.",
		message.MaxPayloadBytes, message.MaxPayloadJSONBytes)},
	{errMediaType, 415, "unsupported-media-type", "Unsupported Media Type", ""},
	{message.ErrInvalid, 422, "validation-failed", "Validation Failed", "The request has faults; errors lists each."},
	{
		message.ErrKeyReused, 422, "idempotency-key-reused", "Idempotency Key Reused",
		"This Idempotency-Key was used for a message with another payload or other options.",
	},
	{
		message.ErrUnavailable, 503, "unavailable", "Unavailable",
		"The queue cannot do this now. Try again; this answer does not prove that the call had no effect.",
	},
}

// retryAfterSeconds is what a client is asked to wait after a 503.
const retryAfterSeconds = "1"

// maxFaults bounds the answer to a body of a hundred thousand unknown names.
const maxFaults = 1_000

// document is an answer of RFC 9457.
type document struct {
	Type          string         `json:"type"`
	Title         string         `json:"title"`
	Status        int            `json:"status"`
	Detail        string         `json:"detail,omitzero"`
	Errors        []faultView    `json:"errors,omitzero"`
	MessageStatus message.Status `json:"message_status,omitzero"`
}

type faultView struct {
	Field   string       `json:"field"`
	Code    message.Code `json:"code"`
	Message string       `json:"message"`
}

// problem renders an error.
func problem(err error, event events.APIGatewayV2HTTPRequest) response {
	doc := document{Type: "about:blank", Title: "Internal Server Error", Status: http.StatusInternalServerError}
	header := map[string]string{"content-type": typeProblem}
	for _, row := range problems {
		if errors.Is(err, row.err) {
			doc = document{Type: "/problems/" + row.slug, Title: row.title, Status: row.status, Detail: row.detail}
			break
		}
	}
	if refused, ok := errors.AsType[*refusal](err); ok {
		doc.Detail = refused.detail
	}
	if conflict, ok := errors.AsType[*message.ConflictError](err); ok {
		doc.Detail, doc.MessageStatus = conflictDetail(conflict), conflict.Status
	}
	if invalid, ok := errors.AsType[*message.ValidationError](err); ok {
		shown := invalid.Faults[:min(len(invalid.Faults), maxFaults)]
		if all := len(invalid.Faults); all > maxFaults {
			doc.Detail = fmt.Sprintf("The request has %d faults; errors lists the first %d.", all, maxFaults)
		}
		for _, f := range shown {
			doc.Errors = append(doc.Errors, faultView(f))
		}
	}
	switch doc.Status {
	case http.StatusServiceUnavailable:
		header["retry-after"] = retryAfterSeconds
	case http.StatusMethodNotAllowed:
		header["allow"] = allowed(event)
	}
	body, err := encode(doc)
	if err != nil {
		body = []byte(`{"type":"about:blank","title":"Internal Server Error","status":500}`)
		doc.Status = http.StatusInternalServerError
	}
	return response{status: doc.Status, header: header, body: body}
}

func conflictDetail(c *message.ConflictError) string {
	switch c.Reason {
	case message.ReasonReceipt:
		return "The receipt is not the current one: it is not from the newest claim of this message."
	case message.ReasonHeldLong:
		return fmt.Sprintf("The message has been held for %.0f hours; one claim cannot be extended further.",
			message.MaxHold.Hours())
	case message.ReasonReplayed:
		return "The message was replayed, by another call or by a first try of this one, and has died again since."
	case message.ReasonState, message.ReasonNotDue, message.ReasonAlive:
	}
	rule := fmt.Sprintf("%s needs a message that is processing", c.Verb)
	switch c.Verb { //nolint:exhaustive // the rest are answers of a worker
	case message.VerbReplay:
		rule = "only a dead message can be replayed"
	case message.VerbDelete:
		rule = "it can be deleted once nobody is working on it"
	}
	return fmt.Sprintf("The message is %s; %s.", c.Status, rule)
}
