package server

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// received reads a request as a server does.
func received(t *testing.T, text string) (r *http.Request, body []byte) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	if body, err = io.ReadAll(r.Body); err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "127.0.0.1:54321"
	return r, body
}

func TestEvent(t *testing.T) {
	t.Parallel()
	type request = events.APIGatewayV2HTTPRequest
	for _, tt := range []struct {
		name, request string
		want          request // without what every event has
	}{
		{
			"headers are lower-cased, and joined by commas",
			"GET /queues HTTP/1.1\r\nHost: h\r\nX-Mixed-CASE: One\r\nx-mixed-case: two, three\r\nAccept: */*\r\n\r\n",
			request{
				RouteKey: "GET /queues", RawPath: "/queues",
				Headers: map[string]string{"host": "h", "x-mixed-case": "One,two, three", "accept": "*/*"},
			},
		},
		{
			"cookies stand apart",
			"GET /queues HTTP/1.1\r\nHost: h\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n",
			request{
				RouteKey: "GET /queues", RawPath: "/queues",
				Headers: map[string]string{"host": "h"}, Cookies: []string{"a=1", "b=2"},
			},
		},
		{
			"S010 the query is untouched, its values decoded once and joined by commas",
			"GET /queues/a/messages?cursor=ab%2Bcd%2F%3D&x=a%252Bb&y=1&y=2+3&z HTTP/1.1\r\nHost: h\r\n\r\n",
			request{
				RouteKey: "GET /queues/{queue}/messages", RawPath: "/queues/a/messages",
				RawQueryString:        "cursor=ab%2Bcd%2F%3D&x=a%252Bb&y=1&y=2+3&z",
				QueryStringParameters: map[string]string{"cursor": "ab+cd/=", "x": "a%2Bb", "y": "1,2 3", "z": ""},
				PathParameters:        map[string]string{"queue": "a"},
				Headers:               map[string]string{"host": "h"},
			},
		},
		{
			"the path is decoded, and so are its parameters",
			"POST /queues/%C3%BC%20@:+/messages/msg_1/succeed HTTP/1.1\r\nHost: h\r\n\r\n",
			request{
				RouteKey: "POST /queues/{queue}/messages/{id}/succeed", RawPath: "/queues/ü @:+/messages/msg_1/succeed",
				PathParameters: map[string]string{"queue": "ü @:+", "id": "msg_1"},
				Headers:        map[string]string{"host": "h"},
			},
		},
		{
			"S009 a percent-encoded slash separates",
			"POST /queues/a%2Fb/messages HTTP/1.1\r\nHost: h\r\n\r\n",
			request{RouteKey: "$default", RawPath: "/queues/a/b/messages", Headers: map[string]string{"host": "h"}},
		},
		{
			"S011 a slash at the end matches nothing",
			"POST /queues/orders/messages/ HTTP/1.1\r\nHost: h\r\n\r\n",
			request{RouteKey: "$default", RawPath: "/queues/orders/messages/", Headers: map[string]string{"host": "h"}},
		},
		{
			"JSON is text",
			"PUT /queues/a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n" +
				"Content-Type: Application/JSON; charset=utf-8\r\n\r\n{ü}",
			request{
				RouteKey: "PUT /queues/{queue}", RawPath: "/queues/a", PathParameters: map[string]string{"queue": "a"},
				Headers: map[string]string{
					"host": "h", "content-length": "4", "content-type": "Application/JSON; charset=utf-8",
				},
				Body: "{ü}",
			},
		},
		{
			"a form is binary",
			"PUT /queues/a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n" +
				"Content-Type: application/x-www-form-urlencoded\r\n\r\n{}",
			request{
				RouteKey: "PUT /queues/{queue}", RawPath: "/queues/a", PathParameters: map[string]string{"queue": "a"},
				Headers: map[string]string{
					"host": "h", "content-length": "2", "content-type": "application/x-www-form-urlencoded",
				},
				Body: "e30=", IsBase64Encoded: true,
			},
		},
		{
			"S005 JSON that is not UTF-8 keeps its bytes",
			"PUT /queues/a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Type: application/json\r\n\r\na\xffb",
			request{
				RouteKey: "PUT /queues/{queue}", RawPath: "/queues/a", PathParameters: map[string]string{"queue": "a"},
				Headers: map[string]string{"host": "h", "content-length": "3", "content-type": "application/json"},
				Body:    "Yf9i", IsBase64Encoded: true,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, body := received(t, tt.request)
			route, params, _ := api.Match(r.Method, r.URL.Path)
			before := time.Now()
			got := event(r, route.Key, params, body, "id-1")
			after := time.Now()
			if at := got.RequestContext.TimeEpoch; at < before.UnixMilli() || at > after.UnixMilli() {
				t.Errorf("time is %d, want between %d and %d", at, before.UnixMilli(), after.UnixMilli())
			}
			if at, err := time.Parse("02/Jan/2006:15:04:05 -0700", got.RequestContext.Time); err != nil ||
				at.Unix() != got.RequestContext.TimeEpoch/1000 {
				t.Errorf("time is written %q, want that of %d", got.RequestContext.Time, got.RequestContext.TimeEpoch)
			}
			want := tt.want
			want.Version = "2.0"
			want.RequestContext = events.APIGatewayV2HTTPRequestContext{
				RouteKey: want.RouteKey, Stage: "$default", RequestID: "id-1", DomainName: "h",
				HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
					Method: r.Method, Path: want.RawPath, Protocol: "HTTP/1.1", SourceIP: "127.0.0.1",
				},
			}
			times := cmpopts.IgnoreFields(events.APIGatewayV2HTTPRequestContext{}, "Time", "TimeEpoch")
			if diff := cmp.Diff(want, got, times, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("event of %q (-want +got):\n%s", tt.request, diff)
			}
		})
	}
}

func TestIsText(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]bool{
		"": true, "text/plain": true, "text/csv; charset=latin1": true, "application/json": true,
		"application/problem+json": true, "application/javascript": true, "application/xml": true,
		"application/octet-stream": false, "image/png": false, "application/x-www-form-urlencoded": false,
		"multipart/form-data; boundary=x": false, "nonsense": false, ";": false,
	} {
		if got := isText(contentType, []byte("{}")); got != want {
			t.Errorf("isText(%q) = %t, want %t", contentType, got, want)
		}
		if !isText(contentType, nil) {
			t.Errorf("isText(%q) of no body = false, want true", contentType)
		}
	}
}

// stub is a gateway whose every function is f.
func stub(f api.Handler) *gateway {
	g := &gateway{functions: map[string]api.Handler{api.Fallback: f}, log: slog.New(slog.DiscardHandler)}
	for _, r := range api.Routes {
		g.functions[r.Function] = f
	}
	return g
}

func serveOne(t *testing.T, h http.Handler, r *http.Request) (status int, header http.Header, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Header(), strings.TrimSuffix(w.Body.String(), "\n")
}

func TestGatewayBoundsTheAnswer(t *testing.T) {
	t.Parallel()
	// What the answer takes beside its body.
	frame, err := json.Marshal(events.APIGatewayV2HTTPResponse{StatusCode: 200, Headers: map[string]string{}})
	if err != nil {
		t.Fatal(err)
	}
	most := 6_291_556 - len(frame) // Lambda's quota
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"as long as Lambda returns", strings.Repeat("x", most), 200, strings.Repeat("x", most)},
		{"a byte longer", strings.Repeat("x", most+1), 500, `{"message":"Internal Server Error"}`},
		{"longer once it is escaped", strings.Repeat("\x00", most/6+1), 500, `{"message":"Internal Server Error"}`},
		{"escaped as long as Lambda returns", strings.Repeat("\x00", most/6), 200, strings.Repeat("\x00", most/6)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := stub(func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
				return events.APIGatewayV2HTTPResponse{StatusCode: 200, Headers: map[string]string{}, Body: tt.body}, nil
			})
			status, header, body := serveOne(t, g, httptest.NewRequest(http.MethodGet, "/queues", nil))
			if status != tt.status || body != tt.want {
				t.Errorf("answer of %d bytes: %d with %d bytes, want %d with %d",
					len(tt.body), status, len(body), tt.status, len(tt.want))
			}
			if status == http.StatusInternalServerError && header.Get("Content-Type") != "application/json" {
				t.Errorf("content-type is %q, want application/json", header.Get("Content-Type"))
			}
		})
	}
}

func TestGatewayAnswersForAFunctionThatFails(t *testing.T) {
	t.Parallel()
	g := stub(func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: "not to be seen"}, io.ErrUnexpectedEOF
	})
	status, _, body := serveOne(t, g, httptest.NewRequest(http.MethodGet, "/queues", nil))
	if want := `{"message":"Internal Server Error"}`; status != 500 || body != want {
		t.Errorf("answer = %d %q, want 500 %q", status, body, want)
	}
}

func TestGatewayDecodesTheAnswer(t *testing.T) {
	t.Parallel()
	const want = "\x00\xff and text"
	g := stub(func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{
			StatusCode: 203, Headers: map[string]string{"x-some-name": "a,b", "content-type": "image/png"},
			Body: base64.StdEncoding.EncodeToString([]byte(want)), IsBase64Encoded: true,
		}, nil
	})
	status, header, body := serveOne(t, g, httptest.NewRequest(http.MethodGet, "/queues", nil))
	if status != 203 || body != want || header.Get("X-Some-Name") != "a,b" || header.Get("Content-Type") != "image/png" {
		t.Errorf("answer = %d %v %q, want 203 with both headers and %q", status, header, body, want)
	}
}

func TestGatewayBoundsTheTime(t *testing.T) {
	t.Parallel()
	var deadline time.Time
	g := stub(func(ctx context.Context, _ events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		if err := ctx.Err(); err != nil {
			t.Errorf("the function's context is over for a client that has gone: %v", err)
		}
		deadline, _ = ctx.Deadline()
		return events.APIGatewayV2HTTPResponse{StatusCode: 204}, nil
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	before := time.Now()
	serveOne(t, g, httptest.NewRequestWithContext(gone, http.MethodGet, "/queues", nil))
	after := time.Now()
	least, most := before.Add(29*time.Second), after.Add(29*time.Second)
	if deadline.Before(least) || deadline.After(most) {
		t.Errorf("the function's deadline is %v, want 29 s from now: %v to %v", deadline, least, most)
	}
}

// open returns a service on a store in memory, and the store.
func open(t *testing.T, now func() time.Time) (*message.Service, *sqlite.Store) {
	t.Helper()
	store, err := sqlite.Open(sqlite.InMemory)
	if err != nil {
		t.Fatal(err)
	}
	return serviceOn(store, now), store
}

func TestStages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, stage, rawPath string
		routed               bool
		status               int
		queue                string
	}{
		{"S001 a named stage in front", "prod", "/prod/queues/orders/messages", true, 201, "orders"},
		{"S001 the default stage", "$default", "/queues/orders/messages", true, 201, "orders"},
		{"S002 a queue named like the stage", "prod", "/prod/queues/prod/messages", true, 201, "prod"},
		{"S002 a stage named like the path", "queues", "/queues/queues/a/messages", true, 201, "a"},
		{"S002 nothing is taken off for the default stage", "$default", "/prod/queues/prod/messages", false, 404, "prod"},
		{"S009 a path that is still encoded", "$default", "/queues/a%2Fb/messages", true, 400, "a%2Fb"},
		{"S011 the bare root", "$default", "/", false, 404, "orders"},
		{"S011 no path at all", "$default", "", false, 404, "orders"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			svc, store := open(t, time.Now)
			defer store.Close() // in memory
			g := newGateway(svc, slog.New(slog.DiscardHandler))
			route, function, params := "POST /queues/{queue}/messages", "enqueue", map[string]string{"queue": tt.queue}
			if !tt.routed {
				route, function, params = "$default", api.Fallback, nil
			}
			r, body := received(t, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 15\r\n\r\n"+`{"payload":"x"}`)
			e := event(r, route, params, body, "id-1")
			e.RawPath, e.RequestContext.HTTP.Path, e.RequestContext.Stage = tt.rawPath, tt.rawPath, tt.stage
			resp, err := g.functions[function](t.Context(), e)
			if err != nil || resp.StatusCode != tt.status {
				t.Fatalf("answer = %d %s, %v, want %d", resp.StatusCode, resp.Body, err, tt.status)
			}
			stored, _, err := svc.List(t.Context(), message.List{Queue: tt.queue, Limit: 2})
			want := 0
			if tt.status == http.StatusCreated {
				want = 1
			}
			if err != nil || len(stored) != want {
				t.Errorf("queue %s holds %d messages, %v, want %d", tt.queue, len(stored), err, want)
			}
		})
	}
}

func TestS003EventOfTheOtherFormat(t *testing.T) {
	t.Parallel()
	svc, store := open(t, time.Now)
	defer store.Close() // in memory
	g := newGateway(svc, slog.New(slog.DiscardHandler))
	var v1 events.APIGatewayV2HTTPRequest
	text := `{"version":"1.0","httpMethod":"GET","path":"/queues/orders/messages","requestContext":{"stage":"$default"},` +
		`"headers":{},"pathParameters":{"queue":"orders"},"isBase64Encoded":false}`
	if err := json.Unmarshal([]byte(text), &v1); err != nil {
		t.Fatal(err)
	}
	for name, function := range g.functions {
		e := v1
		for _, r := range api.Routes {
			if r.Function == name {
				e.RouteKey = r.Key
			}
		}
		resp, err := function(t.Context(), e)
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(resp.Body, `\"1.0\"`) {
			t.Errorf("%s: answer = %d %s, %v, want 400 with the version", name, resp.StatusCode, resp.Body, err)
		}
	}
}

func TestS007FormOfTheAnswer(t *testing.T) {
	t.Parallel()
	svc, store := open(t, time.Now)
	defer store.Close() // in memory
	g := newGateway(svc, slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		name, request string
		status        int
		contentType   string // none for a 204
	}{
		{
			"enqueue", "POST /queues/a/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 15\r\n\r\n" + `{"payload":"x"}`,
			201, "application/json",
		},
		{"empty list", "GET /queues/b/messages HTTP/1.1\r\nHost: h\r\n\r\n", 200, "application/json"},
		{"unknown queue", "GET /queues/b HTTP/1.1\r\nHost: h\r\n\r\n", 404, "application/problem+json"},
		{"unknown route", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 404, "application/problem+json"},
		{"nothing to claim", "POST /queues/b/claim HTTP/1.1\r\nHost: h\r\n\r\n", 204, ""},
	} {
		r, body := received(t, tt.request)
		route, params, _ := api.Match(r.Method, r.URL.Path)
		resp, err := g.functions[route.Function](t.Context(), event(r, route.Key, params, body, "id-1"))
		if err != nil {
			t.Errorf("%s: error %v, want nil", tt.name, err)
		}
		text, err := json.Marshal(resp)
		if err != nil {
			t.Fatal(err)
		}
		var form struct {
			StatusCode        int               `json:"statusCode"`
			Headers           map[string]string `json:"headers"`
			Body              string            `json:"body"`
			IsBase64Encoded   bool              `json:"isBase64Encoded"`
			MultiValueHeaders json.RawMessage   `json:"multiValueHeaders"`
		}
		dec := json.NewDecoder(strings.NewReader(string(text)))
		if err := dec.Decode(&form); err != nil {
			t.Fatalf("%s: %v: %s", tt.name, err, text)
		}
		many := string(form.MultiValueHeaders)
		if form.StatusCode != tt.status || form.Headers == nil || form.Headers["content-type"] != tt.contentType ||
			(form.Body == "") != (tt.status == 204) || form.IsBase64Encoded || many != "null" && many != "" && many != "{}" {
			t.Errorf("%s: answer is %s, want %d with headers, content-type %q, and text",
				tt.name, text, tt.status, tt.contentType)
		}
	}
}

// TestUnavailable has a store that is closed.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	svc, store := open(t, time.Now)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	g := newGateway(svc, slog.New(slog.NewTextHandler(&log, nil)))
	const one = "/queues/q/messages/msg_00000000000000000000000000"
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/queues/q/messages", `{"payload":"x"}`},
		{"POST", "/queues/q/claim", ""},
		{"POST", one + "/succeed", ""},
		{"POST", one + "/fail", `{"error":"x"}`},
		{"POST", one + "/extend", `{"receipt":"r"}`},
		{"POST", one + "/release", `{"receipt":"r"}`},
		{"POST", one + "/replay", ""},
		{"GET", "/queues/q/messages", ""},
		{"GET", one, ""},
		{"DELETE", one, ""},
		{"GET", "/queues", ""},
		{"GET", "/queues/q", ""},
		{"PUT", "/queues/q", `{}`},
		{"DELETE", "/queues/q", ""},
	} {
		status, header, body := serveOne(t, g, httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body)))
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" ||
			!strings.HasPrefix(body, `{"type":"/problems/unavailable"`) || strings.Contains(body, "sqlite") {
			t.Errorf("%s %s = %d %v %s, want 503 with Retry-After and nothing of the store",
				tt.method, tt.path, status, header, body)
		}
		if id := header.Get("Apigw-Requestid"); !strings.Contains(log.String(), "request_id="+id) {
			t.Errorf("%s %s: the log has no line for request %s", tt.method, tt.path, id)
		}
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "error=") {
		t.Errorf("the log does not tell the error: %s", log.String())
	}
}

// TestEveryFunctionIsServed keeps the gateway and the routes together.
func TestEveryFunctionIsServed(t *testing.T) {
	t.Parallel()
	svc, store := open(t, time.Now)
	defer store.Close() // in memory
	g := newGateway(svc, slog.New(slog.DiscardHandler))
	want := map[string]bool{api.Fallback: true}
	for _, r := range api.Routes {
		want[r.Function] = true
	}
	got := maps.Collect(func(yield func(string, bool) bool) {
		for name, f := range g.functions {
			if !yield(name, f != nil) {
				return
			}
		}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
}
