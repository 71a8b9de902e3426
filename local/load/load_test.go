package load_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrivehq/redrive/local/load"
	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/setup"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// gateway is Redrive on a store in memory, without the sweeper.
func gateway(t *testing.T) http.Handler {
	t.Helper()
	store, err := sqlite.Open(sqlite.InMemory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log := slog.New(slog.DiscardHandler)
	return server.NewGateway((&api.API{Service: setup.NewService(store), Log: log}).Function, log)
}

func serve(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return srv.URL
}

// configure sets the queue that the tests use.
func configure(t *testing.T, url, settings string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/queues/bench", strings.NewReader(settings))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("PUT %s = %s %s", settings, resp.Status, text)
	}
}

// stored counts the messages that the server holds, by status.
func stored(t *testing.T, url string) map[string]int64 {
	t.Helper()
	counts := make(map[string]int64)
	for cursor := ""; ; {
		resp, err := http.Get(url + "/queues/bench/messages?limit=250" + cursor)
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Messages []struct{ Status string }
			Next     *string `json:"next_cursor"`
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			counts[m.Status]++
		}
		if page.Next == nil {
			return counts
		}
		cursor = "&cursor=" + *page.Next
	}
}

func options(url string) load.Options {
	return load.Options{
		URL: url, Queue: "bench", Clients: 4, Payload: 100, Window: 50 * time.Millisecond,
		Duration: 300 * time.Millisecond, Drain: time.Minute,
	}
}

func run(t *testing.T, o load.Options) *load.Report {
	t.Helper()
	report, err := load.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// checkSums compares what the report says of messages with what the server holds.
func checkSums(t *testing.T, r *load.Report, stored map[string]int64) {
	t.Helper()
	if r.Enqueued == 0 || r.Enqueued != r.Succeeded+r.Dead+r.Left {
		t.Errorf("%d enqueued, want the sum of %d succeeded, %d dead, %d left", r.Enqueued, r.Succeeded, r.Dead, r.Left)
	}
	if r.Succeeded != stored["succeeded"] || r.Dead != stored["dead"] ||
		r.Left != stored["pending"]+stored["processing"] {
		t.Errorf("%d succeeded, %d dead, %d left; the server holds %v", r.Succeeded, r.Dead, r.Left, stored)
	}
	var rounds int64
	for _, w := range r.Windows {
		rounds += w.Count
	}
	if rounds != r.Tallies[load.Round].Count {
		t.Errorf("%d rounds are in the windows, want all %d", rounds, r.Tallies[load.Round].Count)
	}
}

func TestCountsAreExact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, settings string
		rate, fail     float64
		want           func(r *load.Report) bool
	}{
		{"closed loop", `{}`, 0, 0, func(r *load.Report) bool {
			return r.Left == 0 && r.Dead == 0 && r.Drained == 0 && r.Tallies[load.Round].Count == r.Succeeded
		}},
		{"open loop", `{}`, 300, 0, func(r *load.Report) bool { return r.Left == 0 && r.Dead == 0 }},
		{
			"some fail and come back", `{"backoff":{"initial_seconds":0.1,"max_seconds":0.1},"max_retries":10}`, 0, 50,
			func(r *load.Report) bool {
				return r.Left == 0 && r.Drained > 0 && r.Tallies[load.Fail].Count > 0
			},
		},
		{"all fail and die", `{"max_retries":1}`, 0, 100, func(r *load.Report) bool {
			return r.Left == 0 && r.Succeeded == 0 && r.Dead == r.Tallies[load.Fail].Count && r.Empty > 0
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := serve(t, gateway(t))
			configure(t, url, tt.settings)
			o := options(url)
			o.Rate, o.FailPercent = tt.rate, tt.fail
			r := run(t, o)
			checkSums(t, r, stored(t, url))
			if !tt.want(r) {
				t.Errorf("the report is not as it should be: %+v", r)
			}
			for verb, tally := range r.Tallies {
				if len(tally.Errors) > 0 {
					t.Errorf("%v met errors: %v", load.Verb(verb), tally.Errors)
				}
			}
		})
	}
}

func TestWaitingMessagesStay(t *testing.T) {
	t.Parallel()
	url := serve(t, gateway(t))
	o := options(url)
	o.Waiting = 50
	r, holds := run(t, o), stored(t, url)
	if r.Left != 0 || r.Enqueued != r.Succeeded || holds["pending"] != 50 || holds["succeeded"] != r.Succeeded {
		t.Errorf("%d enqueued, %d succeeded, %d left; the server holds %v, want 50 pending",
			r.Enqueued, r.Succeeded, r.Left, holds)
	}
}

// verbOf names what a request asks for.
func verbOf(r *http.Request) load.Verb {
	for verb, end := range map[load.Verb]string{
		load.Enqueue: "/messages", load.Claim: "/claim", load.Succeed: "/succeed", load.Fail: "/fail",
	} {
		if strings.HasSuffix(r.URL.Path, end) {
			return verb
		}
	}
	return -1
}

// TestRefusalsAreCounted has a server refuse each third request of a verb, in two ways.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		status int
		refuse func(http.ResponseWriter)
	}{
		{"unavailable", http.StatusServiceUnavailable, func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}},
		{"cut off", load.NoAnswer, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var asked, refused [load.Round]atomic.Int64
			redrive := gateway(t)
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if verb := verbOf(r); r.Method == http.MethodPost && asked[verb].Add(1)%3 == 0 {
					refused[verb].Add(1)
					tt.refuse(w)
					return
				}
				redrive.ServeHTTP(w, r)
			}))
			o := options(url)
			o.FailPercent, o.Drain, o.Duration = 20, 0, time.Second
			r := run(t, o)
			checkSums(t, r, stored(t, url))
			for verb := range refused {
				if got, want := r.Tallies[verb].Errors[tt.status], refused[verb].Load(); got != want {
					t.Errorf("%v: %d refusals counted, want %d", load.Verb(verb), got, want)
				}
			}
			if r.Tallies[load.Succeed].Errors[tt.status] == 0 || r.Left == 0 {
				t.Errorf("%v, %d left, want some of both", r.Tallies[load.Succeed].Errors, r.Left)
			}
		})
	}
}

// puppet answers as Redrive would, after hold returns.
func puppet(t *testing.T, hold func(load.Verb)) (url string) {
	t.Helper()
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold(verbOf(r))
		io.WriteString(w, `{"id":"msg_1","status":"processing","receipt":"r"}`)
	}))
}

// TestStallIsCharged has the server stall once. Only the one client waits for
// that, but all messages that came meanwhile did.
func TestStallIsCharged(t *testing.T) {
	t.Parallel()
	const stall = 500 * time.Millisecond
	var once sync.Once
	o := options(puppet(t, func(load.Verb) { once.Do(func() { time.Sleep(stall) }) }))
	o.Clients, o.Rate, o.Duration = 1, 500, 2*stall
	r := run(t, o)
	for _, verb := range []load.Verb{load.Enqueue, load.Round} {
		if got := r.Tallies[verb].P99; got < stall/2 {
			t.Errorf("p99 of %v is %v of %d, want the stall of %v in it", verb, got, r.Tallies[verb].Count, stall)
		}
	}
}

// TestNotStarted has the server answer nothing until no more messages come.
func TestNotStarted(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	o := options(puppet(t, func(load.Verb) { <-over }))
	o.Clients, o.Rate = 2, 500
	var once sync.Once
	o.Each = func(w load.Window) {
		if w.End > 2*o.Duration {
			once.Do(func() { close(over) })
		}
	}
	r := run(t, o)
	if r.Enqueued != 2 || r.Succeeded != 2 || r.NotStarted == 0 {
		t.Errorf("%d enqueued, %d succeeded, %d not started, want 2, 2 and many", r.Enqueued, r.Succeeded, r.NotStarted)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(o *load.Options)
		want   string
	}{
		{"other machine", func(o *load.Options) { o.URL = "http://203.0.113.1:3000" }, "203.0.113.1 is not this machine"},
		{
			"name that begins as this one", func(o *load.Options) { o.URL = "http://127.0.0.1.example.com" },
			"127.0.0.1.example.com is not this machine",
		},
		{"name in the user", func(o *load.Options) { o.URL = "http://localhost@example.com" }, "example.com is not"},
		{"all interfaces", func(o *load.Options) { o.URL = "http://0.0.0.0:3000" }, "0.0.0.0 is not this machine"},
		{"no URL", func(o *load.Options) { o.URL = "" }, "no URL of a server"},
		{"no scheme", func(o *load.Options) { o.URL = "127.0.0.1" }, "no URL of a server"},
		{"no client", func(o *load.Options) { o.Clients = 0 }, "1 to 4096 clients"},
		{"rate", func(o *load.Options) { o.Rate = -1 }, "0 to 100000 messages"},
		{"percent", func(o *load.Options) { o.FailPercent = 101 }, "0 to 100 percent"},
		{"payload", func(o *load.Options) { o.Payload = 262_145 }, "0 to 262144 bytes"},
		{"waiting", func(o *load.Options) { o.Waiting = -1 }, "cannot wait"},
		{"for ever", func(o *load.Options) { o.Duration = 3 * time.Hour }, "up to 2h0m0s"},
		{"queue", func(o *load.Options) { o.Queue = "" }, "needs a name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options("http://127.0.0.1:1")
			tt.change(&o)
			if _, err := load.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run = %v, want an error with %q", err, tt.want)
			}
		})
	}
	// Port 1 refuses, which is counted; so the address was not.
	for _, url := range []string{"http://localhost:1", "http://LOCALHOST:1/", "http://[::1]:1", "http://127.1.2.3:1"} {
		o := options(url)
		o.Duration = 100 * time.Millisecond
		if r := run(t, o); r.Tallies[load.Enqueue].Errors[load.NoAnswer] == 0 || r.Enqueued != 0 {
			t.Errorf("%s: %+v, want that nobody answers", url, r)
		}
	}
}

// start runs the whole server, with a token.
func start(t *testing.T, token string) (url string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- server.Run(ctx, server.Config{
			Addr: "127.0.0.1:0", Data: sqlite.InMemory, Log: slog.New(slog.DiscardHandler), Token: token,
			Ready: func(url string) { ready <- url },
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case url := <-ready:
		return url
	case err := <-ended:
		ended <- err
		t.Fatal(err)
		return ""
	}
}

func TestMainCommand(t *testing.T) {
	t.Parallel()
	url, svg := start(t, "secret"), filepath.Join(t.TempDir(), "latency.svg")
	for _, tt := range []struct {
		name, args, token string
		code              int
		stdout, stderr    string // words of it
	}{
		{"measures", "-duration 1200ms -url " + url + " -svg " + svg, "secret", 0, "claims found no message", "…   1 s: "},
		{"wrong token", "-duration 200ms -url " + url, "other", 0, "401: ", ""},
		{"other machine", "-url http://example.com", "", 1, "", "-allow-remote"},
		{"no such folder", "-duration 300ms -url " + url + " -svg " + svg + "/x", "secret", 1, "enqueue", "bench: open "},
		{"unknown flag", "-fast", "", 2, "", "-fast"},
		{"argument", "now", "", 2, "", `unknown argument "now"`},
		{"help", "-help", "", 0, "", "for others it is an attack"},
	} {
		var stdout, stderr bytes.Buffer
		getenv := func(name string) string { return map[string]string{"REDRIVE_TOKEN": tt.token}[name] }
		code := load.Main(t.Context(), strings.Fields(tt.args), getenv, &stdout, &stderr)
		if code != tt.code || !strings.Contains(stdout.String(), tt.stdout) ||
			!strings.Contains(stderr.String(), tt.stderr) {
			t.Errorf("%s: exit code %d, %q, %q, want %d, %q, %q",
				tt.name, code, stdout.String(), stderr.String(), tt.code, tt.stdout, tt.stderr)
		}
	}
	if text, err := os.ReadFile(svg); err != nil || !bytes.Contains(text, []byte(">p99</text>")) {
		t.Errorf("the picture is %q, %v, want p99 in it", text, err)
	}
}
