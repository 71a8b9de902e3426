package api

import (
	"context"
	"net/http"

	"github.com/redrivehq/redrive/shared/message"
)

// succeed settles a message.
func succeed(ctx context.Context, svc *message.Service, req *request) (response, error) {
	in, err := req.object(true)
	if err != nil {
		return response{}, err
	}
	receipt := in.text("receipt")
	if err := requireReceipt(ctx, svc, req, in); err != nil {
		return response{}, err
	}
	if err := in.check(message.ReceiptFaults(receipt)); err != nil {
		return response{}, err
	}
	m, err := svc.Succeed(ctx, req.queue, req.id, receipt)
	if err != nil {
		return response{}, err
	}
	return reply(http.StatusOK, viewOf(m))
}

// requireReceipt notes a missing receipt where the queue insists on one, so that
// it is told together with all other faults.
func requireReceipt(ctx context.Context, svc *message.Service, req *request, in *object) error {
	required, err := svc.RequiresReceipt(ctx, req.queue)
	if required {
		in.require("receipt")
	}
	return err
}
