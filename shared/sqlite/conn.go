package sqlite

import (
	"errors"
	"strings"
	"time"

	sqlite3 "github.com/ncruces/go-sqlite3"
)

const (
	// synchronous=FULL flushes the log at every commit; fullfsync makes macOS
	// flush the drive too. So what is acknowledged survives a power cut.
	durable = `PRAGMA synchronous = FULL; PRAGMA fullfsync = 1; PRAGMA checkpoint_fullfsync = 1;`
	// A checkpoint every 16 MB of log; a log that grew under a long read shrinks
	// to that again.
	writerPragmas = `PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 4096; PRAGMA journal_size_limit = 16777216;
		PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;` + durable
	readerPragmas = `PRAGMA query_only = 1; PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY;` + durable
)

// conn is one connection, for one goroutine at a time, with its prepared
// statements.
type conn struct {
	db      *sqlite3.Conn
	queries map[string]*query
}

func openConn(path string) (*conn, error) {
	if path != InMemory {
		// Only a URI can say that the log takes over the permissions of the file.
		escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23", "&", "%26").Replace(path)
		path = "file:" + escaped + "?modeof=" + escaped
	}
	db, err := sqlite3.Open(path)
	if err != nil {
		return nil, &engineError{"open", err}
	}
	c := &conn{db: db, queries: make(map[string]*query)}
	if err := db.BusyTimeout(5 * time.Second); err != nil {
		return nil, errors.Join(&engineError{"set the timeout", err}, c.close())
	}
	return c, nil
}

// addChecksums gives each page of a new file a checksum, so that damage is an
// error and never a message that seems not to be there, or another payload. See
// https://www.sqlite.org/cksumvfs.html.
func (c *conn) addChecksums() error {
	if err := c.db.EnableChecksums("main"); err != nil {
		return &engineError{"add checksums", err}
	}
	return nil
}

// set runs statements that set something up, once.
func (c *conn) set(statements string) error {
	if err := c.db.Exec(statements); err != nil {
		return &engineError{"set up", err}
	}
	return nil
}

func (c *conn) close() error {
	var errs []error
	for _, q := range c.queries {
		errs = append(errs, q.st.Close())
	}
	return errors.Join(append(errs, c.db.Close())...)
}

// exec runs a statement without arguments.
func (c *conn) exec(sql string) error { return c.prepare(sql).run() }

// rollback ends a transaction that failed, unless the engine has done so.
func (c *conn) rollback() error {
	if c.db.GetAutocommit() {
		return nil
	}
	for _, q := range c.queries { // a panic may have left one in the middle
		_ = q.st.Reset() // returns the error of its last step
	}
	if err := c.db.Exec("ROLLBACK"); err != nil {
		return &engineError{"ROLLBACK", err}
	}
	return nil
}

// query is a prepared statement being given its arguments, run and read, in the
// order of its placeholders and columns. The first error sticks, and run or
// done returns it.
type query struct {
	st          *sqlite3.Stmt
	sql         string
	arg, column int
	err         error
}

// prepare returns the statement, which is free for use until the next call with
// the same text.
func (c *conn) prepare(sql string) *query {
	q, ok := c.queries[sql]
	if !ok {
		st, _, err := c.db.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT)
		if err != nil {
			return &query{sql: sql, err: err}
		}
		q = &query{st: st, sql: sql}
		c.queries[sql] = q
	}
	q.arg, q.err = 0, nil
	return q
}

func (q *query) text(s string) *query {
	if q.arg++; q.err == nil {
		q.err = q.st.BindText(q.arg, s)
	}
	return q
}

func (q *query) number(n int64) *query {
	if q.arg++; q.err == nil {
		q.err = q.st.BindInt64(q.arg, n)
	}
	return q
}

func (q *query) count(n int) *query { return q.number(int64(n)) }

// bytes binds text that may hold anything, NUL included.
func (q *query) bytes(s string) *query {
	if q.arg++; q.err == nil {
		q.err = q.st.BindBlob(q.arg, []byte(s))
	}
	return q
}

func (q *query) optional(s *string) *query {
	if s != nil {
		return q.bytes(*s)
	}
	if q.arg++; q.err == nil {
		q.err = q.st.BindNull(q.arg)
	}
	return q
}

// time binds whole milliseconds since 1970; 0 is the zero time.
func (q *query) time(t time.Time) *query {
	if t.IsZero() {
		return q.number(0)
	}
	return q.number(t.UnixMilli())
}

// run runs a statement that returns no rows, or whose rows do not matter.
func (q *query) run() error {
	for q.next() {
	}
	return q.done()
}

// next goes to the next row, if there is one.
func (q *query) next() bool {
	q.column = -1
	return q.err == nil && q.st.Step()
}

// done ends the query. It must follow every next.
func (q *query) done() error {
	if q.st != nil {
		if err := q.st.Reset(); q.err == nil {
			q.err = err
		}
	}
	if q.err != nil {
		return &engineError{q.sql, q.err}
	}
	return nil
}

func (q *query) readText() string {
	q.column++
	return q.st.ColumnText(q.column)
}

// readPayload reads the body of a payload, and whether it is missing, which is a
// damage of the file.
func (q *query) readPayload() (body string, missing bool) {
	q.column++
	return q.st.ColumnText(q.column), q.st.ColumnType(q.column) == sqlite3.NULL
}

func (q *query) readNumber() int64 {
	q.column++
	return q.st.ColumnInt64(q.column)
}

func (q *query) readCount() int { return int(q.readNumber()) }

func (q *query) readOptional() *string {
	q.column++
	if q.st.ColumnType(q.column) == sqlite3.NULL {
		return nil
	}
	return new(q.st.ColumnText(q.column))
}

func (q *query) readTime() time.Time {
	if ms := q.readNumber(); ms != 0 {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

// one returns the number in the first column of the only row; 0 if there is no
// row.
func (q *query) one() (int, error) {
	n := 0
	if q.next() {
		n = q.readCount()
	}
	return n, q.done()
}
