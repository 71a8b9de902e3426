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
		var due []row
		q := c.prepare(selectWithPayload + `WHERE queue = ? AND status = 'pending' AND due <= ?
			ORDER BY due, message.id LIMIT ?`).
			text(queue).time(claim.At).count(limit)
		for q.next() {
			r := q.scan()
			r.Payload, r.lost = q.readPayload()
			due = append(due, r)
		}
		if err := q.done(); err != nil {
			return err
		}
		for i, r := range due {
			if i > 0 {
				claim = next()
			}
			change, err := message.Decide(r.Message, claim)
			if err == nil && r.lost {
				change, err = message.Decide(change.Message, message.Bury{
					Answer: message.Answer{At: claim.At, Receipt: claim.Receipt},
				})
			}
			if err != nil {
				return err
			}
			if err := c.save(change.Message); err != nil {
				return err
			}
			if !r.lost {
				claimed = append(claimed, change.Message)
			}
		}
		return nil
	})
	return claimed, err
}
