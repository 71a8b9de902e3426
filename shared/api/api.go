package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/redrivehq/redrive/shared/message"
)

// Handler answers an event of API Gateway's HTTP API, payload format 2.0. The
// error is always nil: API Gateway would drop the answer for it.
type Handler func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// API serves the routes.
type API struct {
	Service *message.Service
	// Log gets one line a request. Payloads, receipts and the values of
	// parameters that are not names never reach it.
	Log *slog.Logger
}

// Function returns the handler of a Lambda function: of each of its routes, told
// apart by the event's route key. A function with one route does not look at the
// key: API Gateway has done so. An unknown name is a mistake of the program:
// its requests are answered with 500.
func (a *API) Function(name string) Handler {
	routes := []Route{fallbackRoute}
	if name != Fallback {
		routes = nil
		for _, r := range Routes {
			if r.Function == name {
				routes = append(routes, r)
			}
		}
	}
	return func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		for _, r := range routes {
			if len(routes) == 1 || r.Key == event.RouteKey {
				return a.serve(ctx, r, event), nil
			}
		}
		return a.serve(ctx, misrouted(name, event.RouteKey), event), nil
	}
}

// misrouted stands for the route of an event that the function does not serve.
func misrouted(function, key string) Route {
	return Route{Function: function, handle: func(context.Context, *message.Service, *request) (response, error) {
		return response{}, fmt.Errorf("function %s does not serve route %q", function, key)
	}}
}

// serve answers the event with the route, whatever happens, and logs it.
func (a *API) serve(
	ctx context.Context, r Route, event events.APIGatewayV2HTTPRequest,
) events.APIGatewayV2HTTPResponse {
	began := a.Service.Now()
	req := &request{event: event}
	resp, err := a.answer(ctx, r, req)
	if err != nil {
		resp = problem(err, event)
	}
	a.log(ctx, r, req, resp.status, a.Service.Now().Sub(began), err)
	return resp.event()
}

// answer checks what every route asks for, and calls its handler. A panic
// becomes an error.
func (a *API) answer(ctx context.Context, r Route, req *request) (resp response, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := req.check(r); err != nil {
		return response{}, err
	}
	return r.handle(ctx, a.Service, req)
}

func (a *API) log(ctx context.Context, r Route, req *request, status int, took time.Duration, err error) {
	level := slog.LevelInfo
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs,
		slog.String("request_id", req.event.RequestContext.RequestID),
		slog.String("route", r.Key),
		slog.Int("status", status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000))
	if req.queue != "" {
		attrs = append(attrs, slog.String("queue", req.queue))
	}
	if req.id != "" {
		attrs = append(attrs, slog.String("message_id", req.id))
	}
	if status >= http.StatusInternalServerError {
		level = slog.LevelError
		attrs = append(attrs, slog.Any("error", err))
	}
	a.Log.LogAttrs(ctx, level, "request", attrs...)
}

// response is an answer on its way out.
type response struct {
	status int
	header map[string]string
	body   []byte
}

// maxPlainBody is the length up to which a body leaves as text. Lambda counts
// the body as it stands in the JSON of the whole answer, where each byte may
// become six; base64 adds a third whatever the bytes are.
const maxPlainBody = 1_000_000

func (r response) event() events.APIGatewayV2HTTPResponse {
	resp := events.APIGatewayV2HTTPResponse{
		StatusCode: r.status, Headers: r.header, IsBase64Encoded: len(r.body) > maxPlainBody,
	}
	if resp.Headers == nil {
		resp.Headers = map[string]string{}
	}
	if resp.IsBase64Encoded {
		resp.Body = base64.StdEncoding.EncodeToString(r.body)
	} else {
		resp.Body = string(r.body)
	}
	return resp
}

const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// reply renders a value as JSON.
func reply(status int, value any) (response, error) {
	body, err := encode(value)
	if err != nil {
		return response{}, err
	}
	return replyJSON(status, body), nil
}

// replyJSON answers with a body that is rendered already.
func replyJSON(status int, body []byte) response {
	return response{status: status, header: map[string]string{"content-type": typeJSON}, body: body}
}
