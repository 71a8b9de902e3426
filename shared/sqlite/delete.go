package sqlite

import (
	"context"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// Delete implements message.Store.
func (s *Store) Delete(ctx context.Context, queue, id string, at time.Time) error {
	return s.write(ctx, func(c *conn) error {
		found, err := c.find(queue, id, false)
		if err != nil {
			return err
		}
		if err := message.MayDelete(found.Message, at); err != nil {
			return err
		}
		return c.remove(found)
	})
}

// RemoveExpired removes up to limit messages that are past their retention at
// now, and returns how many there were. Small steps leave room for other writes
// between them.
func (s *Store) RemoveExpired(ctx context.Context, now time.Time, limit int) (removed int, err error) {
	err = s.write(ctx, func(c *conn) error {
		removed = 0
		var expired []row
		q := c.prepare(selectMessage + `WHERE expires_at > 0 AND expires_at <= ? ORDER BY expires_at LIMIT ?`).
			time(now).count(limit)
		for q.next() {
			expired = append(expired, q.scan())
		}
		if err := q.done(); err != nil {
			return err
		}
		for _, r := range expired {
			if err := c.remove(r); err != nil {
				return err
			}
			removed++
		}
		return nil
	})
	return removed, err
}
