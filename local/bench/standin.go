package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/setup"
)

// Stand-ins answer every request of a round in the same way, each with one layer
// of the server more. What they differ by is what the layer costs.

// canned is what they answer: about as much as the server does.
const canned = `{"id":"msg_01J00000000000000000000000","receipt":"AAAAAAAAAAAAAAAA","payload":"` + payload +
	`","and":"` + text50 + text50 + text50 + text50 + text50 + text50 + text50 + text50 + `"}`

// socketOnly reads a request and writes an answer, without looking at either: the
// cost is that of the client, and of the kernel for both ends.
func socketOnly(ctx context.Context, do func(address string) error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // nothing depends on it
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerAlways(conn)
		}
	}()
	return do(listener.Addr().String())
}

func answerAlways(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // nothing depends on it
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		len(canned), canned)
	for in := bufio.NewReader(conn); skipRequest(in) == nil; {
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// skipRequest reads to the end of a request.
func skipRequest(in *bufio.Reader) error {
	length := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
		if len(line) == len("\r\n") {
			_, err := in.Discard(length)
			return err
		}
	}
}

// bare is a handler that does nothing but read and answer.
func bare() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			_, _ = io.WriteString(w, canned)
		}
	})
}

// emptyGateway is the server's stand-in for API Gateway before functions that do
// nothing.
func emptyGateway(log *slog.Logger) http.Handler {
	return server.NewGateway(func(string) api.Handler {
		return func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			return events.APIGatewayV2HTTPResponse{
				StatusCode: http.StatusOK, Headers: map[string]string{"content-type": "application/json"}, Body: canned,
			}, nil
		}
	}, log)
}

// emptyStore is a store that does nothing and answers always the same.
type emptyStore struct{ setup.Store }

func (emptyStore) message() message.Message {
	now := time.Now()
	return message.Message{
		ID: "msg_01J00000000000000000000000", Queue: "bench", Status: message.Processing, Due: now, Payload: payload,
		PayloadBytes: len(payload), MaxRetries: 3, MaxStalls: 3, ClaimCount: 1, Receipt: "AAAAAAAAAAAAAAAA",
		ClaimedAt: now, CreatedAt: now, UpdatedAt: now,
	}
}

func (emptyStore) Enqueue(_ context.Context, m message.Message) (message.Message, bool, error) {
	return m, true, nil
}

func (s emptyStore) Claim(context.Context, string, int, func() message.Claim) ([]message.Message, error) {
	return []message.Message{s.message()}, nil
}

func (s emptyStore) Apply(context.Context, string, string, message.Transition) (message.Message, error) {
	return s.message(), nil
}

func (emptyStore) Queue(_ context.Context, name string) (message.Queue, error) {
	return message.Queue{Name: name, Settings: message.DefaultSettings()}, nil
}

// handlers are all layers but the store.
func handlers(log *slog.Logger) http.Handler {
	a := &api.API{Service: setup.NewService(emptyStore{}), Log: log}
	return server.NewGateway(a.Function, log)
}

// serveHTTP serves the handler as Redrive's server does while do runs.
func serveHTTP(ctx context.Context, handler http.Handler, do func(address string) error) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler: handler, ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	}
	go srv.Serve(listener) //nolint:errcheck // it ends with Close
	defer srv.Close()      //nolint:errcheck // as above
	return do(listener.Addr().String())
}

// serveRedrive runs the server itself while do runs.
func serveRedrive(ctx context.Context, cfg server.Config, do func(address string) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ready, ended := make(chan string, 1), make(chan error, 1)
	cfg.Addr, cfg.Ready = "127.0.0.1:0", func(url string) { ready <- url }
	go func() { ended <- server.Run(ctx, cfg) }()
	select {
	case err := <-ended:
		return err
	case url := <-ready:
		err := do(strings.TrimPrefix(url, "http://"))
		stop()
		if err != nil {
			return err
		}
		return <-ended
	}
}
