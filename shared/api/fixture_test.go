package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// epoch is when the clock of a test begins.
var epoch = time.Date(2026, 11, 30, 13, 0, 0, 0, time.UTC)

// at writes a time so long after the epoch as the contract does.
func at(after time.Duration) string { return epoch.Add(after).Format("2006-01-02T15:04:05.000Z") }

// clock tells the time that the test has set.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// at moves the clock to so long after the epoch.
func (c *clock) at(after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = epoch.Add(after)
}

// counted returns a source of bytes that counts its calls: what is made of them
// is constant.
func counted() func([]byte) {
	var mu sync.Mutex
	n := uint64(0)
	return func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		n++
		for i := range b {
			b[i] = 'Z'
		}
		binary.BigEndian.PutUint64(b[len(b)-8:], n)
	}
}

// logBuffer collects what is logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// take returns what was logged since it was last called.
func (l *logBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.buf.String()
	l.buf.Reset()
	return text
}

// store is what the tests keep messages in.
type store interface {
	message.Store
	message.QueueStore
	message.SweepStore
}

// step runs a row of a table whose rows share a fixture, and so come one after
// the other.
func step(t *testing.T, name string, do func(*testing.T)) {
	t.Helper()
	t.Run(name, do)
}

// fixture is the API on a store of its own.
type fixture struct {
	*message.Service
	api   *api.API
	store store
	clock *clock
	log   *logBuffer
	// big is a JSON string that makes answers large. Tests look at them with BIG
	// in its place: the race detector makes reading megabytes slow.
	big string
}

// newFixture opens an empty store.
func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	s, err := sqlite.Open(sqlite.InMemory)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close() = %v", err)
		}
	})
	return fixtureOn(s)
}

func fixtureOn(s store) *fixture {
	f := &fixture{store: s, clock: &clock{now: epoch}, log: &logBuffer{}}
	f.Service = &message.Service{Store: s, Queues: s, Sweeps: s, Now: f.clock.Now, Random: counted()}
	f.api = &api.API{Service: f.Service, Log: slog.New(slog.NewJSONHandler(f.log, nil))}
	return f
}

// answer is what came back, with its body as the client gets it.
type answer struct {
	asked  string // for messages
	status int
	header map[string]string
	body   string
	json   string // the body, with BIG in the place of the fixture's big
	event  events.APIGatewayV2HTTPResponse
}

// change makes an event of a test different from the usual one.
type change func(*events.APIGatewayV2HTTPRequest)

func header(name, value string) change {
	return func(e *events.APIGatewayV2HTTPRequest) { e.Headers[name] = value }
}

func key(value string) change { return header("idempotency-key", value) }

// inBase64 sends the body as API Gateway does what it takes for binary.
func inBase64(e *events.APIGatewayV2HTTPRequest) {
	e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(e.Body)), true
}

// do asks as a client does: API Gateway picks the route. The path is decoded
// already, as it hands it over; what follows the first ? is the query.
func (f *fixture) do(tb testing.TB, method, target, body string, changes ...change) answer {
	tb.Helper()
	path, query, _ := strings.Cut(target, "?")
	route, params, _ := api.Match(method, path)
	return f.send(tb, route.Function, newEvent(method, path, query, route.Key, params, body), changes...)
}

// doRoute asks for a route whose parameters may be what no path can hold.
func (f *fixture) doRoute(tb testing.TB, routeKey string, params map[string]string, body string,
	changes ...change,
) answer {
	tb.Helper()
	method, path, _ := strings.Cut(routeKey, " ")
	for name, value := range params {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	for _, r := range api.Routes {
		if r.Key == routeKey {
			return f.send(tb, r.Function, newEvent(method, path, "", routeKey, params, body), changes...)
		}
	}
	tb.Fatalf("there is no route %s", routeKey)
	return answer{}
}

func newEvent(method, path, query, routeKey string, params map[string]string,
	body string,
) events.APIGatewayV2HTTPRequest {
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: routeKey, RawPath: path, RawQueryString: query, PathParameters: params,
		Headers: map[string]string{}, Body: body,
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey: routeKey, Stage: "$default", RequestID: "JKJaXmPLvHcESHA=",
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: method, Path: path},
		},
	}
	if body != "" {
		e.Headers["content-type"] = "application/json"
	}
	return e
}

// send calls a function with an event, and checks what holds for every answer.
func (f *fixture) send(tb testing.TB, function string, e events.APIGatewayV2HTTPRequest, changes ...change) answer {
	tb.Helper()
	for _, c := range changes {
		c(&e)
	}
	resp, err := f.api.Function(function)(context.Background(), e)
	a := answer{
		asked:  fmt.Sprintf("%s %s?%s %.120s", e.RequestContext.HTTP.Method, e.RawPath, e.RawQueryString, e.Body),
		status: resp.StatusCode, header: resp.Headers, body: resp.Body, event: resp,
	}
	if err != nil {
		tb.Fatalf("%s: error %v, want none: API Gateway would drop the answer", a.asked, err)
	}
	if resp.IsBase64Encoded {
		body, err := base64.StdEncoding.DecodeString(resp.Body)
		if err != nil {
			tb.Fatalf("%s: the body is not base64: %v", a.asked, err)
		}
		a.body = string(body)
	}
	if a.json = a.body; f.big != "" {
		a.json = strings.ReplaceAll(a.body, f.big, `"BIG"`)
	}
	a.check(tb)
	return a
}

// The longest body that Redrive answers with, the longest that leaves as text,
// and the longest JSON of an answer that Lambda hands on.
const (
	maxAnswer = 4_500_000
	maxPlain  = 1_000_000
	maxLambda = 6_291_556
)

// check checks what holds for every answer.
func (a answer) check(tb testing.TB) {
	tb.Helper()
	wantType := "application/json"
	switch {
	case a.status == 204:
		wantType = ""
	case a.status >= 400:
		wantType = "application/problem+json"
	}
	length := len(a.event.Body) + 10_000
	if !a.event.IsBase64Encoded {
		length += 5 * len(a.body) // as Lambda's library may write each byte
	}
	switch {
	case a.status < 200 || a.status > 599:
		tb.Errorf("%s: status %d", a.asked, a.status)
	case a.header == nil || len(a.event.MultiValueHeaders) > 0 || len(a.event.Cookies) > 0:
		tb.Errorf("%s: headers %v, many %v, cookies %v; want them in headers only",
			a.asked, a.header, a.event.MultiValueHeaders, a.event.Cookies)
	case a.header["content-type"] != wantType:
		tb.Errorf("%s: content-type %q, want %q", a.asked, a.header["content-type"], wantType)
	case (a.body == "") != (a.status == 204):
		tb.Errorf("%s: status %d with a body of %d bytes", a.asked, a.status, len(a.body))
	case a.body != "" && (!json.Valid([]byte(a.json)) || !utf8.ValidString(a.json)):
		tb.Errorf("%s: the body is not JSON in UTF-8: %.200q", a.asked, a.body)
	case len(a.body) > maxAnswer || length > maxLambda:
		tb.Errorf("%s: the body has %d bytes and the answer %d, at most %d and %d are allowed",
			a.asked, len(a.body), length, maxAnswer, maxLambda)
	case a.event.IsBase64Encoded != (len(a.body) > maxPlain):
		tb.Errorf("%s: base64 is %v for %d bytes", a.asked, a.event.IsBase64Encoded, len(a.body))
	case (a.header["retry-after"] != "") != (a.status == 503) || (a.header["allow"] != "") != (a.status == 405):
		tb.Errorf("%s: status %d with retry-after %q and allow %q",
			a.asked, a.status, a.header["retry-after"], a.header["allow"])
	}
}

// into reads the body, which must have no member that to does not know.
func (a answer) into(tb testing.TB, status int, to any) {
	tb.Helper()
	if a.status != status {
		tb.Fatalf("%s: status %d, want %d; body %.300s", a.asked, a.status, status, a.body)
	}
	dec := json.NewDecoder(strings.NewReader(a.json))
	dec.DisallowUnknownFields()
	if err := dec.Decode(to); err != nil {
		tb.Fatalf("%s: body %.300s: %v", a.asked, a.body, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		tb.Fatalf("%s: something follows the JSON of the body: %v", a.asked, err)
	}
}

// msg is a message as the contract shows it.
type msg struct {
	ID             string    `json:"id"`
	Queue          string    `json:"queue"`
	Status         string    `json:"status"`
	Payload        *string   `json:"payload"`
	PayloadBytes   int       `json:"payload_bytes"`
	RetryCount     int       `json:"retry_count"`
	MaxRetries     int       `json:"max_retries"`
	RetryAfter     *string   `json:"retry_after"`
	LastError      *string   `json:"last_error"`
	StallCount     int       `json:"stall_count"`
	MaxStalls      int       `json:"max_stalls"`
	ClaimCount     int       `json:"claim_count"`
	ReplayCount    int       `json:"replay_count"`
	LeaseExpiresAt *string   `json:"lease_expires_at"`
	DeadReason     *string   `json:"dead_reason"`
	DeadAt         *string   `json:"dead_at"`
	CreatedAt      string    `json:"created_at"`
	UpdatedAt      string    `json:"updated_at"`
	Receipt        string    `json:"receipt"`
	Attempts       []attempt `json:"attempts"`
}

type attempt struct {
	Number    int     `json:"number"`
	ClaimedAt string  `json:"claimed_at"`
	EndedAt   string  `json:"ended_at"`
	Outcome   string  `json:"outcome"`
	Error     *string `json:"error"`
}

// path is the message's own, below which its verbs are.
func (m msg) path() string { return "/queues/" + m.Queue + "/messages/" + m.ID }

func (a answer) message(tb testing.TB, status int) msg {
	tb.Helper()
	var m msg
	a.into(tb, status, &m)
	return m
}

// listPage is a page of messages.
type listPage struct {
	Messages   []msg   `json:"messages"`
	NextCursor *string `json:"next_cursor"`
}

func (a answer) page(tb testing.TB) listPage {
	tb.Helper()
	var p listPage
	a.into(tb, 200, &p)
	if p.Messages == nil {
		tb.Errorf("%s: messages is null, want an array", a.asked)
	}
	return p
}

// document is a problem as the contract shows it.
type document struct {
	Type          string  `json:"type"`
	Title         string  `json:"title"`
	Status        int     `json:"status"`
	Detail        string  `json:"detail"`
	MessageStatus string  `json:"message_status"`
	Errors        []fault `json:"errors"`
}

type fault struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// titles of the problems, by slug.
var titles = map[string]string{
	"malformed-body": "Malformed Body", "bad-request": "Bad Request", "not-found": "Not Found",
	"method-not-allowed": "Method Not Allowed", "message-conflict": "Message Conflict",
	"queue-conflict": "Queue Conflict", "payload-too-large": "Payload Too Large",
	"unsupported-media-type": "Unsupported Media Type", "validation-failed": "Validation Failed",
	"idempotency-key-reused": "Idempotency Key Reused", "unavailable": "Unavailable",
}

// refused checks that the answer is exactly this problem, and returns it. A fault
// is written "field code message".
func (a answer) refused(tb testing.TB, status int, slug string, faults ...string) document {
	tb.Helper()
	want := document{Type: "/problems/" + slug, Title: titles[slug], Status: status}
	for _, text := range faults {
		field, rest, _ := strings.Cut(text, " ")
		code, says, _ := strings.Cut(rest, " ")
		want.Errors = append(want.Errors, fault{field, code, says})
	}
	if a.status != status {
		tb.Errorf("%s: status %d, want %d %s; body %.300s", a.asked, a.status, status, slug, a.body)
		return document{}
	}
	var got document
	a.into(tb, status, &got)
	if got.Detail == "" {
		tb.Errorf("%s: no detail", a.asked)
	}
	want.Detail, want.MessageStatus = got.Detail, got.MessageStatus
	if (got.MessageStatus != "") != (slug == "message-conflict") {
		tb.Errorf("%s: %s with message_status %q", a.asked, slug, got.MessageStatus)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("%s: problem differs (-want +got):\n%s", a.asked, diff)
	}
	return got
}

// kept is a message with its history, as stored.
type kept struct {
	Message  message.Message
	Attempts []message.Attempt
}

// stored returns everything that is stored.
func (f *fixture) stored(tb testing.TB) map[string]any {
	tb.Helper()
	all := make(map[string]any)
	queues, more, err := f.ListQueues(context.Background(), "", "", message.MaxListLimit)
	if err != nil || more {
		tb.Fatalf("ListQueues() = more %v, %v", more, err)
	}
	for _, q := range queues {
		all[q.Name] = q
		list := message.List{Queue: q.Name, Limit: message.MaxListLimit}
		for again := true; again; {
			page, more, err := f.List(context.Background(), list)
			if err != nil {
				tb.Fatalf("List(%q) = %v", q.Name, err)
			}
			for _, m := range page {
				whole, attempts, err := f.store.Get(context.Background(), q.Name, m.ID)
				if err != nil {
					tb.Fatalf("Get(%q, %s) = %v", q.Name, m.ID, err)
				}
				all[q.Name+" "+m.ID] = kept{whole, attempts}
				list.After = new(m.Place())
			}
			again = more
		}
	}
	return all
}

// unchanged checks that nothing was changed since before.
func (f *fixture) unchanged(tb testing.TB, before map[string]any) {
	tb.Helper()
	if diff := cmp.Diff(before, f.stored(tb)); diff != "" {
		tb.Errorf("the store has changed (-before +after):\n%s", diff)
	}
}

// enqueue puts a message on the queue emails.
func (f *fixture) enqueue(tb testing.TB, payload string) msg {
	tb.Helper()
	return f.enqueueOn(tb, "emails", payload)
}

func (f *fixture) enqueueOn(tb testing.TB, queue, payload string) msg {
	tb.Helper()
	return f.do(tb, "POST", "/queues/"+queue+"/messages", body("payload", payload)).message(tb, 201)
}

// claim takes the message that the queue emails must hand out.
func (f *fixture) claim(tb testing.TB) msg {
	tb.Helper()
	return f.claimFrom(tb, "emails")
}

func (f *fixture) claimFrom(tb testing.TB, queue string) msg {
	tb.Helper()
	return f.do(tb, "POST", "/queues/"+queue+"/claim", "").message(tb, 200)
}

// answerWith lets the holder of m answer.
func (f *fixture) answerWith(tb testing.TB, m msg, verb string, pairs ...any) msg {
	tb.Helper()
	return f.do(tb, "POST", m.path()+"/"+verb, body(append(pairs, "receipt", m.Receipt)...)).message(tb, 200)
}

// processing, pending, succeeded and dead make a message of that status.
func (f *fixture) processing(tb testing.TB) msg {
	tb.Helper()
	f.enqueue(tb, "processing")
	return f.claim(tb)
}

func (f *fixture) pending(tb testing.TB) msg {
	tb.Helper()
	return f.enqueue(tb, "pending")
}

func (f *fixture) succeeded(tb testing.TB) msg {
	tb.Helper()
	m := f.processing(tb)
	f.answerWith(tb, m, "succeed")
	return m
}

func (f *fixture) dead(tb testing.TB) msg {
	tb.Helper()
	m := f.processing(tb)
	f.answerWith(tb, m, "fail", "error", "bad address", "permanent", true)
	return m
}

// get shows the message as it is now.
func (f *fixture) get(tb testing.TB, m msg) msg {
	tb.Helper()
	return f.do(tb, "GET", m.path(), "").message(tb, 200)
}

// list returns all messages of the queue, in order.
func (f *fixture) list(tb testing.TB, target string) []msg {
	tb.Helper()
	page := f.do(tb, "GET", target, "").page(tb)
	if page.NextCursor != nil {
		tb.Fatalf("GET %s has more than a page", target)
	}
	return page.Messages
}

// body writes a JSON object of names and values.
func body(pairs ...any) string {
	object := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		object[pairs[i].(string)] = pairs[i+1]
	}
	return toJSON(object)
}

func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// query writes a query string.
func query(pairs ...string) string {
	values := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return "?" + values.Encode()
}

// sorted returns the list in order.
func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

func ids(messages []msg) []string {
	list := make([]string, 0, len(messages))
	for _, m := range messages {
		list = append(list, m.ID)
	}
	return list
}

// clone copies an event far enough that a change does not reach the original.
func clone(e events.APIGatewayV2HTTPRequest) events.APIGatewayV2HTTPRequest {
	e.Headers = maps.Clone(e.Headers)
	e.PathParameters = maps.Clone(e.PathParameters)
	return e
}
