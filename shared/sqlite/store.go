// Package sqlite keeps messages and queues in one SQLite file. It is the store
// of the local runner, and the executable specification of a store: what
// becomes of a message it asks [message.Decide], inside the transaction that
// writes the answer.
//
// All writes go through one goroutine. It commits whatever waits together, so
// that concurrent writers share one flush of the disk, and answers each only
// after that flush. Reads run beside it, on connections of their own.
//
// The package knows SQL and files. It knows no rule of the queue, no HTTP and
// no clock.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gofrs/flock"

	"github.com/redrivehq/redrive/shared/message"
)

// InMemory is the path of a store that lives in memory and dies with it.
const InMemory = ":memory:"

// readers is how many reads run at the same time.
const readers = 4

// Store implements message.Store, message.QueueStore and message.SweepStore.
type Store struct {
	lock    *flock.Flock // keeps other processes from the file; nil in memory
	writer  *conn        // used by the writing goroutine only
	writes  chan *write
	readers chan *conn // those free to be used; nil in memory, where reads go through the writer
	conns   []*conn    // all that are open
	closing chan struct{}
	closed  chan struct{} // the writing goroutine has ended

	// Known to exist in the file, so that a write need not look. Used by the
	// writing goroutine only.
	queues, marks map[string]bool

	mu     sync.Mutex
	counts map[string]message.Counts // of the sweeper's last visit
	round  message.Round
}

var (
	_ message.Store      = (*Store)(nil)
	_ message.QueueStore = (*Store)(nil)
	_ message.SweepStore = (*Store)(nil)
)

// Open opens the store in the file at path, which is created if it is not
// there, with its folder. Errors say what to do, for the person who chose the
// path: the file is used by another process, not a store, written by a newer
// version, damaged, or cannot be written.
func Open(path string) (*Store, error) {
	s := &Store{
		writes:  make(chan *write),
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
		queues:  make(map[string]bool),
		marks:   make(map[string]bool),
		counts:  make(map[string]message.Counts),
	}
	if err := s.open(path); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: open %s: %w", path, err), s.release())
	}
	go s.commitLoop()
	return s, nil
}

func (s *Store) open(path string) error {
	if path == InMemory {
		return explain(s.openWriter(path))
	}
	path, err := prepareFile(path)
	if err != nil {
		return err
	}
	if s.lock, err = lockFile(path); err != nil {
		return err
	}
	if err := s.openWriter(path); err != nil {
		return explain(err)
	}
	if err := hideIndex(path); err != nil {
		return err
	}
	s.readers = make(chan *conn, readers)
	for range readers {
		c, err := s.connect(path)
		if err != nil {
			return explain(err)
		}
		if err := c.set(readerPragmas); err != nil {
			return explain(err)
		}
		s.readers <- c
	}
	return nil
}

// openWriter opens the connection that writes, and brings the file to the
// present schema. Only what is ours is changed: even the mode of the log is a
// change.
func (s *Store) openWriter(path string) error {
	writer, err := s.connect(path)
	if err != nil {
		return err
	}
	s.writer = writer
	version, err := checkFile(writer)
	if err != nil {
		return err
	}
	if version == 0 && path != InMemory {
		if err := writer.addChecksums(); err != nil {
			return err
		}
	}
	if err := writer.set(writerPragmas); err != nil {
		return err
	}
	if err := migrate(writer, version); err != nil {
		return err
	}
	// The counts of queues are in memory: each is to be visited once.
	return writer.set(`INSERT INTO mark SELECT name, 0 FROM queue WHERE deleted = 0 ON CONFLICT DO NOTHING`)
}

func (s *Store) connect(path string) (*conn, error) {
	c, err := openConn(path)
	if err == nil {
		s.conns = append(s.conns, c)
	}
	return c, err
}

// Close lets what is under way finish and closes the file. Calls that come
// later, or still wait for their turn, return ErrUnavailable. It must be called
// once.
func (s *Store) Close() error {
	close(s.closing)
	<-s.closed
	for range cap(s.readers) {
		<-s.readers
	}
	return s.release()
}

// release closes what is open, the writer last.
func (s *Store) release() error {
	var errs []error
	for _, c := range slices.Backward(s.conns) {
		errs = append(errs, c.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Unlock())
	}
	return errors.Join(errs...)
}

// Check reports whether the store can make a change durable, by writing the
// schema's version once more. Errors: ErrUnavailable.
func (s *Store) Check(ctx context.Context) error {
	return s.write(ctx, func(c *conn) error {
		return c.exec(fmt.Sprintf("PRAGMA user_version = %d", len(migrations)))
	})
}

// read runs do beside the writer. What it sees is one state of the store. In
// memory it is a write, and do may run more than once.
func (s *Store) read(ctx context.Context, do func(*conn) error) (err error) {
	if s.readers == nil {
		return s.write(ctx, do)
	}
	var c *conn
	select {
	case c = <-s.readers:
	case <-s.closing:
		return errClosed
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	defer func() { s.readers <- c }()
	if err := c.exec("BEGIN"); err != nil {
		return err
	}
	defer func() { // also after a panic
		err = errors.Join(err, c.rollback())
	}()
	if err := do(c); err != nil {
		return err
	}
	return c.exec("COMMIT")
}
