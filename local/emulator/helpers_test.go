package emulator_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	strict "github.com/go-json-experiment/json"

	"github.com/redrivehq/redrive/local/emulator"
	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/local/stack"
	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/dynamotest"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/setup"
)

const root = "../.." // of the repository

// programs builds the functions when it is first called, and returns the folder
// that they are in.
var programs func() (string, error)

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "redrive-functions-")
	if err != nil {
		panic(err)
	}
	programs = sync.OnceValues(func() (string, error) {
		return folder, emulator.Build(context.Background(), root, folder, "./functions/...")
	})
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// world is what functions live in: an engine with a table of their own.
type world struct {
	engine   string // its URL
	client   *dynamodb.Client
	table    string
	template *stack.Template
	rie      string // path of the emulator
	programs string
}

// newWorld makes a table that is deleted when t ends. It skips the test where the
// tools are missing.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{engine: dynamotest.Endpoint(t), client: dynamotest.Client(t)}
	var err error
	if w.rie, err = emulator.Find(); err != nil {
		if os.Getenv("REDRIVE_REQUIRE_ENGINE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if w.programs, err = programs(); err != nil {
		t.Fatal(err)
	}
	if w.template, err = stack.Read(root + "/template.yaml"); err != nil {
		t.Fatal(err)
	}
	w.table = dynamotest.Table(t, w.client)
	return w
}

// service returns the rules on the table, by a clock that is so far behind: what
// they do has happened long ago for the functions.
func (w *world) service(behind time.Duration) *message.Service {
	now := func() time.Time { return time.Now().Add(-behind) }
	svc := setup.NewService(dynamo.New(dynamo.Options{
		Client: w.client, Table: w.table, Now: now, Log: slog.New(slog.DiscardHandler),
	}))
	svc.Now = now
	return svc
}

// variables are those of the function's environment: what the template says, and
// what Lambda sets.
func (w *world) variables(t *testing.T, name, endpoint string) map[string]string {
	t.Helper()
	f, ok := w.template.Function(name)
	if !ok {
		t.Fatalf("template.yaml has no function %s", name)
	}
	vars := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", // as the client's
		"AWS_LAMBDA_FUNCTION_NAME":        f.ID,
		"AWS_LAMBDA_FUNCTION_TIMEOUT":     strconv.Itoa(f.Settings.Timeout),
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": strconv.Itoa(f.Settings.MemorySize),
	}
	for name, value := range f.Settings.Environment.Variables {
		switch ref, _ := value.(map[string]any); {
		case name == setup.Endpoint:
			vars[name] = endpoint
		case ref["Ref"] == "Table":
			vars[name] = w.table
		default:
			t.Fatalf("template.yaml sets %s of %s to %v, which this test knows nothing of", name, f.ID, value)
		}
	}
	return vars
}

// start runs a function until the end of t. Nothing is between it and the engine.
func (w *world) start(t *testing.T, name string, vars map[string]string) *emulator.Function {
	t.Helper()
	var env []string
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	f, err := emulator.Start(t.Context(), emulator.Config{
		Emulator: w.rie, Program: w.programs + "/" + name, Env: env,
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, line := range f.Output() {
				if !strings.Contains(line, `"level":"INFO"`) {
					t.Logf("%s: %s", name, line)
				}
			}
		}
	})
	return f
}

// instance is a function with a recorder of its own before the engine.
type instance struct {
	*emulator.Function
	*recorder
	name string
}

// process returns that of the function.
func (i *instance) process() (*os.Process, error) {
	pid, err := i.PID()
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}

func (w *world) startRecorded(t *testing.T, name string) *instance {
	t.Helper()
	r := newRecorder(t, w.engine)
	return &instance{w.start(t, name, w.variables(t, name, r.URL)), r, name}
}

// invoke calls the function. S102 of CASES.md: when it answers, nothing that it
// began goes on.
func (i *instance) invoke(ctx context.Context, t *testing.T, event any) ([]byte, error) {
	text, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	answer, err := i.Invoke(ctx, text)
	if n := i.inFlight(); n > 0 && err == nil {
		t.Errorf("%s has answered while %d of its requests to DynamoDB went on", i.name, n)
	}
	return answer, err
}

// fleet is a function in several instances, as Lambda runs it.
type fleet struct {
	all  []*instance
	idle chan *instance
}

// deployment is every function, and a gateway before them.
type deployment struct {
	*world
	fleets  map[string]*fleet
	gateway *httptest.Server
}

// instances of each function: two, so that what one remembers another does not
// know.
const instances = 2

func deploy(t *testing.T) *deployment {
	t.Helper()
	w := newWorld(t)
	d := &deployment{world: w, fleets: map[string]*fleet{}}
	for _, f := range w.template.Functions {
		fl := &fleet{idle: make(chan *instance, instances)}
		for range instances {
			i := w.startRecorded(t, f.Name)
			fl.all = append(fl.all, i)
			fl.idle <- i
		}
		d.fleets[f.Name] = fl
	}
	d.gateway = httptest.NewServer(server.NewGateway(func(name string) api.Handler {
		return func(
			ctx context.Context, event events.APIGatewayV2HTTPRequest,
		) (resp events.APIGatewayV2HTTPResponse, err error) {
			answer, err := d.invoke(ctx, t, name, event)
			if err == nil {
				err = json.Unmarshal(answer, &resp)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return resp, err
		}
	}, slog.New(slog.DiscardHandler)))
	t.Cleanup(d.gateway.Close)
	return d
}

// invoke calls the function, as soon as one of its instances is free.
func (d *deployment) invoke(ctx context.Context, t *testing.T, name string, event any) ([]byte, error) {
	f := d.fleets[name]
	if f == nil {
		return nil, errors.New("template.yaml has no such function")
	}
	select {
	case i := <-f.idle:
		defer func() { f.idle <- i }()
		return i.invoke(ctx, t, event)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// message decodes what is asked about of a message.
func (a answer) message(t *testing.T) (m struct{ ID, Receipt, Status, Payload string }) {
	t.Helper()
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return m
}

// do sends a request, with headers in pairs of name and value, and ends the test
// if the status is another.
func (d *deployment) do(t *testing.T, method, path, body string, status int, headers ...string) answer {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, d.gateway.URL+path, bytes.NewReader([]byte(body)))
	req.RequestURI = ""
	req.Header.Set("Content-Type", "application/json")
	for n := 0; n < len(headers); n += 2 {
		req.Header.Set(headers[n], headers[n+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status {
		t.Fatalf("%s %s = %d %s, want %d", method, path, resp.StatusCode, text, status)
	}
	return answer{resp.StatusCode, resp.Header, text}
}

// record is a line of JSON that a function has logged.
type record map[string]any

// records returns the lines of that message.
func records(t *testing.T, f *emulator.Function, msg string) []record {
	t.Helper()
	var found []record
	for _, line := range f.Output() {
		var r record
		if err := strict.Unmarshal([]byte(line), &r); err != nil { // nor may a name stand there twice
			t.Errorf("a line is no JSON object: %v: %s", err, line)
		}
		if r["msg"] == msg {
			found = append(found, r)
		}
	}
	return found
}

// int returns a number of the record, zero if it has none.
func (r record) int(name string) int {
	n, _ := r[name].(float64)
	return int(n)
}

func (r record) text(name string) string {
	s, _ := r[name].(string)
	return cmp.Or(s, "none")
}
