package api

import (
	"context"
	"strings"

	"github.com/redrivehq/redrive/shared/message"
)

// Route is one thing that a client can ask for.
type Route struct {
	Function string   // the Lambda function that answers, and its folder below functions/
	Method   string   // of HTTP
	Path     string   // with parameters in braces, as API Gateway spells it
	Query    []string // the query parameters it knows

	handle handler
}

// handler answers one request. It knows neither what is logged nor how an error
// is told.
type handler func(ctx context.Context, svc *message.Service, req *request) (response, error)

// Routes lists every route.
var Routes = []Route{
	// Producers put messages on a queue, which the first one creates.
	{"enqueue", "POST", "/queues/{queue}/messages", nil, enqueue},

	// Workers claim messages and answer, with the receipt from the claim.
	{"claim", "POST", "/queues/{queue}/claim", nil, claim},
	{"succeed", "POST", "/queues/{queue}/messages/{id}/succeed", nil, succeed},
	{"fail", "POST", "/queues/{queue}/messages/{id}/fail", nil, fail},
	{"extend", "POST", "/queues/{queue}/messages/{id}/extend", nil, extend},
	{"release", "POST", "/queues/{queue}/messages/{id}/release", nil, release},

	// People look at messages, send dead ones round again, and delete.
	{"list", "GET", "/queues/{queue}/messages", []string{"status", "limit", "cursor", "order", "payload"}, list},
	{"get", "GET", "/queues/{queue}/messages/{id}", nil, get},
	{"replay", "POST", "/queues/{queue}/messages/{id}/replay", nil, replay},
	{"delete", "DELETE", "/queues/{queue}/messages/{id}", nil, deleteMessage},

	// Operators look after queues.
	{"queues", "GET", "/queues", []string{"limit", "cursor", "prefix"}, listQueues},
	{"queues", "GET", "/queues/{queue}", nil, getQueue},
	{"queues", "PUT", "/queues/{queue}", nil, putQueue},
	{"queues", "DELETE", "/queues/{queue}", nil, deleteQueue},
}

// Fallback is the function for what no route matches. API Gateway sends it there
// under the route key $default.
const Fallback = "fallback"

// fallbackRoute stands in no list: it has neither method nor path.
var fallbackRoute = Route{Function: Fallback, handle: fallback}

// Key is the route's name: what API Gateway sends as the event's route key.
func (r Route) Key() string {
	if r.Function == Fallback {
		return "$default"
	}
	return r.Method + " " + r.Path
}

// Match returns the route for a request and the values of its path parameters.
// The path is decoded, as API Gateway hands it over. A parameter matches one
// segment that is not empty.
func Match(method, path string) (route Route, params map[string]string, ok bool) {
	for _, r := range Routes {
		if r.Method != method {
			continue
		}
		if params, ok := matchPath(r.Path, path, false); ok {
			return r, params, true
		}
	}
	return fallbackRoute, nil, false
}

// matchPath compares a route's path with that of a request, segment by segment.
func matchPath(pattern, path string, emptyToo bool) (params map[string]string, ok bool) {
	for pattern != "" || path != "" {
		var want, got string
		if want, pattern, ok = cutSegment(pattern); !ok {
			return nil, false
		}
		if got, path, ok = cutSegment(path); !ok {
			return nil, false
		}
		name, isParam := strings.CutPrefix(want, "{")
		switch {
		case isParam && (got != "" || emptyToo):
			if params == nil {
				params = make(map[string]string, 2)
			}
			params[strings.TrimSuffix(name, "}")] = got
		case want != got:
			return nil, false
		}
	}
	return params, true
}

// cutSegment takes the first segment, "/a" of "/a/b".
func cutSegment(path string) (segment, rest string, ok bool) {
	if path == "" || path[0] != '/' {
		return "", "", false
	}
	if end := strings.IndexByte(path[1:], '/'); end >= 0 {
		return path[1 : end+1], path[end+1:], true
	}
	return path[1:], "", true
}
