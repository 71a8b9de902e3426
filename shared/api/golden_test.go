package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/message"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const eventFolder = "../../events"

// function is the Lambda function that an event of this name is for.
func function(event string) string {
	name, _, _ := strings.Cut(event, "-")
	return name
}

func readEvent(tb testing.TB, name string) events.APIGatewayV2HTTPRequest {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(eventFolder, name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	var e events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(text, &e); err != nil {
		tb.Fatalf("event %s: %v", name, err)
	}
	return e
}

// eventNames lists the sample events that are requests. The schedule's is none.
func eventNames(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(eventFolder, "*.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); name != "sweep" {
			names = append(names, name)
		}
	}
	return names
}

func TestEveryRouteHasItsEventAndEveryEventItsRoute(t *testing.T) {
	t.Parallel()
	want := []string{api.Fallback + " $default"}
	for _, r := range api.Routes {
		want = append(want, r.Function+" "+r.Key)
	}
	var got []string
	for _, name := range eventNames(t) {
		e := readEvent(t, name)
		got = append(got, function(name)+" "+e.RouteKey)
		method := e.RequestContext.HTTP.Method
		route, params, _ := api.Match(method, e.RawPath)
		if e.RouteKey == "$default" {
			route, params = api.Route{Function: api.Fallback, Key: "$default"}, nil // Match would find a route, or not
		}
		if route.Function != function(name) || route.Key != e.RouteKey || e.RequestContext.RouteKey != e.RouteKey {
			t.Errorf("event %s: %s %s leads to %s, %q; the event says %q and %q", name, method, e.RawPath,
				route.Function, route.Key, e.RouteKey, e.RequestContext.RouteKey)
		}
		if !maps.Equal(params, e.PathParameters) {
			t.Errorf("event %s: pathParameters %v, the path says %v", name, e.PathParameters, params)
		}
		if e.RequestContext.HTTP.Path != e.RawPath || e.RequestContext.Stage != "$default" || e.Version != "2.0" {
			t.Errorf("event %s: path %q and %q, stage %q, version %q", name, e.RawPath,
				e.RequestContext.HTTP.Path, e.RequestContext.Stage, e.Version)
		}
		for header := range e.Headers {
			if header != strings.ToLower(header) {
				t.Errorf("event %s: header %q, want it in lower case", name, header)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events differ from routes (-routes +events):\n%s", diff)
	}
}

// goldenSetup brings the store to where the event finds it.
var goldenSetup = map[string]func(*testing.T, *fixture){
	"enqueue": func(*testing.T, *fixture) {},
	"claim": func(t *testing.T, f *fixture) {
		f.enqueue(t, `{"to":"alice@example.com"}`)
	},
	"succeed": held, "fail": held, "extend": held, "release": held,
	"list": func(t *testing.T, f *fixture) {
		for i, payload := range []string{"first <a&b>", "second 😀", "third"} {
			f.clock.at(time.Duration(i) * 100 * time.Millisecond)
			f.enqueue(t, payload)
			m := f.claim(t)
			f.answerWith(t, m, "fail", "error", strings.Repeat("é", 101), "permanent", true)
		}
		f.enqueue(t, "not dead")
	},
	"get": func(t *testing.T, f *fixture) {
		held(t, f)
		f.clock.at(time.Second)
		id := f.list(t, "/queues/emails/messages?status=processing")[0].ID
		f.do(t, "POST", "/queues/emails/messages/"+id+"/fail", `{"error":"connect: connection refused"}`).message(t, 200)
		f.clock.at(5 * time.Second)
		f.claim(t)
	},
	"replay": buried, "delete": buried,
	"queues": func(t *testing.T, f *fixture) {
		f.enqueueOn(t, "events", "x")
		if _, err := f.Sweep(t.Context(), message.SweepOptions{Count: true}); err != nil {
			t.Fatal(err)
		}
		f.enqueueOn(t, "emails", "x")
		f.enqueueOn(t, "exports", "x")
		f.enqueueOn(t, "orders", "x")
	},
	"queues-get": func(t *testing.T, f *fixture) {
		buried(t, f)
		f.clock.at(time.Second)
		f.enqueue(t, "due")
		f.do(t, "POST", "/queues/emails/messages", `{"payload":"later","delay_seconds":60}`).message(t, 201)
	},
	"queues-put": func(*testing.T, *fixture) {},
	"queues-delete": func(t *testing.T, f *fixture) {
		m := f.succeeded(t)
		if a := f.do(t, "DELETE", m.path(), ""); a.status != 204 {
			t.Fatalf("DELETE = %d", a.status)
		}
	},
	"fallback": func(*testing.T, *fixture) {},
}

// held leaves the first message with its holder.
func held(t *testing.T, f *fixture) {
	t.Helper()
	f.enqueue(t, `{"to":"alice@example.com"}`)
	f.clock.at(412 * time.Millisecond)
	f.claim(t)
}

// buried leaves the first message dead.
func buried(t *testing.T, f *fixture) {
	t.Helper()
	held(t, f)
	m := f.list(t, "/queues/emails/messages")[0]
	f.do(t, "POST", m.path()+"/fail", `{"error":"no such user","permanent":true}`).message(t, 200)
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, name := range eventNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup, ok := goldenSetup[name]
			if !ok {
				t.Fatalf("event %s has no set-up", name)
			}
			f := newFixture(t)
			setup(t, f)
			e := readEvent(t, name)
			f.clock.at(time.UnixMilli(e.RequestContext.TimeEpoch).Sub(epoch))
			a := f.send(t, function(name), e)
			got := pretty(t, a)
			file := filepath.Join("testdata", name+".golden.json")
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the answer differs from %s (-want +got):\n%s", file, diff)
			}
		})
	}
}

func TestEveryGoldenFileHasItsEvent(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".golden.json"))
	}
	if diff := cmp.Diff(eventNames(t), names); diff != "" {
		t.Errorf("golden files differ from events (-events +golden):\n%s", diff)
	}
}

// pretty writes the answer as Lambda returns it, with the JSON of its body in
// the body's place.
func pretty(t *testing.T, a answer) []byte {
	t.Helper()
	text, err := json.Marshal(a.event)
	if err != nil {
		t.Fatal(err)
	}
	if a.body != "" {
		quoted, err := json.Marshal(a.event.Body)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, append([]byte(`"body":`), quoted...), []byte(`"body":`+a.body), 1)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	return append(b.Bytes(), '\n')
}
