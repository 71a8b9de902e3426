package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/local/prove/history"
	"github.com/redrivehq/redrive/local/prove/process"
	"github.com/redrivehq/redrive/shared/dynamo/dynamotest"
)

// short is a part that a test has time for.
func short(t *testing.T, sys system, operations int) *outcome {
	t.Helper()
	p := plan{operations: operations, workers: 12, seed: rand.Uint64(), progress: func(int) {}}
	t.Logf("seed %d", p.seed)
	o, h, err := p.run(t.Context(), sys)
	if closeErr := sys.close(t.Context()); err != nil || closeErr != nil {
		t.Fatalf("run = %v; close = %v", err, closeErr)
	}
	for _, v := range o.Violations {
		text, err := json.MarshalIndent(h.Of(v.ID).Shortest(), "", " ")
		t.Errorf("%s: %s: %s\n%s%v", v.Kind, v.ID, v.Text, text, err)
	}
	if o.Unfinished > 0 {
		t.Errorf("%d messages are not settled in the end", o.Unfinished)
	}
	// About: an empty claim is none, and a worker without an answer asks again.
	if o.Operations < operations/2 || o.Known < o.Operations/2 || o.Messages < operations/20 {
		t.Errorf("%d operations, %d acknowledged, on %d messages: too few to prove anything",
			o.Operations, o.Known, o.Messages)
	}
	if len(o.Faults) == 0 {
		t.Error("there were no faults")
	}
	return o
}

func TestSQLiteKeepsItsPromisesThroughFaults(t *testing.T) {
	t.Parallel()
	binary, err := process.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sys, err := newOnSQLite(t.Context(), binary, rand.New(rand.NewPCG(rand.Uint64(), 0)))
	if err != nil {
		t.Fatal(err)
	}
	short(t, sys, 6_000)
}

func TestDynamoDBKeepsItsPromisesThroughFaults(t *testing.T) {
	t.Parallel()
	sys, err := newOnDynamoDB(t.Context(), dynamotest.Endpoint(t), rand.New(rand.NewPCG(rand.Uint64(), 0)))
	if err != nil {
		t.Fatal(err)
	}
	short(t, sys, 2_500)
}

func TestACampaignGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lines := []*outcome{
		{Part: 0, Operations: 20_000, Messages: 7, Known: 6, Unknown: 5, Unseen: 4, Faults: map[string]int{"killed": 3}},
		{Part: 1, Operations: 20_000, Messages: 2, Known: 1, Faults: map[string]int{"killed": 1, "disk full": 2}},
	}
	var text bytes.Buffer
	for _, o := range lines {
		if err := json.NewEncoder(&text).Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sqlite-7.jsonl"), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	args := []string{"-store", "sqlite", "-seed", "7", "-operations", "40000", "-dir", dir}
	if code := prove(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("prove = %d, %s, want 0: all parts are done", code, &stderr)
	}
	for _, row := range []string{
		"operations 40000", "messages 9", "acknowledged 7", "outcome unknown 5", "claims that no answer names 4", "lost 0",
		"fault: killed 4", "fault: disk full 2",
	} {
		cells := strings.Join(strings.Fields(strings.ReplaceAll(stdout.String(), "|", " ")), " ")
		if !strings.Contains(cells, row) {
			t.Errorf("the table lacks %q:\n%s", row, &stdout)
		}
	}
}

func TestAViolationEndsWithExitCode1(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := `{"part":0,"operations":1,"violations":[{"kind":"lost","id":"msg_1","text":"it is gone"}]}`
	if err := os.WriteFile(filepath.Join(dir, "sqlite-7.jsonl"), []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	args := []string{"-store", "sqlite", "-seed", "7", "-operations", "1", "-dir", dir}
	code := prove(t.Context(), args, &stdout, &stderr)
	if code != 1 || !strings.Contains(stdout.String(), "lost: msg_1: it is gone") {
		t.Errorf("prove = %d, %s%s, want 1 and the violation", code, &stdout, &stderr)
	}
}

func TestALineOfProgressCoversTheOneBefore(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(&out, "sqlite", 2, 0)
	p.began = p.began.Add(-time.Hour)
	p.show(0, 1_000_000)
	p.show(0, 1)
	lines := strings.Split(out.String(), "\r")
	if len(lines) != 3 || len(lines[2]) != len(lines[1]) || !strings.HasSuffix(strings.TrimSpace(lines[2]), "1h0m0s") {
		t.Errorf("the lines are %q, want two of one length", lines)
	}
}

func TestUnknownArguments(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-no"}, 2, "-no"},
		{[]string{"-store", "oracle", "-dir", t.TempDir()}, 1, `not "oracle"`},
		{[]string{"-store", "dynamodb", "-engine", "", "-dir", t.TempDir()}, 1, "DynamoDB needs an engine"},
		{[]string{"-check", filepath.Join(t.TempDir(), "none")}, 1, "no such file"},
	} {
		var stdout, stderr bytes.Buffer
		code := prove(t.Context(), tt.args, &stdout, &stderr)
		if code != tt.code || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("prove %q = %d, %s, want %d and %q", tt.args, code, &stderr, tt.code, tt.want)
		}
	}
}

func TestAHistoryIsWrittenDrawnAndJudgedAgain(t *testing.T) {
	t.Parallel()
	c := campaign{store: "sqlite", seed: 7, dir: t.TempDir()}
	h := &history.History{Queues: queues(), Operations: []history.Operation{
		{Verb: history.Enqueue, Queue: "plain", ID: "m", Status: 201, End: 10, Shown: &history.Message{
			ID: "m", Queue: "plain", Status: "pending", MaxRetries: 3, MaxStalls: 3,
		}},
		{Verb: history.Get, Queue: "plain", ID: "m", Status: 404, Start: 20, End: 30},
	}}
	o := &outcome{Part: 3, Violations: h.Check().Violations}
	if err := c.explain(h, o); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(c.dir, "sqlite-7-3-m")
	page, err := os.ReadFile(name + ".html")
	if err != nil || !bytes.Contains(page, []byte("404")) {
		t.Errorf("the page is %.80q…, %v, want one that shows the calls", page, err)
	}
	for _, file := range []string{name + ".json", name + ".short.json"} {
		var stdout, stderr bytes.Buffer
		code := prove(t.Context(), []string{"-check", file}, &stdout, &stderr)
		if code != 1 || !strings.Contains(stdout.String(), "lost") {
			t.Errorf("prove -check %s = %d, %s%s, want 1: it is lost", file, code, &stdout, &stderr)
		}
	}
}

func TestWrongAnswersAreNoted(t *testing.T) {
	t.Parallel()
	damaged := payload("1-2-3", 500)
	damaged = damaged[:100] + "#" + damaged[101:]
	for _, tt := range []struct {
		name   string
		status int
		body   string
		wrong  bool
	}{
		{"an error without detail of the gateway", 500, `{"message":"Internal Server Error"}`, false},
		{"an error of a handler", 500, `{"type":"/problems/internal","status":500}`, true},
		{"unavailable", 503, `{"type":"/problems/unavailable","status":503}`, false},
		{"a fault of the request", 422, `{"type":"/problems/validation-failed"}`, true},
		{"a key that belongs to another content", 422, `{"type":"/problems/idempotency-key-reused"}`, false},
		{"no JSON", 200, `<html>`, true},
		{"a damaged payload", 200, `{"id":"m","payload":` + quoted(t, damaged) + `}`, true},
		{"a whole payload", 200, `{"id":"m","payload":` + quoted(t, payload("1-2-3", 500)) + `}`, false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = w.Write([]byte(tt.body))
		}))
		c := newRecorder(1)
		c.do(t.Context(), &request{
			url: server.URL, method: http.MethodGet, path: "/", Operation: history.Operation{Verb: history.Get},
		})
		server.Close()
		if (len(c.wrong) > 0) != tt.wrong {
			t.Errorf("%s: %v, want it noted: %v", tt.name, c.wrong, tt.wrong)
		}
	}
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	q, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(q)
}
