package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redrivehq/redrive/local/prove/history"
	"github.com/redrivehq/redrive/shared/message"
)

// recorder calls the servers, and writes down each call with its answer.
type recorder struct {
	http  *http.Client
	began time.Time

	mu         sync.Mutex
	operations []history.Operation
	wrong      []history.Violation // answers that no server may give
}

func newRecorder(clients int) *recorder {
	return &recorder{
		// Longer than a server may take, stopped for a while included.
		http:  &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: clients}},
		began: time.Now(),
	}
}

// request is a call before its answer.
type request struct {
	history.Operation
	url, method, path string
	key               string // for idempotency
	body              map[string]any
	several           bool // the answer of a claim has the form for several
}

// problem is the body of a refusal.
type problem struct {
	Type   string         `json:"type"`
	Status message.Status `json:"message_status"`
}

// do makes the call, records it, and returns what it was answered: no operation
// where nobody knows the outcome.
func (c *recorder) do(ctx context.Context, q *request) []history.Operation {
	const pause = 20 * time.Millisecond // before the next call, where this one failed
	q.Start = time.Since(c.began)
	status, answer, err := c.call(ctx, q)
	for errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil { // the server is dead, and knows nothing of the call
		time.Sleep(pause)
		q.Start = time.Since(c.began)
		status, answer, err = c.call(ctx, q)
	}
	q.End = time.Since(c.began)
	if err != nil || status >= http.StatusInternalServerError {
		q.End = history.Never
		if err == nil && !unavailable(status, answer) {
			c.accuse(q, status, answer)
		}
		if q.Verb != history.Get {
			c.note(q.Operation)
		}
		time.Sleep(pause)
		return nil
	}
	q.Status = status
	done, err := q.read(status, answer)
	if err != nil {
		c.accuse(q, status, answer)
		return nil
	}
	c.note(done...)
	return done
}

// unavailable reports whether the answer is one of a system in trouble. What a
// gateway says of a function that died has no type.
func unavailable(status int, answer []byte) bool {
	return status == http.StatusServiceUnavailable ||
		status >= http.StatusInternalServerError && !bytes.Contains(answer, []byte(`"type"`))
}

// ask makes a call that changes no message, and returns the answer: nil if there is
// none, or if it has none of the states wanted, which is wrong.
func (c *recorder) ask(ctx context.Context, q *request, wanted ...int) []byte {
	status, answer, err := c.call(ctx, q)
	switch {
	case err != nil || unavailable(status, answer):
		return nil
	case !slices.Contains(wanted, status):
		c.accuse(q, status, answer)
		return nil
	}
	return answer
}

// accuse notes an answer that is wrong by itself.
func (c *recorder) accuse(q *request, status int, answer []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const most = 300 // bytes of the answer
	c.wrong = append(c.wrong, history.Violation{Kind: history.Misanswered, ID: q.ID, Text: fmt.Sprintf(
		"%s %s was answered %d %.*s", q.method, q.path, status, most, answer)})
}

func (c *recorder) note(done ...history.Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations = append(c.operations, done...)
}

func (c *recorder) call(ctx context.Context, q *request) (status int, answer []byte, err error) {
	var body io.Reader
	if q.body != nil {
		text, err := json.Marshal(q.body)
		if err != nil {
			return 0, nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, q.url+q.path, body)
	if err != nil {
		return 0, nil, err
	}
	req.GetBody = nil // or the transport would send some requests again by itself
	if q.key != "" {
		req.Header.Set("Idempotency-Key", q.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, errors.Join(err, resp.Body.Close())
}

// read makes operations of an answer. Errors: it is none that the contract knows.
func (q *request) read(status int, answer []byte) ([]history.Operation, error) {
	switch status {
	case http.StatusOK, http.StatusCreated:
		return q.shown(answer)
	case http.StatusNoContent:
		if q.Verb == message.VerbClaim {
			return nil, nil
		}
		return []history.Operation{q.Operation}, nil
	case http.StatusConflict, http.StatusNotFound, http.StatusUnprocessableEntity:
		var p problem
		if err := json.Unmarshal(answer, &p); err != nil {
			return nil, err
		}
		if status == http.StatusUnprocessableEntity && p.Type != "/problems/idempotency-key-reused" {
			return nil, errors.New("no call of a worker is at fault")
		}
		q.Found = p.Status
		return []history.Operation{q.Operation}, nil
	}
	return nil, fmt.Errorf("status %d", status)
}

// shown makes operations of the messages that an answer shows.
func (q *request) shown(answer []byte) ([]history.Operation, error) {
	var several struct{ Messages []*history.Message }
	var one history.Message
	shown, into := []*history.Message{&one}, any(&one)
	if q.several {
		into = &several
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return nil, err
	}
	if q.several {
		shown = several.Messages
	}
	all := make([]history.Operation, 0, len(shown))
	for _, m := range shown {
		o := q.Operation
		o.ID, o.Shown = m.ID, m
		if m.Payload != "" {
			tag, err := tagOf(m.Payload)
			if err != nil {
				return nil, err
			}
			o.Tag, m.Payload = tag, ""
		}
		if q.Verb == message.VerbClaim {
			o.Receipt = m.Receipt
		}
		all = append(all, o)
	}
	return all, nil
}

// payload returns a text of the tag and so many bytes that belong to it.
func payload(tag string, size int) string {
	text := make([]byte, base64.RawStdEncoding.DecodedLen(size)+1)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte(tag))).Read(text) // it never fails
	return fmt.Sprintf("%s|%d|%s", tag, size, base64.RawStdEncoding.EncodeToString(text)[:size])
}

// tagOf returns the tag of a payload. Errors: it is none, or was damaged.
func tagOf(text string) (string, error) {
	tag, rest, _ := strings.Cut(text, "|")
	var size int
	_, err := fmt.Sscanf(rest, "%d|", &size)
	if err != nil || size < 0 || size > len(rest) || text != payload(tag, size) {
		return "", errors.New("a payload is not the one that was sent")
	}
	return tag, nil
}
