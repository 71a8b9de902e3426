package sqlite

import (
	"context"

	"github.com/redrivehq/redrive/shared/message"
)

// Get implements message.Store.
func (s *Store) Get(ctx context.Context, queue, id string) (m message.Message, attempts []message.Attempt, err error) {
	err = s.read(ctx, func(c *conn) error {
		found, err := c.find(queue, id, true)
		if err != nil {
			return err
		}
		m = found.Message
		attempts, err = c.attempts(queue, id)
		return err
	})
	return m, attempts, err
}

func (c *conn) attempts(queue, id string) ([]message.Attempt, error) {
	var attempts []message.Attempt
	q := c.prepare(`SELECT number, claimed_at, ended_at, outcome, error FROM attempt WHERE queue = ? AND id = ?`).
		text(queue).text(id)
	for q.next() {
		attempts = append(attempts, message.Attempt{
			Number: q.readCount(), ClaimedAt: q.readTime(), EndedAt: q.readTime(),
			Outcome: message.Outcome(q.readText()), Error: q.readText(),
		})
	}
	return attempts, q.done()
}
