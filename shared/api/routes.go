package api

import (
	"context"
	"strings"

	"github.com/redrivehq/redrive/shared/message"
)

// Route is one thing that a client can ask for.
type Route struct {
	Function string   // the Lambda function that answers, and its folder below functions/
	Key      string   // method and path, with parameters in braces: API Gateway's route key
	Query    []string // the query parameters it knows

	handle handler
}

// handler answers one request. It knows neither what is logged nor how an error
// is told.
type handler func(ctx context.Context, svc *message.Service, req *request) (response, error)

// Routes lists every route.
var Routes = []Route{
	// Producers put messages on a queue, which the first one creates.
	{"enqueue", "POST /queues/{queue}/messages", nil, enqueue},

	// Workers claim messages and answer, with the receipt from the claim.
	{"claim", "POST /queues/{queue}/claim", nil, claim},
	{"succeed", "POST /queues/{queue}/messages/{id}/succeed", nil, succeed},
	{"fail", "POST /queues/{queue}/messages/{id}/fail", nil, fail},
	{"extend", "POST /queues/{queue}/messages/{id}/extend", nil, extend},
	{"release", "POST /queues/{queue}/messages/{id}/release", nil, release},

	// People look at messages, send dead ones round again, and delete.
	{"list", "GET /queues/{queue}/messages", []string{"status", "limit", "cursor", "order", "payload"}, list},
	{"get", "GET /queues/{queue}/messages/{id}", nil, get},
	{"replay", "POST /queues/{queue}/messages/{id}/replay", nil, replay},
	{"delete", "DELETE /queues/{queue}/messages/{id}", nil, deleteMessage},

	// Operators look after queues.
	{"queues", "GET /queues", []string{"limit", "cursor", "prefix"}, listQueues},
	{"queues", "GET /queues/{queue}", nil, getQueue},
	{"queues", "PUT /queues/{queue}", nil, putQueue},
	{"queues", "DELETE /queues/{queue}", nil, deleteQueue},
}

// Fallback is the function for what no route matches. API Gateway sends it there
// under the route key $default.
const Fallback = "fallback"

// fallbackRoute stands in no list: it has neither method nor path.
var fallbackRoute = Route{Function: Fallback, Key: "$default", handle: fallback}

// method and path are the two parts of the key.
func (r Route) method() string {
	method, _, _ := strings.Cut(r.Key, " ")
	return method
}

func (r Route) path() string {
	_, path, _ := strings.Cut(r.Key, " ")
	return path
}

// Match returns the route for a request and the values of its path parameters.
// The path is decoded, as API Gateway hands it over. A parameter matches one
// segment that is not empty.
func Match(method, path string) (route Route, params map[string]string, ok bool) {
	for _, r := range Routes {
		if r.method() == method && matchPath(r.path(), path, false) {
			return r, paramsOf(r.path(), path), true
		}
	}
	return fallbackRoute, nil, false
}

// matchPath compares a route's path with that of a request, segment by segment.
func matchPath(pattern, path string, emptyToo bool) bool {
	for pattern != "" || path != "" {
		var want, got string
		var ok1, ok2 bool
		want, pattern, ok1 = cutSegment(pattern)
		got, path, ok2 = cutSegment(path)
		isParam := strings.HasPrefix(want, "{")
		if !ok1 || !ok2 || isParam && got == "" && !emptyToo || !isParam && got != want {
			return false
		}
	}
	return true
}

// paramsOf returns the values of the parameters of a path that matches.
func paramsOf(pattern, path string) map[string]string {
	params := make(map[string]string, strings.Count(pattern, "{"))
	for pattern != "" {
		var want, got string
		want, pattern, _ = cutSegment(pattern)
		got, path, _ = cutSegment(path)
		if name, isParam := strings.CutPrefix(want, "{"); isParam {
			params[strings.TrimSuffix(name, "}")] = got
		}
	}
	return params
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
