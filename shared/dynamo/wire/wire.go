// Package wire lies between a store and its DynamoDB engine, where tests and
// experiments spoil what passes: requests that get lost, held up or repeated,
// answers that never come, and an index that lags.
//
// It knows the requests as the SDK sends them, and the keys of the table. It
// knows nothing of messages and their rules. What it alters is not signed anew:
// it is for engines that do not look at signatures.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Request is one try of one call.
type Request struct {
	Action  string         // as "PutItem"
	Params  map[string]any // as JSON shows them
	Payload []byte
	HTTP    *http.Request
}

// sent is where a request that SendTo carries out has the Request that it is of.
type sent struct{}

// Parse reads a request of the SDK, or one of SendTo. It panics on any other.
func Parse(req *http.Request) *Request {
	if was, ok := req.Context().Value(sent{}).(*Request); ok {
		return &Request{was.Action, was.Params, was.Payload, req}
	}
	payload, err := io.ReadAll(req.Body)
	if err != nil {
		panic(err) // it is in memory
	}
	_, action, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	r := &Request{Action: action, Payload: payload, HTTP: req}
	if err := json.Unmarshal(payload, &r.Params); err != nil {
		panic(err) // the SDK wrote it
	}
	return r
}

// With returns the request with other parameters.
func (r *Request) With(params map[string]any) *Request {
	payload, err := json.Marshal(params)
	if err != nil {
		panic(err) // they were JSON before
	}
	return &Request{r.Action, params, payload, r.HTTP}
}

// As returns another request to the same table.
func (r *Request) As(action string, params map[string]any) *Request {
	params["TableName"] = r.Params["TableName"]
	other := r.With(params)
	other.Action = action
	other.HTTP = r.HTTP.Clone(r.HTTP.Context())
	version, _, _ := strings.Cut(r.HTTP.Header.Get("X-Amz-Target"), ".")
	other.HTTP.Header.Set("X-Amz-Target", version+"."+action)
	return other
}

// SendTo carries the request out, as often as one likes. What is on its way
// arrives, whatever its sender does meanwhile.
func (r *Request) SendTo(next aws.HTTPClient) (*http.Response, error) {
	ctx := context.WithValue(context.WithoutCancel(r.HTTP.Context()), sent{}, r)
	req := r.HTTP.Clone(ctx)
	req.Body = io.NopCloser(bytes.NewReader(r.Payload))
	req.ContentLength = int64(len(r.Payload))
	return next.Do(req)
}

// At returns what stands under the names; an empty string if there is none.
func At(params any, names ...string) string {
	for _, name := range names {
		m, _ := params.(map[string]any)
		params = m[name]
	}
	s, _ := params.(string)
	return s
}

// Key returns the key of the item that the request is about.
func (r *Request) Key() (pk, sk string) {
	where := "Key"
	if r.Action == "PutItem" {
		where = "Item"
	}
	return At(r.Params, where, "pk", "S"), At(r.Params, where, "sk", "S")
}

// Writes reports whether the request changes an item.
func (r *Request) Writes() bool {
	return r.Action == "PutItem" || r.Action == "UpdateItem" || r.Action == "DeleteItem"
}

// String names what is asked of what, as "PutItem mark".
func (r *Request) String() string {
	if r.Action == "BatchGetItem" {
		return r.Action
	}
	pk, sk := r.Key()
	if r.Action == "Query" {
		pk = At(r.Params, "ExpressionAttributeValues", ":0", "S")
		if At(r.Params, "IndexName") != "" {
			status, _, _ := strings.Cut(pk, "#")
			return r.Action + " " + status
		}
	}
	return r.Action + " " + KindOf(pk, sk)
}

// KindOf says what is stored under a key.
func KindOf(pk, sk string) string {
	kind, isOne := map[string]string{"#active": "mark", "#queues": "queue", "#sweep": "round"}[pk]
	switch {
	case isOne:
		return kind
	case strings.HasPrefix(sk, "a#"):
		return "attempt"
	case strings.HasPrefix(sk, "p#"):
		return "payload"
	}
	return "message"
}

// Send carries a request out.
type Send = func() (*http.Response, error)

// Fault decides what becomes of a request, which send carries out.
type Fault func(r *Request, send Send) (*http.Response, error)

// Wire is an HTTP client with faults. Unless it is of New, it notes no requests.
type Wire struct {
	Next aws.HTTPClient

	mu    sync.Mutex
	fault Fault
	seen  []*Request
	notes bool
}

// New returns a wire that notes every request, for Take and Saw.
func New(next aws.HTTPClient) *Wire { return &Wire{Next: next, notes: true} }

// Do implements aws.HTTPClient.
func (w *Wire) Do(req *http.Request) (*http.Response, error) {
	r := Parse(req)
	w.mu.Lock()
	if w.notes {
		w.seen = append(w.seen, r)
	}
	fault := w.fault
	w.mu.Unlock()
	if fault == nil {
		return r.SendTo(w.Next)
	}
	return fault(r, func() (*http.Response, error) { return r.SendTo(w.Next) })
}

// Set makes the fault hold from now on; nil for none.
func (w *Wire) Set(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// Take returns the requests seen since the last time.
func (w *Wire) Take() []*Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// Saw counts the requests of that name since then.
func (w *Wire) Saw(name string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.seen {
		if r.String() == name {
			n++
		}
	}
	return n
}

// ErrCut is what the sender sees of a connection that was cut.
var ErrCut = errors.New("connection reset by peer")

// Cut does not send the request.
func Cut(*Request, Send) (*http.Response, error) { return nil, ErrCut }

// Lose sends the request and loses the answer.
func Lose(_ *Request, send Send) (*http.Response, error) {
	resp, err := send()
	if err == nil {
		_ = resp.Body.Close() // nobody wants it
	}
	return nil, ErrCut
}

// Refuse answers with an error of DynamoDB.
func Refuse(status int, code string) Fault {
	return func(r *Request, _ Send) (*http.Response, error) {
		return Respond(r, status, fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"no"}`, code)), nil
	}
}

// Respond returns an answer of DynamoDB.
func Respond(r *Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r.HTTP,
	}
}

// Only applies f to the n-th of the requests that pick chooses, from 0 on.
func Only(n int, pick func(*Request) bool, f Fault) Fault {
	var count atomic.Int64
	return func(r *Request, send Send) (*http.Response, error) {
		if pick(r) && count.Add(1) == int64(n)+1 {
			return f(r, send)
		}
		return send()
	}
}

// Each applies f to every request that pick chooses.
func Each(pick func(*Request) bool, f Fault) Fault {
	return func(r *Request, send Send) (*http.Response, error) {
		if pick(r) {
			return f(r, send)
		}
		return send()
	}
}

// From sends n requests, applies first to the next, and cuts all that follow.
func From(n int, first Fault) Fault {
	var count atomic.Int64
	return func(r *Request, send Send) (*http.Response, error) {
		switch i := int(count.Add(1)) - 1; {
		case i < n:
			return send()
		case i == n:
			return first(r, send)
		}
		return Cut(r, send)
	}
}

// Any picks every request.
func Any(*Request) bool { return true }
