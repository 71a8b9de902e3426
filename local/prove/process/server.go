// Package process runs the one-process server as a program of its own, on a disk
// of its own, and does to both what happens to programs and disks: it is killed,
// it stands still, the disk is full or can only be read.
//
// It knows how to start and stop the server, and nothing of its routes but
// /health.
package process

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Build compiles the server into the folder, and returns its path. It runs
// inside the module.
func Build(ctx context.Context, dir string) (binary string, err error) {
	binary, err = filepath.Abs(filepath.Join(dir, "redrive"))
	if err != nil {
		return "", err
	}
	build := []string{"build", "-o", binary, "github.com/redrivehq/redrive/local"}
	return binary, run(exec.CommandContext(ctx, "go", build...)) //nolint:gosec // the caller's own folder
}

// Server is a program that lives, dies and lives again. But for Log, its methods
// are called one at a time.
type Server struct {
	URL string // the same in each life, so that clients go on with it

	disk   *Disk
	binary string
	args   []string
	log    tail
	life   *life // nil when it is dead
}

// life is the time from a start to an end.
type life struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
	err   error         // of its end
}

// Start starts the server with its file on the disk, and with more arguments if
// there are any, and waits until it answers. The end of ctx ends the waiting, not
// the server: that lives until Kill or Stop, or, on Linux, until this process
// ends.
func Start(ctx context.Context, binary string, disk *Disk, args ...string) (*Server, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{URL: "http://" + address, disk: disk, binary: binary}
	s.args = append([]string{"-addr", address, "-data", filepath.Join(disk.within, "redrive.db")}, args...)
	if err := s.Restart(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// freeAddress returns one on which nobody listens. Its port is none that systems
// give to clients: while the server is dead, one of those could come to be
// another program's, or a client's that so connects to itself.
func freeAddress(ctx context.Context) (string, error) {
	const first, behind = 20_000, 32_000
	for {
		n, err := rand.Int(rand.Reader, big.NewInt(behind-first))
		if err != nil {
			return "", err
		}
		address := fmt.Sprintf("127.0.0.1:%d", first+n.Int64())
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err == nil {
			return address, listener.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", err
		}
	}
}

// Restart begins the next life of a server that is dead, and waits until it
// answers. If it does not, the error has what it said.
func (s *Server) Restart(ctx context.Context) error {
	if s.life != nil {
		return errors.New("the server has not been killed or stopped")
	}
	l := &life{ended: make(chan struct{})}
	l.cmd = s.disk.command(context.WithoutCancel(ctx), s.binary, s.args...)
	l.cmd.Env = []string{} // whoever calls has settings of his own
	l.cmd.Stderr = &s.log
	endWithParent(l.cmd)
	if err := l.cmd.Start(); err != nil {
		return err
	}
	go func() {
		l.err = l.cmd.Wait()
		close(l.ended)
	}()
	s.life = l
	if err := s.answers(ctx); err != nil {
		return errors.Join(err, s.Kill())
	}
	return nil
}

// answers waits until the server answers, be it well or not.
func (s *Server) answers(ctx context.Context) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			return resp.Body.Close()
		}
		select {
		case <-s.life.ended:
			return s.Kill() // says how
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill ends the server as a crash would, and waits for the end. It is an error
// if the server had ended by itself, but none if it is known to be dead.
func (s *Server) Kill() error {
	l := s.life
	if l == nil {
		return nil
	}
	s.life = nil
	err := l.cmd.Process.Kill()
	<-l.ended
	if errors.Is(err, os.ErrProcessDone) || !killed(l.cmd.ProcessState) {
		return fmt.Errorf("the server has ended by itself: %v\n%s", l.cmd.ProcessState, s.Log())
	}
	return err
}

// Stop asks the server to end and waits for that; it kills it at the end of ctx.
// It is an error if the exit code is not 0.
func (s *Server) Stop(ctx context.Context) error {
	l := s.life
	if l == nil {
		return errDead
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, s.Kill())
	}
	select {
	case <-l.ended:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("the server does not stop: %w\n%s", ctx.Err(), s.Log()), s.Kill())
	}
	s.life = nil
	if l.err != nil {
		return fmt.Errorf("the server has stopped: %w\n%s", l.err, s.Log())
	}
	return nil
}

var errDead = errors.New("the server is dead")

// Pause makes the server stand still, with its connections open, until Resume or
// Kill.
func (s *Server) Pause() error { return s.withLife(pause) }

// Resume lets a server go on that stands still.
func (s *Server) Resume() error { return s.withLife(resume) }

func (s *Server) withLife(do func(*os.Process) error) error {
	if s.life == nil {
		return errDead
	}
	return do(s.life.cmd.Process)
}

// Log returns the last lines of what the server said, in all its lives.
func (s *Server) Log() string { return s.log.String() }

// Usage returns the processor time that the server has used in this life, and the
// memory it has now, in bytes. It is there on Linux only.
func (s *Server) Usage() (cpu time.Duration, memory int64, err error) {
	if s.life == nil {
		return 0, 0, errDead
	}
	return usage(s.life.cmd.Process.Pid)
}

// tail keeps the end of what is written to it, in whole lines.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 16 << 10 // bytes

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > 2*maxTail { // not for each line
		t.text = append(t.text[:0], lastLines(t.text)...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(lastLines(t.text))
}

func lastLines(text []byte) []byte {
	if over := len(text) - maxTail; over > 0 {
		_, text, _ = bytes.Cut(text[over:], []byte("\n"))
	}
	return text
}
