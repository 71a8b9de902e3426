package sqlite

import (
	"context"

	"github.com/redrivehq/redrive/shared/message"
)

// Apply implements message.Store.
func (s *Store) Apply(ctx context.Context, queue, id string, tr message.Transition) (m message.Message, err error) {
	err = s.write(ctx, func(c *conn) error {
		found, err := c.find(queue, id, false)
		if err != nil {
			return err
		}
		change, err := message.Decide(found.Message, tr)
		if err != nil {
			return err
		}
		m = change.Message
		if !change.Changed {
			return nil
		}
		if a := change.Attempt; a != nil {
			if err := c.keep(m, *a); err != nil {
				return err
			}
		}
		return c.save(m)
	})
	return m, err
}

// keep puts the attempt into the message's history, where it takes the place of
// the one that is no longer among the newest.
func (c *conn) keep(m message.Message, a message.Attempt) error {
	return c.prepare(`REPLACE INTO attempt (queue, id, slot, number, claimed_at, ended_at, outcome, error)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`).
		text(m.Queue).text(m.ID).count(a.Number % message.HistorySize).
		count(a.Number).time(a.ClaimedAt).time(a.EndedAt).text(string(a.Outcome)).bytes(a.Error).run()
}
