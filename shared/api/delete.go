package api

import (
	"context"
	"net/http"

	"github.com/redrivehq/redrive/shared/message"
)

// deleteMessage removes a message for good.
func deleteMessage(ctx context.Context, svc *message.Service, req *request) (response, error) {
	if err := req.noFields(); err != nil {
		return response{}, err
	}
	if err := svc.Delete(ctx, req.queue, req.id); err != nil {
		return response{}, err
	}
	return response{status: http.StatusNoContent}, nil
}
