package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	usualRounds = 5
	crashers    = 8    // clients at a time
	mostAcks    = 1500 // a round is killed after at most so many acknowledged operations
	crashQueue  = "/queues/crash"
)

// TestCrash kills the server in the middle of its work, again and again on the
// same file, and compares what is stored with what was acknowledged.
// REDRIVE_CRASH_ROUNDS says how often, REDRIVE_CRASH_SEED with which seed.
func TestCrash(t *testing.T) {
	t.Parallel()
	rounds := fromEnv(t, "REDRIVE_CRASH_ROUNDS", usualRounds)
	seed := fromEnv(t, "REDRIVE_CRASH_SEED", rand.Uint64())
	t.Logf("%d rounds, REDRIVE_CRASH_SEED=%d", rounds, seed)
	random := rand.New(rand.NewPCG(seed, 0)) // to be repeatable
	h := newHistory(t)
	clients := make([]*crasher, crashers)
	for i := range clients {
		clients[i] = &crasher{
			history: h, name: fmt.Sprintf("client%d", i), keyed: i%2 == 0,
			random: rand.New(rand.NewPCG(seed, uint64(i)+1)), // to be repeatable
		}
	}
	file := filepath.Join(t.TempDir(), "redrive.db")
	for round := range rounds {
		began := time.Now()
		p := startProcess(t, "-addr", "127.0.0.1:0", "-data", file)
		c := newCaller(t, p.url)
		if round == 0 {
			c.must(t, http.MethodPut, crashQueue, `{"max_retries":10,"processing_timeout":3600,
				"backoff":{"initial_seconds":0.1,"max_seconds":0.1}}`, http.StatusCreated)
		}
		unsure := h.compare(t, c)
		h.settle(t, c)
		if t.Failed() {
			t.Fatalf("round %d: what was acknowledged before the crash is not what is stored", round)
		}
		h.killAt = h.acks.Load() + 1 + random.Int64N(mostAcks)
		h.kill = func() { p.cmd.Process.Kill() } // it may have ended
		var working sync.WaitGroup
		for _, client := range clients {
			working.Go(func() { client.work(t, c) })
		}
		working.Wait()
		h.kill()  // if all clients have found fault before that
		p.wait(t) // it was killed
		c.client.CloseIdleConnections()
		t.Logf("round %d: killed after %d acknowledged operations, in %v; %d messages, %d operations of the round before "+
			"in doubt", round, h.acks.Load(), time.Since(began).Round(time.Millisecond), len(h.messages), unsure)
	}
	p := startProcess(t, "-addr", "127.0.0.1:0", "-data", file)
	c := newCaller(t, p.url)
	h.compare(t, c)
	h.settle(t, c)
	h.compare(t, c)
	c.client.CloseIdleConnections()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(t); err != nil {
		t.Errorf("the last process ended with %v, want exit code 0; standard error:\n%s", err, p.stderr)
	}
}

func fromEnv[T int | uint64](t *testing.T, name string, usual T) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return T(n)
}

// caller sends requests to one server process.
type caller struct {
	url    string
	client *http.Client
}

func newCaller(t *testing.T, url string) *caller {
	t.Helper()
	return &caller{url: url, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: crashers}, Timeout: within,
	}}
}

// call sends a request. Without a whole answer nobody knows what it did.
func (c *caller) call(ctx context.Context, method, path, body, key string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close() // it has been read
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// must sends a request to a server that is not going to be killed.
func (c *caller) must(t *testing.T, method, path, body string, want ...int) (status int, answer []byte) {
	t.Helper()
	status, answer, err := c.call(t.Context(), method, path, body, "")
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if !slices.Contains(want, status) {
		t.Errorf("%s %s %s = %d %s, want %v", method, path, body, status, answer, want)
	}
	return status, answer
}

// crasher is a client: it enqueues, and works on what it claims.
type crasher struct {
	*history
	name   string
	keyed  bool
	random *rand.Rand
	sent   int
	own    []string // payloads acknowledged to it
	held   []*lease
}

// work goes on until a request has no answer.
func (c *crasher) work(t *testing.T, to *caller) {
	t.Helper()
	for goesOn := true; goesOn; {
		const manyHeld = 12
		switch n := c.random.IntN(100); {
		case len(c.held) < manyHeld && n < 30:
			goesOn = c.enqueue(t, to)
		case len(c.held) < manyHeld && n < 45:
			goesOn = c.claim(t, to, 0)
		case len(c.held) < manyHeld && n < 55:
			goesOn = c.claim(t, to, 1+c.random.IntN(10))
		case len(c.held) > 0 && n%10 == 0:
			goesOn = c.extend(t, to)
		case len(c.held) > 0:
			goesOn = c.end(t, to)
		}
	}
}

func (c *crasher) enqueue(t *testing.T, to *caller) bool {
	t.Helper()
	payload, want := fmt.Sprintf("%s-%d", c.name, c.sent), http.StatusCreated
	if c.keyed && len(c.own) > 0 && c.random.IntN(5) == 0 {
		payload, want = c.own[c.random.IntN(len(c.own))], http.StatusOK
	} else {
		c.sent++
	}
	key := ""
	if c.keyed {
		key = payload
	}
	c.sending(payload, key)
	status, answer, err := to.call(t.Context(), http.MethodPost, crashQueue+"/messages", `{"payload":"`+payload+`"}`, key)
	if err != nil {
		return false
	}
	// The transport repeats a request with a key by itself.
	if status != want && (!c.keyed || status != http.StatusOK) {
		t.Errorf("enqueue %s = %d %s, want %d", payload, status, answer, want)
		return false
	}
	if want == http.StatusCreated {
		c.own = append(c.own, payload)
	}
	c.stored(t, parse(t, answer))
	return true
}

// claim asks for so many messages; 0 is a claim of one, in its own form.
func (c *crasher) claim(t *testing.T, to *caller, several int) bool {
	t.Helper()
	body := ""
	if several > 0 {
		body = fmt.Sprintf(`{"max_messages":%d}`, several)
	}
	status, answer, err := to.call(t.Context(), http.MethodPost, crashQueue+"/claim", body, "")
	if err != nil {
		c.lostClaim(max(several, 1))
		return false
	}
	var got struct{ Messages []shown }
	switch {
	case status == http.StatusOK && several > 0:
		err = json.Unmarshal(answer, &got)
	case status == http.StatusOK:
		got.Messages = []shown{parse(t, answer)}
	case status == http.StatusNoContent && several == 0:
	default:
		err = fmt.Errorf("status %d", status)
	}
	if err != nil || len(got.Messages) > max(several, 1) {
		t.Errorf("claim %s = %s, %v, want messages", body, answer, err)
		return false
	}
	c.held = append(c.held, c.handedOut(t, got.Messages)...)
	return true
}

func (c *crasher) extend(t *testing.T, to *caller) bool {
	t.Helper()
	l := c.held[c.random.IntN(len(c.held))]
	body := fmt.Sprintf(`{"receipt":%q,"processing_timeout":%d}`, l.receipt, 3600+c.random.IntN(30_000))
	status, answer, err := to.call(t.Context(), http.MethodPost, l.path("extend"), body, "")
	if err != nil {
		return false
	}
	if status != http.StatusOK {
		t.Errorf("extend of a lease that is held = %d %s, want 200", status, answer)
		return false
	}
	c.extended(l, parse(t, answer))
	return true
}

// end gives up a lease, in one of the ways there are.
func (c *crasher) end(t *testing.T, to *caller) bool {
	t.Helper()
	i := c.random.IntN(len(c.held))
	l := c.held[i]
	c.held = append(c.held[:i], c.held[i+1:]...)
	e := &ending{verb: "succeed", body: fmt.Sprintf(`{"receipt":%q}`, l.receipt)}
	switch n := c.random.IntN(100); {
	case n < 15:
		e.verb = "release"
	case n < 50:
		e.verb, e.text = "fail", fmt.Sprintf("attempt %d of %s", l.number, l.id)
		e.body = fmt.Sprintf(`{"receipt":%q,"error":%q`, l.receipt, e.text) +
			[]string{"}", `,"retry_after_seconds":0}`, `,"permanent":true}`}[c.random.IntN(9)/4]
	}
	c.ending(l, e)
	status, answer, err := to.call(t.Context(), http.MethodPost, l.path(e.verb), e.body, "")
	if err != nil {
		return false
	}
	if status != http.StatusOK {
		t.Errorf("%s of a lease that is held = %d %s, want 200", e.verb, status, answer)
		return false
	}
	c.ended(e, parse(t, answer))
	return true
}

// shown is a message in an answer.
type shown struct {
	ID, Payload, Status, Receipt string
	ClaimCount                   int    `json:"claim_count"`
	RetryCount                   int    `json:"retry_count"`
	StallCount                   int    `json:"stall_count"`
	ReplayCount                  int    `json:"replay_count"`
	LeaseExpiresAt               string `json:"lease_expires_at"`
	Attempts                     []struct {
		Number         int
		Outcome, Error string
	}
}

func parse(t *testing.T, answer []byte) shown {
	t.Helper()
	var m shown
	if err := json.Unmarshal(answer, &m); err != nil {
		t.Errorf("answer %s: %v", answer, err)
	}
	return m
}

// history is what the clients know.
type history struct {
	acks   atomic.Int64 // operations acknowledged
	killAt int64        // the acknowledgement after which kill is called
	kill   func()

	mu       sync.Mutex
	clock    int // counts what is noted
	messages map[string]*known
	ids      map[string]string // by payload
	unsure   map[string]string // payload to key, of those whose enqueue is not acknowledged
	lost     int               // messages that unanswered claims may have handed out since the last comparison
}

// known is what is known of a message.
type known struct {
	id, payload string
	leases      []*lease // the n-th hand-out at n-1
}

// lease is an acknowledged hand-out.
type lease struct {
	id, receipt string
	number      int
	answered    int    // when the claim was
	until       string // its end, as last acknowledged
	end         *ending
}

func (l *lease) path(verb string) string { return crashQueue + "/messages/" + l.id + "/" + verb }

// ending is a call that ends a lease.
type ending struct {
	verb, body, text string
	began            int
	acknowledged     bool
	status           string // the message's, as acknowledged
}

func newHistory(t *testing.T) *history {
	t.Helper()
	return &history{
		messages: make(map[string]*known), ids: make(map[string]string), unsure: make(map[string]string),
	}
}

// tick is called with mu held.
func (h *history) tick() int {
	h.clock++
	return h.clock
}

func (h *history) acknowledged() {
	if h.acks.Add(1) == h.killAt {
		h.kill()
	}
}

func (h *history) sending(payload, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick()
	if _, is := h.ids[payload]; !is {
		h.unsure[payload] = key
	}
}

func (h *history) stored(t *testing.T, m shown) {
	t.Helper()
	h.mu.Lock()
	h.message(t, m)
	delete(h.unsure, m.Payload)
	h.mu.Unlock()
	h.acknowledged()
}

// message notes that there is one. It is called with mu held.
func (h *history) message(t *testing.T, m shown) *known {
	t.Helper()
	h.tick()
	if id, is := h.ids[m.Payload]; is && id != m.ID {
		t.Errorf("payload %s is that of %s and of %s: enqueued once, stored twice", m.Payload, id, m.ID)
	}
	h.ids[m.Payload] = m.ID
	k := h.messages[m.ID]
	if k == nil {
		k = &known{id: m.ID, payload: m.Payload}
		h.messages[m.ID] = k
	}
	if k.payload != m.Payload {
		t.Errorf("message %s has payload %q, then %q", m.ID, k.payload, m.Payload)
	}
	return k
}

func (h *history) lostClaim(several int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost += several
}

func (h *history) handedOut(t *testing.T, messages []shown) []*lease {
	t.Helper()
	h.mu.Lock()
	leases := make([]*lease, 0, len(messages))
	for _, m := range messages {
		k := h.message(t, m)
		l := &lease{id: m.ID, receipt: m.Receipt, number: m.ClaimCount, answered: h.tick(), until: m.LeaseExpiresAt}
		if m.Status != "processing" || l.receipt == "" || l.number < 1 {
			t.Errorf("claim hands out %+v, want it processing with a receipt", m)
			continue
		}
		for len(k.leases) < l.number {
			k.leases = append(k.leases, nil) // known once its answer is looked at
		}
		if other := k.leases[l.number-1]; other != nil {
			t.Errorf("message %s is handed out twice as number %d, receipts %s and %s",
				m.ID, l.number, other.receipt, l.receipt)
		}
		k.leases[l.number-1] = l
		leases = append(leases, l)
	}
	h.mu.Unlock()
	h.acknowledged()
	return leases
}

func (h *history) extended(l *lease, m shown) {
	h.mu.Lock()
	l.until = m.LeaseExpiresAt
	h.mu.Unlock()
	h.acknowledged()
}

func (h *history) ending(l *lease, e *ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.began = h.tick()
	l.end = e
}

func (h *history) ended(e *ending, m shown) {
	h.mu.Lock()
	e.acknowledged, e.status = true, m.Status
	h.mu.Unlock()
	h.acknowledged()
}

// compare reports where what a server has stored is not what was acknowledged,
// and how many operations are in doubt. Nobody else may be at work.
func (h *history) compare(t *testing.T, c *caller) (unsure int) {
	t.Helper()
	stored := h.all(t, c)
	unsure = len(h.unsure)
	for id, m := range stored {
		if h.messages[id] != nil {
			continue
		}
		if _, is := h.unsure[m.Payload]; !is {
			t.Errorf("message %+v is stored, and nobody has enqueued it", m)
		}
		h.message(t, m)
	}
	handedOut := 0
	for id, k := range h.messages {
		m, is := stored[id]
		if !is {
			t.Errorf("message %s with payload %s was acknowledged and is not stored", id, k.payload)
			continue
		}
		if m.Payload != k.payload || m.StallCount != 0 || m.ReplayCount != 0 {
			t.Errorf("message %s is %+v, want payload %q, no stalls, no replays", id, m, k.payload)
		}
		doubts := k.compare(t, m)
		unsure += doubts
		if m.ClaimCount > len(k.leases) {
			handedOut++
			// The answer to this claim was lost. Its lease is held by nobody.
			k.leases = append(k.leases, &lease{id: id, number: m.ClaimCount, answered: h.tick(), until: m.LeaseExpiresAt})
		}
	}
	if handedOut > h.lost {
		t.Errorf("%d messages were handed out by claims without an answer, which asked for %d", handedOut, h.lost)
	}
	unsure += h.lost
	h.lost = 0
	return unsure
}

// all lists everything.
func (h *history) all(t *testing.T, c *caller) map[string]shown {
	t.Helper()
	stored := make(map[string]shown)
	for cursor, more := "", true; more; more = cursor != "" {
		path := crashQueue + "/messages?limit=250&payload=true"
		if cursor != "" {
			path += "&cursor=" + cursor
		}
		_, answer := c.must(t, http.MethodGet, path, "", http.StatusOK)
		var page struct {
			Messages   []shown
			NextCursor string `json:"next_cursor"`
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			if _, is := stored[m.ID]; is {
				t.Errorf("message %s is listed twice", m.ID)
			}
			stored[m.ID] = m
		}
		cursor = page.NextCursor
	}
	return stored
}

// compare reports where a message is not what the hand-outs made of it, and
// returns how many answers about it are in doubt.
func (k *known) compare(t *testing.T, m shown) (doubts int) {
	t.Helper()
	failed, perhaps := 0, 0
	for i, l := range k.leases {
		if l == nil {
			t.Errorf("message %s: hand-out %d was never acknowledged, and ended without its receipt", k.id, i+1)
			return 0
		}
		if i+1 < len(k.leases) && k.leases[i+1] != nil {
			if next := k.leases[i+1]; l.end == nil || l.end.began > next.answered {
				t.Errorf("message %s: hand-out %d was not given up when hand-out %d was answered", k.id, i+1, i+2)
			}
		}
		if l.end == nil {
			continue
		}
		if !l.end.acknowledged {
			doubts++
		}
		if l.end.verb == "fail" {
			if perhaps++; l.end.acknowledged {
				failed++
			}
		}
	}
	if m.RetryCount < failed || m.RetryCount > perhaps {
		t.Errorf("message %s has failed %d times, want %d acknowledged to %d sent", k.id, m.RetryCount, failed, perhaps)
	}
	n := len(k.leases)
	var last *lease
	if n > 0 {
		last = k.leases[n-1]
	}
	ended := last == nil || last.end != nil
	want := []string{"pending"}
	switch {
	case m.ClaimCount == n+1 && ended:
		want = []string{"processing"} // the answer to that claim was lost
	case m.ClaimCount != n:
		t.Errorf("message %s was handed out %d times, want %d, or one more after the last was given up: %t",
			k.id, m.ClaimCount, n, ended)
		return doubts
	case last == nil:
	case last.end == nil:
		want = []string{"processing"}
		if m.LeaseExpiresAt < last.until {
			t.Errorf("message %s is held until %s, want the acknowledged %s", k.id, m.LeaseExpiresAt, last.until)
		}
	case last.end.acknowledged:
		want = []string{last.end.status}
	default:
		want = append([]string{"processing"}, map[string][]string{
			"succeed": {"succeeded"}, "release": {"pending"}, "fail": {"pending", "dead"},
		}[last.end.verb]...)
	}
	if !slices.Contains(want, m.Status) {
		t.Errorf("message %s is %s after %d hand-outs, want %v; last: %+v", k.id, m.Status, n, want, last)
	}
	return doubts
}

// settle repeats every call that is in doubt, as a client would, and sees that
// whatever was held can still be used. The stored messages have been compared
// just before.
func (h *history) settle(t *testing.T, c *caller) {
	t.Helper()
	for payload, key := range h.unsure {
		_, stored := h.ids[payload]
		if key != "" {
			status, answer, err := c.call(t.Context(), http.MethodPost, crashQueue+"/messages", `{"payload":"`+payload+`"}`, key)
			if want := map[bool]int{true: http.StatusOK, false: http.StatusCreated}[stored]; err != nil || status != want {
				t.Errorf("repeated enqueue of %s, stored: %t = %d %s, %v, want %d", payload, stored, status, answer, err, want)
			}
			h.message(t, parse(t, answer))
		}
		delete(h.unsure, payload)
	}
	for _, k := range h.messages {
		if len(k.leases) == 0 {
			continue
		}
		for _, l := range k.leases {
			if l.end != nil && !l.end.acknowledged {
				h.repeat(t, c, k, l)
			}
		}
		switch last := k.leases[len(k.leases)-1]; {
		case last.end != nil:
			if last.end.verb == "fail" && last.end.text != "" {
				h.remembers(t, c, last)
			}
		case last.receipt == "": // the claim's answer was lost: whoever is in charge gives it back
			last.end = &ending{verb: "fail", began: h.tick(), acknowledged: true}
			_, answer := c.must(t, http.MethodPost, last.path("fail"), `{"error":"its worker got no answer"}`, http.StatusOK)
			last.end.status = parse(t, answer).Status
		default:
			body := fmt.Sprintf(`{"receipt":%q}`, last.receipt)
			_, answer := c.must(t, http.MethodPost, last.path("extend"), body, http.StatusOK)
			if m := parse(t, answer); m.LeaseExpiresAt < last.until {
				t.Errorf("message %s is held until %s after extend, before that until %s", k.id, m.LeaseExpiresAt, last.until)
			} else {
				last.until = m.LeaseExpiresAt
			}
		}
	}
}

// repeat sends an answer again that nobody acknowledged. It may only be refused
// where it had come through, and the message has been claimed since.
func (h *history) repeat(t *testing.T, c *caller, k *known, l *lease) {
	t.Helper()
	want := []int{http.StatusOK}
	claimedSince := l.number < len(k.leases)
	if claimedSince {
		want = []int{http.StatusConflict}
	}
	_, answer := c.must(t, http.MethodPost, l.path(l.end.verb), l.end.body, want...)
	l.end.acknowledged = true
	if !claimedSince {
		l.end.status = parse(t, answer).Status
	}
}

// remembers checks that an acknowledged failure is in the history, once.
func (h *history) remembers(t *testing.T, c *caller, l *lease) {
	t.Helper()
	_, answer := c.must(t, http.MethodGet, crashQueue+"/messages/"+l.id, "", http.StatusOK)
	found := 0
	for _, a := range parse(t, answer).Attempts {
		if a.Number == l.number && a.Error == l.end.text {
			found++
		}
	}
	if found != 1 {
		t.Errorf("message %s shows attempt %d %d times, want once: %s", l.id, l.number, found, answer)
	}
	l.end.text = "" // once is enough
}
