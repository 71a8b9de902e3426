package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/message"
)

// Quotas of API Gateway's HTTP APIs and of Lambda, from their documentation
// pages "Quotas for configuring and running an HTTP API" and "Lambda quotas".
const (
	maxRequest  = 10 << 20         // bytes of a request's body
	maxHeader   = 10_240 - 4_096   // bytes of the request line and the headers; net/http adds 4,096 to what it is told
	maxResponse = 6_291_556        // bytes of the JSON that a function returns
	requestTime = 29 * time.Second // how long a function may take
)

// gateway stands in for API Gateway: it turns HTTP into the events of payload
// format 2.0, calls the function of the route, and turns its answer into HTTP.
type gateway struct {
	functions map[string]api.Handler
	log       *slog.Logger
}

// NewGateway returns the stand-in before functions of its own: function returns
// the one of that name, and is asked once for each.
func NewGateway(function func(name string) api.Handler, log *slog.Logger) http.Handler {
	return identify(gatewayTo(function, log))
}

func gatewayTo(function func(name string) api.Handler, log *slog.Logger) *gateway {
	g := &gateway{functions: map[string]api.Handler{api.Fallback: function(api.Fallback)}, log: log}
	for _, r := range api.Routes {
		if g.functions[r.Function] == nil {
			g.functions[r.Function] = function(r.Function)
		}
	}
	return g
}

func newGateway(svc *message.Service, log *slog.Logger) *gateway {
	return gatewayTo((&api.API{Service: svc, Log: log}).Function, log)
}

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	if err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			own(w, g.log, http.StatusRequestEntityTooLarge, "Request Entity Too Large")
			return
		}
		own(w, g.log, http.StatusBadRequest, "Bad Request")
		return
	}
	id := w.Header().Get(requestID)
	route, params, _ := api.Match(r.Method, r.URL.Path)
	// A client that goes away does not stop a function.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), requestTime)
	defer cancel()
	resp, err := g.functions[route.Function](ctx, event(r, route.Key, params, body, id))
	if err != nil || !fits(resp) {
		g.log.Error("the function's answer cannot be returned", "request_id", id, "route", route.Key, "error", err)
		own(w, g.log, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	send(w, resp)
}

// wholeBody is up to where a body is read in one piece: longer ones grow as they
// come, or a client could claim memory by a header alone.
const wholeBody = 1 << 20

// readBody reads the body.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > maxRequest {
		return nil, &http.MaxBytesError{Limit: maxRequest}
	}
	from := http.MaxBytesReader(w, r.Body, maxRequest)
	if r.ContentLength < 0 || r.ContentLength > wholeBody {
		return io.ReadAll(from)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(from, body)
	return body, err
}

// requestID is the header in which API Gateway names the request.
const requestID = "Apigw-Requestid"

// identify gives each request its name, for the log and for the client.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(requestID, rand.Text())
		next.ServeHTTP(w, r)
	})
}

// own answers what API Gateway answers by itself, in its own form, and logs it.
func own(w http.ResponseWriter, log *slog.Logger, status int, text string) {
	log.Info("request", "request_id", w.Header().Get(requestID), "status", status, "refused", text)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "{\"message\":%q}", text)
}

// event builds what API Gateway would send to the function.
func event(
	r *http.Request, routeKey string, params map[string]string, body []byte, id string,
) events.APIGatewayV2HTTPRequest {
	now := time.Now()
	source, _, _ := net.SplitHostPort(r.RemoteAddr)
	domain := (&url.URL{Host: r.Host}).Hostname()
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: routeKey, RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery,
		Headers:        make(map[string]string, len(r.Header)+2),
		PathParameters: params,
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey: routeKey, Stage: "$default", RequestID: id, DomainName: domain,
			Time: now.UTC().Format("02/Jan/2006:15:04:05 -0700"), TimeEpoch: now.UnixMilli(),
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method: r.Method, Path: r.URL.Path, Protocol: r.Proto, SourceIP: source, UserAgent: r.UserAgent(),
			},
		},
	}
	e.Headers["host"] = r.Host
	for name, values := range r.Header {
		if name == "Cookie" {
			for _, value := range values {
				e.Cookies = append(e.Cookies, strings.Split(value, "; ")...)
			}
			continue
		}
		e.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	if r.URL.RawQuery != "" {
		e.QueryStringParameters = make(map[string]string)
		for name, values := range r.URL.Query() {
			e.QueryStringParameters[name] = strings.Join(values, ",")
		}
	}
	if isText(r.Header.Get("Content-Type"), body) {
		e.Body = string(body)
	} else {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), true
	}
	return e
}

// isText reports whether API Gateway would hand the body over as it is: that
// goes by the media type. Bytes that no JSON string can hold go as base64 too,
// where API Gateway would change them.
func isText(contentType string, body []byte) bool {
	if len(body) == 0 {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	known := contentType == "" || err == nil && (strings.HasPrefix(media, "text/") ||
		media == "application/json" || strings.HasSuffix(media, "+json") ||
		media == "application/javascript" || media == "application/xml")
	return known && utf8.Valid(body)
}

// fits reports whether Lambda would return the answer. A byte of the body
// becomes at most six in its JSON.
func fits(resp events.APIGatewayV2HTTPResponse) bool {
	const longestEscape, rest = 6, 10_000
	if len(resp.Body)*longestEscape+rest <= maxResponse {
		return true
	}
	text, err := json.Marshal(resp)
	return err == nil && len(text) <= maxResponse
}

// send writes the function's answer.
func send(w http.ResponseWriter, resp events.APIGatewayV2HTTPResponse) {
	for name, value := range resp.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(resp.StatusCode)
	body := io.Reader(strings.NewReader(resp.Body))
	if resp.IsBase64Encoded {
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	_, _ = io.Copy(w, body) // fails if the client has gone
}
