package sqlite

import (
	"context"

	"github.com/redrivehq/redrive/shared/message"
)

// Claim implements message.Store.
func (s *Store) Claim(
	ctx context.Context, queue string, limit int, next func() message.Claim,
) (claimed []message.Message, err error) {
	err = s.write(ctx, func(c *conn) error {
		claimed = nil
		claim := next()
		q := c.prepare(selectWithPayload + `WHERE queue = ? AND status = 'pending' AND due <= ?
			ORDER BY due, message.id LIMIT ?`).
			text(queue).time(claim.At).count(limit)
		for q.next() {
			r := q.scan()
			r.Payload = q.readPayload()
			claimed = append(claimed, r.Message)
		}
		if err := q.done(); err != nil {
			return err
		}
		for i, m := range claimed {
			if i > 0 {
				claim = next()
			}
			change, err := message.Decide(m, claim)
			if err != nil {
				return err
			}
			if err := c.save(change.Message); err != nil {
				return err
			}
			claimed[i] = change.Message
		}
		return nil
	})
	return claimed, err
}
