package emulator_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
)

// The message and the receipt that the samples speak of.
const (
	sampleID      = "msg_06H2S2KGG1D5M0000000000008"
	sampleReceipt = "WlpaWgAAAAAAAAAD"
	sampleQueue   = "emails"
)

// samples brings the table to where each sample event finds it, as the tests of
// the handlers do, and returns the message that the event is about.
var samples = map[string]func(*testing.T, *message.Service) message.Message{
	"enqueue": none, "queues-put": none, "fallback": none,
	"claim": func(t *testing.T, svc *message.Service) message.Message {
		return enqueue(t, svc, sampleQueue, `{"to":"alice@example.com"}`)
	},
	"succeed": held, "fail": held, "extend": held, "release": held,
	"replay": buried, "delete": buried,
	"get": func(t *testing.T, svc *message.Service) message.Message {
		now := svc.Now
		svc.Now = func() time.Time { return now().Add(-time.Minute) } // so that it is due again
		fail(t, svc, held(t, svc), message.Failure{Error: "connect: connection refused"})
		svc.Now = now
		return claim(t, svc)
	},
	"list": func(t *testing.T, svc *message.Service) message.Message {
		for _, payload := range []string{"first <a&b>", "second 😀", "third"} {
			enqueue(t, svc, sampleQueue, payload)
			fail(t, svc, claim(t, svc), message.Failure{Error: strings.Repeat("é", 101), Permanent: true})
		}
		return enqueue(t, svc, sampleQueue, "not dead")
	},
	"queues": func(t *testing.T, svc *message.Service) message.Message {
		enqueue(t, svc, "events", "x")
		if _, err := svc.Sweep(t.Context(), message.SweepOptions{Count: true}); err != nil {
			t.Fatal(err)
		}
		for _, queue := range []string{"emails", "exports", "orders"} {
			enqueue(t, svc, queue, "x")
		}
		return message.Message{}
	},
	"queues-get": func(t *testing.T, svc *message.Service) message.Message {
		m := buried(t, svc)
		enqueue(t, svc, sampleQueue, "due")
		delay := time.Hour
		if _, _, err := svc.Enqueue(t.Context(), sampleQueue, message.Draft{Payload: "later", Delay: &delay}); err != nil {
			t.Fatal(err)
		}
		return m
	},
	"queues-delete": func(t *testing.T, svc *message.Service) message.Message {
		m := buried(t, svc)
		if err := svc.Delete(t.Context(), sampleQueue, m.ID); err != nil {
			t.Fatal(err)
		}
		return m
	},
}

func none(*testing.T, *message.Service) message.Message { return message.Message{} }

func enqueue(t *testing.T, svc *message.Service, queue, payload string) message.Message {
	t.Helper()
	m, _, err := svc.Enqueue(t.Context(), queue, message.Draft{Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func claim(t *testing.T, svc *message.Service) message.Message {
	t.Helper()
	claimed, err := svc.Claim(t.Context(), sampleQueue, message.ClaimOptions{})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("Claim = %v, %v, want one message", claimed, err)
	}
	return claimed[0]
}

func fail(t *testing.T, svc *message.Service, m message.Message, f message.Failure) {
	t.Helper()
	f.Receipt = &m.Receipt
	if _, err := svc.Fail(t.Context(), m.Queue, m.ID, f); err != nil {
		t.Fatal(err)
	}
}

func held(t *testing.T, svc *message.Service) message.Message {
	t.Helper()
	enqueue(t, svc, sampleQueue, `{"to":"alice@example.com"}`)
	return claim(t, svc)
}

func buried(t *testing.T, svc *message.Service) message.Message {
	t.Helper()
	m := held(t, svc)
	fail(t, svc, m, message.Failure{Error: "no such user", Permanent: true})
	return m
}

// TestSamples hands every function its sample events. The answers are those that
// the handlers give to them, but for times, identifiers and receipts.
func TestSamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(root + "/events/*.json")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		function, _, _ := strings.Cut(name, "-")
		seen[function] = true
		if function == "sweep" {
			continue // see TestSweep: it answers nothing
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			prepare, ok := samples[name]
			if !ok {
				t.Fatalf("event %s has no set-up", name)
			}
			m := prepare(t, w.service(0))
			f := w.start(t, function, w.variables(t, function, w.engine))
			got, err := f.Invoke(t.Context(), []byte(strings.NewReplacer(
				sampleID, m.ID, sampleReceipt, m.Receipt).Replace(readFile(t, file))))
			if err != nil {
				t.Fatal(err)
			}
			want := readFile(t, root+"/shared/api/testdata/"+name+".golden.json")
			if diff := cmp.Diff(parse(t, want), parse(t, string(got))); diff != "" {
				t.Errorf("the answer differs from the golden one (-golden +got):\n%s", diff)
			}
		})
	}
	folders, err := filepath.Glob(root + "/functions/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if name := filepath.Base(folder); !seen[name] {
			t.Errorf("function %s has no sample event", name)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fresh are the texts that differ from one run to the next, and the word for each.
var fresh = []struct {
	pattern *regexp.Regexp
	word    string
}{
	{regexp.MustCompile(`msg_[0-9A-Z]{26}`), "a message"},
	{regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`), "a time"},
	{regexp.MustCompile(`^[A-Za-z0-9_-]{16}$`), "a receipt"},
	{regexp.MustCompile(`^[A-Za-z0-9_-]{24,}$`), "a cursor"},
}

// parse returns the answer of a function, its body as JSON, with a word in the
// place of what is fresh.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var answer map[string]any
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if body, ok := answer["body"].(string); ok && body != "" {
		var value any
		if err := json.Unmarshal([]byte(body), &value); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		answer["body"] = value
	}
	return unfresh(answer).(map[string]any)
}

func unfresh(value any) any {
	switch value := value.(type) {
	case string:
		for _, f := range fresh {
			value = f.pattern.ReplaceAllString(value, f.word)
		}
		return value
	case []any:
		for i := range value {
			value[i] = unfresh(value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = unfresh(value[name])
		}
	}
	return value
}
