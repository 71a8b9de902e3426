package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/redrivehq/redrive/shared/message"
)

// enqueue puts a message on the queue.
func enqueue(ctx context.Context, svc *message.Service, req *request) (response, error) {
	key, err := req.idempotencyKey()
	if err != nil {
		return response{}, err
	}
	in, err := req.object(false)
	if err != nil {
		return response{}, err
	}
	draft := message.Draft{Key: key, MaxRetries: in.integer("max_retries"), Delay: in.seconds("delay_seconds")}
	if payload := in.text("payload"); payload != nil {
		draft.Payload = *payload
	}
	in.require("payload")
	if err := in.check(draft.Faults()); err != nil {
		return response{}, err
	}
	m, created, err := svc.Enqueue(ctx, req.queue, draft)
	if err != nil {
		return response{}, err
	}
	req.id = m.ID
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	resp, err := reply(status, viewOf(m).withPayload(m))
	if err != nil {
		return response{}, err
	}
	if created {
		resp.header["location"] = "/queues/" + url.PathEscape(m.Queue) + "/messages/" + m.ID
	} else {
		resp.header["idempotent-replayed"] = "true"
	}
	return resp, nil
}
