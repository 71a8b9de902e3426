package api

import (
	"context"
	"net/http"

	"github.com/redrivehq/redrive/shared/message"
)

// fail ends an attempt without success.
func fail(ctx context.Context, svc *message.Service, req *request) (response, error) {
	in, err := req.object(false)
	if err != nil {
		return response{}, err
	}
	failure := message.Failure{Receipt: in.text("receipt"), RetryAfter: in.seconds("retry_after_seconds")}
	if text := in.text("error"); text != nil {
		failure.Error = *text
	}
	in.require("error")
	if permanent := in.boolean("permanent"); permanent != nil {
		failure.Permanent = *permanent
	}
	if err := requireReceipt(ctx, svc, req, in); err != nil {
		return response{}, err
	}
	if err := in.check(failure.Faults()); err != nil {
		return response{}, err
	}
	m, err := svc.Fail(ctx, req.queue, req.id, failure)
	if err != nil {
		return response{}, err
	}
	return reply(http.StatusOK, viewOf(m).withFullError(m))
}
