package api

import (
	"context"
	"net/http"

	"github.com/redrivehq/redrive/shared/message"
)

// extend lets the holder keep the message longer.
func extend(ctx context.Context, svc *message.Service, req *request) (response, error) {
	in, err := req.object(false)
	if err != nil {
		return response{}, err
	}
	extension := message.Extension{Receipt: in.text("receipt"), Timeout: in.wholeSeconds("processing_timeout")}
	in.require("receipt")
	if err := in.check(extension.Faults()); err != nil {
		return response{}, err
	}
	m, err := svc.Extend(ctx, req.queue, req.id, extension)
	if err != nil {
		return response{}, err
	}
	return reply(http.StatusOK, viewOf(m))
}
