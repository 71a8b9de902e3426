package sqlite

import (
	"context"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// Claim implements message.Store.
func (s *Store) Claim(
	ctx context.Context, queue string, limit int, next func() message.Claim,
) (claimed []message.Message, err error) {
	err = s.write(ctx, func(c *conn) error {
		claimed = nil
		claim := next()
		due, err := c.due(queue, claim.At, limit)
		if err != nil {
			return err
		}
		for i, r := range due {
			if i > 0 {
				claim = next()
			}
			m, err := c.claim(r, claim)
			if err != nil {
				return err
			}
			if !r.lost {
				claimed = append(claimed, m)
			}
		}
		return nil
	})
	return claimed, err
}

// due returns the first messages of the queue that may be claimed then.
func (c *conn) due(queue string, at time.Time, limit int) (due []row, err error) {
	q := c.prepare(selectWithPayload + `WHERE queue = ? AND status = 'pending' AND due <= ?
		ORDER BY due, message.id LIMIT ?`).
		text(queue).time(at).count(limit)
	for q.next() {
		r := q.scan()
		r.Payload, r.lost = q.readPayload()
		due = append(due, r)
	}
	return due, q.done()
}

// claim hands the message out, or buries it if its payload is missing.
func (c *conn) claim(r row, claim message.Claim) (message.Message, error) {
	change, err := message.Decide(r.Message, claim)
	if err == nil && r.lost {
		change, err = message.Decide(change.Message, message.Bury{
			Answer: message.Answer{At: claim.At, Receipt: claim.Receipt},
		})
	}
	if err != nil {
		return message.Message{}, err
	}
	return change.Message, c.save(change.Message)
}
