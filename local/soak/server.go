package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/metrics"
	"strconv"

	"github.com/redrivehq/redrive/local/server"
)

// serveArgument makes this program the server that it observes.
const serveArgument = "serve-for-soak"

// serve runs the server on the file until standard input ends. It prints its
// URL, and then for each line that it is sent how many goroutines it has and how
// many bytes are in use on its heap.
func serve(file string, stdin io.Reader, stdout io.Writer) error {
	// Formatting the log is part of what a server does, writing to a disk is not.
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close() //nolint:errcheck // nothing was written
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		defer stop()
		for lines := bufio.NewScanner(stdin); lines.Scan(); {
			fmt.Fprintln(stdout, runtime.NumGoroutine(), heap())
		}
	}()
	return server.Run(ctx, server.Config{
		Addr: "127.0.0.1:0", Data: file, Log: slog.New(slog.NewTextHandler(null, nil)),
		Ready: func(url string) { fmt.Fprintln(stdout, url) },
	})
}

// heap is how many bytes objects take, those that nobody uses any more included.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// child is the server in a process of its own.
type child struct {
	url, file string
	cmd       *exec.Cmd
	stdin     io.WriteCloser
	stdout    *bufio.Reader
}

func start(ctx context.Context, folder string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{file: filepath.Join(folder, "soak.db")}
	c.cmd = exec.CommandContext(ctx, self, serveArgument, c.file) //nolint:gosec // it is this program
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.stdout = bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := fmt.Fscanln(c.stdout, &c.url); err != nil {
		return nil, errors.Join(fmt.Errorf("the server has not started: %w", err), c.stop())
	}
	return c, nil
}

// stop ends the server as it ends when it is asked to, and waits for that.
func (c *child) stop() error {
	return errors.Join(c.stdin.Close(), c.cmd.Wait())
}

// size is what the server takes at a moment: of memory, as the kernel counts it,
// and of its heap, in bytes; of files, its database and the log of that, in
// bytes; and of goroutines.
type size struct{ memory, heap, files, goroutines float64 }

func (c *child) size() (s size, err error) {
	if _, err := fmt.Fprintln(c.stdin); err != nil {
		return s, err
	}
	if _, err := fmt.Fscanln(c.stdout, &s.goroutines, &s.heap); err != nil {
		return s, err
	}
	for _, name := range []string{c.file, c.file + "-wal"} {
		info, err := os.Stat(name)
		if err != nil {
			return s, err
		}
		s.files += float64(info.Size())
	}
	s.memory, err = resident(c.cmd.Process.Pid)
	return s, err
}

// resident returns how many bytes of a process are in memory.
func resident(pid int) (float64, error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("the memory of a process is read as Linux shows it: %w", err)
	}
	found := regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`).FindSubmatch(status)
	if found == nil {
		return 0, errors.New("the server has ended")
	}
	kib, err := strconv.ParseFloat(string(found[1]), 64)
	return kib * 1024, err
}
