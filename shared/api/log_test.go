package api_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/redrivehq/redrive/shared/message"
)

// TestLogHoldsNoContent goes through every verb and every kind of refusal with
// texts that would be recognised.
func TestLogHoldsNoContent(t *testing.T) {
	t.Parallel()
	f, s := newFaultyFixture(t)
	const (
		payload = "PAYLOAD-c8d1"
		failure = "ERROR-51aa"
		token   = "TOKEN-77f0"
		wrong   = "RECEIPT-90be"
		value   = "VALUE-3c3c"
	)
	secrets := []string{payload, failure, token, wrong, value, base64.StdEncoding.EncodeToString([]byte(payload))[:10]}
	n := 0
	ask := func(method, target, text string, changes ...change) answer {
		t.Helper()
		n++
		id := fmt.Sprintf("request-%04d", n)
		f.log.take()
		a := f.do(t, method, target, text, append(changes, header("authorization", "Bearer "+token),
			header("x-api-key", token),
			func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.RequestID = id })...)
		lines := strings.Split(strings.TrimSuffix(f.log.take(), "\n"), "\n")
		if len(lines) != 1 {
			t.Fatalf("%s: %d log lines, want one: %s", a.asked, len(lines), lines)
		}
		var line struct {
			Level     string  `json:"level"`
			RequestID string  `json:"request_id"`
			Route     string  `json:"route"`
			Status    int     `json:"status"`
			Duration  float64 `json:"duration_ms"`
		}
		if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
			t.Fatalf("log line %s: %v", lines[0], err)
		}
		if level := map[bool]string{false: "INFO", true: "ERROR"}[a.status >= 500]; line.Level != level ||
			line.RequestID != id || line.Status != a.status || line.Route == "" {
			t.Errorf("%s: log line %s, want level %s, request %s, status %d and a route", a.asked, lines[0], level, id, a.status)
		}
		for _, secret := range secrets {
			if strings.Contains(lines[0], secret) {
				t.Errorf("%s: the log shows %q: %s", a.asked, secret, lines[0])
			}
		}
		return a
	}
	claim := func() msg {
		t.Helper()
		m := ask("POST", emailsClaim, "").message(t, 200)
		secrets = append(secrets, m.Receipt)
		return m
	}
	good := body("payload", payload)
	for range 6 {
		ask("POST", emailsMessages, good).message(t, 201)
	}
	ask("POST", emailsMessages, good, key(value)).message(t, 201)
	ask("POST", emailsMessages, good, key(value)).message(t, 200)
	ask("POST", emailsMessages, body("payload", payload, "max_retries", 1), key(value)).
		refused(t, 422, "idempotency-key-reused")
	a, b, c := claim(), claim(), claim()
	var several listedClaim
	f.do(t, "POST", emailsClaim, `{"max_messages":2}`).into(t, 200, &several)
	for _, m := range several.Messages {
		secrets = append(secrets, m.Receipt)
	}
	ask("POST", a.path()+"/extend", body("receipt", a.Receipt)).message(t, 200)
	ask("POST", a.path()+"/succeed", body("receipt", a.Receipt)).message(t, 200)
	ask("POST", a.path()+"/succeed", body("receipt", a.Receipt)).message(t, 200)
	ask("POST", b.path()+"/release", body("receipt", b.Receipt)).message(t, 200)
	ask("POST", c.path()+"/fail", body("receipt", c.Receipt, "error", failure, "permanent", true)).message(t, 200)
	ask("GET", c.path(), "").message(t, 200)
	ask("GET", emailsMessages+"?payload=true", "").page(t)
	ask("POST", c.path()+"/replay", "").message(t, 200)
	ask("GET", "/queues/emails", "").refusedNot(t)
	ask("GET", "/queues", "").refusedNot(t)
	ask("PUT", "/queues/emails", "{}").refusedNot(t)

	for _, m := range []msg{a, c} {
		for _, verb := range []string{"extend", "succeed", "fail", "release"} {
			ask("POST", m.path()+"/"+verb, body("receipt", wrong, "error", failure))
			ask("POST", m.path()+"/"+verb, body("receipt", []string{wrong}, "error", map[string]string{failure: payload}))
			ask("POST", m.path()+"/"+verb, body("receipt", wrong, "error", failure)+payload)
		}
	}
	for _, text := range []string{
		payload, `"` + payload, body("payload", []string{payload}), body("payload", payload, payload, 1),
		body("payload", payload) + payload,
		body("payload", payload, "max_retries", payload), `{"payload":"` + payload + `\ud800"}`,
		body("payload", strings.Repeat(payload, 30_000)),
		body("payload", strings.Repeat(payload, 100_000)),
	} {
		if got := ask("POST", emailsMessages, text); got.status < 400 {
			t.Errorf("%s: status %d, want a refusal", got.asked, got.status)
		}
		ask("POST", emailsMessages, text, inBase64)
	}
	ask("POST", emailsMessages, good, key(value+","+value)).refused(t, 400, "bad-request")
	ask("POST", emailsMessages, good, header("content-type", value)).refused(t, 415, "unsupported-media-type")
	ask("GET", emailsMessages+"?"+value+"="+payload, "").refused(t, 400, "bad-request")
	ask("GET", emailsMessages+"?cursor="+value, "").refused(t, 400, "bad-request")
	ask("GET", emailsMessages+"?status="+value, "").refused(t, 400, "bad-request")
	ask("GET", "/queues?prefix="+value, "").refusedNot(t)
	ask("GET", "/queues/emails/messages/"+value, "").refused(t, 404, "not-found")
	ask("PATCH", "/queues/emails/messages/"+value, body("payload", payload)).refused(t, 405, "method-not-allowed")
	ask("GET", "/"+value+"?"+value, "").refused(t, 404, "not-found")
	ask("DELETE", "/queues/emails", "").refused(t, 409, "queue-conflict")
	ask("PUT", "/queues/emails", body("backoff", map[string]any{"jitter": payload, payload: 1})).
		refused(t, 422, "validation-failed", payload2(payload)...)
	ask("POST", emailsMessages, good, func(e *events.APIGatewayV2HTTPRequest) { e.Version = value }).
		refused(t, 400, "bad-request")
	for _, fault := range []func() error{
		func() error { return message.ErrUnavailable },
		func() error { return errors.New("no disk") },
		func() error { panic("no memory") },
	} {
		s.set(fault)
		ask("POST", emailsMessages, good)
		ask("POST", b.path()+"/fail", body("receipt", b.Receipt, "error", failure))
		ask("GET", emailsMessages, "")
		s.set(nil)
	}
	f.clock.at(time.Hour)
	ask("DELETE", a.path(), "")
}

// payload2 are the faults of a backoff with this text in two places.
func payload2(text string) []string {
	return []string{
		"backoff." + text + " unknown backoff." + text + " is not known.",
		"backoff.jitter invalid backoff.jitter must be none, equal or full.",
	}
}

func TestLogNamesQueueAndMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.enqueue(t, "x")
	line := f.log.take()
	for _, want := range []string{
		`"queue":"emails"`, `"message_id":"` + m.ID + `"`,
		`"route":"POST /queues/{queue}/messages"`, `"status":201`, `"duration_ms":0`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("log %s has no %s", line, want)
		}
	}
	f.claim(t)
	if line := f.log.take(); !strings.Contains(line, m.ID) {
		t.Errorf("log of a claim %s has no %s", line, m.ID)
	}
}
