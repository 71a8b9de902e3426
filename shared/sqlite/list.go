package sqlite

import (
	"context"
	"math"

	"github.com/redrivehq/redrive/shared/message"
)

// List implements message.Store.
func (s *Store) List(ctx context.Context, l message.ListQuery) (page []message.Message, more bool, err error) {
	err = s.read(ctx, func(c *conn) error {
		q := c.list(l)
		for bytes := 0; q.next(); {
			if more = len(page) == l.Limit || l.PayloadBytes > 0 && bytes >= l.PayloadBytes; more {
				break
			}
			r := q.scan()
			if l.Payload {
				r.Payload = q.readPayload()
				bytes += len(r.Payload)
			}
			page = append(page, r.Message)
		}
		return q.done()
	})
	return page, more, err
}

func (c *conn) list(l message.ListQuery) *query {
	sql := selectMessage
	if l.Payload {
		sql = selectWithPayload
	}
	sql += `WHERE queue = ? AND status = ? AND (expires_at = 0 OR expires_at > ?) AND `
	due, id := -1, ""
	if l.Descending {
		sql += `(due, message.id) < (?, ?) ORDER BY due DESC, message.id DESC`
		due = math.MaxInt64
	} else {
		sql += `(due, message.id) > (?, ?) ORDER BY due, message.id`
	}
	if l.After != nil {
		due, id = int(l.After.Due.UnixMilli()), l.After.ID
	}
	return c.prepare(sql + ` LIMIT ?`).
		text(l.Queue).text(string(l.Status)).time(l.Now).number(due).text(id).number(l.Limit + 1)
}
