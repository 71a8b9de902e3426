package process_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redrivehq/redrive/local/prove/process"
)

// TestServerDies kills a server at work and lets it live again at the same place.
func TestServerDies(t *testing.T) {
	t.Parallel()
	s := start(t, process.Plain(t.TempDir()))
	c := newClient(t, s)
	l := &ledger{acked: make(map[string]string)}
	for range 3 {
		before := l.count()
		ended := l.write(t, c)
		until(t, "the writers write", func() bool { return l.count() >= before+100 })
		must(t, s.Kill())
		ended()
		must(t, s.Restart(bounded(t)))
		l.isStored(t, c)
		l.repeat(t, c)
		l.isAll(t, c)
	}
	must(t, s.Stop(bounded(t)))
	if _, answer, err := c.call(t.Context(), http.MethodGet, "/queues", "", ""); err == nil {
		t.Errorf("a server that was stopped answers %s", answer)
	}
}

// TestServerStandsStill lets a lease run out while the server cannot notice.
func TestServerStandsStill(t *testing.T) {
	t.Parallel()
	s := start(t, process.Plain(t.TempDir()))
	c := newClient(t, s)
	l := &ledger{acked: make(map[string]string)}
	l.enqueue(t, c, "0-before")
	m := c.claim(t, 1)
	receipt := fmt.Sprintf(`{"receipt":%q}`, m.Receipt)
	must(t, s.Pause())
	lease := time.After(1100 * time.Millisecond)
	// The kernel takes these. Nobody knows what becomes of them.
	for _, send := range []struct{ path, body, key string }{
		{"/queues/q/messages", `{"payload":"1-meanwhile"}`, "1"},
		{"/queues/q/claim", "", ""},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if status, answer, err := c.call(ctx, http.MethodPost, send.path, send.body, send.key); err == nil {
			t.Errorf("POST %s = %d %s from a server that stands still", send.path, status, answer)
		}
		cancel()
	}
	<-lease
	must(t, s.Resume())
	l.unsure = []string{"1-meanwhile"}
	l.repeat(t, c)
	until(t, "the sweep returns the message", func() bool {
		m = parse(t, c.must(t, http.StatusOK, http.MethodGet, path(m, ""), ""))
		return m.StallCount == 1
	})
	c.must(t, http.StatusConflict, http.MethodPost, path(m, "succeed"), receipt)
	l.isStored(t, c)
	l.isAll(t, c)
	must(t, s.Pause())
	must(t, s.Kill()) // also one that stands still
	must(t, s.Restart(bounded(t)))
	l.isStored(t, c)
}

func TestServerSaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	binary, err := binary()
	must(t, err)
	_, err = process.Start(bounded(t), binary, process.Plain(t.TempDir()), "-surprise")
	if err == nil || !strings.Contains(err.Error(), "flag provided but not defined: -surprise") {
		t.Errorf("Start with a flag that is unknown = %v, want what the server said", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = process.Start(over, binary, process.Plain(t.TempDir())); !errors.Is(err, context.Canceled) {
		t.Errorf("Start without time = %v, want %v", err, context.Canceled)
	}
}

// TestServerEndsByItself sees that the end of a server is nothing that a campaign
// could miss.
func TestServerEndsByItself(t *testing.T) {
	t.Parallel()
	s := start(t, process.Plain(t.TempDir()))
	p, err := os.FindProcess(s.PID())
	must(t, err)
	must(t, p.Signal(os.Interrupt))
	c := newClient(t, s)
	until(t, "it ends", func() bool {
		_, _, err := c.call(t.Context(), http.MethodGet, "/queues", "", "")
		return err != nil
	})
	if err := s.Restart(t.Context()); err == nil {
		t.Error("Restart of a server of which nobody has asked how it ended succeeds")
	}
	until(t, "its end is noticed", func() bool { return p.Signal(syscall.Signal(0)) != nil })
	if err := s.Kill(); err == nil || !strings.Contains(err.Error(), "stopping: requests under way finish") {
		t.Errorf("Kill of a server that has ended = %v, want an error that has its log", err)
	}
	must(t, s.Restart(bounded(t)))
	must(t, s.Stop(bounded(t)))
	must(t, s.Kill()) // it is known to be dead
	for name, do := range map[string]func() error{
		"Stop":  func() error { return s.Stop(t.Context()) },
		"Pause": s.Pause, "Resume": s.Resume,
		"Usage": func() error {
			_, _, err := s.Usage()
			return err
		},
	} {
		if err := do(); err == nil {
			t.Errorf("%s of a dead server succeeds", name)
		}
	}
}

// TestServerDoesNotStop has a server wait for a request that does not end.
func TestServerDoesNotStop(t *testing.T) {
	t.Parallel()
	s := start(t, process.Plain(t.TempDir()))
	must(t, s.Pause()) // it does not even notice
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop of a server that stands still = %v, want %v", err, context.DeadlineExceeded)
	}
	must(t, s.Restart(bounded(t)))
}

// clumsy, among the arguments of this program, makes it a server that fails when
// it is to stop.
const clumsy = "clumsy"

func runClumsy() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go http.ListenAndServe(os.Args[2], nil) // behind -addr
	<-asked
	os.Exit(3)
}

func TestServerFailsToStop(t *testing.T) {
	t.Parallel()
	s, err := process.Start(bounded(t), os.Args[0], process.Plain(t.TempDir()), clumsy)
	must(t, err)
	if err := s.Stop(bounded(t)); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Stop of a server that fails = %v, want its exit status", err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	s := start(t, process.Plain(t.TempDir()))
	before, _, err := s.Usage()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("not on this system")
	}
	must(t, err)
	c := newClient(t, s)
	until(t, "requests use processor time", func() bool {
		c.must(t, http.StatusOK, http.MethodGet, "/queues", "")
		cpu, memory, err := s.Usage()
		must(t, err)
		if memory < 1<<20 || memory > 1<<30 {
			t.Fatalf("the server has %d bytes of memory", memory)
		}
		return cpu > before
	})
}

func TestLogIsTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t, process.Plain(t.TempDir()))
	c := newClient(t, s)
	const requests = 600
	for i := range requests {
		c.must(t, http.StatusOK, http.MethodGet, fmt.Sprintf("/queues/q%d/messages", i), "")
	}
	last := fmt.Sprintf("queue=q%d\n", requests-1)
	until(t, "the last line is there", func() bool { return strings.HasSuffix(s.Log(), last) })
	if log := s.Log(); !strings.HasPrefix(log, "time=") || strings.Contains(log, "queue=q0\n") || len(log) < 10_000 {
		t.Errorf("Log() has %d bytes and begins with %.100q, want the last lines, whole", len(log), log)
	}
}
