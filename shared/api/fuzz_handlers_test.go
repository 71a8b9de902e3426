package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// FuzzHandlers plays a script of up to 20 turns on a store of its own: events
// for every function, moves of the clock, sweeps. What holds for every answer is
// checked after each, and that what is refused changes nothing, what is answered
// is so, and nothing is lost. The text holds whatever else events are made of.
func FuzzHandlers(f *testing.F) {
	const text = "q\nmsg_0\nk\n{\"payload\":\"y\"}\n/queues\n\xff\n../a\n5e-1\ntext/plain; charset"
	for _, s := range scripts {
		f.Add(s.bytes(), text)
	}
	f.Fuzz(func(t *testing.T, program []byte, text string) {
		p := &play{
			fixture: newFixture(t), texts: strings.Split(text, "\n"), whole: text,
			receipts: make(map[string]bool), current: make(map[place]string),
		}
		p.last = p.stored(t)
		for _, s := range turnsOf(program) {
			p.turn(t, s)
		}
		p.lists(t)
		log := p.log.take()
		for receipt := range p.receipts {
			if strings.Contains(log, receipt) {
				t.Errorf("the log tells the receipt %q", receipt)
			}
		}
		p.wantNoInternals(t, "the log", log)
	})
}

// turn is what happens next, and choices about it. The first of each is the usual
// one: the newest message, its receipt, a body that is right.
type turn struct {
	what                                              byte
	queue, id, receipt, body, headers, query, literal byte
}

// What happens: first the routes, in the order of api.Routes.
const (
	enqueueTurn byte = iota
	claimTurn
	succeedTurn
	failTurn
	extendTurn
	releaseTurn
	listTurn
	getTurn
	replayTurn
	deleteTurn
	listQueuesTurn
	getQueueTurn
	putQueueTurn
	deleteQueueTurn
	anyTurn // a request that no route may match
	clockTurn
	sweepTurn
	expireTurn
	kinds
)

const (
	turnBytes = 8
	mostTurns = 20
)

type script []turn

func (s script) bytes() []byte {
	var b []byte
	for _, st := range s {
		b = append(b, st.what, st.queue, st.id, st.receipt, st.body, st.headers, st.query, st.literal)
	}
	return b
}

func turnsOf(program []byte) script {
	var s script
	for b := range slices.Chunk(program[:min(len(program), mostTurns*turnBytes)], turnBytes) {
		b = append(slices.Clone(b), make([]byte, turnBytes-len(b))...)
		s = append(s, turn{b[0] % kinds, b[1], b[2], b[3], b[4], b[5], b[6], b[7]})
	}
	return s
}

// Choices that the scripts below make.
const (
	after1s    = 1
	after30s   = 3
	after33s   = 4
	after13h   = 8
	after8d    = 9
	permanent  = 0b0010
	oddBody    = 0x80
	keyed      = 0x10
	onePage    = 1
	nextPage   = 2
	unknown    = 9
	longPrefix = 14
)

var scripts = []script{
	{{what: enqueueTurn}, {what: claimTurn}, {what: succeedTurn}, {what: getTurn}, {what: deleteTurn}},
	{ // S037 a late answer of an old worker
		{what: enqueueTurn},
		{what: claimTurn},
		{what: clockTurn, literal: after33s},
		{what: sweepTurn},
		{what: clockTurn, literal: after30s},
		{what: claimTurn},
		{what: succeedTurn, receipt: 1},
		{what: failTurn, receipt: 1},
		{what: succeedTurn},
		{what: succeedTurn},
		{what: succeedTurn, receipt: 1},
	},
	{ // S092 dead, replayed, dead again
		{what: enqueueTurn, body: 1},
		{what: claimTurn},
		{what: failTurn},
		{what: failTurn},
		{what: replayTurn},
		{what: clockTurn, literal: after1s},
		{what: claimTurn},
		{what: failTurn, body: permanent},
		{what: replayTurn},
		{what: listTurn, query: 3},
	},
	{ // S097 one key
		{what: enqueueTurn, headers: keyed},
		{what: enqueueTurn, headers: keyed},
		{what: enqueueTurn, headers: keyed, literal: 0x10},
		{what: enqueueTurn, headers: keyed, queue: 2},
		{what: deleteTurn},
		{what: enqueueTurn, headers: keyed, queue: 2},
	},
	{ // S110 past its retention
		{what: putQueueTurn, body: 0x60},
		{what: enqueueTurn},
		{what: claimTurn},
		{what: succeedTurn},
		{what: clockTurn, literal: after8d},
		{what: getTurn},
		{what: succeedTurn},
		{what: deleteQueueTurn},
		{what: expireTurn},
	},
	{ // S028 paging
		{what: enqueueTurn},
		{what: enqueueTurn},
		{what: claimTurn},
		{what: enqueueTurn},
		{what: enqueueTurn, queue: 2},
		{what: listTurn, queue: 1, query: onePage},
		{what: listTurn, queue: 1, query: nextPage},
		{what: listQueuesTurn, query: onePage},
		{what: listQueuesTurn, query: nextPage},
	},
	{ // what is refused
		{what: enqueueTurn, body: oddBody},
		{what: enqueueTurn, body: oddBody, literal: 1},
		{what: putQueueTurn, body: 0x7f, literal: 3},
		{what: anyTurn},
		{what: anyTurn, literal: 1},
		{what: getQueueTurn, queue: 5},
		{what: extendTurn, id: 0xf0},
		{what: listTurn, query: unknown},
		{what: listQueuesTurn, query: longPrefix},
	},
	{ // many at once, held for long
		{what: enqueueTurn},
		{what: enqueueTurn},
		{what: claimTurn, body: 3, literal: 1},
		{what: extendTurn, body: 1, literal: 9},
		{what: clockTurn},
		{what: releaseTurn, id: 1},
		{what: clockTurn, literal: after13h},
		{what: extendTurn},
		{what: claimTurn},
		{what: sweepTurn, literal: 3},
	},
}

// place is where a message that was accepted stands.
type place struct{ queue, id string }

// play is the world of one script.
type play struct {
	*fixture
	texts    []string // lines of the script's text
	whole    string
	accepted []place // oldest first
	held     []grant // oldest claim first
	receipts map[string]bool
	current  map[place]string // the receipt that counts
	cursor   string
	last     map[string]any // what was stored after the last turn
}

type grant struct {
	place
	receipt string
}

func (p *play) text(n byte) string { return p.texts[int(n)%len(p.texts)] }

// choose returns one of the values, or a text of the script for n beyond them.
func (p *play) choose(n byte, values ...string) string {
	if int(n) < len(values) {
		return values[n]
	}
	return p.text(n)
}

func (p *play) turn(t *testing.T, s turn) {
	switch s.what {
	case clockTurn:
		p.clock.at(p.Now().Sub(epoch) + []time.Duration{
			time.Millisecond, time.Second, 2 * time.Second, 30 * time.Second, 33 * time.Second, 5 * time.Minute, time.Hour,
			11 * time.Hour, 13 * time.Hour, 8 * day, 91 * day, 400 * day, -time.Second,
		}[s.literal%13])
		t.Logf("it is %v", p.Now())
	case sweepTurn:
		var o message.SweepOptions
		if o.Count = s.literal&1 != 0; s.literal&2 != 0 {
			o.Until = p.Now().Add(time.Second)
		}
		report, err := p.Sweep(context.Background(), o)
		t.Logf("sweep: %+v", report)
		if err != nil || report.Err != nil || report.Failed > 0 || !report.Done {
			t.Fatalf("Sweep(%+v) = %+v, %v", o, report, err)
		}
	case expireTurn:
		if _, err := p.store.(*sqlite.Store).RemoveExpired(context.Background(), p.Now(), 100); err != nil {
			t.Fatalf("RemoveExpired() = %v", err)
		}
	default:
		p.ask(t, s)
		return
	}
	p.look(t, "")
}

const day = 24 * time.Hour

// ask sends the event of the turn, and checks what became of it.
func (p *play) ask(t *testing.T, s turn) {
	routeKey, method, path, params := p.target(s)
	function := api.Fallback
	if s.what < anyTurn {
		function = api.Routes[s.what].Function
	}
	body := p.body(s)
	event := newEvent(method, path, p.query(s), routeKey, params, body)
	p.headers(s, event.Headers)
	if s.query&0x80 != 0 {
		inBase64(&event)
	} else if s.query&0x40 != 0 {
		event.IsBase64Encoded = true // whatever the body is
	}
	a := p.send(t, function, event)
	t.Logf("%s = %d %.300s", a.asked, a.status, a.body)
	p.wantNoInternals(t, "the answer to "+a.asked, a.body)
	at := params["queue"] + " " + params["id"]
	before, deleted := p.last, ""
	switch {
	case a.status >= 500:
		t.Fatalf("%s: the log says %s", a.asked, p.log.take())
	case a.status >= 400:
		a.wantProblem(t)
	case s.what == deleteTurn:
		deleted = at
	}
	p.look(t, deleted)
	if a.status >= 400 || method == "GET" {
		if diff := cmp.Diff(before, p.last); diff != "" {
			t.Errorf("%s = %d, and the store has changed (-before +after):\n%s", a.asked, a.status, diff)
		}
	}
	if a.status >= 400 {
		return
	}
	p.wantTrue(t, s, a, params)
	if s.what >= succeedTurn && s.what <= releaseTurn || s.what == replayTurn {
		p.wantMoved(t, s, a, body, before[at].(kept).Message, p.last[at].(kept).Message)
	}
}

// target says for what the event asks.
func (p *play) target(s turn) (routeKey, method, path string, params map[string]string) {
	if s.what == anyTurn {
		method = p.choose(s.body, "PATCH", "POST", "GET", "HEAD", "OPTIONS")
		return "$default", method, p.choose(s.literal, "/", "/queues/emails/claim", "/queues//messages", ""), nil
	}
	queue, id := "emails", ""
	if n := len(p.accepted); n > 0 {
		m := p.accepted[n-1-int(s.id)%n]
		id = m.id
		if api.Routes[s.what].Key != "POST /queues/{queue}/messages" {
			queue = m.queue
		}
	}
	if s.id >= 0xf0 {
		id = p.choose(s.id-0xf0, "", "msg_", "msg_00000000000000000000000000", strings.ToLower(id))
	}
	if s.queue > 0 {
		queue = p.choose(s.queue-1, "emails", "bills", "q é:@+&=;~", "queues", "", "a/b")
	}
	routeKey = api.Routes[s.what].Key
	method, path, _ = strings.Cut(routeKey, " ")
	params = map[string]string{}
	for name, value := range map[string]string{"queue": queue, "id": id} {
		if strings.Contains(path, "{"+name+"}") {
			path = strings.ReplaceAll(path, "{"+name+"}", value)
			params[name] = value
		}
	}
	return routeKey, method, path, params
}

func (p *play) headers(s turn, headers map[string]string) {
	switch n := s.headers & 0x0f; n {
	case 0: // as newEvent wrote it
	case 1:
		delete(headers, "content-type")
	case 2:
		headers["content-type"] = "application/problem+json; charset=utf-8"
	case 3:
		headers["Content-Type"] = "text/plain"
	default:
		headers["content-type"] = p.text(n)
	}
	if n := s.headers >> 4; n > 0 {
		headers["idempotency-key"] = p.choose(n-1, "k1", `"k1"`, "k2", `"`, "")
	}
}

func (p *play) query(s turn) string {
	return p.choose(s.query&0x3f,
		"", "limit=1", "limit=1&cursor="+url.QueryEscape(p.cursor), "payload=true&status=pending", "order=desc",
		"limit=250&status=dead", "prefix=e", "limit=0", "limit=1&limit=2", "unknown=1&x", "cursor=AQ", "%zz", "status=lost",
		"prefix=%ff%00", "prefix="+strings.Repeat("a", 129))
}

// body writes the body of the turn. A bit of its choice stands for each member
// that the route may be given, and the highest for a body that is odd.
func (p *play) body(s turn) string {
	if s.what >= anyTurn {
		return ""
	}
	if s.body&oddBody != 0 {
		return p.choose(s.literal, "{}", "", "[]", "null", `{"payload":"x","payload":"x"}`, `{"payload":"x"`, p.whole)
	}
	number := func(i byte) string {
		return p.choose((s.literal+i)&0x0f,
			"1", "2", "3.0", "10", "0.1", "1e1", "0", "-1", "300", "43200", "1e400", `"1"`, "null")
	}
	object := make(map[string]string)
	give := func(bit byte, name, value string) {
		if s.body&bit != 0 {
			object[name] = value
		}
	}
	switch s.what {
	case enqueueTurn:
		object["payload"] = p.payload(s.literal >> 4)
		give(1, "max_retries", number(0))
		give(2, "delay_seconds", number(1))
		give(4, "extra", number(2))
	case claimTurn:
		give(1, "max_messages", number(0))
		give(2, "processing_timeout", number(1))
	case failTurn:
		object["error"] = p.payload(s.literal >> 4)
		give(2, "permanent", "true")
		give(4, "retry_after_seconds", number(1))
		give(8, "permanent", "false")
	case extendTurn:
		give(1, "processing_timeout", number(0))
	case putQueueTurn:
		p.settings(s, give, number)
	}
	if s.what >= succeedTurn && s.what <= releaseTurn {
		if receipt := p.receipt(s); receipt != "" {
			object["receipt"] = receipt
		}
	}
	if len(object) == 0 {
		return ""
	}
	var members []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		members = append(members, toJSON(name)+":"+object[name])
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (p *play) settings(s turn, give func(bit byte, name, value string), number func(byte) string) {
	give(1, "max_retries", number(0))
	give(2, "processing_timeout", number(1))
	give(4, "max_stalls", number(2))
	give(8, "require_receipt", "true")
	give(0x10, "backoff", p.choose(s.literal>>4, `{"schedule_seconds":[1,0.5]}`, `{"jitter":"full"}`,
		`{"initial_seconds":0.1,"factor":1.5,"max_seconds":60}`,
		`{"initial_seconds":604800,"max_seconds":604800,"factor":10}`, "null"))
	give(0x20, "succeeded_days", p.choose(s.literal&0x0f, "0.001", "365", "7.5", "0"))
	give(0x40, "dead_days", p.choose(s.literal>>4, "0.01", "null", "3650", "0"))
	give(0x40, "shards", number(3))
}

// payload writes a text that may be anything, as JSON.
func (p *play) payload(n byte) string {
	switch n {
	case 14:
		return toJSON(strings.Repeat("é", maxPayload/2))
	case 15:
		return toJSON(strings.Repeat("\x01", 80_000)) // too long as JSON
	}
	return toJSON(p.choose(n, "x", "", "\x00😀\"\\\u2028", p.whole))
}

// receipt writes the receipt of the turn as JSON; empty for none.
func (p *play) receipt(s turn) string {
	want := s.receipt
	var own []string
	if n := len(p.accepted); n > 0 {
		m := p.accepted[n-1-int(s.id)%n]
		for _, h := range p.held {
			if h.place == m {
				own = append(own, h.receipt)
			}
		}
	}
	switch n := len(own); {
	case want == 0 && n > 0:
		return toJSON(own[n-1])
	case want == 1 && n > 1:
		return toJSON(own[n-2])
	case want == 2 && len(p.held) > 0:
		return toJSON(p.held[0].receipt)
	case want == 3:
		return ""
	case want == 4:
		return "1"
	}
	return toJSON(p.text(want))
}

// internals are words that no answer uses but for those that a client said.
var internals = []string{"sqlite", "panic", "goroutine", ".go:", "select ", "runtime", "nil pointer", "/shared/"}

func (p *play) wantNoInternals(t *testing.T, where, text string) {
	t.Helper()
	for _, word := range internals {
		if strings.Contains(strings.ToLower(text), word) && !strings.Contains(strings.ToLower(p.whole), word) {
			t.Errorf("%s tells of %q: %.500s", where, word, text)
		}
	}
}

// wantProblem checks that the answer is one of the problems, with all that
// belongs to it.
func (a answer) wantProblem(t *testing.T) {
	t.Helper()
	var d document
	a.into(t, a.status, &d)
	slug, ok := strings.CutPrefix(d.Type, "/problems/")
	switch {
	case !ok || titles[slug] == "" || d.Title != titles[slug] || d.Status != a.status || d.Detail == "":
		t.Errorf("%s: the problem is %+v", a.asked, d)
	case (len(d.Errors) > 0) != (slug == "validation-failed"):
		t.Errorf("%s: %s with the faults %+v", a.asked, slug, d.Errors)
	case (d.MessageStatus != "") != (slug == "message-conflict"):
		t.Errorf("%s: %s with the status %q of the message", a.asked, slug, d.MessageStatus)
	}
	for _, f := range d.Errors {
		if f.Field == "" || !strings.HasPrefix(f.Message, f.Field+" ") ||
			!slices.Contains([]string{"required", "invalid", "unknown", "too_long"}, f.Code) {
			t.Errorf("%s: the fault is %+v", a.asked, f)
		}
	}
}

// look notes what is stored now, and checks that no message is gone but the one
// deleted, and those past their retention.
func (p *play) look(t *testing.T, deleted string) {
	t.Helper()
	now := p.stored(t)
	for at, was := range p.last {
		m, isMessage := was.(kept)
		if _, there := now[at]; isMessage && !there && at != deleted && !m.Message.Expired(p.Now()) {
			t.Errorf("the message %s is lost; it was %+v", at, m)
		}
	}
	if _, there := now[deleted]; there {
		t.Errorf("the message %s is still there", deleted)
	}
	p.last = now
}

// wantTrue checks that what the answer says is so.
func (p *play) wantTrue(t *testing.T, s turn, a answer, params map[string]string) {
	t.Helper()
	switch s.what {
	case enqueueTurn:
		m := a.message(t, a.status)
		where, err := url.PathUnescape(a.header["location"])
		isNew, isRepeat := err == nil && where == m.path(), a.header["idempotent-replayed"] == "true"
		if isNew != (a.status == 201) || isRepeat != (a.status == 200) {
			t.Errorf("%s = %d with the headers %v", a.asked, a.status, a.header)
		}
		if at := (place{m.Queue, m.ID}); !slices.Contains(p.accepted, at) {
			p.accepted = append(p.accepted, at)
		}
		p.wantShown(t, s, a, m)
	case claimTurn:
		p.claimed(t, s, a)
	case succeedTurn, failTurn, extendTurn, releaseTurn, replayTurn:
		p.wantShown(t, s, a, a.message(t, 200))
	case listTurn:
		p.remember(a.page(t).NextCursor)
	case getTurn:
		number := 0
		for _, at := range a.message(t, 200).Attempts {
			if at.Number <= number {
				t.Errorf("%s: attempts do not ascend: %s", a.asked, a.body)
			}
			number = at.Number
		}
	case deleteTurn:
		delete(p.current, place{params["queue"], params["id"]})
		p.do(t, "GET", "/queues/"+params["queue"]+"/messages/"+params["id"], "").refused(t, 404, "not-found")
	case listQueuesTurn:
		var page struct {
			Queues     []json.RawMessage `json:"queues"`
			NextCursor *string           `json:"next_cursor"`
		}
		a.into(t, 200, &page)
		p.remember(page.NextCursor)
	case getQueueTurn, putQueueTurn:
		if shown := p.do(t, "GET", "/queues/"+params["queue"], ""); shown.body != a.body {
			t.Errorf("%s = %s; GET shows %s", a.asked, a.body, shown.body)
		}
	case deleteQueueTurn:
		p.do(t, "GET", "/queues/"+params["queue"], "").refused(t, 404, "not-found")
	default:
		t.Errorf("%s = %d for what is no route", a.asked, a.status)
	}
}

// wantMoved checks that the answer of a holder, or a replay, did to the message what
// it may, under the receipt that counts.
func (p *play) wantMoved(t *testing.T, s turn, a answer, body string, was, is message.Message) {
	t.Helper()
	var sent struct {
		Receipt *string `json:"receipt"`
	}
	_ = json.Unmarshal([]byte(body), &sent) // a body may be missing
	at := place{was.Queue, was.ID}
	if sent.Receipt != nil && *sent.Receipt != p.current[at] {
		t.Errorf("%s: %q is accepted, and the receipt is %q", a.asked, *sent.Receipt, p.current[at])
	}
	want := was
	want.Status, want.Due, want.UpdatedAt = is.Status, is.Due, is.UpdatedAt
	want.LastVerb, want.ExpiresAt = is.LastVerb, is.ExpiresAt
	switch {
	case s.what == replayTurn:
		want.Receipt, want.ReplayCount, want.RetryCount, want.StallCount = is.Receipt, was.ReplayCount+1, 0, 0
		want.LastError, want.DeadReason = nil, ""
		delete(p.current, at)
	case was.Status != message.Processing: // a repeat
		want = was
	case s.what == failTurn:
		want.RetryCount++
		want.LastError, want.DeadReason = is.LastError, is.DeadReason
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Errorf("%s: the message has become another (-want +is):\n%s", a.asked, diff)
	}
}

func (p *play) remember(cursor *string) {
	if cursor != nil {
		p.cursor = *cursor
	}
}

// claimed checks what was handed out, and keeps the receipts.
func (p *play) claimed(t *testing.T, s turn, a answer) {
	t.Helper()
	var messages []msg
	switch {
	case a.status == 204:
	case strings.HasPrefix(a.body, `{"messages":`):
		messages = a.page(t).Messages
	default:
		messages = []msg{a.message(t, 200)}
	}
	for _, m := range messages {
		if m.Status != "processing" || m.Receipt == "" || p.receipts[m.Receipt] {
			t.Errorf("%s: handed out as %s with the receipt %q", a.asked, m.Status, m.Receipt)
		}
		p.receipts[m.Receipt] = true
		p.current[place{m.Queue, m.ID}] = m.Receipt
		p.held = append(p.held, grant{place{m.Queue, m.ID}, m.Receipt})
		m.Receipt = ""
		p.wantShown(t, s, a, m)
	}
}

// wantShown checks that the message is as the answer shows it.
func (p *play) wantShown(t *testing.T, s turn, a answer, m msg) {
	t.Helper()
	got := p.get(t, m)
	got.Attempts = nil
	if m.Payload == nil {
		got.Payload = nil
	}
	if got.LastError != nil && s.what != failTurn {
		got.LastError = new(message.CutError(*got.LastError, message.ShortErrorBytes))
	}
	if diff := cmp.Diff(got, m); diff != "" {
		t.Errorf("%s: the answer differs from what GET shows (-GET +answer):\n%s", a.asked, diff)
	}
}

// lists checks that the lists of every queue show what is stored, both ways and
// counted.
func (p *play) lists(t *testing.T) {
	t.Helper()
	want, depth := make(map[string][]string), make(map[string]map[string]int)
	for _, one := range p.last {
		if q, ok := one.(message.Queue); ok {
			depth[q.Name] = map[string]int{"pending": 0, "processing": 0, "succeeded": 0, "dead": 0}
		}
	}
	for _, one := range p.last {
		if k, ok := one.(kept); ok {
			want[k.Message.Queue] = append(want[k.Message.Queue], k.Message.ID)
			depth[k.Message.Queue][string(k.Message.Status)]++
		}
	}
	for queue := range depth {
		path := "/queues/" + queue + "/messages"
		ascending := p.pages(t, path, "asc")
		descending := p.pages(t, path, "desc")
		slices.Reverse(descending)
		if diff := cmp.Diff(ascending, descending); diff != "" {
			t.Errorf("lists of %q differ (-asc +desc, turned):\n%s", queue, diff)
		}
		if diff := cmp.Diff(sorted(want[queue]), sorted(ascending)); diff != "" {
			t.Errorf("list of %q (-stored +listed):\n%s", queue, diff)
		}
		var shown struct {
			Depth map[string]int `json:"depth"`
		}
		a := p.do(t, "GET", "/queues/"+queue, "")
		if err := json.Unmarshal([]byte(a.body), &shown); err != nil || !maps.Equal(shown.Depth, depth[queue]) {
			t.Errorf("GET of %q = %d %s, %v, want the depth %v", queue, a.status, a.body, err, depth[queue])
		}
	}
}

// pages walks a list two messages at a time.
func (p *play) pages(t *testing.T, path, order string) (all []string) {
	t.Helper()
	for cursor := ""; ; {
		target := fmt.Sprintf("%s?limit=2&order=%s", path, order)
		if cursor != "" {
			target += "&cursor=" + cursor
		}
		page := p.do(t, "GET", target, "").page(t)
		if all = append(all, ids(page.Messages)...); page.NextCursor == nil {
			return all
		}
		cursor = *page.NextCursor
	}
}
