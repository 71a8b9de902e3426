package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// Enqueue implements message.Store.
func (s *Store) Enqueue(ctx context.Context, m message.Message) (stored message.Message, created bool, err error) {
	err = s.write(ctx, func(c *conn) error {
		stored, created = m, true
		found, err := c.find(m.Queue, m.ID, true)
		switch {
		case err == nil && !found.Expired(m.CreatedAt):
			stored, created = found.Message, false
			return nil
		case err == nil:
			err = c.remove(found)
		case errors.Is(err, message.ErrNotFound):
			err = nil
		}
		if err != nil {
			return err
		}
		if err := s.useQueue(c, m.Queue, m.CreatedAt); err != nil {
			return err
		}
		return c.insert(m)
	})
	return stored, created, err
}

// useQueue makes sure that the queue exists and that the sweeper visits it.
func (s *Store) useQueue(c *conn, name string, now time.Time) error {
	if !s.queues[name] {
		if err := c.createQueue(name, now); err != nil {
			return err
		}
		s.queues[name] = true
	}
	if !s.marks[name] {
		err := c.prepare(`INSERT INTO mark (queue, marked_at) VALUES (?, ?) ON CONFLICT DO NOTHING`).
			text(name).time(now).run()
		if err != nil {
			return err
		}
		s.marks[name] = true
	}
	return nil
}

func (c *conn) insert(m message.Message) error {
	if err := c.prepare(`INSERT INTO payload (body) VALUES (?)`).bytes(m.Payload).run(); err != nil {
		return err
	}
	return c.prepare(`INSERT INTO message (queue, id, status, due, payload, payload_bytes, retry_count, max_retries,
		stall_count, max_stalls, claim_count, replay_count, last_error, dead_reason, receipt, last_verb,
		claimed_at, created_at, updated_at, expires_at, fingerprint)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`).
		text(m.Queue).text(m.ID).text(string(m.Status)).time(m.Due).
		number(c.db.LastInsertRowID()).count(m.PayloadBytes).
		count(m.RetryCount).count(m.MaxRetries).count(m.StallCount).count(m.MaxStalls).
		count(m.ClaimCount).count(m.ReplayCount).optional(m.LastError).text(string(m.DeadReason)).
		text(m.Receipt).text(string(m.LastVerb)).
		time(m.ClaimedAt).time(m.CreatedAt).time(m.UpdatedAt).time(m.ExpiresAt).text(m.Fingerprint).run()
}
