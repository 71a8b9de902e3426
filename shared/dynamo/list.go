package dynamo

import (
	"context"
	"slices"

	"github.com/redrivehq/redrive/shared/message"
)

// List implements message.Store. The index says which messages, and in which
// order; the table what they are. What is no longer where the index shows it, or
// past its retention, is left out.
func (s *Store) List(ctx context.Context, q message.ListQuery) (page []message.Message, more bool, err error) {
	index, err := s.merge(ctx, q.Queue, q.Status, behind(q), q.Limit+1)
	if err != nil {
		return nil, false, err
	}
	most := 0 // bytes of payloads
	if q.Payload {
		most = q.PayloadBytes
	}
	for bytes := 0; ; {
		entries, err := index.take(ctx, min(q.Limit+1-len(page), batchMost))
		if err != nil || len(entries) == 0 {
			return page, false, err
		}
		rows, err := s.shown(ctx, q, entries, bytes)
		if err != nil {
			return nil, false, err
		}
		for _, r := range rows {
			if len(page) == q.Limit || most > 0 && bytes >= most {
				return page, true, nil
			}
			page = append(page, r.Message)
			bytes += r.PayloadBytes
		}
	}
}

// behind returns the bounds of what comes after a position. Both bounds of a span
// are part of it, so they stand just beside that: all ids are of one length.
func behind(q message.ListQuery) span {
	sp := span{low: lowest, high: highest, backwards: q.Descending}
	switch {
	case q.After == nil:
	case q.Descending:
		sp.high = before(sortKey(q.After.Due, q.After.ID))
	default:
		sp.low = after(sortKey(q.After.Due, q.After.ID))
	}
	return sp
}

// shown reads the messages of the entries as the list shows them, behind payloads
// of so many bytes.
func (s *Store) shown(ctx context.Context, q message.ListQuery, entries []entry, bytes int) ([]row, error) {
	rows, err := s.rows(ctx, entries)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.Status != q.Status || r.Expired(q.Now) })
	if q.Payload {
		err = s.loadRows(ctx, rows, bytes, q.PayloadBytes)
	}
	return rows, err
}

// rows reads the messages that the entries show, and leaves out those that have
// changed since. An index that lags may show one twice; DynamoDB refuses to read
// it twice.
func (s *Store) rows(ctx context.Context, entries []entry) ([]row, error) {
	byPK := make(map[string]item, len(entries))
	var keys []item
	for _, e := range entries {
		if _, twice := byPK[e.pk]; !twice {
			byPK[e.pk] = nil
			keys = append(keys, primary(e.pk, skMessage))
		}
	}
	items, err := s.batch(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, m := range items {
		byPK[str(m, attrPK)] = m
	}
	var rows []row
	for _, e := range entries {
		m := byPK[e.pk]
		if str(m, attrDue) != e.due {
			continue
		}
		rows = append(rows, decode(m))
	}
	return rows, nil
}

// loadRows completes messages with their payloads, until the sum of all reaches
// most; all of them if that is zero.
func (s *Store) loadRows(ctx context.Context, rows []row, sum, most int) error {
	var keys []item
	at := make(map[string]*row)
	for i := range rows {
		r := &rows[i]
		if at[messagePK(r.Queue, r.ID)] = r; r.payloadKey != "" {
			keys = append(keys, primary(messagePK(r.Queue, r.ID), r.payloadKey))
		}
		if sum += r.PayloadBytes; most > 0 && sum >= most {
			break
		}
	}
	items, err := s.batch(ctx, keys)
	if err != nil {
		return err
	}
	for _, m := range items {
		at[str(m, attrPK)].payload = m[attrPayload]
	}
	for _, r := range at {
		s.open(ctx, r)
	}
	return nil
}
