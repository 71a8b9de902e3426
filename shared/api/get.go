package api

import (
	"context"
	"net/http"

	"github.com/redrivehq/redrive/shared/message"
)

// get shows one message with all that is known of it.
func get(ctx context.Context, svc *message.Service, req *request) (response, error) {
	m, attempts, err := svc.Get(ctx, req.queue, req.id)
	if err != nil {
		return response{}, err
	}
	return reply(http.StatusOK, viewOf(m).withPayload(m).withFullError(m).withAttempts(attempts))
}
