package sqlite

import (
	"context"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// InUse implements message.SweepStore.
func (s *Store) InUse(ctx context.Context, after string, limit int) (marks []message.Mark, err error) {
	err = s.read(ctx, func(c *conn) error {
		q := c.prepare(`SELECT queue, marked_at FROM mark WHERE queue > ? ORDER BY queue LIMIT ?`).text(after).number(limit)
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
) (lapsed []message.Message, err error) {
	due, id := -1, ""
	if after != nil {
		due, id = int(after.Due.UnixMilli()), after.ID
	}
	err = s.read(ctx, func(c *conn) error {
		q := c.prepare(selectMessage + `WHERE queue = ? AND status = 'processing' AND due <= ? AND (due, message.id) > (?, ?)
			ORDER BY due, message.id LIMIT ?`).
			text(queue).time(before).number(due).text(id).number(limit)
		for q.next() {
			lapsed = append(lapsed, q.scan().Message)
		}
		return q.done()
	})
	return lapsed, err
}

// Unmark implements message.SweepStore. It looks inside the transaction that
// takes the mark away: nothing can come between.
func (s *Store) Unmark(ctx context.Context, mark message.Mark) error {
	return s.write(ctx, func(c *conn) error {
		held, err := c.prepare(`SELECT count(*) FROM (SELECT 1 FROM message WHERE queue = ?
			AND status IN ('pending', 'processing', 'dead') LIMIT 1)`).text(mark.Queue).one()
		if err != nil || held > 0 {
			return err
		}
		delete(s.marks, mark.Queue)
		return c.prepare(`DELETE FROM mark WHERE queue = ?`).text(mark.Queue).run()
	})
}
