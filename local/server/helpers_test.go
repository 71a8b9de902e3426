package server_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// start runs a server for the length of the test and returns its URL. What the
// configuration leaves out is a free port, memory, and no log.
func start(t *testing.T, cfg server.Config) string {
	t.Helper()
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.Data == "" {
		cfg.Data = sqlite.InMemory
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	ready := make(chan string, 1)
	cfg.Ready = func(url string) { ready <- url }
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, cfg) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run after the end of its context = %v, want nil", err)
		}
	})
	select {
	case url := <-ready:
		return url
	case err := <-ended:
		ended <- err
		t.Fatalf("Run = %v before it was ready", err)
		return ""
	}
}

// response is an answer whose body has been read.
type response struct {
	Status     string
	StatusCode int
	Header     http.Header
}

// request sends one request, with headers "Name: value", and returns the answer
// and its body.
func request(t *testing.T, method, url, body string, headers ...string) (response, string) {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it has been read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{resp.Status, resp.StatusCode, resp.Header}, string(text)
}

// output is a writer that may be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
