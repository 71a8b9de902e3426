package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/setup"
	"github.com/redrivehq/redrive/shared/sqlite"
)

const (
	text50      = "An order was placed, paid for, packed and shipped."
	payload     = text50 + text50 + text50 + text50 + text50 + text50 + text50 + text50 + text50 + text50 // 500 bytes
	enqueueBody = `{"payload":"` + payload + `"}`
)

// load has so many clients do the total between them, and returns the rate in
// operations a second.
func load(clients, total int, do func(i int) error) (float64, error) {
	var (
		next   atomic.Int64
		all    sync.WaitGroup
		errs   = make([]error, clients)
		began  = time.Now()
		number = int64(total)
	)
	for c := range clients {
		all.Go(func() {
			for i := next.Add(1); i <= number && errs[c] == nil; i = next.Add(1) {
				errs[c] = do(int(i - 1))
			}
		})
	}
	all.Wait()
	return float64(total) / time.Since(began).Seconds(), errors.Join(errs...)
}

// client posts to one server and keeps its connections.
type client struct {
	http *http.Client
	base string
}

func newClient(base string) *client {
	return &client{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, base: base}
}

func (c *client) post(ctx context.Context, path, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices || resp.StatusCode == http.StatusNoContent {
		return nil, fmt.Errorf("%s: %s: %s", path, resp.Status, answer)
	}
	return answer, nil
}

// field reads a string member without escapes. Decoding the whole answer would
// measure the client.
func field(answer []byte, name string) string {
	_, rest, _ := bytes.Cut(answer, []byte(`"`+name+`":"`))
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(value)
}

const queue = "/queues/bench/"

func throughHTTP(ctx context.Context, url string, clients, total int, note func(string, float64)) error {
	c := newClient(url)
	held := make([]string, total) // path and receipt, for succeed
	claim := func(i int) error {
		answer, err := c.post(ctx, queue+"claim", "")
		held[i] = queue + "messages/" + field(answer, "id") + "/succeed\n" + field(answer, "receipt")
		return err
	}
	succeed := func(i int) error {
		path, receipt, _ := strings.Cut(held[i], "\n")
		_, err := c.post(ctx, path, `{"receipt":"`+receipt+`"}`)
		return err
	}
	enqueue := func(int) error {
		_, err := c.post(ctx, queue+"messages", enqueueBody)
		return err
	}
	return phases(clients, total, enqueue, claim, succeed, note)
}

func onStore(ctx context.Context, store *sqlite.Store, clients, total int, note func(string, float64)) error {
	svc := setup.NewService(store)
	held := make([]message.Message, total)
	enqueue := func(int) error {
		_, _, err := svc.Enqueue(ctx, "bench", message.Draft{Payload: payload})
		return err
	}
	claim := func(i int) error {
		claimed, err := svc.Claim(ctx, "bench", message.ClaimOptions{})
		if err == nil && len(claimed) == 0 {
			err = errors.New("nothing to claim")
		}
		if err == nil {
			held[i] = claimed[0]
		}
		return err
	}
	succeed := func(i int) error {
		_, err := svc.Succeed(ctx, "bench", held[i].ID, &held[i].Receipt)
		return err
	}
	return phases(clients, total, enqueue, claim, succeed, note)
}

// phases measures each operation by itself, then whole rounds.
func phases(
	clients, total int, enqueue, claim, succeed func(i int) error, note func(string, float64),
) error {
	for _, phase := range []struct {
		name string
		do   func(i int) error
	}{
		{"enqueue", enqueue},
		{"claim", claim},
		{"succeed", succeed},
		{"round", func(i int) error {
			if err := enqueue(i); err != nil {
				return err
			}
			if err := claim(i); err != nil {
				return err
			}
			return succeed(i)
		}},
	} {
		rate, err := load(clients, total, phase.do)
		if err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		note(phase.name, rate)
	}
	return nil
}
