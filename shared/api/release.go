package api

import (
	"context"
	"net/http"

	"github.com/redrivehq/redrive/shared/message"
)

// release gives a message back unworked.
func release(ctx context.Context, svc *message.Service, req *request) (response, error) {
	in, err := req.object(false)
	if err != nil {
		return response{}, err
	}
	receipt := in.text("receipt")
	in.require("receipt")
	if err := in.check(message.ReceiptFaults(receipt)); err != nil {
		return response{}, err
	}
	m, err := svc.Release(ctx, req.queue, req.id, receipt)
	if err != nil {
		return response{}, err
	}
	return reply(http.StatusOK, viewOf(m))
}
