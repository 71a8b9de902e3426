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
	if err := in.check(message.ReceiptFaults(receipt, false)); err != nil {
		return response{}, err
	}
	m, err := svc.Succeed(ctx, req.queue, req.id, receipt)
	if err != nil {
		return response{}, err
	}
	return reply(http.StatusOK, viewOf(m))
}
