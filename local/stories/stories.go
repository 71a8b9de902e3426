// Package stories tells what a client sees of Redrive, as stories over HTTP: a
// row is a story, which is a list of requests and what each is answered.
//
// [Run] tells them to any server: the local one, SAM's, a deployed stack. So a
// story sets no clock, looks into no store, and waits for nothing but an answer
// that it asks for again and again. It expects no write to be seen by an index
// at once.
//
// How a step is written:
//
//   - $name in a request is a value known by then, in a path percent-encoded. $q
//     and $q2 are queues of this story alone.
//   - $name in an expected answer must be the value known, or becomes it if none
//     is.
//   - @any is anything but null, @time a time as the contract writes it, @absent
//     no member at all.
//   - An expected object may have members that are not spoken of. An expected
//     array has exactly so many items.
package stories

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// Options say how to reach a server.
type Options struct {
	// Do sends a request, and is where one can be signed. It must not follow
	// redirects. A plain client if nil.
	Do func(*http.Request) (*http.Response, error)
	// Within bounds how long an answer is asked for again; a minute if zero.
	Within time.Duration
}

// Run tells every story to the server at baseURL, each as a subtest, all at the
// same time: they mostly wait, so that the bound of t.Parallel, one test a
// processor, would make them take minutes.
func Run(t *testing.T, baseURL string, o Options) {
	t.Helper()
	if o.Do == nil {
		client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		o.Do = client.Do
	}
	if o.Within == 0 {
		o.Within = time.Minute
	}
	var telling sync.WaitGroup
	defer telling.Wait()
	for _, chapter := range [][]story{lifecycle(), keys(), lists(), queues(), refusals(), names(), payloads()} {
		for _, s := range chapter {
			telling.Go(func() {
				t.Run(s.name, func(t *testing.T) {
					s.tell(t, &teller{base: strings.TrimSuffix(baseURL, "/"), Options: o})
				})
			})
		}
	}
}

// story is one row.
type story struct {
	name  string
	queue string // what the name of $q begins with, if that matters
	steps []step
	// stored is what the list of $q shows in the end, with payloads; not looked at
	// if empty.
	stored string
	// then goes on where a list of steps cannot say it.
	then func(*testing.T, *teller)
}

// step is a request and its answer.
type step struct {
	request string   // method, blank, path
	send    string   // the body
	headers []string // "Name: value", sent in this spelling; "-Name" leaves one out
	status  int
	shown   []string // headers of the answer, "Name: value"
	want    string   // the answer's JSON; not looked at if empty
	repeat  repetition
}

// repetition says what makes a step be taken once more.
type repetition int

const (
	once      repetition = iota
	whileBare            // it was answered with 204: there was nothing yet
	untilSo              // the answer is not the one expected
)

func call(request, send string, status int, want string) step {
	return step{request: request, send: send, status: status, want: want}
}

// refused expects a problem document.
func refused(request, send string, status int, slug string) step {
	return call(request, send, status, `{"type":"/problems/`+slug+`"}`)
}

// invalid expects a 422 with exactly these faults: "field code".
func invalid(request, send string, faults ...string) step {
	var views []string
	for _, fault := range faults {
		field, code, _ := strings.Cut(fault, " ")
		views = append(views, fmt.Sprintf(`{"field":%q,"code":%q,"message":"@any"}`, field, code))
	}
	return call(request, send, http.StatusUnprocessableEntity, `{"type":"/problems/validation-failed",`+
		`"title":"Validation Failed","errors":[`+strings.Join(views, ",")+`]}`)
}

func (s step) with(headers ...string) step {
	s.headers = append(s.headers, headers...)
	return s
}

func (s step) shows(headers ...string) step {
	s.shown = append(s.shown, headers...)
	return s
}

// again asks until the answer is as expected: for what takes time, and for what
// an index may show later.
func (s step) again() step {
	s.repeat = untilSo
	return s
}

// teller tells a story to a server.
type teller struct {
	Options
	base  string
	known values
}

func (s story) tell(t *testing.T, tl *teller) {
	t.Helper()
	suffix := strings.ToLower(rand.Text()[:12])
	tl.known = values{"q": s.queue + "story-" + suffix, "q2": "other-" + suffix}
	for i, step := range s.steps {
		tl.do(t, fmt.Sprintf("step %d", i+1), step)
	}
	if s.then != nil {
		s.then(t, tl)
	}
	if s.stored != "" {
		tl.do(t, "stored in the end", call("GET /queues/$q/messages?payload=true&limit=250", "", http.StatusOK,
			`{"messages":`+s.stored+`,"next_cursor":null}`).again())
	}
}

// Between two askings. It grows, so that a slow server is not flooded.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// do takes a step, and ends the story where it goes another way.
func (tl *teller) do(t *testing.T, name string, s step) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tl.Within)
	defer cancel()
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		known, status, err := tl.try(t, s)
		if err == nil {
			tl.known = known
			return
		}
		if s.repeat == once || s.repeat == whileBare && status != http.StatusNoContent {
			t.Fatalf("%s, %s: %v", name, s.request, err)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s, %s: not within %v: %v", name, s.request, tl.Within, err)
		case <-time.After(pause):
		}
	}
}

// try takes the step once, and returns what is known then.
func (tl *teller) try(t *testing.T, s step) (known values, status int, err error) {
	t.Helper()
	method, path, _ := strings.Cut(tl.known.fill(t, s.request, url.PathEscape), " ")
	status, header, body, err := tl.send(t, method, path, tl.known.fill(t, s.send, escapeJSON), s.headers)
	if err != nil {
		return nil, status, err
	}
	if err := wellFormed(status, header, body); err != nil {
		return nil, status, fmt.Errorf("answer %d %s: %w", status, shorten(body), err)
	}
	if status != s.status {
		return nil, status, fmt.Errorf("answer %d %s, want %d", status, shorten(body), s.status)
	}
	known = maps.Clone(tl.known)
	if s.want != "" {
		want, err := decode([]byte(s.want))
		if err != nil {
			t.Fatalf("the story expects what is no JSON: %v: %s", err, s.want)
		}
		got, err := decode(body)
		if err == nil {
			err = known.match("", want, got)
		}
		if err != nil {
			return nil, status, fmt.Errorf("answer %d %s: %w", status, shorten(body), err)
		}
	}
	for _, line := range s.shown {
		name, want, _ := strings.Cut(known.fill(t, line, url.PathEscape), ": ")
		if got := header.Get(name); got != want && (want != "@any" || got == "") {
			return nil, status, fmt.Errorf("answer %d with header %s %q, want %q", status, name, got, want)
		}
	}
	return known, status, nil
}

func (tl *teller) send(
	t *testing.T, method, path, body string, headers []string,
) (status int, header http.Header, answer []byte, err error) {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, tl.base+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		if name, without := strings.CutPrefix(line, "-"); without {
			req.Header.Del(name)
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		if name == "Content-Type" {
			req.Header.Del(name)
		}
		req.Header[name] = append(req.Header[name], strings.TrimSpace(value)) // in this spelling
	}
	resp, err := tl.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close() // it has been read
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, answer, err
}

// wellFormed checks what holds for every answer of Redrive's own.
func wellFormed(status int, header http.Header, body []byte) error {
	contentType := header.Get("Content-Type")
	switch {
	case status == http.StatusNoContent:
		if len(body) > 0 {
			return errors.New("a 204 with a body")
		}
		return nil
	case status < http.StatusMultipleChoices && contentType != "application/json",
		status >= http.StatusBadRequest && contentType != "application/problem+json":
		return fmt.Errorf("content-type is %q", contentType)
	case !utf8.Valid(body):
		return errors.New("not UTF-8")
	case status < http.StatusMultipleChoices:
		return nil
	}
	var problem struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal(body, &problem); err != nil {
		return err
	}
	if problem.Status != status || problem.Title == "" || problem.Detail == "" ||
		!strings.HasPrefix(problem.Type, "/problems/") {
		return errors.New("an incomplete problem document")
	}
	return nil
}

// values are those known by name.
type values map[string]string

var reference = regexp.MustCompile(`\$[a-z][a-z0-9_]*`)

// fill puts the values in their places.
func (v values) fill(t *testing.T, text string, escape func(string) string) string {
	t.Helper()
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		value, ok := v[ref[1:]]
		if !ok {
			t.Fatalf("the story speaks of %s before it is known", ref)
		}
		return escape(value)
	})
}

func escapeJSON(text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		panic(err) // a string can be written
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

func shorten(body []byte) string {
	const most = 600
	if len(body) <= most {
		return string(body)
	}
	return fmt.Sprintf("%s… (%d bytes)", body[:most], len(body))
}
