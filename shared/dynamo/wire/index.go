package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Index stands before an engine whose index shows everything at once, and makes it
// lag, as that of DynamoDB does: a query sees the index as it was a while ago. It
// answers queries of the index itself, from what it has seen being written; so
// all that is written to the table, and to no other, must pass here.
type Index struct {
	next  aws.HTTPClient
	clock func() int64
	lag   func() int64
	most  int64

	stripes [64]sync.Mutex // writes of one item come one after the other
	seed    maphash.Seed

	mu         sync.Mutex
	now        map[string]*entry     // of each message
	partitions map[string]*partition // by queue_status
}

// NewIndex returns an index that lags: clock tells the time in any unit, lag how
// old the view of a query is, at most most.
func NewIndex(next aws.HTTPClient, clock func() int64, most int64, lag func() int64) *Index {
	return &Index{
		next: next, clock: clock, lag: lag, most: most, seed: maphash.MakeSeed(),
		now: make(map[string]*entry), partitions: make(map[string]*partition),
	}
}

// item is what DynamoDB stores, of attributes that are text.
type item map[string]struct {
	S string `json:"S"`
}

// entry is where a message stood for a while.
type entry struct {
	key         map[string]any // as a query answers it
	status, due string
	bytes       int
	from, until int64
}

// partition is in the order of the index. It holds what has gone, too, as long as
// a query may show it.
type partition struct {
	entries []*entry
	gone    int
}

// Do implements aws.HTTPClient.
func (x *Index) Do(req *http.Request) (*http.Response, error) {
	r := Parse(req)
	if r.Action == "Query" && At(r.Params, "IndexName") != "" {
		return x.query(r)
	}
	if r.Writes() {
		if pk, sk := r.Key(); sk == "m" { // only messages are in the index
			return x.watch(r, pk)
		}
	}
	return r.SendTo(x.next)
}

// watch makes a write, and notes what it leaves of the message.
func (x *Index) watch(r *Request, pk string) (*http.Response, error) {
	stripe := &x.stripes[maphash.String(x.seed, pk)%uint64(len(x.stripes))]
	stripe.Lock()
	defer stripe.Unlock()
	if r.Action == "UpdateItem" {
		params := maps.Clone(r.Params)
		params["ReturnValues"] = "ALL_NEW"
		r = r.With(params)
	}
	resp, body, err := whole(r.SendTo(x.next))
	switch {
	case err != nil || resp.StatusCode >= http.StatusInternalServerError: // nobody knows what it did
		if err := x.look(r, pk); err != nil {
			return nil, fmt.Errorf("the index cannot see what became of a write: %w", err)
		}
	case resp.StatusCode != http.StatusOK: // it did nothing, and may show what is there
		if m := stored(body, "Item"); m != nil {
			x.note(pk, m)
		}
	case r.Action == "UpdateItem":
		x.note(pk, stored(body, "Attributes"))
	case r.Action == "PutItem":
		x.note(pk, stored(r.Payload, "Item"))
	case r.Action == "DeleteItem":
		x.note(pk, nil)
	}
	return resp, err
}

// look notes what is stored of the message.
func (x *Index) look(r *Request, pk string) error {
	//nolint:bodyclose // it is closed when it has been read
	resp, body, err := whole(r.As("GetItem", map[string]any{"ConsistentRead": true, "Key": map[string]any{
		"pk": map[string]any{"S": pk}, "sk": map[string]any{"S": "m"},
	}}).SendTo(x.next))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GetItem = %s", body)
	}
	x.note(pk, stored(body, "Item"))
	return nil
}

// whole reads the answer, and returns it to be read again.
func whole(resp *http.Response, err error) (*http.Response, []byte, error) {
	if err != nil {
		return resp, nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it has been read
	if err != nil {
		return nil, nil, err
	}
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp, body, nil
}

// stored reads an item from a request or an answer; nil for none.
func stored(body []byte, name string) item {
	var in map[string]json.RawMessage
	var it item
	if json.Unmarshal(body, &in) != nil || in[name] == nil || json.Unmarshal(in[name], &it) != nil {
		return nil
	}
	return it
}

// note records that the message has changed.
func (x *Index) note(pk string, m item) {
	x.mu.Lock()
	defer x.mu.Unlock()
	status, due := m["queue_status"].S, m["due"].S
	was, at := x.now[pk], x.clock()
	if was != nil {
		if was.status == status && was.due == due {
			return
		}
		was.until = at
		x.partitions[was.status].tidy(at - x.most)
		delete(x.now, pk)
	}
	if status == "" {
		return
	}
	e := &entry{status: status, due: due, from: at, until: math.MaxInt64, key: make(map[string]any)}
	for _, name := range []string{"pk", "sk", "queue_status", "due"} {
		e.key[name] = map[string]string{"S": m[name].S}
		e.bytes += len(name) + len(m[name].S)
	}
	x.now[pk] = e
	p := x.partitions[status]
	if p == nil {
		p = new(partition)
		x.partitions[status] = p
	}
	p.entries = slices.Insert(p.entries, p.find(due), e)
}

// find returns where the first entry is that is not before due.
func (p *partition) find(due string) int {
	i, _ := slices.BinarySearchFunc(p.entries, due, func(e *entry, due string) int { return cmp.Compare(e.due, due) })
	return i
}

// tidy drops what was gone before the time given, once that is worth it.
func (p *partition) tidy(before int64) {
	const worth = 100
	if p.gone++; p.gone < worth {
		return
	}
	p.gone = 0
	p.entries = slices.DeleteFunc(p.entries, func(e *entry) bool { return e.until < before })
}

// query answers as the engine would have, a while ago.
func (x *Index) query(r *Request) (*http.Response, error) {
	const asked = "#queue_status = :0 AND #due BETWEEN :1 AND :2"
	if got := At(r.Params, "KeyConditionExpression"); got != asked {
		return nil, fmt.Errorf("the index knows queries of %s, and not of %s", asked, got)
	}
	page, more := x.view(r)
	out := map[string]any{"Count": len(page), "ScannedCount": len(page)}
	bytes := 0
	items := make([]map[string]any, 0, len(page))
	for _, e := range page {
		items = append(items, e.key)
		bytes += e.bytes
	}
	if At(r.Params, "Select") != "COUNT" {
		out["Items"] = items
	}
	if more {
		out["LastEvaluatedKey"] = page[len(page)-1].key
	}
	const unit = 4096 // bytes, for half a read unit
	units := max(float64((bytes+unit-1)/unit)/2, 0.5)
	out["ConsumedCapacity"] = map[string]any{"TableName": r.Params["TableName"], "CapacityUnits": units}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return Respond(r, http.StatusOK, string(body)), nil
}

// view returns what the index showed a while ago, in the order asked for, and
// whether it stopped at the limit.
func (x *Index) view(r *Request) (page []*entry, more bool) {
	values := r.Params["ExpressionAttributeValues"]
	value := func(name string) string { return At(values, name, "S") }
	limit, limited := r.Params["Limit"].(float64)
	forwards, isSet := r.Params["ScanIndexForward"].(bool)
	backwards := isSet && !forwards
	behind := At(r.Params, "ExclusiveStartKey", "due", "S")

	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.partitions[value(":0")]
	if p == nil {
		return nil, false
	}
	at := x.clock() - x.lag()
	from, to := p.find(value(":1")), p.find(value(":2")+"\x00")
	for i := range max(to-from, 0) {
		e := p.entries[from+i]
		if backwards {
			e = p.entries[to-1-i]
		}
		if e.from > at || e.until <= at {
			continue
		}
		if passed := strings.Compare(e.due, behind); behind != "" && (passed == 0 || passed < 0 != backwards) {
			continue
		}
		page = append(page, e)
		if limited && len(page) == int(limit) {
			return page, true
		}
	}
	return page, false
}
