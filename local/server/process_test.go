package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the runner as people start it.
var binary struct {
	build func() (path string, err error) // once
}

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "redrive-server-test-")
	if err != nil {
		panic(err)
	}
	binary.build = sync.OnceValues(func() (string, error) {
		path := filepath.Join(folder, "redrive")
		out, err := exec.Command("go", "build", "-o", path, "github.com/redrivehq/redrive/local").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("build: %w\n%s", err, out)
		}
		return path, nil
	})
	code := m.Run()
	os.RemoveAll(folder) // below the folder for such things
	os.Exit(code)
}

// process is a running server.
type process struct {
	cmd    *exec.Cmd
	url    string
	stderr *output
	ended  chan struct{} // closed when it has
	err    error         // of its end
}

// within bounds every wait for a process. It is not what the tests measure.
const within = 60 * time.Second

// startProcess starts the real program, and sees that it does not outlive the
// test.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	path, err := binary.build()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(path, args...), stderr: new(output), ended: make(chan struct{})}
	p.cmd.Env = []string{}
	p.cmd.Stderr = p.stderr
	lines, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.Close() // the process has its own
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill() // it may have ended
		<-p.ended
		lines.Close() // only read
	})
	line, err := bufio.NewReader(lines).ReadString('\n')
	if err != nil {
		t.Fatalf("no first line: %v; standard error:\n%s", err, p.stderr)
	}
	p.url = strings.TrimSpace(strings.TrimPrefix(line, "Redrive listens on "))
	return p
}

// wait returns how the process ended.
func (p *process) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(within):
		t.Fatalf("the process has not ended within %v; standard error:\n%s", within, p.stderr)
		return nil
	}
}

// until asks again and again, and fails the test if it is never so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", within, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// begin sends all of a request but its body, and returns when the handler waits
// for that: the request is under way then.
func begin(t *testing.T, url, path, body string) (net.Conn, *bufio.Reader) {
	t.Helper()
	addr := strings.TrimPrefix(url, "http://")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) // it may be closed
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
		path, addr, len(body))
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		if line, err := answers.ReadString('\n'); err != nil || line != want {
			t.Fatalf("answer to the headers is %q, %v, want %q", line, err, want)
		}
	}
	return conn, answers
}

func refusesConnections(t *testing.T, url string) func() bool {
	t.Helper()
	return func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		if err == nil {
			conn.Close() // nothing was sent
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}
}

func TestProcessStopsWhenAsked(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "redrive.db")
			p := startProcess(t, "-addr", "127.0.0.1:0", "-data", file)
			const body = `{"payload":"sent after the signal"}`
			conn, answers := begin(t, p.url, "/queues/q/messages", body)
			idle, idleAnswers := begin(t, p.url, "/queues/q/claim", "{}")
			if _, err := io.WriteString(idle, "{}"); err != nil {
				t.Fatal(err)
			}
			if line, err := idleAnswers.ReadString('\n'); err != nil || line != "HTTP/1.1 204 No Content\r\n" {
				t.Fatalf("answer to a claim is %q, %v, want 204", line, err)
			}
			if err := p.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			until(t, "new connections are refused", refusesConnections(t, p.url))
			if rest, err := io.ReadAll(idleAnswers); err != nil {
				t.Errorf("a connection without a request is not closed: %v after %q", err, rest)
			}
			select {
			case <-p.ended:
				t.Fatalf("the process ended with a request under way: %v", p.err)
			default:
			}
			if _, err := io.WriteString(conn, body); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("the request under way got no answer: %v", err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusCreated {
				t.Errorf("the request under way = %d %s, %v, want 201", resp.StatusCode, text, err)
			}
			if err := p.wait(t); err != nil {
				t.Errorf("the process ended with %v, want exit code 0; standard error:\n%s", err, p.stderr)
			}
			again := startProcess(t, "-addr", "127.0.0.1:0", "-data", file)
			if _, list := request(t, http.MethodGet, again.url+"/queues/q/messages?payload=true", ""); !strings.Contains(list,
				`"payload":"sent after the signal"`) {
				t.Errorf("after a new start the list is %s, want the message", list)
			}
		})
	}
}

func TestProcessEndsAtOnceWhenAskedTwice(t *testing.T) {
	t.Parallel()
	p := startProcess(t, "-addr", "127.0.0.1:0", "-data", ":memory:")
	begin(t, p.url, "/queues/q/messages", `{"payload":"never sent"}`)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "new connections are refused", refusesConnections(t, p.url))
	// The first signal gives way to the next ones at about the same time, so one
	// of these is the second.
	until(t, "the process ends", func() bool {
		p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	if exit := new(exec.ExitError); !errors.As(p.err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("the process ended with %v, want by the signal", p.err)
	}
}

// TestProcessIsAlone starts a second one on what the first one uses.
func TestProcessIsAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "redrive.db")
	p := startProcess(t, "-addr", "127.0.0.1:0", "-data", file)
	addr := strings.TrimPrefix(p.url, "http://")
	for _, tt := range []struct {
		name, stderr string
		args         []string
	}{
		{"port", "redrive: another program listens on " + addr + " already", []string{"-addr", addr, "-data", ":memory:"}},
		{"file", "another process uses it", []string{"-addr", "127.0.0.1:0", "-data", file}},
	} {
		var stdout, stderr strings.Builder
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		second := exec.CommandContext(ctx, p.cmd.Path, tt.args...)
		second.Env, second.Stdout, second.Stderr = []string{}, &stdout, &stderr
		err := second.Run()
		if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
			!strings.Contains(stderr.String(), tt.stderr) || stdout.String() != "" {
			t.Errorf("a second process on the same %s: %v, %q, %q, want exit code 1 and %q",
				tt.name, err, stderr.String(), stdout.String(), tt.stderr)
		}
	}
	if resp, body := request(t, http.MethodGet, p.url+"/health", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("the first process answers %d %s after that, want 200", resp.StatusCode, body)
	}
}
