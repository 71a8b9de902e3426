package server_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/local/server"
)

func TestHostHeader(t *testing.T) {
	t.Parallel()
	url := start(t, server.Config{})
	port := url[strings.LastIndex(url, ":"):]
	for _, tt := range []struct {
		host    string
		allowed bool
	}{
		{"127.0.0.1" + port, true},
		{"127.0.0.1", true},
		{"localhost" + port, true},
		{"LocalHost", true},
		{"[::1]" + port, true},
		{"[::1]", true},
		{"redrive.example" + port, false},
		{"redrive.example", false},
		{"127.0.0.1.redrive.example", false},
		{"localhost.redrive.example" + port, false},
		{"0.0.0.0" + port, false},
		{"192.168.1.5" + port, false},
		{"127.0.0.1@redrive.example", false},
	} {
		t.Run(tt.host, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{"/queues", "/health"} {
				resp, body := request(t, http.MethodGet, url+path, "", "Host: "+tt.host)
				want := http.StatusForbidden
				if tt.allowed {
					want = http.StatusOK
				}
				if resp.StatusCode != want {
					t.Errorf("GET %s for host %q = %d %s, want %d", path, tt.host, resp.StatusCode, body, want)
				}
			}
		})
	}
}

// TestRequestsOfForeignPages does what a page in a browser could do, and sees
// that nothing comes of it.
func TestRequestsOfForeignPages(t *testing.T) {
	t.Parallel()
	url := start(t, server.Config{})
	_, body := request(t, http.MethodPost, url+"/queues/q/messages", `{"payload":"x"}`)
	_, rest, _ := strings.Cut(body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	one := "/queues/q/messages/" + id
	for _, tt := range []struct {
		name    string
		headers []string
		allowed bool
	}{
		{"no browser", nil, true},
		{"typed by a person", []string{"Sec-Fetch-Site: none"}, true},
		{"a page of its own", []string{"Sec-Fetch-Site: same-origin", "Origin: " + url}, true},
		{"an old browser, a page of its own", []string{"Origin: " + url}, true},
		{"another site", []string{"Sec-Fetch-Site: cross-site", "Origin: https://foreign.example"}, false},
		{"another site, origin hidden", []string{"Sec-Fetch-Site: cross-site"}, false},
		{"another port of this machine", []string{"Sec-Fetch-Site: same-site", "Origin: http://127.0.0.1:1"}, false},
		{"an old browser, another site", []string{"Origin: https://foreign.example"}, false},
		{"an old browser, another port", []string{"Origin: http://127.0.0.1:1"}, false},
		{"a file, or a sandbox", []string{"Origin: null"}, false},
	} {
		for _, call := range []struct {
			method, path, body string
			status             int // where it is allowed
		}{
			{http.MethodGet, one, "", http.StatusOK},
			{http.MethodGet, "/health", "", http.StatusOK},
			{http.MethodHead, one, "", http.StatusMethodNotAllowed},
			{http.MethodPost, "/queues/q/claim", "", http.StatusOK},
			{http.MethodPost, "/queues/q/messages", `{"payload":"x"}`, http.StatusCreated},
			{http.MethodDelete, one, "", http.StatusConflict},
			{http.MethodPut, "/queues/q2", `{}`, http.StatusCreated},
			{http.MethodOptions, "/queues/q/messages", "", http.StatusMethodNotAllowed},
		} {
			if tt.allowed && tt.name != "no browser" && call.method != http.MethodGet {
				continue // once is enough for what has an effect
			}
			want := http.StatusForbidden
			if tt.allowed {
				want = call.status
			}
			resp, body := request(t, call.method, url+call.path, call.body, tt.headers...)
			if resp.StatusCode != want {
				t.Errorf("%s: %s %s = %d %s, want %d", tt.name, call.method, call.path, resp.StatusCode, body, want)
			}
			for name := range resp.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s: %s %s answers CORS: %s", tt.name, call.method, call.path, name)
				}
			}
			if want == http.StatusForbidden && strings.Contains(body, id) {
				t.Errorf("%s: %s %s tells what is stored: %s", tt.name, call.method, call.path, body)
			}
		}
	}
	// What was allowed: one more message, one claim.
	_, body = request(t, http.MethodGet, url+"/queues/q", "")
	if want := `"depth":{"pending":1,"processing":1,"succeeded":0,"dead":0}`; !strings.Contains(body, want) {
		t.Errorf("queue after all = %s, want %s", body, want)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery_staple"
	url := start(t, server.Config{Token: token})
	for _, tt := range []struct {
		name, authorization string
		allowed             bool
	}{
		{"none", "", false},
		{"the token", "Bearer " + token, true},
		{"the scheme in small letters", "bearer " + token, true},
		{"another token", "Bearer other", false},
		{"a part of the token", "Bearer " + token[:10], false},
		{"more than the token", "Bearer " + token + "x", false},
		{"an empty token", "Bearer ", false},
		{"no scheme", token, false},
		{"another scheme", "Basic " + token, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{"/queues", "/health", "/nowhere"} {
				var headers []string
				if tt.authorization != "" {
					headers = []string{"Authorization: " + tt.authorization}
				}
				want := map[string]int{"/queues": 200, "/health": 200, "/nowhere": 404}[path]
				if !tt.allowed {
					want = http.StatusUnauthorized
				}
				resp, body := request(t, http.MethodGet, url+path, "", headers...)
				challenge := resp.Header.Get("Www-Authenticate")
				if resp.Header.Get("Apigw-Requestid") == "" {
					t.Errorf("GET %s has no Apigw-Requestid", path)
				}
				if resp.StatusCode != want || (challenge == "Bearer") == tt.allowed {
					t.Errorf("GET %s = %d %s with challenge %q, want %d", path, resp.StatusCode, body, challenge, want)
				}
				if strings.Contains(body, token) {
					t.Errorf("GET %s tells the token: %s", path, body)
				}
			}
			resp, body := request(t, http.MethodPost, url+"/queues/q/claim", "",
				"Authorization: "+tt.authorization, "Host: redrive.example")
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("POST for a foreign host = %d %s, want 403", resp.StatusCode, body)
			}
		})
	}
}

// TestHostOfARequestLine has the foreign name where a proxy would find it, or
// none at all.
func TestHostOfARequestLine(t *testing.T) {
	t.Parallel()
	url := start(t, server.Config{})
	for _, tt := range []struct{ name, request, want string }{
		{"a foreign name in the first line", "GET http://redrive.example/queues HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "403"},
		{"a foreign name behind two slashes", "GET //redrive.example/queues HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "404"},
		{"no name", "GET /queues HTTP/1.0\r\n\r\n", "403"},
		{"its own name in the first line", "GET http://127.0.0.1/queues HTTP/1.1\r\nHost: redrive.example\r\n\r\n", "200"},
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, tt.request); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		conn.Close()
		if fields := strings.Fields(line); err != nil || len(fields) < 2 || fields[1] != tt.want {
			t.Errorf("%s: answer %q, %v, want %s", tt.name, line, err, tt.want)
		}
	}
}
