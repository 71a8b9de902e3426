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
	bounds := span{low: lowest, high: highest, backwards: q.Descending}
	after := ""
	if q.After != nil {
		after = sortKey(q.After.Due, q.After.ID)
		if q.Descending {
			bounds.high = after
		} else {
			bounds.low = after
		}
	}
	index, err := s.merge(ctx, q.Queue, q.Status, bounds, q.Limit+1)
	if err != nil {
		return nil, false, err
	}
	bytes := 0
	for {
		entries, err := index.take(ctx, min(q.Limit+1-len(page), batchMost))
		if err != nil || len(entries) == 0 {
			return page, false, err
		}
		entries = slices.DeleteFunc(entries, func(e entry) bool { return e.due == after })
		rows, err := s.rows(ctx, entries)
		if err != nil {
			return nil, false, err
		}
		rows = slices.DeleteFunc(rows, func(r row) bool { return r.Expired(q.Now) })
		if q.Payload {
			if err := s.loadRows(ctx, rows, q.PayloadBytes-bytes); err != nil {
				return nil, false, err
			}
		}
		for _, r := range rows {
			if len(page) == q.Limit || q.Payload && q.PayloadBytes > 0 && bytes >= q.PayloadBytes {
				return page, true, nil
			}
			if !q.Payload {
				r.Payload = ""
			}
			page = append(page, r.Message)
			bytes += r.PayloadBytes
		}
	}
}

// rows reads the messages that the entries show, and leaves out those that have
// changed since.
func (s *Store) rows(ctx context.Context, entries []entry) ([]row, error) {
	keys := make([]item, len(entries))
	for i, e := range entries {
		keys[i] = primary(e.pk, skMessage)
	}
	items, err := s.batch(ctx, keys)
	if err != nil {
		return nil, err
	}
	byPK := make(map[string]item, len(items))
	for _, m := range items {
		byPK[str(m, attrPK)] = m
	}
	var rows []row
	for _, e := range entries {
		m := byPK[e.pk]
		if str(m, attrDue) != e.due {
			continue
		}
		r, err := decode(m)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// loadRows reads the payloads that stand apart, of as many messages as a page of
// so many bytes shows; of all if that is zero or less.
func (s *Store) loadRows(ctx context.Context, rows []row, bytes int) error {
	var keys []item
	at := make(map[string]int)
	sum := 0
	for i, r := range rows {
		if r.payloadKey != "" {
			keys = append(keys, primary(messagePK(r.Queue, r.ID), r.payloadKey))
			at[messagePK(r.Queue, r.ID)] = i
		}
		if sum += r.PayloadBytes; bytes > 0 && sum >= bytes {
			break
		}
	}
	items, err := s.batch(ctx, keys)
	if err != nil {
		return err
	}
	for _, m := range items {
		if rows[at[str(m, attrPK)]].Payload, err = unpack(m[attrPayload]); err != nil {
			return err
		}
	}
	return nil
}
