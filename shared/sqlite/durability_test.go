package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	sqlite3 "github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/redrivehq/redrive/shared/message"
)

func TestEveryConnectionFlushesAtCommit(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	mustClose(t, mustOpen(t, path)) // a file that was there before, too
	s := mustOpen(t, path)
	check := func(name string, c *conn) {
		for pragma, want := range map[string]string{
			"synchronous": "2", "fullfsync": "1", "checkpoint_fullfsync": "1", "journal_mode": "wal",
		} {
			q := c.prepare(`PRAGMA ` + pragma)
			var got string
			if q.next() {
				got = q.readText()
			}
			if err := q.done(); err != nil || got != want {
				t.Errorf("%s: PRAGMA %s = %s, %v, want %s", name, pragma, got, err, want)
			}
		}
	}
	onWriter(t, s, func(c *conn) error { check("writer", c); return nil })
	for range readers { // each of them
		c := <-s.readers
		check("reader", c)
		defer func() { s.readers <- c }()
	}
}

// operation is one that was acknowledged.
type operation struct {
	verb, id string
	detail   string // the payload of an enqueue, the receipt of a claim
}

// workers is how many goroutines work at a time.
const workers = 8

// work enqueues, claims and answers until report returns false or an operation
// fails. It reports each operation once it has been acknowledged. Its clock
// stands, so that no message is handed out twice.
func work(ctx context.Context, s *Store, report func(operation) bool) error {
	svc := newService(s, newClock())
	errs := make([]error, workers)
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := worker; errs[worker] == nil; i++ {
				payload := fmt.Sprintf("%d:%d:%s", worker, i, strings.Repeat("x", 97*i%3000))
				m, _, err := svc.Enqueue(ctx, "q", message.Draft{Payload: payload})
				if err != nil || !report(operation{"enqueue", m.ID, payload}) {
					errs[worker] = err
					return
				}
				claimed, err := svc.Claim(ctx, "q", message.ClaimOptions{})
				if err != nil || len(claimed) == 1 && !report(operation{"claim", claimed[0].ID, claimed[0].Receipt}) {
					errs[worker] = err
					return
				}
				for _, m := range claimed {
					verb := []string{"succeed", "fail", "reject", "release"}[i%4]
					if err := answer(ctx, svc, verb, m); err != nil || !report(operation{verb, m.ID, ""}) {
						errs[worker] = err
						return
					}
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func answer(ctx context.Context, svc *message.Service, verb string, m message.Message) (err error) {
	switch verb {
	case "succeed":
		_, err = svc.Succeed(ctx, m.Queue, m.ID, &m.Receipt)
	case "fail", "reject":
		f := message.Failure{Receipt: &m.Receipt, Error: "no", Permanent: verb == "reject"}
		_, err = svc.Fail(ctx, m.Queue, m.ID, f)
	case "release":
		_, err = svc.Release(ctx, m.Queue, m.ID, &m.Receipt)
	}
	return err
}

// checkAcknowledged compares the store with what was acknowledged before it was
// torn away from its owner. More may have happened than that, but nothing less.
func checkAcknowledged(t *testing.T, s *Store, acknowledged []operation) {
	t.Helper()
	ctx := t.Context()
	claims := make(map[string]int)
	for _, op := range acknowledged {
		m, attempts, err := s.Get(ctx, "q", op.id)
		if err != nil {
			t.Fatalf("%s of %s was acknowledged: %v", op.verb, op.id, err)
		}
		kept := false
		switch op.verb {
		case "enqueue":
			kept = m.Payload == op.detail
		case "claim":
			claims[op.id]++
			kept = m.ClaimCount == 1 && m.Receipt == op.detail
		case "succeed":
			kept = m.Status == message.Succeeded
		case "fail":
			kept = m.Status == message.Pending && m.RetryCount == 1 && *m.LastError == "no" && len(attempts) == 1
		case "reject":
			kept = m.Status == message.Dead && m.DeadReason == message.Rejected && len(attempts) == 1
		case "release":
			kept = m.Status == message.Pending && m.LastVerb == message.VerbRelease
		}
		if !kept {
			t.Errorf("%s was acknowledged, but not kept: %+v", op.verb, m)
		}
	}
	for id, n := range claims {
		if n > 1 {
			t.Errorf("%s was handed out %d times", id, n)
		}
	}
	for what, sql := range map[string]string{
		"messages without a payload": `SELECT count(*) FROM message LEFT JOIN payload ON payload.id = payload
			WHERE payload.id IS NULL`,
		"payloads without a message": `SELECT (SELECT count(*) FROM payload) - (SELECT count(*) FROM message)`,
		"failures without an attempt": `SELECT count(*) FROM message LEFT JOIN attempt USING (queue, id)
			WHERE retry_count != (number IS NOT NULL)`,
		"faults of the file":         `SELECT count(*) FROM pragma_integrity_check WHERE integrity_check != 'ok'`,
		"messages without the queue": `SELECT (SELECT count(*) FROM message) > 0 AND (SELECT count(*) FROM queue) = 0`,
		"messages without the mark":  `SELECT (SELECT count(*) FROM message) > 0 AND (SELECT count(*) FROM mark) = 0`,
	} {
		if n := number(t, s, sql); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// workOn works on the file and says on standard output what was acknowledged,
// until the process is killed.
func workOn(path string) {
	s, err := Open(path)
	if err == nil {
		var mu sync.Mutex
		err = work(context.Background(), s, func(op operation) bool {
			mu.Lock()
			defer mu.Unlock()
			_, err := os.Stdout.WriteString(op.verb + " " + op.id + " " + op.detail + "\n")
			return err == nil
		})
	}
	fmt.Fprintln(os.Stderr, "the worker ended:", err)
	os.Exit(1)
}

func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var acknowledged []operation
	for round := range 5 {
		p := start(t, "work", path, nil)
		enough := 20 + rand.IntN(300)
		lines := bufio.NewScanner(p.stdout)
		lines.Split(wholeLines)
		seen := 0
		for ; lines.Scan(); seen++ {
			verb, rest, _ := strings.Cut(lines.Text(), " ")
			id, detail, _ := strings.Cut(rest, " ")
			acknowledged = append(acknowledged, operation{verb, id, detail})
			if seen == enough {
				if err := p.Process.Kill(); err != nil { // and read what it had said before
					t.Fatal(err)
				}
			}
		}
		if err := lines.Err(); err != nil || seen < enough {
			t.Fatalf("the worker ended after %d operations: %v", seen, err)
		}
		_ = p.Wait() // tells that it was killed
		s := mustOpen(t, path)
		checkAcknowledged(t, s, acknowledged)
		t.Logf("round %d: killed after %d operations, %d messages in the file",
			round, seen, number(t, s, `SELECT count(*) FROM message`))
		mustClose(t, s)
	}
}

// wholeLines splits into lines and drops an unfinished last one.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	advance, token, err = bufio.ScanLines(data, false)
	if atEOF && token == nil {
		return len(data), nil, err
	}
	return advance, token, err
}

// journal collects what was acknowledged.
type journal struct {
	mu         sync.Mutex
	operations []operation
}

// add reports how many there are now.
func (j *journal) add(op operation) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.operations = append(j.operations, op)
	return len(j.operations)
}

func (j *journal) all() []operation {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clip(j.operations)
}

// The log may end anywhere after the last commit that was acknowledged, and
// hold anything from there on.
func TestWhatWasAcknowledgedSurvivesATornLog(t *testing.T) {
	t.Parallel()
	const cutAfter, operations = 100, 200
	path := newPath(t)
	s := mustOpen(t, path)
	var j journal
	var acknowledged []operation
	var flushed int64 // how long the log was then
	err := work(t.Context(), s, func(op operation) bool {
		n := j.add(op)
		if n == cutAfter {
			acknowledged = j.all()
			info, err := os.Stat(path + "-wal")
			if err != nil {
				t.Error(err)
				return false
			}
			flushed = info.Size()
		}
		return n < operations
	})
	if err != nil {
		t.Fatal(err)
	}
	file, log := readFile(t, path), readFile(t, path+"-wal")
	if pages := number(t, s, `PRAGMA wal_autocheckpoint`); len(log) > pages*4096 {
		t.Fatal("the log has been checkpointed: it is of no use here")
	}
	mustClose(t, s)
	ends := []int64{flushed, flushed + 1, flushed + 24, int64(len(log)) - 1, int64(len(log))}
	for range 4 {
		ends = append(ends, flushed+rand.Int64N(int64(len(log))-flushed))
	}
	for _, end := range ends {
		for _, garbage := range []int{0, 10_000} { // bytes that follow
			copied := newPath(t)
			writeFile(t, copied, file)
			writeFile(t, copied+"-wal", append(log[:end:end], make([]byte, garbage)...))
			s := mustOpen(t, copied)
			checkAcknowledged(t, s, acknowledged)
			mustClose(t, s)
		}
	}
}

// disk is the file system seen as a power cut leaves it: what was written and
// not flushed may be there, in part, or not.
type disk struct {
	vfs.VFSFilename // the real one, which does the work

	mu    sync.Mutex
	files map[string]*diskFile // by path
	fails map[string]error     // what "write" and "flush" return, though they do not reach the disk
}

func newDisk() *disk {
	return &disk{VFSFilename: vfs.Find("os").(vfs.VFSFilename), files: make(map[string]*diskFile)}
}

type diskFile struct {
	flushed []byte
	since   []diskWrite
}

// diskWrite is bytes written at an offset or, without bytes, a new size.
type diskWrite struct {
	at   int64
	data []byte
}

func (w diskWrite) on(content []byte) []byte {
	end := w.at + int64(len(w.data))
	if grow := end - int64(len(content)); grow > 0 {
		content = append(content, make([]byte, grow)...)
	}
	if w.data == nil {
		return content[:w.at]
	}
	copy(content[w.at:], w.data)
	return content
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := d.VFSFilename.OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	return &watchedFile{f.(vfs.FileSharedMemory), d, name.String()}, flags, nil
}

func (d *disk) Delete(path string, syncDir bool) error {
	d.mu.Lock()
	delete(d.files, path)
	d.mu.Unlock()
	return d.VFSFilename.Delete(path, syncDir)
}

func (d *disk) fail(fails map[string]error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = fails
}

// change notes what becomes of a file, or returns why the disk refuses it.
func (d *disk) change(path, operation string, change func(*diskFile)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[path]
	if f == nil {
		f = new(diskFile)
		d.files[path] = f
	}
	if err := d.fails[operation]; err != nil {
		if operation == "flush" {
			f.since = nil // a system may forget what it could not write
		}
		return &fs.PathError{Op: operation, Path: path, Err: err}
	}
	change(f)
	return nil
}

// cut puts what a power cut would leave now into the folder. Of each write since
// the last flush it keeps some sectors, all, or none.
func (d *disk) cut(dir string, random *rand.Rand) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, f := range d.files {
		content := append([]byte(nil), f.flushed...)
		for _, w := range f.since {
			const sector = 512
			switch sectors := len(w.data) / sector; {
			case random.IntN(3) == 0:
				continue
			case sectors > 0 && random.IntN(3) == 0:
				w.data = w.data[:random.IntN(sectors)*sector+sector]
			}
			content = w.on(content)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// watchedFile is a real file that tells the disk what becomes of it.
type watchedFile struct {
	vfs.FileSharedMemory
	disk *disk
	path string
}

func (f *watchedFile) WriteAt(p []byte, at int64) (int, error) {
	err := f.disk.change(f.path, "write", func(d *diskFile) {
		d.since = append(d.since, diskWrite{at, append([]byte{}, p...)})
	})
	if err != nil {
		return 0, err
	}
	return f.FileSharedMemory.WriteAt(p, at)
}

func (f *watchedFile) Truncate(size int64) error {
	err := f.disk.change(f.path, "write", func(d *diskFile) { d.since = append(d.since, diskWrite{at: size}) })
	if err != nil {
		return err
	}
	return f.FileSharedMemory.Truncate(size)
}

func (f *watchedFile) Sync(flags vfs.SyncFlag) error {
	if err := f.FileSharedMemory.Sync(flags); err != nil {
		return err
	}
	return f.disk.change(f.path, "flush", func(d *diskFile) {
		for _, w := range d.since {
			d.flushed = w.on(d.flushed)
		}
		d.since = nil
	})
}

// openOn opens a store as Open does, but on the disk, and with a log so short
// that it is checkpointed all the time.
func openOn(t *testing.T, d *disk, path string) *Store {
	t.Helper()
	name := strings.ReplaceAll(t.Name(), "/", "-")
	vfs.Register(name, d)
	t.Cleanup(func() { vfs.Unregister(name) })
	s := &Store{
		writes: make(chan *write), readers: make(chan *conn, readers),
		closing: make(chan struct{}), closed: make(chan struct{}),
		queues: make(map[string]bool), marks: make(map[string]bool),
	}
	for i := range 1 + readers {
		db, err := sqlite3.Open("file:" + path + "?vfs=" + name)
		if err != nil {
			t.Fatal(err)
		}
		c := &conn{db: db, queries: make(map[string]*query)}
		s.conns = append(s.conns, c)
		pragmas := readerPragmas
		if i == 0 {
			s.writer, pragmas = c, writerPragmas+`PRAGMA wal_autocheckpoint = 10`
		} else {
			s.readers <- c
		}
		if err := db.Exec(pragmas); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := migrate(c, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	go s.commitLoop()
	t.Cleanup(func() { mustClose(t, s) })
	return s
}

func TestWhatWasAcknowledgedSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	const cuts, apart = 16, 23
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	d := newDisk()
	s := openOn(t, d, newPath(t))
	type left struct {
		dir          string
		acknowledged []operation
	}
	var j journal
	var lefts []left // one at a time appends: the next cut is far away
	err := work(t.Context(), s, func(op operation) bool {
		n := j.add(op)
		if n%apart == 0 && n <= cuts*apart {
			l := left{t.TempDir(), j.all()} // first what was said, then what is there
			if err := d.cut(l.dir, random); err != nil {
				t.Error(err)
				return false
			}
			lefts = append(lefts, l)
		}
		return n < (cuts+1)*apart
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(lefts) != cuts {
		t.Errorf("%d cuts, want %d", len(lefts), cuts)
	}
	for _, l := range lefts {
		s := mustOpen(t, filepath.Join(l.dir, "queue.db"))
		checkAcknowledged(t, s, l.acknowledged)
		mustClose(t, s)
	}
}

func TestADiskThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		fails map[string]error
		says  string
	}{
		{"it is full", map[string]error{"write": syscall.ENOSPC}, "full"},
		{"it cannot be written", map[string]error{"write": syscall.EIO}, "the disk cannot be read or written"},
		{"it cannot be flushed", map[string]error{"flush": syscall.EIO}, "the disk cannot be read or written"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDisk()
			s := openOn(t, d, newPath(t))
			svc := newService(s, newClock())
			var acknowledged []operation
			enqueue := func(times int) (errs []error) {
				results := make(chan error, times)
				var mu sync.Mutex
				for i := range times {
					go func() {
						m, _, err := svc.Enqueue(t.Context(), "q", message.Draft{Payload: strconv.Itoa(i)})
						if err == nil {
							mu.Lock()
							acknowledged = append(acknowledged, operation{"enqueue", m.ID, m.Payload})
							mu.Unlock()
						}
						results <- err
					}()
				}
				for range times {
					errs = append(errs, <-results)
				}
				return errs
			}
			for range 3 {
				if err := errors.Join(enqueue(10)...); err != nil {
					t.Fatal(err)
				}
				d.fail(tt.fails)
				for i, err := range enqueue(10) {
					if i == 0 {
						t.Log(err)
					}
					unavailableSaying(t, err, tt.says)
				}
				unavailableSaying(t, s.Check(t.Context()), tt.says)
				for _, op := range acknowledged { // reads go on
					if m, _, err := svc.Get(t.Context(), "q", op.id); err != nil || m.Payload != op.detail {
						t.Errorf("Get = %q, %v, want %q", m.Payload, err, op.detail)
					}
				}
				d.fail(nil)
				if err := s.Check(t.Context()); err != nil {
					t.Errorf("Check of a disk that is well again = %v", err)
				}
			}
			if err := errors.Join(enqueue(10)...); err != nil {
				t.Errorf("the disk is well again, but: %v", err)
			}
			checkAcknowledged(t, s, acknowledged)
			left := t.TempDir()
			if err := d.cut(left, rand.New(rand.NewPCG(1, 1))); err != nil {
				t.Fatal(err)
			}
			checkAcknowledged(t, mustOpen(t, filepath.Join(left, "queue.db")), acknowledged)
		})
	}
}

// A claim and an answer without a receipt share a commit whose flush fails. The
// file holds both then: who opens it again finds the failure counted. So nobody
// may be told that the message was pending.
func TestACommitInDoubtRefusesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, path := newDisk(), newPath(t)
		s := openOn(t, d, path)
		svc := newService(s, newClock())
		// The log goes on where it is: at its beginning, its header is flushed first.
		onWriter(t, s, func(c *conn) error { return c.exec("PRAGMA wal_autocheckpoint = 0") })
		mustEnqueue(t, svc, "other", "payload")
		m := mustEnqueue(t, svc, "q", "payload")
		release := holdWriter(t, s)
		claimed, failed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := svc.Claim(t.Context(), "q", message.ClaimOptions{})
			claimed <- err
		}()
		synctest.Wait() // it is the first of the two
		go func() {
			_, err := svc.Fail(t.Context(), "q", m.ID, message.Failure{Error: "no"})
			failed <- err
		}()
		synctest.Wait()
		d.fail(map[string]error{"flush": syscall.EIO})
		release()
		unavailableSaying(t, <-claimed, "the disk cannot be read or written")
		unavailableSaying(t, <-failed, "the disk cannot be read or written")

		copied := filepath.Join(t.TempDir(), "queue.db")
		for _, suffix := range []string{"", "-wal"} { // as a kill leaves them
			writeFile(t, copied+suffix, readFile(t, path+suffix))
		}
		after, _, err := newService(mustOpen(t, copied), newClock()).Get(t.Context(), "q", m.ID)
		if err != nil || after.ClaimCount != 1 || after.RetryCount != 1 {
			t.Errorf("Get from the file = claim %d, %d failures, %v: this test needs the commit to be in it",
				after.ClaimCount, after.RetryCount, err)
		}
	})
}
