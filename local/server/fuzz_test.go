package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redrivehq/redrive/shared/setup"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// FuzzConnection sends any bytes to the server, on a connection and a store of
// their own: each answer can be read, is one that the stand-in or net/http gives,
// and is no 500.
func FuzzConnection(f *testing.F) {
	const host = "Host: localhost\r\n"
	for _, text := range []string{
		"GET /queues HTTP/1.1\r\n" + host + "\r\n",
		"POST /queues/a/messages HTTP/1.1\r\n" + host + "Content-Length: 15\r\n\r\n{\"payload\":\"x\"}" +
			"POST /queues/a/claim HTTP/1.1\r\n" + host + "\r\n" +
			"GET /queues/a/messages?payload=true HTTP/1.1\r\n" + host + "\r\n",
		"POST /queues/a/messages HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n" +
			"f\r\n{\"payload\":\"x\"}\r\n0\r\n\r\n",
		"PUT /queues/a HTTP/1.1\r\n" + host + "Content-Length: 99\r\nContent-Type: application/json\r\n\r\n{}",
		// cut off
		"POST /queues/a/messages HTTP/1.1\r\n" + host + "Content-Length: 3\r\n" +
			"Content-Type: application/json\r\n\r\n\xff\xfe{", // S005
		"POST /queues/a/messages HTTP/1.1\r\n" + host + "Content-Length: 2\r\nContent-Type: multipart/form-data\r\n\r\n{}",
		// S004
		"GET /queues/%C3%BC%20@:+/messages?cursor=ab%2Bcd&limit=%zz HTTP/1.1\r\n" + host + "\r\n",
		// S010
		"POST /queues/a%2Fb/messages HTTP/1.1\r\n" + host + "\r\n",
		"POST /queues/%00%ff/claim HTTP/1.1\r\n" + host + "\r\n", // S009
		"HEAD /queues HTTP/1.0\r\n\r\n", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", "CONNECT a:1 HTTP/1.1\r\n" + host + "\r\n",
		"GET http://localhost/queues HTTP/1.1\r\n" + host + "\r\n", "GET //queues HTTP/1.1\r\n" + host + "\r\n",
		"GET /health HTTP/1.1\r\n" + host + "\r\n",
		"PATCH /queues/a/claim HTTP/1.1\r\n" + host + "Cookie: a=1; b\r\nOrigin: null\r\nSec-Fetch-Site: same-origin\r\n\r\n",
		"POST /queues/a/messages HTTP/1.1\r\n" + host +
			"Idempotency-Key: a\r\nidempotency-key: b\r\nContent-Length: 0\r\n\r\n",
		"GET /queues HTTP/1.1\r\nHost: elsewhere\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01", "",
	} {
		f.Add([]byte(text))
	}
	s := listening(f)
	f.Fuzz(func(t *testing.T, sent []byte) {
		s.reset(t)
		received := s.exchange(t, sent)
		requests, answers := bufio.NewReader(bytes.NewReader(sent)), bufio.NewReader(bytes.NewReader(received))
		for {
			if _, err := answers.Peek(1); err == io.EOF {
				break
			}
			r, err := http.ReadRequest(requests)
			if err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			wantAnswer(t, sent, answers, r)
		}
		if log := s.log.take(); strings.Contains(log, "panic") {
			t.Errorf("%q: the log says %s", sent, log)
		}
	})
}

// wantAnswer reads the answer to a request, or to what is none, and checks it.
func wantAnswer(t *testing.T, sent []byte, answers *bufio.Reader, r *http.Request) {
	t.Helper()
	resp, err := http.ReadResponse(answers, r)
	if err != nil {
		t.Fatalf("%q: an answer cannot be read: %v", sent, err)
	}
	defer resp.Body.Close() // it has been read
	if resp.StatusCode == http.StatusContinue {
		wantAnswer(t, sent, answers, r)
		return
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%q: the body of an answer cannot be read: %v", sent, err)
	}
	if resp.Header.Get(requestID) == "" { // by net/http itself
		switch resp.StatusCode {
		case http.StatusBadRequest, http.StatusExpectationFailed, http.StatusRequestHeaderFieldsTooLarge,
			http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		default:
			t.Errorf("%q: status %d of net/http: %.300q", sent, resp.StatusCode, body)
		}
		return
	}
	media := resp.Header.Get("Content-Type")
	isProblem := media == "application/problem+json"
	switch {
	case resp.StatusCode >= 500:
		t.Errorf("%q: status %d %.300q", sent, resp.StatusCode, body)
	case resp.StatusCode == http.StatusNoContent || r != nil && r.Method == http.MethodHead:
		if len(body) > 0 {
			t.Errorf("%q: status %d with the body %.300q", sent, resp.StatusCode, body)
		}
	case !json.Valid(body) || !utf8.Valid(body) || !isProblem && media != "application/json":
		t.Errorf("%q: %s %.300q is not JSON", sent, media, body)
	case isProblem && (resp.StatusCode < 400 || !bytes.HasPrefix(body, []byte(`{"type":"/problems/`))):
		t.Errorf("%q: status %d with the problem %.300q", sent, resp.StatusCode, body)
	}
}

// listener is a server whose store can be exchanged.
type listener struct {
	addr    string
	log     *logText
	gateway atomic.Pointer[gateway]
}

func listening(f *testing.F) *listener {
	f.Helper()
	l, err := listen(f.Context(), "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	s := &listener{addr: l.Addr().String(), log: new(logText)}
	store, err := sqlite.Open(sqlite.InMemory) // for /health
	if err != nil {
		f.Fatal(err)
	}
	engine := embedded(store)
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	ended := make(chan error, 1)
	cfg := Config{Addr: s.addr, Log: slog.New(slog.NewTextHandler(s.log, nil))}
	go func() {
		ended <- serve(ctx, cfg, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.gateway.Load().ServeHTTP(w, r)
		}), engine)
	}()
	f.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			f.Errorf("serve = %v", err)
		}
		if err := engine.close(); err != nil {
			f.Errorf("close = %v", err)
		}
	})
	return s
}

// reset gives the server an empty store.
func (s *listener) reset(t *testing.T) {
	t.Helper()
	store, err := sqlite.Open(sqlite.InMemory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	s.gateway.Store(newGateway(setup.NewService(store), slog.New(slog.NewTextHandler(s.log, nil))))
	s.log.take()
}

// exchange sends the bytes and returns all that comes back; nothing where the
// server has refused before it read all, which may cut its answer off.
func (s *listener) exchange(t *testing.T, sent []byte) []byte {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // all has been read, or the test has failed
	tcp := conn.(*net.TCPConn)
	_ = tcp.SetLinger(0)                                  // or the machine runs out of ports
	_ = tcp.SetDeadline(time.Now().Add(20 * time.Second)) // longer than the server waits for anything
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		_, _ = tcp.Write(sent) // fails where the server has refused already
		_ = tcp.CloseWrite()
	}()
	received, err := io.ReadAll(tcp)
	<-writing
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q: the answer does not end, after %q", sent, received)
	}
	if err != nil {
		return nil
	}
	return received
}

// logText keeps what is logged.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}
