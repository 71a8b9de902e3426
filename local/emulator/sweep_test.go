package emulator_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	strict "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
)

// startSweep runs the sweeper with so much time.
func (w *world) startSweep(t *testing.T, timeout time.Duration) *instance {
	t.Helper()
	r := newRecorder(t, w.engine)
	vars := w.variables(t, "sweep", r.URL)
	vars["AWS_LAMBDA_FUNCTION_TIMEOUT"] = strconv.Itoa(int(timeout.Seconds()))
	return &instance{w.start(t, "sweep", vars), r, "sweep"}
}

// sweepOnce hands the sweeper the event of the schedule, and returns the one line
// that it logs. S102 of CASES.md: once it has answered, it is stopped, as Lambda
// does, so that it can add nothing.
func (i *instance) sweepOnce(t *testing.T) (record, error) {
	t.Helper()
	before := len(i.Output())
	_, err := i.invoke(t.Context(), t, json.RawMessage(readFile(t, root+"/events/sweep.json")))
	if p, err := i.process(); err == nil { // only Linux tells which it is
		freeze(p)
		defer thaw(p)
	}
	lines := slices.DeleteFunc(i.Output()[before:], func(line string) bool {
		return err != nil && !strings.HasPrefix(line, "{") // Lambda's library has written the error too
	})
	if len(lines) != 1 {
		t.Fatalf("the sweep has written %d lines, want one:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	var line record
	if err := strict.Unmarshal([]byte(lines[0]), &line); err != nil { // no name twice
		t.Fatalf("%v: %s", err, lines[0])
	}
	return line, err
}

// sweepTime is more than any of these sweeps takes.
const sweepTime = time.Minute

func TestSweepSaysWhatItDid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	svc := w.service(time.Hour)
	put := func(queue string, stalls int) {
		set := message.DefaultSettings()
		set.MaxStalls = stalls
		if _, _, err := svc.PutQueue(t.Context(), queue, set); err != nil {
			t.Fatal(err)
		}
	}
	put("buries", 1)
	put("returns", 3)
	enqueue(t, svc, "waits", "x")
	for range 3 {
		w.claimed(t, svc, "buries")
		w.claimed(t, svc, "returns")
	}
	if _, err := svc.Fail(t.Context(), "returns", w.claimed(t, svc, "returns").ID, message.Failure{
		Permanent: true,
	}); err != nil {
		t.Fatal(err)
	}
	sweeper := w.startSweep(t, sweepTime)
	line, err := sweeper.sweepOnce(t)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"level": "INFO", "msg": "sweep", "Table": w.table, "done": true, "queues": 3., "returned": 3., "buried": 3.,
		"failed": 0., "SweepRuns": 1., "PendingMessages": 4., "DeadMessages": 4., "DeadMessagesMax": 3.,
	}
	for name, value := range want {
		if diff := cmp.Diff(value, line[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range []string{"OldestPendingSeconds", "OldestDeadSeconds"} {
		// Both are from an hour ago, by clocks that need not agree with the function's.
		if age, _ := line[name].(float64); math.Abs(age-time.Hour.Seconds()) > time.Minute.Seconds() {
			t.Errorf("%s is %v, want about an hour", name, line[name])
		}
	}
	wantMetrics(t, line)
	sweeper.check(t)
	for queue, n := range map[string]int{"buries": 0, "returns": 3, "waits": 1} {
		shown, _, err := w.service(0).ListQueues(t.Context(), queue, "", 1)
		if err != nil || len(shown) != 1 || shown[0].Counts == nil || shown[0].Counts.Depth[message.Pending] != n {
			t.Errorf("ListQueues(%s) = %+v, %v, want %d pending messages", queue, shown, err, n)
		}
	}
}

// wantMetrics checks the line against "Specification: Embedded metric format" of
// CloudWatch's documentation.
func wantMetrics(t *testing.T, line record) {
	t.Helper()
	var directive struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	}
	text, err := json.Marshal(line["_aws"])
	if err != nil {
		t.Fatal(err)
	}
	if err := strict.Unmarshal(text, &directive, strict.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("_aws: %v: %s", err, text)
	}
	if age := time.Since(time.UnixMilli(directive.Timestamp)); age < -time.Hour || age > time.Hour {
		t.Errorf("the timestamp is %v old, want milliseconds of the epoch", age)
	}
	if len(directive.CloudWatchMetrics) != 1 {
		t.Fatalf("_aws has %d directives, want 1: %s", len(directive.CloudWatchMetrics), text)
	}
	d := directive.CloudWatchMetrics[0]
	if d.Namespace != "Redrive" || !cmp.Equal(d.Dimensions, [][]string{{"Table"}}) {
		t.Errorf("namespace %q, dimensions %v, want Redrive and [[Table]]", d.Namespace, d.Dimensions)
	}
	if _, ok := line["Table"].(string); !ok {
		t.Errorf("the dimension Table is %v, want a text", line["Table"])
	}
	units := map[string]string{}
	for _, m := range d.Metrics {
		units[m.Name] = m.Unit
		if _, ok := line[m.Name].(float64); !ok {
			t.Errorf("the metric %s is %v, want a number", m.Name, line[m.Name])
		}
	}
	if diff := cmp.Diff(map[string]string{
		"SweepRuns": "Count", "PendingMessages": "Count", "DeadMessages": "Count", "DeadMessagesMax": "Count",
		"OldestPendingSeconds": "Seconds", "OldestDeadSeconds": "Seconds",
	}, units); diff != "" {
		t.Errorf("metrics and their units (-want +got):\n%s", diff)
	}
}

func TestSweepTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const queues, each = 3, 10
	svc := w.service(time.Hour)
	ids := map[string][]string{}
	for n := range queues {
		queue := fmt.Sprintf("queue-%d", n)
		for range each {
			ids[queue] = append(ids[queue], w.claimed(t, svc, queue).ID)
		}
	}
	// Neither writes before both have looked.
	var looked, done sync.WaitGroup
	sweepers := []*instance{w.startSweep(t, sweepTime), w.startSweep(t, sweepTime)}
	ended := make([]int, len(sweepers))
	looked.Add(len(sweepers))
	for n, i := range sweepers {
		var once sync.Once
		i.answer(func(c call) *reply {
			if c.Action == "dynamodb:UpdateItem" && c.key() == "m" {
				once.Do(looked.Done)
				looked.Wait()
			}
			return nil
		})
		done.Go(func() {
			line, err := i.sweepOnce(t)
			if err != nil {
				t.Errorf("sweep %d: %v", n, err)
			}
			if line["done"] != true || line.int("queues") != queues {
				t.Errorf("sweep %d: %v, want it to go through all queues", n, line)
			}
			ended[n] = line.int("returned")
		})
	}
	done.Wait()
	if sum := ended[0] + ended[1]; sum != queues*each {
		t.Errorf("the sweeps have ended %d and %d leases, want %d together", ended[0], ended[1], queues*each)
	}
	now := w.service(0)
	for queue, all := range ids {
		for _, id := range all {
			m, attempts, err := now.Get(t.Context(), queue, id)
			if err != nil || m.StallCount != 1 || m.Status != message.Pending || len(attempts) != 1 {
				t.Errorf("Get(%s, %s) = %+v, %v, %v, want one stall and one attempt", queue, id, m, attempts, err)
			}
		}
	}
}

// TestSweepGoesOn has more queues than a sweep has time for.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const queues = 250
	svc := w.service(0)
	var filling sync.WaitGroup
	for n := range queues {
		filling.Go(func() {
			if _, _, err := svc.Enqueue(t.Context(), fmt.Sprintf("queue-%03d", n), message.Draft{Payload: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	filling.Wait()
	// It takes up no queue in the last ten seconds, so that it works for one.
	sweeper := w.startSweep(t, 11*time.Second)
	pages := 0
	sweeper.answer(func(c call) *reply {
		if c.Action == "dynamodb:Query" && c.On == "table" {
			if pages++; pages == 2 {
				time.Sleep(1100 * time.Millisecond)
			}
		}
		return nil
	})
	visited, runs := 0, 0
	for done := false; !done && runs < 20; runs++ {
		line, err := sweeper.sweepOnce(t)
		if err != nil {
			t.Fatal(err)
		}
		visited += line.int("queues")
		done = line["done"] == true
		if _, has := line["PendingMessages"]; has != done {
			t.Errorf("run %d has a sum over all queues: %v, want it in the last run only", runs+1, line)
		}
		if done && line.int("PendingMessages") != queues {
			t.Errorf("the last run counts %d messages, want %d, those of all runs", line.int("PendingMessages"), queues)
		}
	}
	if visited < queues || runs < 2 { // the last run may have begun anew
		t.Errorf("%d runs have visited %d queues, want several, and %d", runs, visited, queues)
	}
}

// TestSweepFails has one message that cannot be changed: the sweep does the rest,
// and fails, so that the alarm hears of it.
func TestSweepFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	svc := w.service(time.Hour)
	for range 3 {
		w.claimed(t, svc, "emails")
	}
	stuck := w.claimed(t, svc, "emails").ID
	sweeper := w.startSweep(t, sweepTime)
	sweeper.answer(func(c call) *reply {
		if text, err := json.Marshal(c.body); err != nil || c.Action != "dynamodb:UpdateItem" || c.key() != "m" ||
			!strings.Contains(string(text), stuck) {
			return nil
		}
		return &reply{status: http.StatusBadRequest, body: `{"__type":"AccessDeniedException","message":"not this one"}`}
	})
	line, err := sweeper.sweepOnce(t)
	if err == nil || !strings.Contains(err.Error(), "not this one") {
		t.Errorf("the sweep answers with the error %v, want the reason", err)
	}
	if line["level"] != "ERROR" || !strings.Contains(line.text("error"), "not this one") ||
		line.int("returned") != 3 || line.int("failed") != 1 || line["done"] != true {
		t.Errorf("the line is %v, want 3 returned, 1 failed and the reason", line)
	}
	wantMetrics(t, line)
}

// TestSweepOfADamagedQueue has one that nothing can be done with: it does not keep the
// others from being swept.
func TestSweepOfADamagedQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	svc := w.service(time.Hour)
	w.claimed(t, svc, "broken")
	w.claimed(t, svc, "whole")
	w.breakQueue(t, "broken")
	sweeper := w.startSweep(t, sweepTime)
	line, err := sweeper.sweepOnce(t)
	if err == nil || line["level"] != "ERROR" || line.int("queues") != 2 || line.int("returned") != 1 {
		t.Errorf("the sweep answers with the error %v and writes %v, want an error, 2 queues and 1 returned", err, line)
	}
}
