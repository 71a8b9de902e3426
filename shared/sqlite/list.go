package sqlite

import (
	"context"
	"math"

	"github.com/redrivehq/redrive/shared/message"
)

// List implements message.Store.
func (s *Store) List(ctx context.Context, l message.ListQuery) (page []message.Message, more bool, err error) {
	err = s.read(ctx, func(c *conn) error {
		page, more = nil, false
		q := c.list(l)
		for bytes := 0; q.next(); {
			if more = len(page) == l.Limit || l.PayloadBytes > 0 && bytes >= l.PayloadBytes; more {
				break
			}
			r := q.scan()
			if l.Payload {
				r.Payload, _ = q.readPayload()
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
	begin := int64(first)
	if l.Descending {
		sql += `(due, message.id) < (?, ?) ORDER BY due DESC, message.id DESC`
		begin = last
	} else {
		sql += `(due, message.id) > (?, ?) ORDER BY due, message.id`
	}
	return c.prepare(sql+` LIMIT ?`).
		text(l.Queue).text(string(l.Status)).time(l.Now).after(l.After, begin).count(l.Limit + 1)
}

// Due times that stand before the first and after the last of all.
const (
	first = -1
	last  = math.MaxInt64
)

// after binds the due time and the identifier of a position; without one, the
// beginning given.
func (q *query) after(p *message.Position, begin int64) *query {
	if p == nil {
		return q.number(begin).text("")
	}
	return q.number(p.Due.UnixMilli()).text(p.ID)
}
