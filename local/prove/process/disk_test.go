package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/local/prove/process"
)

const smallSize = 64 << 20

// TestDiskFails lets a disk fail under a server that is at work, and be well
// again.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		fail func(*process.Disk) error
		heal func(*testing.T, *process.Disk, *process.Server, *client)
	}{
		{
			"it is full", (*process.Disk).Fill,
			func(t *testing.T, disk *process.Disk, _ *process.Server, _ *client) {
				must(t, disk.Free())
			},
		},
		{
			"it is full, and the server dies", (*process.Disk).Fill,
			func(t *testing.T, disk *process.Disk, s *process.Server, c *client) {
				must(t, s.Kill())
				// The index of the log is made anew, for which the disk may need a page more
				// than for the old one.
				err := s.Restart(bounded(t))
				if err == nil {
					c.must(t, http.StatusOK, http.MethodGet, "/queues/q/messages", "")
				} else if !strings.Contains(err.Error(), "make room") {
					t.Errorf("Restart on a full disk = %v, want an error that says to make room", err)
				}
				must(t, disk.Free())
				if err != nil {
					must(t, s.Restart(bounded(t)))
				}
			},
		},
		{
			"it is full, and the server is stopped", (*process.Disk).Fill,
			func(t *testing.T, disk *process.Disk, s *process.Server, _ *client) {
				must(t, s.Stop(bounded(t)))
				must(t, disk.Free())
				must(t, s.Restart(bounded(t)))
			},
		},
		{
			"it is read-only, and the server dies", (*process.Disk).ReadOnly,
			func(t *testing.T, disk *process.Disk, s *process.Server, c *client) {
				if err := disk.Writable(); err == nil || !strings.Contains(err.Error(), "busy") {
					t.Errorf("Writable under a server = %v, want an error that says that the disk is busy", err)
				}
				c.must(t, http.StatusOK, http.MethodGet, "/queues/q/messages", "")
				must(t, s.Kill())
				const advice = "make it and its folder writable"
				if err := s.Restart(bounded(t)); err == nil || !strings.Contains(err.Error(), advice) {
					t.Errorf("Restart on a read-only disk = %v, want an error that has %q", err, advice)
				}
				must(t, disk.Writable())
				must(t, s.Restart(bounded(t)))
			},
		},
		{
			"it is read-only, and the server is stopped", (*process.Disk).ReadOnly,
			func(t *testing.T, disk *process.Disk, s *process.Server, _ *client) {
				must(t, s.Stop(bounded(t)))
				must(t, disk.Writable())
				must(t, s.Restart(bounded(t)))
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			disk := small(t, smallSize)
			s := start(t, disk)
			c := newClient(t, s)
			l := &ledger{acked: make(map[string]string)}
			for i := range 10 {
				l.enqueue(t, c, fmt.Sprintf("first%d-", i))
			}
			held, dead := c.claim(t, 3600), c.claim(t, 3600)
			c.must(t, http.StatusOK, http.MethodPost, path(dead, "fail"),
				fmt.Sprintf(`{"receipt":%q,"error":"","permanent":true}`, dead.Receipt))

			ended := l.write(t, c)
			until(t, "the writers write", func() bool { return l.count() > 200 })
			must(t, tt.fail(disk))
			ended()
			until(t, "not a page more can be written", func() bool { return c.health(t) != http.StatusOK })
			t.Logf("%d messages acknowledged, %d in doubt", len(l.acked), len(l.unsure))

			receipt := fmt.Sprintf(`"receipt":%q`, held.Receipt)
			for _, write := range []struct{ method, path, body string }{
				{http.MethodPost, "/queues/q/messages", `{"payload":""}`},
				{http.MethodPost, "/queues/q/claim", ""},
				{http.MethodPost, "/queues/q/claim", `{"max_messages":10}`},
				{http.MethodPost, path(held, "succeed"), "{" + receipt + "}"},
				{http.MethodPost, path(held, "fail"), `{"error":"",` + receipt + "}"},
				{http.MethodPost, path(held, "extend"), `{"processing_timeout":7200,` + receipt + "}"},
				{http.MethodPost, path(held, "release"), "{" + receipt + "}"},
				{http.MethodPost, path(dead, "replay"), ""},
				{http.MethodDelete, path(dead, ""), ""},
				{http.MethodPut, "/queues/q", `{"max_retries":7}`},
			} {
				c.must(t, http.StatusServiceUnavailable, write.method, write.path, write.body)
			}
			l.isStored(t, c)
			c.must(t, http.StatusOK, http.MethodGet, "/queues", "")
			c.must(t, http.StatusOK, http.MethodGet, "/queues/q", "")

			tt.heal(t, disk, s, c)
			if got := c.health(t); got != http.StatusOK {
				t.Errorf("GET /health on a disk that is well again = %d, want 200; the log ends:\n%s", got, s.Log())
			}
			c.must(t, http.StatusOK, http.MethodPost, path(held, "succeed"), "{"+receipt+"}")
			c.must(t, http.StatusOK, http.MethodPost, path(dead, "replay"), "")
			l.repeat(t, c)
			l.isStored(t, c)
			l.isAll(t, c)
			must(t, s.Stop(bounded(t)))
			must(t, s.Restart(bounded(t)))
			l.isStored(t, c)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func path(m shown, verb string) string {
	return strings.TrimSuffix("/queues/q/messages/"+m.ID+"/"+verb, "/")
}

func TestPlainDisksDoNotFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := process.Plain(dir)
	for name, do := range map[string]func() error{
		"Fill": disk.Fill, "Free": disk.Free, "ReadOnly": disk.ReadOnly, "Writable": disk.Writable,
	} {
		if err := do(); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s of a plain folder = %v, want ErrUnsupported", name, err)
		}
	}
	must(t, disk.Close())
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("Close has taken the folder of a plain disk: %v", err)
	}
}

// TestFillLeavesNothing sees that there was room, that there is none, and that it
// comes back, again and again.
func TestFillLeavesNothing(t *testing.T) {
	t.Parallel()
	disk := small(t, 8<<20)
	file := filepath.Join(disk.Dir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for range 3 {
		must(t, disk.Fill())
		if err := os.WriteFile(file, []byte("a page of its own"), 0o600); err == nil {
			t.Error("there is room for a page on a full disk")
		}
		must(t, disk.Free())
		must(t, os.WriteFile(file, make([]byte, 2<<20), 0o600))
		must(t, os.Truncate(file, 0))
	}
}

// TestCloseLeavesNothing looks for what Close would have to take away.
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	disk := small(t, 8<<20) // Cleanup's second Close must find nothing to do
	folder := filepath.Dir(strings.SplitN(disk.Dir(), "/root", 2)[1])
	if !isAttached(t, folder) {
		t.Fatalf("no loop device has a file in %s", folder)
	}
	must(t, disk.Close())
	until(t, "the loop device is free", func() bool { return !isAttached(t, folder) })
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the disk: %v, want that it is gone", err)
	}
}

// isAttached reports whether a loop device has a file in the folder.
func isAttached(t *testing.T, folder string) bool {
	t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must(t, err)
	for _, name := range names {
		// A device that is given back in this moment has no file any more.
		if text, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(text), folder) {
			return true
		}
	}
	return false
}

// orphan, in the environment of this program, makes it one that is killed while
// it has a disk and a server: its value is the server's program.
const orphan = "REDRIVE_PROCESS_ORPHAN"

func runOrphan() {
	ctx := context.Background()
	disk, err := process.Small(ctx, smallSize)
	if err != nil {
		panic(err)
	}
	s, err := process.Start(ctx, os.Getenv(orphan), disk)
	if err != nil {
		panic(err)
	}
	fmt.Println(s.URL)
	fmt.Println(filepath.Dir(strings.SplitN(disk.Dir(), "/root", 2)[1]))
	select {}
}

// TestNothingOutlivesTheCaller kills a program that uses this package.
func TestNothingOutlivesTheCaller(t *testing.T) {
	t.Parallel()
	must(t, small(t, smallSize).Close()) // or this machine has none
	path, err := binary()
	must(t, err)
	cmd := exec.CommandContext(bounded(t), os.Args[0])
	cmd.Env = append(os.Environ(), orphan+"="+path)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	var said []string
	for len(said) < 2 && lines.Scan() {
		said = append(said, lines.Text())
	}
	cmd.Process.Kill()
	cmd.Wait() // it was killed
	if len(said) < 2 {
		t.Fatalf("it said %q, want a URL and a folder", said)
	}
	url, folder := said[0], said[1]
	until(t, "the server is dead", func() bool {
		resp, err := http.Get(url + "/health")
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	})
	until(t, "the loop device is free", func() bool { return !isAttached(t, folder) })
	must(t, os.RemoveAll(folder))
}
