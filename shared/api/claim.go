package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/redrivehq/redrive/shared/message"
)

// claim hands out one message, or several where the body says how many.
func claim(ctx context.Context, svc *message.Service, req *request) (response, error) {
	in, err := req.object(true)
	if err != nil {
		return response{}, err
	}
	options := message.ClaimOptions{Max: in.integer("max_messages"), Timeout: in.wholeSeconds("processing_timeout")}
	if err := in.check(options.Faults()); err != nil {
		return response{}, err
	}
	claimed, err := svc.Claim(ctx, req.queue, options)
	switch {
	case err != nil:
		return response{}, err
	case options.Max != nil:
		views := make([]messageView, 0, len(claimed))
		ids := make([]string, 0, len(claimed))
		for _, m := range claimed {
			views = append(views, claimedView(m))
			ids = append(ids, m.ID)
		}
		req.id = strings.Join(ids, ",")
		return reply(http.StatusOK, struct {
			Messages []messageView `json:"messages"`
		}{views})
	case len(claimed) == 0:
		return response{status: http.StatusNoContent}, nil
	}
	req.id = claimed[0].ID
	return reply(http.StatusOK, claimedView(claimed[0]))
}
