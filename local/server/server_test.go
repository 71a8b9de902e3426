package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/sqlite"
)

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

// startMain runs the program inside the test, and returns its URL and what it
// writes to standard error.
func startMain(t *testing.T, env map[string]string, args ...string) (url string, stderr *output) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	lines, stdout := io.Pipe()
	stderr = new(output)
	ended := make(chan int, 1)
	go func() {
		code := server.Main(ctx, args, environment(env), stdout, stderr)
		stdout.Close() // never fails
		ended <- code
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d after a clean stop, want 0; standard error:\n%s", code, stderr)
		}
	})
	line, err := bufio.NewReader(lines).ReadString('\n')
	if err != nil {
		t.Fatalf("no first line: %v; standard error:\n%s", err, stderr)
	}
	go io.Copy(io.Discard, lines) // ends with the program
	match := regexp.MustCompile(`^Redrive listens on (http://127\.0\.0\.1:[1-9][0-9]*)\n$`).FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("first line is %q, want Redrive listens on http://127.0.0.1:PORT", line)
	}
	return match[1], stderr
}

func TestMainFirstLine(t *testing.T) {
	t.Parallel()
	first, _ := startMain(t, nil, "-addr", "127.0.0.1:0", "-data", sqlite.InMemory)
	second, _ := startMain(t, nil, "-addr", "127.0.0.1:0", "-data", sqlite.InMemory)
	if first == second {
		t.Errorf("two servers on port 0 both listen on %s", first)
	}
	for _, url := range []string{first, second} {
		resp, body := request(t, http.MethodGet, url+"/health", "")
		const want = `{"status":"ok","store":"sqlite","version":"`
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(body, want) {
			t.Errorf("GET %s/health = %d %s, want 200 %s", url, resp.StatusCode, body, want)
		}
	}
}

func TestMainRefuses(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() }) // only listens
	file := filepath.Join(t.TempDir(), "redrive.db")
	store, err := sqlite.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() }) // nothing is in it
	for _, tt := range []struct {
		name   string
		args   []string
		code   int
		stderr string // a part of it
	}{
		{"unknown flag", []string{"-nope"}, 2, "-nope"},
		{"unknown argument", []string{"serve"}, 2, `unknown argument "serve"`},
		{"unknown log", []string{"-log", "xml"}, 2, "text or json"},
		{"help", []string{"-help"}, 0, "listen on this host:port"},
		{"port in use", []string{"-addr", taken.Addr().String()}, 1, "another program listens on " + taken.Addr().String()},
		{"file in use", []string{"-addr", "127.0.0.1:0", "-data", file}, 1, "another process uses it"},
		{"no such address", []string{"-addr", "127.0.0.1:http-but-not"}, 1, "cannot listen on 127.0.0.1:http-but-not"},
		{"a folder as file", []string{"-addr", "127.0.0.1:0", "-data", filepath.Dir(file)}, 1, "no file that can hold"},
		{"a device as file", []string{"-addr", "127.0.0.1:0", "-data", "/dev/null"}, 1, "no file that can hold"},
		{"no file", []string{"-addr", "127.0.0.1:0", "-data", ""}, 1, "the path is empty"},
		{"no port", []string{"-addr", "localhost"}, 1, `-addr "localhost" is no host:port`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := tt.args
			if !slices.Contains(args, "-data") {
				args = append(slices.Clone(args), "-data", sqlite.InMemory)
			}
			if tt.name == "unknown argument" {
				args = tt.args // flags would end there
			}
			var stdout, stderr output
			ctx, cancel := context.WithTimeout(t.Context(), within) // or one that is not refused never ends
			defer cancel()
			code := server.Main(ctx, args, environment(nil), &stdout, &stderr)
			if code != tt.code || !strings.Contains(stderr.String(), tt.stderr) || stdout.String() != "" {
				t.Errorf("Main(%q) = %d, standard error %q, output %q, want %d, %q and no output",
					args, code, &stderr, &stdout, tt.code, tt.stderr)
			}
			if tt.code == 1 && strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("Main(%q) writes %q, want one line for a person", args, &stderr)
			}
		})
	}
}

// TestMainKeepsToItself has a context that has ended: where an address is taken
// all the same, nothing listens on it.
func TestMainKeepsToItself(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for addr, open := range map[string]bool{
		"0.0.0.0:0": true, ":0": true, "[::]:0": true, "192.0.2.1:0": true, "redrive.example:0": true,
		"localhost.example:0": true, "127.0.0.1:0": false, "127.1.2.3:0": false, "[::1]:0": false, "localhost:0": false,
	} {
		for _, token := range []string{"", "secret"} {
			var stdout, stderr output
			env := environment(map[string]string{"REDRIVE_TOKEN": token})
			code := server.Main(ended, []string{"-addr", addr, "-data", sqlite.InMemory}, env, &stdout, &stderr)
			refused := code == 1 && strings.Contains(stderr.String(), "REDRIVE_TOKEN")
			if want := open && token == ""; refused != want {
				t.Errorf("Main on %s with token %q = %d, %q, want a refusal that names REDRIVE_TOKEN: %t",
					addr, token, code, &stderr, want)
			}
			if token != "" && strings.Contains(stderr.String(), token) {
				t.Errorf("Main on %s tells the token: %s", addr, &stderr)
			}
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	url := start(t, server.Config{})
	const mega = 1 << 20
	for _, tt := range []struct {
		name        string
		bytes       int
		status      int
		contentType string
		body        string // begins so
	}{
		{"1 MiB", mega, 201, "application/json", `{"id":"msg_`},
		{"1 MiB and a byte", mega + 1, 413, "application/problem+json", `{"type":"/problems/payload-too-large"`},
		{"10 MiB", 10 * mega, 413, "application/problem+json", `{"type":"/problems/payload-too-large"`},
		{"10 MiB and a byte", 10*mega + 1, 413, "application/json", `{"message":"Request Entity Too Large"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const text = `{"payload":"x"}`
			sent := text + strings.Repeat(" ", tt.bytes-len(text))
			for name, from := range map[string]io.Reader{
				"length given": strings.NewReader(sent), "in chunks": io.MultiReader(strings.NewReader(sent)),
			} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/queues/q/messages", from)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := http.DefaultTransport.RoundTrip(req)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				contentType := resp.Header.Get("Content-Type")
				if err != nil || resp.StatusCode != tt.status || contentType != tt.contentType ||
					!strings.HasPrefix(string(body), tt.body) {
					t.Errorf("POST of %d bytes, %s = %d, %s, %s, %v, want %d, %s, %s",
						tt.bytes, name, resp.StatusCode, contentType, body, err, tt.status, tt.contentType, tt.body)
				}
			}
		})
	}
}

// TestS010CursorSurvivesItsEscapes sends a cursor as it was given, and with
// every character percent-encoded.
func TestS010CursorSurvivesItsEscapes(t *testing.T) {
	t.Parallel()
	url := start(t, server.Config{})
	for range 3 {
		request(t, http.MethodPost, url+"/queues/q/messages", `{"payload":"x"}`)
	}
	page := func(query string) (ids []string, cursor string) {
		t.Helper()
		resp, body := request(t, http.MethodGet, url+"/queues/q/messages?limit=2"+query, "")
		var answer struct {
			Messages   []struct{ ID string }
			NextCursor string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("page = %d %s, %v, want 200", resp.StatusCode, body, err)
		}
		for _, m := range answer.Messages {
			ids = append(ids, m.ID)
		}
		return ids, answer.NextCursor
	}
	first, cursor := page("")
	var escaped strings.Builder
	for _, b := range []byte(cursor) {
		escaped.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[b>>4])+string("0123456789abcdef"[b&15])))
	}
	plain, _ := page("&cursor=" + cursor)
	encoded, _ := page("&cursor=" + escaped.String())
	if len(first) != 2 || len(plain) != 1 || !slices.Equal(plain, encoded) || slices.Contains(first, plain[0]) {
		t.Errorf("pages are %v, then %v, and %v with the cursor %s, want the third message twice",
			first, plain, encoded, &escaped)
	}
}

// TestLogs makes requests of all kinds, and reads every line.
func TestLogs(t *testing.T) {
	t.Parallel()
	const token, secret = "token-of-the-test", "not-for-the-log"
	url, stderr := startMain(t, map[string]string{"REDRIVE_TOKEN": token},
		"-log", "json", "-addr", "127.0.0.1:0", "-data", sqlite.InMemory)
	seen := make(map[string]bool) // of what must not be logged
	type logged struct{ route, queue, messageID, status string }
	want := make(map[string]logged) // by request id
	do := func(method, path, body string, line logged, headers ...string) string {
		t.Helper()
		resp, text := request(t, method, url+path, body, append(headers, "Authorization: Bearer "+token)...)
		if got := strings.Fields(resp.Status)[0]; got != line.status {
			t.Errorf("%s %s = %s %s, want %s", method, path, got, text, line.status)
		}
		want[resp.Header.Get("Apigw-Requestid")] = line
		_, rest, _ := strings.Cut(text, `"receipt":"`)
		if receipt, _, ok := strings.Cut(rest, `"`); ok {
			seen[receipt] = true
		}
		return text
	}
	body := do("POST", "/queues/orders/messages", `{"payload":"`+secret+`"}`,
		logged{"POST /queues/{queue}/messages", "orders", "@id", "201"}, "Idempotency-Key: "+secret)
	_, rest, _ := strings.Cut(body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	one := "/queues/orders/messages/" + id
	do("GET", one, "", logged{"GET /queues/{queue}/messages/{id}", "orders", id, "200"})
	do("POST", "/queues/orders/claim", "", logged{"POST /queues/{queue}/claim", "orders", id, "200"})
	receipt := slices.Collect(maps.Keys(seen))[0]
	do("POST", one+"/extend", `{"receipt":"`+receipt+`"}`,
		logged{"POST /queues/{queue}/messages/{id}/extend", "orders", id, "200"})
	do("POST", one+"/fail", `{"receipt":"`+secret+`","error":"`+secret+`"}`,
		logged{"POST /queues/{queue}/messages/{id}/fail", "orders", id, "409"})
	do("POST", one+"/fail", `{"receipt":"`+receipt+`","error":"`+secret+`"}`,
		logged{"POST /queues/{queue}/messages/{id}/fail", "orders", id, "200"})
	do("POST", "/queues/orders/messages", `{"payload":"`+secret+`","`+secret+`":1}`,
		logged{"POST /queues/{queue}/messages", "orders", "", "422"})
	do("POST", "/queues/orders/messages", secret, logged{"POST /queues/{queue}/messages", "orders", "", "400"})
	do("GET", "/queues/orders/messages?cursor="+secret, "", logged{"GET /queues/{queue}/messages", "orders", "", "400"})
	do("GET", "/queues/orders/messages?"+secret+"=1", "", logged{"GET /queues/{queue}/messages", "orders", "", "400"})
	do("GET", "/queues/orders/messages/"+secret, "", logged{"GET /queues/{queue}/messages/{id}", "orders", "", "404"})
	do("GET", "/queues?prefix=%FF"+secret, "", logged{"GET /queues", "", "", "200"})
	do("PUT", "/queues/orders", `{"`+secret+`":1}`, logged{"PUT /queues/{queue}", "orders", "", "422"})
	do("GET", "/"+secret, "", logged{"$default", "", "", "404"})
	do("GET", "/queues/orders", "", logged{"GET /queues/{queue}", "orders", "", "200"})
	request(t, "GET", url+"/queues", "", "Authorization: Bearer "+secret)

	refused := 0 // before they came to a route
	for line := range strings.Lines(stderr.String()) {
		for _, s := range append(slices.Collect(maps.Keys(seen)), token, secret) {
			if s != "" && strings.Contains(line, s) {
				t.Errorf("the log tells %q: %s", s, line)
			}
		}
		var entry struct {
			Msg        string
			Time       string
			Level      string
			RequestID  string   `json:"request_id"`
			Route      string   `json:"route"`
			Queue      string   `json:"queue"`
			MessageID  string   `json:"message_id"`
			Status     *int     `json:"status"`
			DurationMS *float64 `json:"duration_ms"`
			Refused    string   `json:"refused"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("%v: %s", err, line)
			continue
		}
		if entry.Msg != "request" {
			continue
		}
		if entry.Refused != "" { // before it came to a route
			if refused++; entry.Status == nil || *entry.Status != http.StatusUnauthorized || entry.RequestID == "" {
				t.Errorf("refused without status or id: %s", line)
			}
			continue
		}
		expected, ok := want[entry.RequestID]
		if !ok {
			t.Errorf("a line of no request: %s", line)
			continue
		}
		delete(want, entry.RequestID)
		if expected.messageID == "@id" {
			expected.messageID = id
		}
		if entry.Status == nil || entry.DurationMS == nil || *entry.DurationMS < 0 ||
			entry.Time == "" || entry.Level != "INFO" {
			t.Errorf("an incomplete line: %s", line)
			continue
		}
		status, _ := json.Marshal(*entry.Status) //nolint:errchkjson // a number
		if got := (logged{entry.Route, entry.Queue, entry.MessageID, string(status)}); got != expected {
			t.Errorf("line %+v, want %+v", got, expected)
		}
	}
	for id, line := range want {
		t.Errorf("no line for request %s: %+v", id, line)
	}
	if refused != 1 {
		t.Errorf("%d lines of refused requests, want 1: of the wrong token", refused)
	}
}
