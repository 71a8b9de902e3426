package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/redrivehq/redrive/local/emulator"
	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/message"
)

// messages is how many are sent through all functions.
const messages = 50

// measureMemory has the functions work on messages of every size, and reads how
// much memory each has taken at most.
func (b *bench) measureMemory(ctx context.Context, results map[string]*result) (err error) {
	functions := map[string]*emulator.Function{}
	defer func() {
		for _, f := range functions {
			err = errors.Join(err, f.Stop())
		}
	}()
	for _, name := range b.names {
		if functions[name], err = b.start(ctx, name); err != nil {
			delete(functions, name)
			return err
		}
	}
	c := &client{ctx, server.NewGateway(func(name string) api.Handler {
		return functions[name].Handle
	}, slog.New(slog.DiscardHandler))}
	if err := c.work(); err != nil {
		return err
	}
	if _, err := functions["sweep"].Invoke(ctx, []byte("{}")); err != nil {
		return err
	}
	for name, f := range functions {
		if results[name].peak, err = f.Peak(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// client sends requests.
type client struct {
	ctx     context.Context //nolint:containedctx // of the one run
	gateway http.Handler
}

// do sends a request and decodes its answer.
func (c *client) do(method, path string, send, answer any) error {
	var body []byte
	if send != nil {
		var err error
		if body, err = json.Marshal(send); err != nil {
			return err
		}
	}
	req := httptest.NewRequestWithContext(c.ctx, method, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	c.gateway.ServeHTTP(w, req)
	if w.Code >= http.StatusBadRequest {
		return fmt.Errorf("%s %s = %d %s", method, path, w.Code, w.Body)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(w.Body.Bytes(), answer)
}

// payload returns one of the size that can be packed to three quarters of it.
func payload(size int) string {
	b := make([]byte, size)
	_, _ = rand.Read(b) // never fails: see its documentation
	return base64.StdEncoding.EncodeToString(b)[:size]
}

// view is what is asked about of a message.
type view struct {
	ID      string `json:"id"`
	Receipt string `json:"receipt"`
}

// object is one of JSON.
type object map[string]any

const queue = "/queues/bench"

// work calls every route, most of them again and again.
func (c *client) work() error {
	sizes := []int{100, 5_000, 100_000, message.MaxPayloadBytes}
	if err := c.do(http.MethodPut, queue, object{"processing_timeout": 600, "dead_days": 1}, nil); err != nil {
		return err
	}
	for n := range messages {
		if err := c.do(http.MethodPost, queue+"/messages", object{"payload": payload(sizes[n%len(sizes)])}, nil); err != nil {
			return err
		}
	}
	if err := c.do(http.MethodGet, queue+"/messages?payload=true&limit=250", nil, nil); err != nil {
		return err
	}
	for done := 0; done < messages; {
		n, err := c.claim()
		if err != nil {
			return err
		}
		done += n
	}
	if err := c.do(http.MethodGet, "/queues", nil, nil); err != nil {
		return err
	}
	_ = c.do(http.MethodGet, "/nothing", nil, nil) // is refused, which is work too
	return nil
}

// claim claims messages and answers for them. It returns how many are done with.
func (c *client) claim() (done int, err error) {
	var claimed struct{ Messages []view }
	if err := c.do(http.MethodPost, queue+"/claim", object{"max_messages": message.MaxClaim}, &claimed); err != nil {
		return 0, err
	}
	for n, m := range claimed.Messages {
		end := []func(path, receipt string) error{c.succeed, c.bury}[n%2]
		if n == 0 && len(claimed.Messages) > 1 { // it comes again
			end = c.release
		} else {
			done++
		}
		if err := end(queue+"/messages/"+m.ID, m.Receipt); err != nil {
			return 0, err
		}
	}
	return done, nil
}

func (c *client) release(path, receipt string) error {
	return c.do(http.MethodPost, path+"/release", object{"receipt": receipt}, nil)
}

func (c *client) succeed(path, receipt string) error {
	return errors.Join(
		c.do(http.MethodPost, path+"/extend", object{"receipt": receipt, "processing_timeout": 900}, nil),
		c.do(http.MethodGet, path, nil, nil),
		c.do(http.MethodPost, path+"/succeed", object{"receipt": receipt}, nil))
}

// bury makes a message dead, replays it, and deletes it.
func (c *client) bury(path, receipt string) error {
	return errors.Join(
		c.do(http.MethodPost, path+"/fail", object{"receipt": receipt, "error": payload(2_000), "permanent": true}, nil),
		c.do(http.MethodPost, path+"/replay", nil, nil),
		c.do(http.MethodDelete, path, nil, nil))
}
