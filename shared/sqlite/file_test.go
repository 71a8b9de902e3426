package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	sqlite3 "github.com/ncruces/go-sqlite3"

	"github.com/redrivehq/redrive/shared/message"
)

// helperVariable names what this binary does when a test starts it as another
// process.
const helperVariable = "REDRIVE_SQLITE_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVariable) {
	case "hold":
		holdFile(os.Args[1])
	case "work":
		workOn(os.Args[1])
	default:
		os.Exit(m.Run())
	}
}

// holdFile opens the store, says how that went, and keeps it open until its
// standard input ends.
func holdFile(path string) {
	syscall.Umask(0o022)
	s, err := Open(path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	m := message.Message{ID: "msg_1", Queue: "q", Status: message.Pending, Payload: "held"}
	if _, _, err := s.Enqueue(context.Background(), m); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// process is this binary, started again.
type process struct {
	*exec.Cmd
	stdin  io.Closer
	stdout *bufio.Reader
}

// start has another process do what the helper's name says.
func start(t *testing.T, helper, path string, attributes *syscall.SysProcAttr) *process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if attributes != nil { // the folder it stands in may be closed to another user
		binary = copyProgram(t, binary, filepath.Join(openFolder(t), "test"))
	}
	cmd := exec.CommandContext(t.Context(), binary, path)
	cmd.Env = append(os.Environ(), helperVariable+"="+helper)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attributes
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait() // unless that has been done
	})
	return &process{cmd, stdin, bufio.NewReader(stdout)}
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("the other process ended: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

// openFolder returns a folder that every user may enter, write and read.
func openFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	chmod(t, filepath.Dir(dir), 0o755)
	chmod(t, dir, 0o777)
	return dir
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func readFile(tb testing.TB, path string) []byte {
	tb.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return content
}

func writeFile(tb testing.TB, path string, content []byte) {
	tb.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// copyProgram has another process write the copy: a file that this one has open
// for writing, even for a moment while it forks elsewhere, cannot be run.
func copyProgram(t *testing.T, from, to string) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	chmod(t, to, 0o755)
	return to
}

// rawOpen opens the file without the store, and runs statements on it.
func rawOpen(tb testing.TB, path, sql string) *sqlite3.Conn {
	tb.Helper()
	db, err := sqlite3.Open("file:" + path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	if err := db.Exec(sql); err != nil {
		tb.Fatal(err)
	}
	return db
}

// rawSQL runs statements on the file without the store.
func rawSQL(tb testing.TB, path, sql string) {
	tb.Helper()
	if err := rawOpen(tb, path, sql).Close(); err != nil {
		tb.Fatal(err)
	}
}

func TestOneProcessUsesAFileAtATime(t *testing.T) {
	t.Parallel()
	const inUse = "another process uses it; stop that process, or choose another file"
	t.Run("another process is refused", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		s := mustOpen(t, path)
		answer := start(t, "hold", path, nil).line(t)
		t.Log(answer)
		saying(t, errors.New(answer), path, inUse)
		mustEnqueue(t, newService(s, newClock()), "q", "still works")
		mustClose(t, s)
		if answer := start(t, "hold", path, nil).line(t); answer != "open" {
			t.Errorf("after Close another process cannot open it: %s", answer)
		}
	})
	t.Run("a lock ends with its process, even one that is killed", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		other := start(t, "hold", path, nil)
		if answer := other.line(t); answer != "open" {
			t.Fatal(answer)
		}
		_, err := Open(path)
		saying(t, err, path, inUse)
		if err := other.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = other.Wait() // tells that it was killed
		if _, _, err := mustOpen(t, path).Get(t.Context(), "q", "msg_1"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a second store of the same process is refused", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		s := mustOpen(t, path)
		for range 3 {
			_, err := Open(path)
			saying(t, err, path, inUse)
		}
		mustEnqueue(t, newService(s, newClock()), "q", "still works")
		mustClose(t, s)
		mustOpen(t, path)
	})
	t.Run("a symbolic link is the same file", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		mustOpen(t, path)
		link := filepath.Join(t.TempDir(), "link.db")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		s, err := Open(link)
		saying(t, err, link, inUse)
		if err == nil {
			mustClose(t, s)
		}
	})
	t.Run("a program without our lock does not stay unnoticed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { // the engine waits 5 s for it
			path := newPath(t)
			s := mustOpen(t, path)
			other := rawOpen(t, path, `BEGIN IMMEDIATE`)
			_, _, err := s.Enqueue(t.Context(), message.Message{ID: "a", Queue: "q"})
			t.Log(err)
			unavailableSaying(t, err, "another program holds the file: end it")
			if err := other.Exec(`COMMIT`); err != nil {
				t.Fatal(err)
			}
			mustEnqueue(t, newService(s, newClock()), "q", "works again")
		})
	})
	t.Run("a program without our lock delays writes that wait together only once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			path := newPath(t)
			s := mustOpen(t, path)
			rawOpen(t, path, `BEGIN IMMEDIATE`)
			began := time.Now() // of the clock that synctest turns
			results := make(chan error, 20)
			for i := range cap(results) {
				go func() {
					_, _, err := s.Enqueue(t.Context(), message.Message{ID: strconv.Itoa(i), Queue: "q"})
					results <- err
				}()
			}
			for range cap(results) {
				unavailableSaying(t, <-results, "another program holds the file: end it")
			}
			if took := time.Since(began); took > 29*time.Second { // in which every call is to be answered
				t.Errorf("the last answer came after %v", took)
			}
		})
	})
	t.Run("a program that holds it alone keeps it from being opened", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			path := newPath(t)
			rawOpen(t, path, `BEGIN EXCLUSIVE`)
			_, err := Open(path)
			t.Log(err)
			saying(t, err, path, "another program holds the file: end it")
		})
	})
}

func TestOpenRefusesWhatIsNoStore(t *testing.T) {
	t.Parallel()
	garbage := make([]byte, 20_000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(garbage) // never fails
	const (
		foreign = "it is an SQLite file of another program; choose another file"
		noStore = "the file is damaged, or no SQLite file: stop, keep a copy of it, then restore a backup"
	)
	for _, tt := range []struct {
		name string
		make func(t *testing.T, path string)
		says string
	}{
		{"another program's tables", func(t *testing.T, path string) {
			t.Helper()
			rawSQL(t, path, `CREATE TABLE song (title TEXT); INSERT INTO song VALUES ('x')`)
		}, foreign},
		{"another program's tables of the same names", func(t *testing.T, path string) {
			t.Helper()
			rawSQL(t, path, `CREATE TABLE message (id TEXT); PRAGMA user_version = 1`)
		}, foreign},
		{"another program's number", func(t *testing.T, path string) {
			t.Helper()
			rawSQL(t, path, `PRAGMA application_id = 252006674; CREATE TABLE song (title TEXT)`)
		}, foreign},
		{"another program's number and no tables", func(t *testing.T, path string) {
			t.Helper()
			rawSQL(t, path, `PRAGMA application_id = 252006674`)
		}, foreign},
		{"another program's version and no tables", func(t *testing.T, path string) {
			t.Helper()
			rawSQL(t, path, `PRAGMA user_version = 7`)
		}, foreign},
		{"a newer schema", func(t *testing.T, path string) {
			t.Helper()
			mustClose(t, mustOpen(t, path))
			rawSQL(t, path, fmt.Sprintf(`PRAGMA user_version = %d`, len(migrations)+1))
		}, fmt.Sprintf("it was written by a newer Redrive (schema %d, this one knows %d); use that version,"+
			" or choose another file", len(migrations)+1, len(migrations))},
		{"a short text", func(t *testing.T, path string) {
			t.Helper()
			writeFile(t, path, []byte("queue: emails\n"))
		}, noStore},
		{"a long text", func(t *testing.T, path string) {
			t.Helper()
			writeFile(t, path, bytes.Repeat([]byte("queue: emails\n"), 2_000))
		}, noStore},
		{"garbage", func(t *testing.T, path string) {
			t.Helper()
			writeFile(t, path, garbage)
		}, noStore},
		{"a store whose first page is garbage", func(t *testing.T, path string) {
			t.Helper()
			mustClose(t, mustOpen(t, path))
			writeFile(t, path, append(garbage[:4096:4096], readFile(t, path)[4096:]...))
		}, noStore},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			tt.make(t, path)
			was := readFile(t, path)
			for range 2 { // the refused file is not locked either
				s, err := Open(path)
				if err == nil {
					mustClose(t, s)
				}
				t.Log(err)
				saying(t, err, "sqlite: open "+path+": ", tt.says)
			}
			if !bytes.Equal(readFile(t, path), was) {
				t.Error("the refused file was changed")
			}
			for _, suffix := range []string{"-wal", "-shm", "-journal"} {
				if _, err := os.Stat(path + suffix); err == nil {
					t.Errorf("%s was left behind", suffix)
				}
			}
		})
	}
}

func TestOpenNeedsAPlaceToWrite(t *testing.T) {
	t.Parallel()
	t.Run("a folder stands at the path", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		_, err := Open(dir)
		t.Log(err)
		saying(t, err, dir, "no file that can hold messages", "choose another")
	})
	t.Run("a file stands where the folder should be", func(t *testing.T) {
		t.Parallel()
		for _, below := range []string{"queue.db", "deeper/queue.db"} {
			file := newPath(t)
			writeFile(t, file, nil)
			_, err := Open(filepath.Join(file, below))
			t.Log(err)
			saying(t, err, file, "not a directory", "choose another file")
		}
	})
	t.Run("folders are made, for their owner only", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		mustOpen(t, filepath.Join(dir, "a", "b", "queue.db"))
		for _, made := range []string{filepath.Join(dir, "a"), filepath.Join(dir, "a", "b")} {
			if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("Stat = %v, %v, want mode 0700", info, err)
			}
		}
	})
	for _, tt := range []struct {
		name string
		make func(t *testing.T, dir string) (path string)
		says []string
	}{
		{"the folder is read-only", func(t *testing.T, dir string) string {
			t.Helper()
			chmod(t, dir, 0o555)
			return filepath.Join(dir, "queue.db")
		}, []string{"cannot write the file", "permission denied", "make it and its folder writable"}},
		{"the folder's parent is read-only", func(t *testing.T, dir string) string {
			t.Helper()
			chmod(t, dir, 0o555)
			return filepath.Join(dir, "below", "queue.db")
		}, []string{"cannot make the folder", "permission denied", "make its parent writable"}},
		{"the file is read-only", func(t *testing.T, dir string) string {
			t.Helper()
			path := makeStore(t, dir)
			chmod(t, path, 0o444)
			return path
		}, []string{"cannot write the file", "permission denied", "make it and its folder writable"}},
		{"the file is writable, but its folder read-only", func(t *testing.T, dir string) string {
			t.Helper()
			path := makeStore(t, dir)
			if err := os.Remove(path + ".lock"); err != nil {
				t.Fatal(err)
			}
			chmod(t, path, 0o666)
			chmod(t, dir, 0o555)
			return path
		}, []string{"cannot lock", "permission denied", "make the folder writable"}},
		{"the file and its lock are writable, but its folder read-only", func(t *testing.T, dir string) string {
			t.Helper()
			path := makeStore(t, dir)
			chmod(t, path, 0o666)
			chmod(t, path+".lock", 0o666)
			chmod(t, dir, 0o555)
			return path
		}, []string{"folder", "writable"}},
		{"the lock belongs to somebody else", func(t *testing.T, dir string) string {
			t.Helper()
			path := makeStore(t, dir)
			chmod(t, path, 0o666)
			chmod(t, path+".lock", 0)
			return path
		}, []string{"cannot lock", "permission denied"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := openFolder(t)
			path := tt.make(t, dir)
			t.Cleanup(func() { chmod(t, dir, 0o755) }) // so that it can be removed
			answer := start(t, "hold", path, unprivileged()).line(t)
			t.Log(answer)
			saying(t, errors.New(answer), append(tt.says, "sqlite: open "+path+": ")...)
		})
	}
}

// unprivileged makes a process of root one of nobody: root may write anywhere.
func unprivileged() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	const nobody = 65534
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// makeStore leaves a closed store in the folder.
func makeStore(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "queue.db")
	mustClose(t, mustOpen(t, path))
	return path
}

func TestFilesAreReadableByTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	other := start(t, "hold", path, nil) // under a umask of 022
	if answer := other.line(t); answer != "open" {
		t.Fatal(answer)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, entry.Name())
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %04o, want 0600", entry.Name(), mode)
		}
	}
	for _, name := range []string{"queue.db", "queue.db-wal", "queue.db.lock"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among the files %q", name, names)
		}
	}
}

func TestPathsMayHoldAnyCharacter(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"with blanks.db", "what?.db", "a?mode=memory", "a?vfs=unknown&nolock=1", "a#b.db", "100%.db", "a%3fb.db",
		"a%00b.db", "a&mode=ro.db", "a=b.db", "a+b;c.db", "it's \"quoted\".db", `back\slash.db`, "file:x.db",
		"größe-队列-🙂.db", "line\nbreak.db", ":memory:.db", "-dash.db",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), name) // the folder may hold them too
			path := filepath.Join(dir, name)
			s := mustOpen(t, path)
			m := mustEnqueue(t, newService(s, newClock()), "q", name)
			for _, file := range []string{path, path + "-wal"} {
				if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("Stat = %v, %v, want mode 0600", info, err)
				}
			}
			mustClose(t, s)
			if got, _, err := mustOpen(t, path).Get(t.Context(), "q", m.ID); err != nil || got.Payload != name {
				t.Errorf("Get = %q, %v", got.Payload, err)
			}
			if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
				t.Errorf("beside the folder there are %v, %v", entries, err)
			}
		})
	}
	t.Run("slashes may be doubled", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		mustClose(t, mustOpen(t, "//"+filepath.Dir(path)+"//"+filepath.Base(path)))
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	})
}

// A damaged file may cost messages, but nobody may believe that there were none.
func TestADamagedFileIsNoticed(t *testing.T) {
	t.Parallel()
	const pageSize = 4096
	whole := newPath(t)
	s := mustOpen(t, whole)
	svc := newService(s, newClock())
	var stored []message.Message
	for i := range 120 {
		stored = append(stored, mustEnqueue(t, svc, "q", strings.Repeat(fmt.Sprintf("%03d", i), 50+i)))
	}
	mustClose(t, s)
	content := readFile(t, whole)
	s = mustOpen(t, whole)
	putBrief(t, newService(s, newClock()), "q") // a page that is not among those cut off
	log := readFile(t, whole+"-wal")
	mustClose(t, s)
	garbage := make([]byte, pageSize)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(garbage) // never fails
	type damage struct {
		name         string
		content, log []byte
	}
	damages := []damage{
		{"cut in half", content[:len(content)/2/pageSize*pageSize], nil},
		{"cut within a page", content[:len(content)-pageSize/2], nil},
		{"cut within a page, and there is a log", content[:len(content)-pageSize/2], log},
		{"only its first page", content[:pageSize], nil},
		{"only its first page, and there is a log", content[:pageSize], log},
	}
	for page := 1; page < len(content)/pageSize; page++ {
		for _, filler := range []struct {
			name string
			page []byte
		}{
			{"garbage", garbage}, {"zeros", make([]byte, pageSize)}, {"ones", bytes.Repeat([]byte{0xff}, pageSize)},
		} {
			if page > 8 && (filler.name != "garbage" || page%3 != 0) { // they are all alike
				continue
			}
			damages = append(damages, damage{
				fmt.Sprintf("page %d is %s", page+1, filler.name),
				slices.Concat(content[:page*pageSize], filler.page, content[(page+1)*pageSize:]), nil,
			})
		}
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			writeFile(t, path, d.content)
			if d.log != nil {
				writeFile(t, path+"-wal", d.log)
			}
			s, err := Open(path)
			if err != nil {
				saying(t, err, path, damaged)
				return
			}
			defer func() { _ = s.Close() }() // it may not be able to clean up
			useDamaged(t, s, stored)
		})
	}
}

// useDamaged does everything that there is to do, and accepts either the truth or
// the sentence that the file is damaged.
func useDamaged(t *testing.T, s *Store, stored []message.Message) {
	t.Helper()
	svc := newService(s, newClock())
	noticed := 0
	isDamage := func(call string, err error) bool {
		t.Helper()
		if err == nil {
			return false
		}
		noticed++
		if !errors.Is(err, message.ErrUnavailable) || !strings.Contains(err.Error(), damaged) {
			t.Errorf("%s: %v, want ErrUnavailable and the advice", call, err)
		}
		return true
	}
	for _, m := range stored {
		got, _, err := svc.Get(t.Context(), "q", m.ID)
		if !isDamage("Get", err) && got.Payload != m.Payload {
			t.Errorf("message %s has another payload", m.ID)
		}
	}
	counts, err := s.Count(t.Context(), "q", svc.Now())
	if !isDamage("Count", err) && counts.Depth[message.Pending] != len(stored) {
		t.Errorf("Count found %d messages of %d", counts.Depth[message.Pending], len(stored))
	}
	listed, _, err := svc.List(t.Context(), message.List{Queue: "q", Limit: len(stored), Payload: true})
	if !isDamage("List", err) && len(listed) != len(stored) {
		t.Errorf("List showed %d messages of %d", len(listed), len(stored))
	}
	if marks, err := s.InUse(t.Context(), "", 10); !isDamage("InUse", err) && len(marks) != 1 {
		t.Errorf("InUse named %d queues of 1", len(marks))
	}
	if queues, err := s.ListQueues(t.Context(), "", "", 10); !isDamage("ListQueues", err) && len(queues) != 1 {
		t.Errorf("ListQueues showed %d queues of 1", len(queues))
	}
	_, _, err = svc.Enqueue(t.Context(), "other", message.Draft{Payload: "x"})
	isDamage("Enqueue", err)
	for claimed := 0; ; {
		got, err := svc.Claim(t.Context(), "q", message.ClaimOptions{Max: new(10)})
		if isDamage("Claim", err) {
			break
		}
		if len(got) == 0 {
			if claimed != len(stored) {
				t.Errorf("Claim handed out %d messages of %d", claimed, len(stored))
			}
			break
		}
		claimed += len(got)
		_, err = svc.Succeed(t.Context(), "q", got[0].ID, &got[0].Receipt)
		isDamage("Succeed", err)
	}
	if noticed == 0 {
		t.Error("nothing was noticed")
	}
}

func TestAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	const advice = "the disk is full: make room; nothing that was acknowledged is lost"
	ctx := t.Context()
	path := newPath(t)
	s := mustOpen(t, path)
	svc := newService(s, newClock())
	limit := func(pages int) {
		onWriter(t, s, func(c *conn) error { return c.db.Exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages)) })
	}
	payload := strings.Repeat("x", 1000)
	stored := []message.Message{mustEnqueue(t, svc, "q", payload)}
	enqueue := func() error {
		m, _, err := svc.Enqueue(ctx, "q", message.Draft{Payload: payload})
		if err == nil {
			stored = append(stored, m)
		}
		return err
	}
	limit(number(t, s, `PRAGMA page_count`) + 30)
	err := enqueue()
	for err == nil && len(stored) < 1000 {
		err = enqueue()
	}
	t.Log(err)
	unavailableSaying(t, err, advice)
	if len(stored) < 25 {
		t.Fatalf("only %d messages were stored", len(stored))
	}
	check := func() {
		t.Helper()
		for _, m := range stored {
			if got, _, err := svc.Get(ctx, "q", m.ID); err != nil || got.Payload != payload {
				t.Errorf("message %s: %v", m.ID, err)
			}
		}
		counts, err := s.Count(ctx, "q", svc.Now())
		if err != nil || counts.Depth[message.Pending]+counts.Depth[message.Processing] != len(stored) {
			t.Errorf("Count = %v, %v, want %d messages", counts.Depth, err, len(stored))
		}
	}
	check()

	// Writes that do not fit, together with some that make room.
	const together = 20
	results := make(chan error, together)
	for range together {
		go func() {
			_, _, err := svc.Enqueue(ctx, "q", message.Draft{Payload: strings.Repeat(payload, 200)})
			results <- err
		}()
	}
	for range 20 {
		if err := svc.Delete(ctx, "q", stored[0].ID); err != nil {
			t.Errorf("Delete on a full disk: %v", err)
		}
		stored = stored[1:]
	}
	for range together {
		unavailableSaying(t, <-results, advice)
	}
	check()
	if err := enqueue(); err != nil {
		t.Errorf("there is room again, but: %v", err)
	}

	limit(1 << 30)
	for range 100 {
		if err := enqueue(); err != nil {
			t.Fatalf("after room was made: %v", err)
		}
	}
	check()
	mustClose(t, s)
	s = mustOpen(t, path)
	svc.Store = s
	check()
}
