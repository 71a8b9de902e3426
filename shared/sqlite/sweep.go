package sqlite

import (
	"context"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// InUse implements message.SweepStore.
func (s *Store) InUse(ctx context.Context, after string, limit int) (marks []message.Mark, err error) {
	err = s.read(ctx, func(c *conn) error {
		marks = nil
		q := c.prepare(`SELECT queue, marked_at FROM mark WHERE queue > ? ORDER BY queue LIMIT ?`).text(after).count(limit)
		for q.next() {
			marks = append(marks, message.Mark{Queue: q.readText(), At: q.readTime()})
		}
		return q.done()
	})
	return marks, err
}

// Lapsed implements message.SweepStore.
func (s *Store) Lapsed(
	ctx context.Context, queue string, before time.Time, after *message.Position, limit int,
) (lapsed []message.Position, err error) {
	err = s.read(ctx, func(c *conn) error {
		lapsed = nil
		q := c.prepare(`SELECT due, id FROM message WHERE queue = ? AND status = 'processing' AND due <= ?
			AND (due, id) > (?, ?) ORDER BY due, id LIMIT ?`).
			text(queue).time(before).after(after, first).count(limit)
		for q.next() {
			lapsed = append(lapsed, message.Position{Status: message.Processing, Due: q.readTime(), ID: q.readText()})
		}
		return q.done()
	})
	return lapsed, err
}

// NextLease implements message.SweepStore.
func (s *Store) NextLease(ctx context.Context, queue string) (lease message.Position, found bool, err error) {
	err = s.read(ctx, func(c *conn) error {
		q := c.prepare(`SELECT due, id FROM message WHERE queue = ? AND status = 'processing' ORDER BY due, id LIMIT 1`).
			text(queue)
		if found = q.next(); found {
			lease = message.Position{Status: message.Processing, Due: q.readTime(), ID: q.readText()}
		}
		return q.done()
	})
	return lease, found, err
}

// Round implements message.SweepStore. Where the sweeps have come is kept in
// memory only: after a start they begin anew.
func (s *Store) Round(context.Context) (message.Round, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.round, nil
}

// SaveRound implements message.SweepStore.
func (s *Store) SaveRound(_ context.Context, r message.Round) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round = r
	return nil
}

// Unmark implements message.SweepStore. It looks inside the transaction that
// takes the mark away: nothing can come between.
func (s *Store) Unmark(ctx context.Context, mark message.Mark) error {
	return s.write(ctx, func(c *conn) error {
		held, err := c.prepare(`SELECT EXISTS (SELECT 1 FROM message WHERE queue = ?
			AND status IN ('pending', 'processing', 'dead'))`).text(mark.Queue).one()
		if err != nil || held != 0 {
			return err
		}
		return s.unmark(c, mark.Queue)
	})
}

func (s *Store) unmark(c *conn, queue string) error {
	delete(s.marks, queue)
	return c.prepare(`DELETE FROM mark WHERE queue = ?`).text(queue).run()
}
