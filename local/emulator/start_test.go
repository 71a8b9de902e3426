package emulator_test

import (
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/local/emulator"
	"github.com/redrivehq/redrive/shared/setup"
)

// TestStartErrors has environments with faults: the program says what is wrong
// with all of them, and ends.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, tt := range []struct {
		name      string
		functions []string
		vars      map[string]string
		want      []string // what the error speaks of
	}{
		{"no table", []string{"enqueue", "sweep"}, map[string]string{setup.Table: ""}, []string{"REDRIVE_TABLE is not set"}},
		{
			"a name that no table has",
			[]string{"enqueue", "sweep"},
			map[string]string{setup.Table: "my table"},
			[]string{`REDRIVE_TABLE is "my table"`},
		},
		{
			"an endpoint that is no URL",
			[]string{"enqueue", "sweep"},
			map[string]string{setup.Endpoint: "localhost:8000"},
			[]string{`AWS_ENDPOINT_URL_DYNAMODB is "localhost:8000", want a URL such as http://`},
		},
		{
			"S115a sam local without an endpoint",
			[]string{"enqueue", "sweep"},
			map[string]string{setup.Endpoint: "", "AWS_SAM_LOCAL": "true"},
			[]string{"AWS_ENDPOINT_URL_DYNAMODB is not set", "local/env.json"},
		},
		{
			"all at once", w.withTable(),
			map[string]string{setup.Table: "", setup.Endpoint: "", "AWS_SAM_LOCAL": "true"},
			[]string{"REDRIVE_TABLE", "AWS_ENDPOINT_URL_DYNAMODB"},
		},
	} {
		for _, function := range tt.functions {
			t.Run(tt.name+" "+function, func(t *testing.T) {
				t.Parallel()
				vars := w.variables(t, function, w.engine)
				maps.Copy(vars, tt.vars)
				f := w.start(t, function, vars)
				if answer, err := f.Invoke(t.Context(), []byte("{}")); err == nil {
					t.Errorf("%s answers %s, want no answer", function, answer)
				}
				for _, line := range awaitRecords(t, f, "cannot start") {
					for _, want := range tt.want {
						if !strings.Contains(line.text("error"), want) {
							t.Errorf("%s ends with %q, want it to speak of %q", function, line.text("error"), want)
						}
					}
				}
				eventually(t, function+" ends with status 1", func() bool {
					return strings.Contains(f.Log(), "exited: exit status 1")
				})
			})
		}
	}
}

// withTable lists the functions that use the table.
func (w *world) withTable() []string {
	var names []string
	for _, f := range w.template.Functions {
		if len(f.Grants) > 0 {
			names = append(names, f.Name)
		}
	}
	return names
}

// awaitRecords waits until the function has logged something of that kind. After
// an invocation that failed, its last words may still be on their way.
func awaitRecords(t *testing.T, f *emulator.Function, msg string) (found []record) {
	t.Helper()
	eventually(t, "a line "+msg, func() bool {
		found = records(t, f, msg)
		return len(found) > 0
	})
	return found
}

// eventually waits until it is so.
func eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for range 1000 {
		if isSo() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func TestFallbackNeedsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	vars := w.variables(t, "fallback", "")
	if _, ok := vars[setup.Table]; ok {
		t.Error("the fallback has the name of the table")
	}
	if got := send(t, w.start(t, "fallback", vars), "GET", "/", ""); got.StatusCode != http.StatusNotFound {
		t.Errorf("GET / = %d %s, want 404", got.StatusCode, got.Body)
	}
}

// send hands the function what API Gateway makes of a request for a route whose
// only parameter is the queue.
func send(t *testing.T, f *emulator.Function, method, queue, body string) events.APIGatewayV2HTTPResponse {
	t.Helper()
	path := "/queues/" + queue + "/messages"
	resp, err := f.Handle(t.Context(), events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: method + " /queues/{queue}/messages", RawPath: path, Body: body,
		Headers: map[string]string{"content-type": "application/json"}, PathParameters: map[string]string{"queue": queue},
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RequestID: "request", HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: method, Path: path},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

const draft = `{"payload":"x"}`

// TestUnavailable has an engine that cannot be used. That an answer does not take
// long is seen in the number of times that the function tries.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	deaf := newDeaf(t)
	for _, tt := range []struct {
		name     string
		endpoint string
		vars     map[string]string
		logged   []string // what the line of the log speaks of
	}{
		{
			"S115b sam local with an endpoint that is the container itself", "http://" + closedAddress(t),
			map[string]string{"AWS_SAM_LOCAL": "true"},
			[]string{"connection refused", setup.Endpoint},
		},
		{"an engine that hangs up", "http://" + deaf.address, nil, []string{deaf.address}},
		{"S116 a table that is not there", w.engine, map[string]string{setup.Table: "missing"}, []string{
			`"missing"`, "us-east-1",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			vars := w.variables(t, "enqueue", tt.endpoint)
			maps.Copy(vars, tt.vars)
			f := w.start(t, "enqueue", vars)
			resp := send(t, f, "POST", "orders", draft)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Headers["retry-after"] == "" ||
				resp.Headers["content-type"] != "application/problem+json" ||
				!strings.Contains(resp.Body, `"type":"/problems/unavailable"`) {
				t.Errorf("answer = %+v, want a 503 with Retry-After and a problem document", resp)
			}
			lines := records(t, f, "request")
			if len(lines) != 1 || lines[0]["level"] != "ERROR" {
				t.Fatalf("the log has the lines %v, want one of level ERROR", lines)
			}
			for _, want := range tt.logged {
				if text := lines[0].text("error"); !strings.Contains(text, want) {
					t.Errorf("the log says %s, want it to speak of %s", text, want)
				}
			}
			if n := deaf.met.Load(); tt.endpoint == "http://"+deaf.address && (n < 2 || n > 4) {
				t.Errorf("the function has tried %d times, want 2 to 4", n)
			}
		})
	}
}

// deaf hangs up on whoever comes, and counts them.
type deaf struct {
	address string
	met     atomic.Int32
}

func newDeaf(t *testing.T) *deaf {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d := &deaf{address: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			d.met.Add(1)
			conn.Close()
		}
	}()
	return d
}

// closedAddress returns an address at which nobody listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// breakQueue gives a queue settings that nobody can have stored.
func (w *world) breakQueue(t *testing.T, name string) {
	t.Helper()
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	if _, err := w.client.PutItem(t.Context(), &dynamodb.PutItemInput{
		TableName: &w.table, Item: map[string]types.AttributeValue{
			"pk": text("#queues"), "sk": text(name), "settings": text(`{"shards":0}`), "revision": text("x"),
		},
	}); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedQueueHarmsNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.breakQueue(t, "broken")
	f := w.start(t, "enqueue", w.variables(t, "enqueue", w.engine))
	if resp := send(t, f, "POST", "broken", draft); resp.StatusCode != http.StatusInternalServerError ||
		resp.Headers["content-type"] != "application/problem+json" || strings.Contains(resp.Body, "shards") {
		t.Errorf("answer = %+v, want a 500 that tells nothing", resp)
	}
	if line := records(t, f, "request")[0]; !strings.Contains(line.text("error"), "damaged") {
		t.Errorf("the line of the log is %v, want it to tell of the damage", line)
	}
	if resp := send(t, f, "POST", "whole", draft); resp.StatusCode != http.StatusCreated {
		t.Errorf("the next answer = %+v, want 201", resp)
	}
	if n := len(f.Inits()); n != 1 {
		t.Errorf("the function was started %d times, want once", n)
	}
}

// TestSDKWarns has an answer without a checksum, of which the SDK warns. Whatever
// a function writes, it writes as JSON, or nobody could search it.
func TestSDKWarns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.startRecorded(t, "enqueue")
	i.answer(func(call) *reply { return &reply{http.StatusOK, "{}", "0"} })
	send(t, i.Function, "POST", "orders", draft)
	if lines := records(t, i.Function, "AWS SDK"); len(lines) == 0 || lines[0]["level"] != "WARN" {
		t.Errorf("the log has the lines %v, want a warning", lines)
	}
}

// TestLifeCycle stops the process of a function between two events, as Lambda
// does, takes its connections away meanwhile, and kills it.
func TestLifeCycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := w.startRecorded(t, "enqueue")
	enqueue := func(when string) {
		t.Helper()
		if resp := send(t, i.Function, "POST", "orders", draft); resp.StatusCode != http.StatusCreated {
			t.Errorf("%s: the answer is %+v, want 201", when, resp)
		}
	}
	process := func() *os.Process {
		t.Helper()
		p, err := i.process()
		if err != nil {
			t.Skip("not on Linux:", err)
		}
		return p
	}
	enqueue("the first event")
	first := process()
	freeze(first)
	i.CloseClientConnections()
	thaw(first)
	enqueue("after its connections were closed while it was stopped")
	first.Kill()
	// Lambda too hands the process an event that it does not know to be dead yet.
	if answer, err := i.Invoke(t.Context(), []byte("{}")); err == nil {
		t.Logf("an event right after the process was killed is answered with %s", answer)
	}
	enqueue("after the process was killed")
	if second := process(); second.Pid == first.Pid {
		t.Error("the process was not killed")
	}
}
