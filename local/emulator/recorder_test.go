package emulator_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redrivehq/redrive/local/stack"
	"github.com/redrivehq/redrive/shared/dynamo"
)

// call is what a function asks DynamoDB for.
type call struct {
	stack.Grant        // that it takes
	first       bool   // not one that the SDK repeats
	table       string // empty where several are named
	body        map[string]any
}

// key returns the sort key that the call is about.
func (c call) key() string {
	for _, where := range []string{"Key", "Item"} {
		key, _ := c.body[where].(map[string]any)
		sk, _ := key["sk"].(map[string]any)
		if text, ok := sk["S"].(string); ok {
			return text
		}
	}
	return ""
}

// recorder stands between a function and the engine.
type recorder struct {
	*httptest.Server

	mu      sync.Mutex
	calls   map[stack.Grant]int
	asked   int // calls, not counting what the SDK repeats
	running int // calls, not counting looks into the index: one of many may be given up
	faults  []string
	instead func(call) *reply
}

// reply is an answer to a call.
type reply struct {
	status   int
	body     string
	checksum string // the right one if empty
}

func newRecorder(t *testing.T, engine string) *recorder {
	t.Helper()
	target, err := url.Parse(engine)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog: log.New(io.Discard, "", 0), // of a function that has gone
	}
	r := &recorder{calls: map[stack.Grant]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.serve(w, req, proxy)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) serve(w http.ResponseWriter, req *http.Request, engine http.Handler) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the function has gone
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	c := read(req.Header, body)
	answer := httptest.NewRecorder()
	if own := r.begin(c); own != nil {
		answer.Header().Set("Content-Type", "application/x-amz-json-1.0")
		checksum := strconv.Itoa(int(crc32.ChecksumIEEE([]byte(own.body))))
		answer.Header().Set("X-Amz-Crc32", cmp.Or(own.checksum, checksum))
		answer.WriteHeader(own.status)
		answer.WriteString(own.body)
	} else {
		engine.ServeHTTP(answer, req)
	}
	r.end(c) // before the function hears of it, which may then answer at once
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	answer.Body.WriteTo(w)
}

// read makes a call of the request.
func read(header http.Header, body []byte) call {
	_, action, _ := strings.Cut(header.Get("X-Amz-Target"), ".")
	c := call{
		Grant: stack.Grant{Action: "dynamodb:" + action, On: stack.OnTable},
		first: strings.HasPrefix(header.Get("Amz-Sdk-Request"), "attempt=1;"),
	}
	_ = json.Unmarshal(body, &c.body) // what is no JSON is a fault
	c.table, _ = c.body["TableName"].(string)
	if _, ok := c.body["IndexName"]; ok {
		c.On = stack.OnIndex
	}
	return c
}

func (r *recorder) begin(c call) *reply {
	r.mu.Lock()
	r.calls[c.Grant]++
	if c.On == stack.OnTable {
		r.running++
	}
	if c.first {
		r.asked++
	}
	r.faults = append(r.faults, faultsOf(c)...)
	instead := r.instead
	r.mu.Unlock()
	if instead == nil {
		return nil
	}
	return instead(c)
}

func (r *recorder) end(c call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.On == stack.OnTable {
		r.running--
	}
}

// inFlight returns how many calls on the table are not answered yet.
func (r *recorder) inFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// answer asks the function for an answer in the place of the engine's; nil leaves
// the call to the engine.
func (r *recorder) answer(instead func(call) *reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instead = instead
}

// words are those of DynamoDB's expressions that are no names of attributes.
var words = []string{
	"SET", "REMOVE", "ADD", "AND", "OR", "BETWEEN", "attribute_exists", "attribute_not_exists", "begins_with",
}

var (
	word       = regexp.MustCompile(`[#:]?[A-Za-z_][A-Za-z_0-9]*`)
	operations = []string{"GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem"}
)

// faultsOf lists what is wrong with a call, whatever the engine says of it.
func faultsOf(c call) (faults []string) {
	fault := func(format string, args ...any) {
		faults = append(faults, c.Action+": "+fmt.Sprintf(format, args...))
	}
	if !slices.Contains(operations, strings.TrimPrefix(c.Action, "dynamodb:")) {
		fault("no such operation is used: no scans, no transactions")
	}
	// S112 of CASES.md: a reserved word fails only in the cloud.
	for name, value := range c.body {
		text, ok := value.(string)
		if !ok || !strings.HasSuffix(name, "Expression") {
			continue
		}
		for _, w := range word.FindAllString(text, -1) {
			if w[0] != '#' && w[0] != ':' && !slices.Contains(words, w) {
				fault("%s %q names %s without a placeholder", name, text, w)
			}
		}
	}
	if c.body["FilterExpression"] != nil {
		fault("a filter: what it drops is paid for")
	}
	// S113 of CASES.md: what decides an answer is read consistently. A payload never
	// changes; an index cannot be read so.
	consistent := c.body["ConsistentRead"] == true
	if requests, ok := c.body["RequestItems"].(map[string]any); ok {
		for _, request := range requests {
			items, _ := request.(map[string]any)
			consistent = items["ConsistentRead"] == true
		}
	}
	reads := strings.HasSuffix(c.Action, "GetItem") || strings.HasSuffix(c.Action, "Query")
	if reads && c.On == stack.OnTable && !consistent && !strings.HasPrefix(c.key(), "p#") {
		fault("a read of the table that is not consistent: %v", c.body)
	}
	if index := c.body["IndexName"]; index != nil && index != dynamo.IndexName {
		fault("index %v", index)
	}
	return faults
}
