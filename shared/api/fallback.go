package api

import (
	"context"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/redrivehq/redrive/shared/message"
)

// fallback answers what no route matches: 405 where only the method is wrong,
// else 404. An HTTP API knows neither.
func fallback(_ context.Context, _ *message.Service, req *request) (response, error) {
	path := pathOf(req.event)
	for _, r := range Routes {
		if !matchPath(r.path(), path, true) {
			continue
		}
		params := paramsOf(r.path(), path)
		if name, has := params["queue"]; has {
			if err := checkQueueName(name); err != nil {
				return response{}, err
			}
		}
		if id, has := params["id"]; has && id == "" {
			return response{}, errNoRoute
		}
		return response{}, refuse(errMethod, "This method is not allowed here; allowed: %s.", allowed(req.event))
	}
	return response{}, errNoRoute
}

// allowed lists the methods that the event's path knows.
func allowed(event events.APIGatewayV2HTTPRequest) string {
	var methods []string
	for _, r := range Routes {
		if matchPath(r.path(), pathOf(event), false) {
			methods = append(methods, r.method())
		}
	}
	return strings.Join(methods, ", ")
}

// pathOf is the path below the stage. API Gateway puts the name of a stage in
// front of the path, except for the stage $default; just that one segment is
// taken off, for a queue may be named like the stage.
func pathOf(event events.APIGatewayV2HTTPRequest) string {
	stage := event.RequestContext.Stage
	if rest, ok := strings.CutPrefix(event.RawPath, "/"+stage); ok && stage != "$default" && stage != "" &&
		(rest == "" || rest[0] == '/') {
		return rest
	}
	return event.RawPath
}
