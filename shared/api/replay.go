package api

import (
	"context"
	"net/http"

	"github.com/redrivehq/redrive/shared/message"
)

// replay sends a dead message round again.
func replay(ctx context.Context, svc *message.Service, req *request) (response, error) {
	if err := req.noFields(); err != nil {
		return response{}, err
	}
	m, err := svc.Replay(ctx, req.queue, req.id)
	if err != nil {
		return response{}, err
	}
	return reply(http.StatusOK, viewOf(m))
}

// noFields refuses a body that says anything: what it asks for would not happen.
func (req *request) noFields() error {
	in, err := req.object(true)
	if err != nil {
		return err
	}
	return in.check(nil)
}
