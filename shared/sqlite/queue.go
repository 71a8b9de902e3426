package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/stored"
)

const (
	queueColumns = `SELECT name, created_at, settings, deleted FROM queue `
	queueByName  = queueColumns + `WHERE name = ?`
)

// record is a queue as stored.
type record struct {
	message.Queue
	deleted bool // only its shards are still of interest
}

func (q *query) scanQueue() (record, error) {
	var r record
	r.Name, r.CreatedAt = q.readText(), q.readTime()
	settings, err := stored.Decode(q.readText())
	if err != nil {
		return record{}, fmt.Errorf("sqlite: settings of queue %q: %w", r.Name, err)
	}
	r.Settings, r.deleted = settings, q.readNumber() != 0
	return r, nil
}

// findQueue returns the queue, a deleted one too. Errors:
// message.ErrQueueNotFound.
func (c *conn) findQueue(name string) (record, error) {
	q := c.prepare(queueByName).text(name)
	if !q.next() {
		if err := q.done(); err != nil {
			return record{}, err
		}
		return record{}, message.ErrQueueNotFound
	}
	r, err := q.scanQueue()
	return r, errors.Join(err, q.done())
}

func (c *conn) saveQueue(r record) error {
	settings, err := stored.Encode(r.Settings)
	if err != nil {
		return fmt.Errorf("sqlite: settings of queue %q: %w", r.Name, err)
	}
	deleted := 0
	if r.deleted {
		deleted = 1
	}
	return c.prepare(`REPLACE INTO queue (name, created_at, settings, deleted) VALUES (?, ?, ?, ?)`).
		text(r.Name).time(r.CreatedAt).text(settings).count(deleted).run()
}

// createQueue makes the queue with default settings, unless it exists.
func (c *conn) createQueue(name string, now time.Time) error {
	r, err := c.findQueue(name)
	switch {
	case err == nil && !r.deleted:
		return nil
	case err != nil && !errors.Is(err, message.ErrQueueNotFound):
		return err
	}
	q := message.Queue{Name: name, CreatedAt: now, Settings: message.DefaultSettings()}
	if r.deleted {
		q.Settings.Shards = r.Settings.Shards
	}
	return c.saveQueue(record{Queue: q})
}

// Queue implements message.QueueStore.
func (s *Store) Queue(ctx context.Context, name string) (q message.Queue, err error) {
	err = s.read(ctx, func(c *conn) error {
		r, err := c.findQueue(name)
		if err == nil && r.deleted {
			return message.ErrQueueNotFound
		}
		q = r.Queue
		return err
	})
	q.Counts = s.lastCounts(q)
	return q, err
}

// lastCounts returns the counts of the sweeper's last visit; nil before the first.
func (s *Store) lastCounts(q message.Queue) *message.Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Those of a queue of that name which has been deleted since are nobody's.
	if counts, ok := s.counts[q.Name]; ok && !counts.At.Before(q.CreatedAt) {
		return &counts
	}
	return nil
}

// PutQueue implements message.QueueStore.
func (s *Store) PutQueue(ctx context.Context, q message.Queue) (stored message.Queue, created bool, err error) {
	err = s.write(ctx, func(c *conn) error {
		was, err := c.findQueue(q.Name)
		switch {
		case errors.Is(err, message.ErrQueueNotFound):
			was = record{Queue: message.Queue{Settings: message.DefaultSettings()}, deleted: true}
		case err != nil:
			return err
		}
		stored, created = q, was.deleted
		if stored.Settings, err = was.Settings.Replace(q.Settings); err != nil {
			return err
		}
		if !created {
			stored.CreatedAt = was.CreatedAt
		}
		return c.saveQueue(record{Queue: stored})
	})
	return stored, created, err
}

// DeleteQueue implements message.QueueStore.
func (s *Store) DeleteQueue(ctx context.Context, name string, now time.Time) error {
	return s.write(ctx, func(c *conn) error {
		r, err := c.findQueue(name)
		switch {
		case err != nil:
			return err
		case r.deleted:
			return message.ErrQueueNotFound
		}
		held, err := c.prepare(`SELECT EXISTS (SELECT 1 FROM message WHERE queue = ?
			AND (expires_at = 0 OR expires_at > ?))`).text(name).time(now).one()
		if err != nil {
			return err
		}
		if held != 0 {
			return message.ErrQueueNotEmpty
		}
		delete(s.queues, name)
		s.forgetCounts(name)
		if err := s.unmark(c, name); err != nil {
			return err
		}
		if *r.Settings.Shards == *message.DefaultSettings().Shards {
			return c.prepare(`DELETE FROM queue WHERE name = ?`).text(name).run()
		}
		r.deleted = true // its shards are remembered
		return c.saveQueue(r)
	})
}

func (s *Store) forgetCounts(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counts, name)
}

// ListQueues implements message.QueueStore.
func (s *Store) ListQueues(ctx context.Context, prefix, after string, limit int) (page []message.Queue, err error) {
	err = s.read(ctx, func(c *conn) error {
		page = nil
		// No byte of UTF-8 is 0xff: it ends the range of the prefix.
		q := c.prepare(queueColumns + `WHERE name > ? AND name >= ? AND name < ? AND deleted = 0 ORDER BY name LIMIT ?`).
			text(after).text(prefix).text(prefix + "\xff").count(limit)
		for q.next() {
			r, err := q.scanQueue()
			if err != nil {
				return errors.Join(err, q.done())
			}
			page = append(page, r.Queue)
		}
		return q.done()
	})
	for i := range page {
		page[i].Counts = s.lastCounts(page[i])
	}
	return page, err
}

// Count implements message.QueueStore.
func (s *Store) Count(
	ctx context.Context, name string, now time.Time, statuses ...message.Status,
) (message.Counts, error) {
	if len(statuses) == 0 {
		statuses = message.Statuses()
	}
	counts := message.Counts{
		Depth: make(map[message.Status]int), More: make(map[message.Status]bool), At: now,
	}
	err := s.read(ctx, func(c *conn) error {
		for _, status := range statuses {
			n, err := c.prepare(`SELECT count(*) FROM (SELECT 1 FROM message WHERE queue = ? AND status = ?
				AND (expires_at = 0 OR expires_at > ?) LIMIT ?)`).
				text(name).text(string(status)).time(now).count(message.CountLimit + 1).one()
			if err != nil {
				return err
			}
			counts.Depth[status] = min(n, message.CountLimit)
			counts.More[status] = n > message.CountLimit
		}
		pending, err := c.oldest(name, message.Pending, now)
		if err != nil {
			return err
		}
		if !pending.After(now) {
			counts.OldestPending = pending
		}
		counts.OldestDead, err = c.oldest(name, message.Dead, now)
		return err
	})
	return counts, err
}

// oldest returns the earliest due time of that status; zero if there is none.
func (c *conn) oldest(queue string, status message.Status, now time.Time) (time.Time, error) {
	var due time.Time
	q := c.prepare(`SELECT due FROM message WHERE queue = ? AND status = ?
		AND (expires_at = 0 OR expires_at > ?) ORDER BY due LIMIT 1`).
		text(queue).text(string(status)).time(now)
	if q.next() {
		due = q.readTime()
	}
	return due, q.done()
}

// SaveCounts implements message.QueueStore. The counts are kept in memory only:
// after a start the sweeper counts anew. A queue that holds messages exists: it
// comes into being in the transaction that stores the first, and is deleted in
// one that finds none.
func (s *Store) SaveCounts(_ context.Context, name string, c message.Counts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[name] = c
	return nil
}
