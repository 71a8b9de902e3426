package load

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

// target is the queue as the clients reach it.
type target struct {
	server        *url.URL
	queue         string // its URL
	authorization string
	message       []byte // the body of an enqueue
}

func newTarget(o Options) *target {
	server, _ := url.Parse(o.URL) // has been checked
	t := &target{
		server:  server,
		queue:   strings.TrimSuffix(o.URL, "/") + "/queues/" + url.PathEscape(o.Queue),
		message: []byte(`{"payload":"` + text(o.Payload) + `"}`),
	}
	if o.Token != "" {
		t.authorization = "Bearer " + o.Token
	}
	return t
}

// text is a payload. It is random letters and digits, so that what compresses
// payloads gains less than it would with a real one.
func text(length int) string {
	var b strings.Builder
	for b.Len() < length {
		b.WriteString(rand.Text())
	}
	return b.String()[:length]
}

// client does one round at a time, over a connection of its own.
//
// That is fasthttp's, because what the clients take of the processor, the server
// beside them lacks: 10 µs a request, where net/http takes 23 µs (32 clients, 1 KB
// to a handler that answers 700 bytes, by getrusage).
type client struct {
	*target
	rec  *recorder
	http *fasthttp.HostClient
	req  fasthttp.Request
	resp fasthttp.Response
}

// answerWithin is after how long the server is held to give none.
const answerWithin = 30 * time.Second

func newClient(t *target, rec *recorder) *client {
	secure := t.server.Scheme == "https"
	c := &client{target: t, rec: rec, http: &fasthttp.HostClient{
		Addr: fasthttp.AddMissingPort(t.server.Host, secure), IsTLS: secure, DialDualStack: true, MaxConns: 1,
		ReadTimeout: answerWithin, WriteTimeout: answerWithin, DisablePathNormalizing: true,
		MaxIdemponentCallAttempts: 1, // what is sent twice would be counted once
	}}
	c.req.Header.SetMethod(http.MethodPost)
	c.req.Header.SetContentType("application/json")
	if t.authorization != "" {
		c.req.Header.Set("Authorization", t.authorization)
	}
	return c
}

// held is a message that the client has claimed.
type held struct{ url, receipt string }

// round sees to it that one message more has been enqueued and one more has
// succeeded, not necessarily the same. Its time counts from when it was due. It
// returns whether the server did all that it was asked.
func (c *client) round(due time.Time, failPercent float64) bool {
	if !c.enqueue(due) {
		return false
	}
	for {
		m, ok := c.claim()
		if m == nil {
			return ok
		}
		if failPercent > 0 && random()*100 < failPercent {
			if !c.fail(m) {
				return false
			}
			continue
		}
		if !c.succeed(m) {
			return false
		}
		c.rec.answered(Round, http.StatusOK, time.Since(due))
		return true
	}
}

func (c *client) enqueue(due time.Time) bool {
	return c.send(Enqueue, due, c.queue+"/messages", c.message)
}

// claim returns nil if no message is due, and if it is refused.
func (c *client) claim() (m *held, ok bool) {
	if !c.send(Claim, time.Now(), c.queue+"/claim", nil) {
		return nil, false
	}
	if c.resp.StatusCode() == http.StatusNoContent {
		return nil, true
	}
	return &held{
		url: c.queue + "/messages/" + Member(c.resp.Body(), "id"), receipt: Member(c.resp.Body(), "receipt"),
	}, true
}

func (c *client) succeed(m *held) bool {
	return c.send(Succeed, time.Now(), m.url+"/succeed", []byte(`{"receipt":"`+m.receipt+`"}`))
}

func (c *client) fail(m *held) bool {
	ok := c.send(Fail, time.Now(), m.url+"/fail", []byte(`{"receipt":"`+m.receipt+`","error":"503 from the receiver"}`))
	if ok && Member(c.resp.Body(), "status") == "dead" {
		c.rec.buried()
	}
	return ok
}

// send makes a request, notes how it went since due, and returns whether the
// server did as it was asked. The answer is in resp.
func (c *client) send(verb Verb, due time.Time, url string, body []byte) bool {
	c.req.SetRequestURI(url)
	c.req.SetBodyRaw(body)
	status := NoAnswer
	if err := c.http.Do(&c.req, &c.resp); err == nil {
		status = c.resp.StatusCode()
	}
	return c.rec.answered(verb, status, time.Since(due))
}

// Member reads a string without escapes from an answer. Decoding all of it would
// take more of the processor than sending the request.
func Member(answer []byte, name string) string {
	_, rest, _ := bytes.Cut(answer, []byte(`"`+name+`":"`))
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(value)
}
