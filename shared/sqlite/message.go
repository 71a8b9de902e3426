package sqlite

import "github.com/redrivehq/redrive/shared/message"

// columns are those of a message, in the order in which scan reads them.
const columns = `queue, message.id, status, due, payload, payload_bytes, retry_count, max_retries,
	stall_count, max_stalls, claim_count, replay_count, last_error, dead_reason, receipt, last_verb,
	claimed_at, created_at, updated_at, expires_at, fingerprint`

const (
	selectMessage = `SELECT ` + columns + ` FROM message `
	// selectWithPayload reads the payload as the last column.
	selectWithPayload = `SELECT ` + columns + `, payload.body
		FROM message LEFT JOIN payload ON payload.id = message.payload `
	byID = `WHERE queue = ? AND message.id = ?`
)

// row is a message as stored, and where its payload stands.
type row struct {
	message.Message
	payload int64
	lost    bool // the payload was asked for and is missing
}

func (q *query) scan() row {
	var r row
	r.Queue, r.ID = q.readText(), q.readText()
	r.Status, r.Due = message.Status(q.readText()), q.readTime()
	r.payload, r.PayloadBytes = q.readNumber(), q.readCount()
	r.RetryCount, r.MaxRetries = q.readCount(), q.readCount()
	r.StallCount, r.MaxStalls = q.readCount(), q.readCount()
	r.ClaimCount, r.ReplayCount = q.readCount(), q.readCount()
	r.LastError, r.DeadReason = q.readOptional(), message.DeadReason(q.readText())
	r.Receipt, r.LastVerb = q.readText(), message.Verb(q.readText())
	r.ClaimedAt, r.CreatedAt, r.UpdatedAt, r.ExpiresAt = q.readTime(), q.readTime(), q.readTime(), q.readTime()
	r.Fingerprint = q.readText()
	return r
}

// find returns the message, with its payload if that is asked for. Errors:
// message.ErrNotFound.
func (c *conn) find(queue, id string, payload bool) (row, error) {
	sql := selectMessage + byID
	if payload {
		sql = selectWithPayload + byID
	}
	q := c.prepare(sql).text(queue).text(id)
	if !q.next() {
		if err := q.done(); err != nil {
			return row{}, err
		}
		return row{}, message.ErrNotFound
	}
	r := q.scan()
	if payload {
		r.Payload, r.lost = q.readPayload()
	}
	return r, q.done()
}

// save writes what a transition may change.
func (c *conn) save(m message.Message) error {
	return c.prepare(`UPDATE message SET status = ?, due = ?, retry_count = ?, stall_count = ?, claim_count = ?,
		replay_count = ?, last_error = ?, dead_reason = ?, receipt = ?, last_verb = ?, claimed_at = ?, updated_at = ?,
		expires_at = ? ` + byID).
		text(string(m.Status)).time(m.Due).count(m.RetryCount).count(m.StallCount).count(m.ClaimCount).
		count(m.ReplayCount).optional(m.LastError).text(string(m.DeadReason)).text(m.Receipt).text(string(m.LastVerb)).
		time(m.ClaimedAt).time(m.UpdatedAt).time(m.ExpiresAt).text(m.Queue).text(m.ID).run()
}

// remove deletes the message with its payload and attempts.
func (c *conn) remove(r row) error {
	for _, q := range []*query{
		c.prepare(`DELETE FROM message ` + byID).text(r.Queue).text(r.ID),
		c.prepare(`DELETE FROM payload WHERE id = ?`).number(r.payload),
		c.prepare(`DELETE FROM attempt WHERE queue = ? AND id = ?`).text(r.Queue).text(r.ID),
	} {
		if err := q.run(); err != nil {
			return err
		}
	}
	return nil
}
