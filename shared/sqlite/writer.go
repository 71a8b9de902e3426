package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	sqlite3 "github.com/ncruces/go-sqlite3"
)

// maxTogether bounds how many writes share one transaction, and so how long the
// first of them waits.
const maxTogether = 256

// write is one change that waits for its turn.
type write struct {
	ctx  context.Context //nolint:containedctx // it travels with the request from one goroutine to another
	do   func(*conn) error
	err  error // what do returned, once done is closed
	done chan struct{}
}

// write has the writing goroutine run do inside a transaction, and returns when
// that is durable. Do may run more than once, each time from the beginning. It
// returns an engineError as it is, and any other error before it has written
// anything.
func (s *Store) write(ctx context.Context, do func(*conn) error) error {
	w := &write{ctx: ctx, do: do, done: make(chan struct{})}
	select {
	case s.writes <- w:
	case <-s.closing:
		return errClosed
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	<-w.done // from here on the change may happen: its outcome is waited for
	return w.err
}

// commitLoop is the writing goroutine: it takes what waits, commits it together,
// and answers.
func (s *Store) commitLoop() {
	defer close(s.closed)
	batch := make([]*write, 0, maxTogether)
	for {
		select {
		case w := <-s.writes:
			batch = append(batch[:0], w)
		case <-s.closing:
			return
		}
		batch = s.gather(batch)
		s.commitAll(batch)
		for _, w := range batch {
			close(w.done)
		}
	}
}

// gather adds the writes that wait. When none does, it lets the goroutines run
// that are about to write, and looks once more: under load that makes a
// transaction of twice as many writes, for a lone writer it costs nothing.
func (s *Store) gather(batch []*write) []*write {
	for yielded := false; len(batch) < maxTogether; {
		select {
		case w := <-s.writes:
			batch = append(batch, w)
			continue
		default:
		}
		if yielded {
			break
		}
		yielded = true
		runtime.Gosched()
	}
	return batch
}

// commitAll commits the writes together. If the engine refuses one of them, each
// gets a transaction of its own: one that cannot be done takes no other with it.
func (s *Store) commitAll(batch []*write) {
	err := s.commit(batch)
	switch {
	case err == nil:
	case len(batch) == 1,
		errors.Is(err, errInDoubt),   // what they would be told now may turn out wrong
		errors.Is(err, sqlite3.BUSY): // no use to wait for that once more for each
		for _, w := range batch {
			w.err = err
		}
	default:
		for i := range batch {
			s.commitAll(batch[i : i+1])
		}
	}
}

// errInDoubt is of a commit that failed. What it wrote may have reached the file
// before its flush failed: if the process ends before the next commit writes
// over it, it counts when the file is opened again.
var errInDoubt = errors.New("the commit failed")

// commit runs the writes in one transaction. An error is the engine's, and then
// none of them happened, unless it is errInDoubt.
func (s *Store) commit(batch []*write) (err error) {
	if err := s.writer.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			// What was thought to be in the file may have been undone.
			clear(s.queues)
			clear(s.marks)
			err = errors.Join(err, s.writer.rollback())
		}
	}()
	for _, w := range batch {
		if w.err = w.ctx.Err(); w.err != nil {
			w.err = unavailable(w.err)
			continue
		}
		if w.err = w.run(s.writer); errors.As(w.err, new(*engineError)) {
			return w.err
		}
	}
	if err := s.writer.exec("COMMIT"); err != nil {
		return fmt.Errorf("%w: %w", errInDoubt, err)
	}
	return nil
}

// run calls do. A panic must not take the writing goroutine with it, and may
// have written something: it counts as an error of the engine.
func (w *write) run(c *conn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &engineError{"write", fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	return w.do(c)
}
