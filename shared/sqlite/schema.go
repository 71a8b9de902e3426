package sqlite

import (
	"errors"
	"fmt"
)

// applicationID marks the file as a Redrive store: "RDRV" in ASCII. See
// https://www.sqlite.org/pragma.html#pragma_application_id.
const applicationID = 0x52445256

// migrations leads from an empty file to the present schema, one version a
// step. A step that has been released is never changed: a new one follows it.
//
// Times are milliseconds since 1970, 0 for none. Payloads and attempts stand
// apart, so that a change of state rewrites a small row.
var migrations = []string{
	`CREATE TABLE message (
		queue TEXT NOT NULL, id TEXT NOT NULL,
		status TEXT NOT NULL,
		due INTEGER NOT NULL,
		payload INTEGER NOT NULL, -- rowid in table payload
		payload_bytes INTEGER NOT NULL,
		retry_count INTEGER NOT NULL, max_retries INTEGER NOT NULL,
		stall_count INTEGER NOT NULL, max_stalls INTEGER NOT NULL,
		claim_count INTEGER NOT NULL, replay_count INTEGER NOT NULL,
		last_error BLOB,
		dead_reason TEXT NOT NULL,
		receipt TEXT NOT NULL, last_verb TEXT NOT NULL,
		claimed_at INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
		expires_at INTEGER NOT NULL,
		fingerprint TEXT NOT NULL,
		PRIMARY KEY (queue, id)
	) STRICT, WITHOUT ROWID;

	-- Claim, sweep, list and count read ranges of this index, and nothing else.
	CREATE INDEX message_due ON message (queue, status, due, id, expires_at);
	CREATE INDEX message_expiry ON message (expires_at) WHERE expires_at > 0;

	CREATE TABLE payload (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;

	-- A ring of the newest attempts of a message: slot is the number modulo its size.
	CREATE TABLE attempt (
		queue TEXT NOT NULL, id TEXT NOT NULL, slot INTEGER NOT NULL,
		number INTEGER NOT NULL, claimed_at INTEGER NOT NULL, ended_at INTEGER NOT NULL,
		outcome TEXT NOT NULL, error BLOB NOT NULL,
		PRIMARY KEY (queue, id, slot)
	) STRICT, WITHOUT ROWID;

	-- A deleted queue leaves its row behind, for its shards.
	CREATE TABLE queue (
		name TEXT PRIMARY KEY, created_at INTEGER NOT NULL, settings TEXT NOT NULL, deleted INTEGER NOT NULL
	) STRICT, WITHOUT ROWID;

	-- Queues that the sweeper visits.
	CREATE TABLE mark (queue TEXT PRIMARY KEY, marked_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;`,
}

// migrate brings the file from that version to the present schema, each step in
// one transaction.
func migrate(c *conn, version int) error {
	for ; version < len(migrations); version++ {
		step := fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
			migrations[version], applicationID, version+1)
		if err := c.db.Exec(step); err != nil {
			return errors.Join(&engineError{fmt.Sprintf("migrate to schema %d", version+1), err}, c.rollback())
		}
	}
	return nil
}

// checkFile returns the version of the file's schema, 0 for an empty file. It
// refuses what is not a store, or a store that this version cannot read.
func checkFile(c *conn) (version int, err error) {
	id, err1 := c.prepare("PRAGMA application_id").one()
	version, err2 := c.prepare("PRAGMA user_version").one()
	tables, err3 := c.prepare("SELECT count(*) FROM sqlite_schema").one()
	switch err := errors.Join(err1, err2, err3); {
	case err != nil:
		return 0, err
	case id == 0 && version == 0 && tables == 0:
		return 0, nil
	case id != applicationID:
		return 0, errors.New("it is an SQLite file of another program; choose another file")
	case version > len(migrations):
		return 0, fmt.Errorf("it was written by a newer Redrive (schema %d, this one knows %d);"+
			" use that version, or choose another file", version, len(migrations))
	}
	return version, nil
}
