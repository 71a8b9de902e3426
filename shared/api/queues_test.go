package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
)

// queuePage is a page of queues.
type queuePage struct {
	Queues     []queueSummary `json:"queues"`
	NextCursor *string        `json:"next_cursor"`
}

type queueSummary struct {
	Queue          string         `json:"queue"`
	CreatedAt      string         `json:"created_at"`
	Depth          map[string]int `json:"depth"`
	DepthMore      []string       `json:"depth_more"`
	OldestPending  *string        `json:"oldest_pending_at"`
	OldestDead     *string        `json:"oldest_dead_at"`
	CountedAt      *string        `json:"counted_at"`
	EndpointStatus *string        `json:"endpoint_status"`
}

func TestPutQueueRefusesSettings(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.do(t, "PUT", "/queues/emails", `{"shards":4,"max_retries":7}`).refusedNot(t)
	const (
		delays = "must be between 0.1 and 604800 seconds."
		finer  = "must have at most 3 decimals: it counts to the millisecond."
		retry  = "must be between 1 and 10."
	)
	rows := []invalid{
		{
			"everything is wrong",
			`{"max_retries":"3","processing_timeout":0,"max_stalls":101,"require_receipt":"no","shards":65,
			"backoff":{"initial_seconds":0,"factor":11,"max_seconds":true,"jitter":"some","base":2},
			"succeeded_days":0,"dead_days":0,"endpoint":"https://example.com","name":"emails"}`,
			[]string{
				"max_retries invalid max_retries must be a whole number.",
				"require_receipt invalid require_receipt must be true or false.",
				"backoff.max_seconds invalid backoff.max_seconds must be a number of seconds.",
				"backoff.base unknown backoff.base is not known.",
				"endpoint invalid endpoint must be null: this version does not push yet.",
				"processing_timeout invalid processing_timeout must be between 1 and 43200 seconds.",
				"max_stalls invalid max_stalls must be between 1 and 100.",
				"shards invalid shards must be between 1 and 64.",
				"backoff.initial_seconds invalid backoff.initial_seconds must be between 0.1 and 604800 seconds.",
				"backoff.factor invalid backoff.factor must be between 1 and 10.",
				"backoff.jitter invalid backoff.jitter must be none, equal or full.",
				"succeeded_days invalid succeeded_days must be between 0.001 and 365.",
				"dead_days invalid dead_days must be between 0.01 and 3650.",
				"name unknown name is not known.",
			},
		},
		{"max_retries is 11", `{"max_retries":11}`, invalidIn("max_retries", retry)},
		{"fewer shards than now", `{"shards":3}`, invalidIn("shards", "only ever grows; this queue has 4.")},
		{"shards is 65", `{"shards":65}`, invalidIn("shards", "must be between 1 and 64.")},
		{"max_stalls is 101", `{"max_stalls":101}`, invalidIn("max_stalls", "must be between 1 and 100.")},
		{"require_receipt is null", `{"require_receipt":null}`, invalidIn("require_receipt", "must be true or false.")},
		{"require_receipt is 1", `{"require_receipt":1}`, invalidIn("require_receipt", "must be true or false.")},
		{"backoff is null", `{"backoff":null}`, invalidIn("backoff", "must be an object.")},
		{"backoff is an array", `{"backoff":[1]}`, invalidIn("backoff", "must be an object.")},
		{"backoff is a number", `{"backoff":2}`, invalidIn("backoff", "must be an object.")},
		{"jitter is null", `{"backoff":{"jitter":null}}`, invalidIn("backoff.jitter", "must be a string.")},
		{"jitter is capitalised", `{"backoff":{"jitter":"Full"}}`, invalidIn("backoff.jitter",
			"must be none, equal or full.")},
		{"jitter is empty", `{"backoff":{"jitter":""}}`, invalidIn("backoff.jitter", "must be none, equal or full.")},
		{
			"backoff names are capitalised", `{"backoff":{"Factor":2}}`,
			[]string{"backoff.Factor unknown backoff.Factor is not known."},
		},
		{"the factor is below 1", `{"backoff":{"factor":0.999}}`, invalidIn("backoff.factor", retry)},
		{"the factor is above 10", `{"backoff":{"factor":10.0001}}`, invalidIn("backoff.factor", retry)},
		{"the factor is negative", `{"backoff":{"factor":-2}}`, invalidIn("backoff.factor", retry)},
		{"the factor is too large for a float", `{"backoff":{"factor":1e400}}`, invalidIn("backoff.factor", retry)},
		{"the factor is smaller than any float", `{"backoff":{"factor":1e-400}}`, invalidIn("backoff.factor", retry)},
		{"the factor is a word", `{"backoff":{"factor":"2"}}`, invalidIn("backoff.factor", "must be a number.")},
		{"the factor is null", `{"backoff":{"factor":null}}`, invalidIn("backoff.factor", "must be a number.")},
		{
			"a schedule beside the other form",
			`{"backoff":{"schedule_seconds":[1],"initial_seconds":2,"factor":2,"max_seconds":3}}`,
			[]string{
				"backoff.initial_seconds unknown backoff.initial_seconds is not known.",
				"backoff.factor unknown backoff.factor is not known.",
				"backoff.max_seconds unknown backoff.max_seconds is not known.",
			},
		},
		{
			"the schedule is null", `{"backoff":{"schedule_seconds":null}}`,
			invalidIn("backoff.schedule_seconds", "must be an array of seconds."),
		},
		{
			"the schedule is a number", `{"backoff":{"schedule_seconds":5}}`,
			invalidIn("backoff.schedule_seconds", "must be an array of seconds."),
		},
		{
			"the schedule is an object", `{"backoff":{"schedule_seconds":{}}}`,
			invalidIn("backoff.schedule_seconds", "must be an array of seconds."),
		},
		{
			"the schedule is empty", `{"backoff":{"schedule_seconds":[]}}`,
			invalidIn("backoff.schedule_seconds", "must have between 1 and 20 entries."),
		},
		{
			"the schedule has 21 entries", `{"backoff":{"schedule_seconds":[1` + strings.Repeat(",1", 20) + `]}}`,
			invalidIn("backoff.schedule_seconds", "must have between 1 and 20 entries."),
		},
		{
			"entries of the schedule are wrong",
			`{"backoff":{"schedule_seconds":[1,"2",0,null,0.0015,604800.001,[3],0.0999,-1,1e400]}}`,
			[]string{
				"backoff.schedule_seconds[1] invalid backoff.schedule_seconds[1] must be a number of seconds.",
				"backoff.schedule_seconds[3] invalid backoff.schedule_seconds[3] must be a number of seconds.",
				"backoff.schedule_seconds[4] invalid backoff.schedule_seconds[4] " + finer,
				"backoff.schedule_seconds[6] invalid backoff.schedule_seconds[6] must be a number of seconds.",
				"backoff.schedule_seconds[7] invalid backoff.schedule_seconds[7] " + finer,
				"backoff.schedule_seconds[2] invalid backoff.schedule_seconds[2] " + delays,
				"backoff.schedule_seconds[5] invalid backoff.schedule_seconds[5] " + delays,
				"backoff.schedule_seconds[8] invalid backoff.schedule_seconds[8] " + delays,
				"backoff.schedule_seconds[9] invalid backoff.schedule_seconds[9] " + delays,
			},
		},
		{"succeeded_days is null", `{"succeeded_days":null}`, invalidIn("succeeded_days", "must be a number.")},
		{"succeeded_days is a word", `{"succeeded_days":"7"}`, invalidIn("succeeded_days", "must be a number.")},
		{"dead_days is a word", `{"dead_days":"never"}`, invalidIn("dead_days", "must be a number.")},
		{"the endpoint is an object", `{"endpoint":{"url":"https://example.com"}}`, invalidIn("endpoint",
			"must be null: this version does not push yet.")},
		{"the endpoint is false", `{"endpoint":false}`, invalidIn("endpoint",
			"must be null: this version does not push yet.")},
	}
	for _, days := range []string{"0", "-0", "0.00099", "365.0001", "-1", "1e400", "-1e400", "1e-400"} {
		rows = append(rows, invalid{
			"succeeded_days is " + days, `{"succeeded_days":` + days + `}`,
			invalidIn("succeeded_days", "must be between 0.001 and 365."),
		})
	}
	for _, days := range []string{"0", "0.0099", "3650.01", "-1", "1e400"} {
		rows = append(rows, invalid{
			"dead_days is " + days, `{"dead_days":` + days + `}`,
			invalidIn("dead_days", "must be between 0.01 and 3650."),
		})
	}
	rows = append(rows, integerRows(`{"max_retries":VALUE}`, "max_retries", retry)...)
	rows = append(rows, integerRows(`{"max_stalls":VALUE}`, "max_stalls", "must be between 1 and 100.")...)
	rows = append(rows, integerRows(`{"shards":VALUE}`, "shards", "must be between 1 and 64.")...)
	rows = append(rows, integerRows(`{"processing_timeout":VALUE}`, "processing_timeout",
		"must be between 1 and 43200 seconds.")...)
	rows = append(rows, secondsRows(`{"backoff":{"initial_seconds":VALUE}}`, "backoff.initial_seconds",
		delays, "0", "0.099", "604800.001")...)
	rows = append(rows, secondsRows(`{"backoff":{"max_seconds":VALUE}}`, "backoff.max_seconds",
		delays, "0", "0.099", "604801")...)
	f.refuseValues(t, "PUT", "/queues/emails", rows)
}

func TestWhatGetShowsCanBePutBackUnchanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	schedule := make([]string, 20)
	for i := range schedule {
		schedule[i] = fmt.Sprintf("%d.%03d", i*31_000+1, i*47+1)
	}
	for i, settings := range []string{
		`{}`,
		`{"max_retries":1,"processing_timeout":1,"max_stalls":1,"shards":1,"dead_days":null,"endpoint":null}`,
		`{"max_retries":10,"processing_timeout":43200,"max_stalls":100,"shards":64,"succeeded_days":365,"dead_days":3650}`,
		`{"require_receipt":true}`,
		`{"backoff":{}}`,
		`{"backoff":{"jitter":"full"}}`,
		`{"backoff":{"initial_seconds":0.1,"factor":1.5,"max_seconds":0.1},"succeeded_days":0.001,"dead_days":0.01}`,
		`{"backoff":{"initial_seconds":604800,"factor":10,"max_seconds":604800.000}}`,
		`{"backoff":{"initial_seconds":1.118,"factor":1.1,"max_seconds":1234.567},"succeeded_days":0.3,"dead_days":0.7}`,
		`{"backoff":{"initial_seconds":8.001,"factor":2.718281828459045,"max_seconds":604799.999}}`,
		`{"backoff":{"schedule_seconds":[0.1]}}`,
		`{"backoff":{"schedule_seconds":[5,300.0,3e1,0.29,1.118,1.122,1.128,604799.999],"jitter":"equal"}}`,
		`{"backoff":{"schedule_seconds":[` + strings.Join(schedule, ",") + `]}}`,
	} {
		step(t, settings, func(t *testing.T) {
			path := fmt.Sprintf("/queues/q%d", i)
			first := f.do(t, "PUT", path, settings)
			if first.status != 201 {
				t.Fatalf("PUT = %d %s, want 201", first.status, first.body)
			}
			shown := f.do(t, "GET", path, "")
			if diff := cmp.Diff(first.body, shown.body); diff != "" {
				t.Errorf("GET differs from the answer to PUT (-PUT +GET):\n%s", diff)
			}
			// What was given must be shown, as numbers.
			var given, got map[string]any
			if err := json.Unmarshal([]byte(settings), &given); err != nil {
				t.Fatal(err)
			}
			if shown.into(t, 200, &got); !contains(got, given) {
				t.Errorf("GET shows %s, which is not what was given", shown.body)
			}
			again := f.do(t, "PUT", path, shown.body)
			if again.status != 200 {
				t.Fatalf("PUT of what GET shows = %d %s, want 200", again.status, again.body)
			}
			if diff := cmp.Diff(shown.body, again.body); diff != "" {
				t.Errorf("the queue has changed (-GET +PUT):\n%s", diff)
			}
		})
	}
}

// contains reports whether all that is in part is in whole.
func contains(whole, part any) bool {
	members, ok := part.(map[string]any)
	if !ok {
		return cmp.Equal(whole, part)
	}
	in, ok := whole.(map[string]any)
	if !ok {
		return false
	}
	for name, value := range members {
		if shown, has := in[name]; !has || !contains(shown, value) {
			return false
		}
	}
	return true
}

func TestPutQueueReplacesSettings(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	defaults := `{"queue":"emails","max_retries":3,"processing_timeout":30,"max_stalls":3,` +
		`"require_receipt":false,"shards":8,` +
		`"backoff":{"initial_seconds":2,"factor":2,"max_seconds":3600,"jitter":"none"},"succeeded_days":7,"dead_days":null,` +
		`"endpoint":null,"created_at":"` + at(0) + `","depth":{"pending":0,"processing":0,"succeeded":0,"dead":0},` +
		`"depth_more":[],"oldest_pending_at":null,"oldest_dead_at":null,"counted_at":"` + at(time.Minute) + `"}`
	f.do(t, "PUT", "/queues/emails",
		`{"shards":8,"max_retries":9,"dead_days":1,"backoff":{"schedule_seconds":[1]}}`).refusedNot(t)
	f.clock.at(time.Minute)
	a := f.do(t, "PUT", "/queues/emails", `{}`)
	if diff := cmp.Diff(indented(t, defaults), indented(t, a.body)); a.status != 200 || diff != "" {
		t.Errorf("PUT of nothing = %d, all but shards must be the default (-want +got):\n%s", a.status, diff)
	}
}

func indented(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", " "); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestQueueThatIsNotThereIsNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, method := range []string{"GET", "DELETE"} {
		doc := f.do(t, method, "/queues/emails", "").refused(t, 404, "not-found")
		if want := "There is no such queue."; doc.Detail != want {
			t.Errorf("detail = %q, want %q", doc.Detail, want)
		}
	}
	f.unchanged(t, map[string]any{})
}

func TestQueueCanBeDeletedWhenItIsEmpty(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.do(t, "PUT", "/queues/emails", `{"shards":2}`).refusedNot(t)
	for name, make := range map[string]func(testing.TB) msg{
		"pending": f.pending, "processing": f.processing, "succeeded": f.succeeded, "dead": f.dead,
	} {
		m := make(t)
		before := f.stored(t)
		f.do(t, "DELETE", "/queues/emails", "").refused(t, 409, "queue-conflict")
		f.unchanged(t, before)
		if name == "processing" {
			f.answerWith(t, m, "release")
		}
		if a := f.do(t, "DELETE", m.path(), ""); a.status != 204 {
			t.Fatalf("DELETE of a %s message = %d", name, a.status)
		}
	}
	if a := f.do(t, "DELETE", "/queues/emails", ""); a.status != 204 {
		t.Fatalf("DELETE = %d %s, want 204", a.status, a.body)
	}
	f.unchanged(t, map[string]any{})
	for _, method := range []string{"GET", "DELETE"} {
		f.do(t, method, "/queues/emails", "").refused(t, 404, "not-found")
	}
	if got := f.list(t, emailsMessages); len(got) > 0 {
		t.Errorf("list of the deleted queue = %v", got)
	}
	a := f.do(t, "PUT", "/queues/emails", `{}`)
	if a.status != 201 || !strings.Contains(a.body, `"shards":2,`) {
		t.Errorf("PUT of the deleted queue = %d %s, want 201 and its shards", a.status, a.body)
	}
}

func TestListQueuesRefusesParameters(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, query := range []string{
		"?x=1", "?status=dead", "?order=asc", "?prefix=a&prefix=b", "?Prefix=a", "?prefix=%zz",
		"?cursor=", "?cursor=abc",
	} {
		f.do(t, "GET", "/queues"+query, "").refused(t, 400, "bad-request")
	}
	for _, limit := range badLimits {
		doc := f.do(t, "GET", "/queues"+query("limit", limit), "").refused(t, 400, "bad-request")
		if want := "limit must be a whole number between 1 and 250."; doc.Detail != want {
			t.Errorf("detail = %q, want %q", doc.Detail, want)
		}
	}
}

func TestListQueuesPagesByName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var names []string
	for i := range 101 {
		names = append(names, fmt.Sprintf("q%03d", i))
	}
	names = append(names, "Q", "q", "q00", "é", "中文", "😀", `a"b`, "a b", strings.Repeat("中", 42))
	for _, name := range names {
		f.do(t, "PUT", "/queues/"+name, `{}`).refusedNot(t)
	}
	slices.Sort(names) // by bytes
	walk := func(params ...string) (all []string) {
		ask := "/queues" + query(params...)
		for {
			var page queuePage
			f.do(t, "GET", ask, "").into(t, 200, &page)
			for _, q := range page.Queues {
				all = append(all, q.Queue)
			}
			if page.NextCursor == nil || len(page.Queues) == 0 {
				return all
			}
			ask = "/queues" + query(append(slices.Clone(params), "cursor", *page.NextCursor)...)
		}
	}
	var q []string
	for _, name := range names {
		if strings.HasPrefix(name, "q00") {
			q = append(q, name)
		}
	}
	for _, limit := range []string{"1", "2", "7", "110", "250"} {
		if diff := cmp.Diff(names, walk("limit", limit)); diff != "" {
			t.Errorf("limit %s (-want +got):\n%s", limit, diff)
		}
		if diff := cmp.Diff(q, walk("limit", limit, "prefix", "q00")); diff != "" {
			t.Errorf("limit %s with prefix q00 (-want +got):\n%s", limit, diff)
		}
	}
	var page queuePage
	if f.do(t, "GET", "/queues", "").into(t, 200, &page); len(page.Queues) != 100 || page.NextCursor == nil {
		t.Errorf("a page has %d queues, want 100 and a cursor", len(page.Queues))
	}
	want := queueSummary{Queue: "Q", CreatedAt: at(0)}
	if diff := cmp.Diff(want, page.Queues[0]); diff != "" {
		t.Errorf("a queue not counted yet (-want +got):\n%s", diff)
	}
}

func TestQueueShowsWhatItHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	roundOf(t, f)
	f.clock.at(5 * time.Second)
	if _, err := f.Sweep(t.Context(), message.SweepOptions{Count: true}); err != nil {
		t.Fatal(err)
	}
	want := queueSummary{
		Queue: "emails", CreatedAt: at(0), Depth: map[string]int{"pending": 4, "processing": 3, "succeeded": 3, "dead": 3},
		DepthMore: []string{}, OldestPending: new(at(4 * time.Second)), OldestDead: new(at(time.Millisecond)),
		CountedAt: new(at(5 * time.Second)),
	}
	var page queuePage
	f.do(t, "GET", "/queues", "").into(t, 200, &page)
	if diff := cmp.Diff([]queueSummary{want}, page.Queues); diff != "" {
		t.Errorf("GET /queues (-want +got):\n%s", diff)
	}
	var got queueSummary
	if err := json.Unmarshal([]byte(f.do(t, "GET", "/queues/emails", "").body), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GET /queues/emails (-want +got):\n%s", diff)
	}
}
