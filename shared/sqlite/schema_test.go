package sqlite

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// mustConn opens a connection to the file as a store does, without a schema.
func mustConn(t *testing.T, path string) *conn {
	t.Helper()
	c, err := openConn(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := c.set(writerPragmas); err != nil {
		t.Fatal(err)
	}
	return c
}

// bring looks at the file and brings it to the present schema.
func bring(c *conn) error {
	version, err := checkFile(c)
	if err != nil {
		return err
	}
	return migrate(c, version)
}

// identity returns the application's number, the version, and how many tables
// and indexes there are.
func identity(t *testing.T, c *conn) (id, version, objects int) {
	t.Helper()
	id, err1 := c.prepare(`PRAGMA application_id`).one()
	version, err2 := c.prepare(`PRAGMA user_version`).one()
	objects, err3 := c.prepare(`SELECT count(*) FROM sqlite_schema`).one()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return id, version, objects
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	t.Run("an empty file comes to the present schema", func(t *testing.T) {
		t.Parallel()
		c := mustConn(t, newPath(t))
		for range 2 { // the second time there is nothing to do
			if err := bring(c); err != nil {
				t.Fatal(err)
			}
			if id, version, n := identity(t, c); id != 0x52445256 || version != len(migrations) || n < 7 {
				t.Errorf("identity = %#x, %d, %d objects", id, version, n)
			}
		}
		if version, err := checkFile(c); err != nil || version != len(migrations) {
			t.Errorf("checkFile = %d, %v", version, err)
		}
	})
	t.Run("the number stands in the file where other programs look for it", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		mustClose(t, mustOpen(t, path))
		if got := string(readFile(t, path)[68:72]); got != "RDRV" {
			t.Errorf("the number is %q", got)
		}
	})
	t.Run("an interrupted step leaves nothing", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		c := mustConn(t, path)
		for pages := 2; ; pages++ { // at every point where the disk may be full
			if err := c.db.Exec(fmt.Sprintf(`PRAGMA max_page_count = %d`, pages)); err != nil {
				t.Fatal(err)
			}
			err := bring(c)
			if err == nil {
				if pages < 5 {
					t.Errorf("the schema fits into %d pages: nothing was interrupted", pages)
				}
				break
			}
			unavailableSaying(t, err, "migrate to schema 1", "the disk is full")
			if id, version, n := identity(t, c); id != 0 || version != 0 || n != 0 {
				t.Errorf("with %d pages identity = %#x, %d, %d objects, want zeros", pages, id, version, n)
			}
		}
		if _, version, _ := identity(t, c); version != len(migrations) {
			t.Errorf("version %d, want %d", version, len(migrations))
		}
	})
	t.Run("an empty file is taken", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		writeFile(t, path, nil)
		mustEnqueue(t, newService(mustOpen(t, path), newClock()), "q", "1")
	})
}

// everything is all that a store shows.
type everything struct {
	messages []message.Message
	attempts []message.Attempt
	queues   []message.Queue
	marks    []message.Mark
	counts   []message.Counts
}

func readEverything(t *testing.T, s *Store, now time.Time) (all everything) {
	t.Helper()
	ctx := t.Context()
	var err error
	if all.queues, err = s.ListQueues(ctx, "", "", 100); err != nil {
		t.Fatal(err)
	}
	if all.marks, err = s.InUse(ctx, "", 100); err != nil {
		t.Fatal(err)
	}
	for _, q := range all.queues {
		counts, err := s.Count(ctx, q.Name, now)
		if err != nil {
			t.Fatal(err)
		}
		all.counts = append(all.counts, counts)
		for _, status := range message.Statuses() {
			listed, _, err := s.List(ctx, message.ListQuery{Queue: q.Name, Status: status, Limit: 100, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range listed {
				got, attempts, err := s.Get(ctx, q.Name, m.ID)
				if err != nil {
					t.Fatal(err)
				}
				all.messages = append(all.messages, got)
				all.attempts = append(all.attempts, attempts...)
			}
		}
	}
	// Those of the sweeper's last visit are kept in memory only.
	for i := range all.queues {
		all.queues[i].Counts = nil
	}
	return all
}

func TestReopeningKeepsEverything(t *testing.T) {
	t.Parallel()
	path, c := newPath(t), newClock()
	s := mustOpen(t, path)
	svc := newService(s, c)
	useEverything(t, s, svc, c)
	before := readEverything(t, s, c.now())
	if len(before.messages) < 7 || len(before.attempts) < 5 || len(before.queues) != 3 || len(before.marks) != 2 {
		t.Fatalf("there is too little to keep: %d messages, %d attempts, %d queues, %d marks",
			len(before.messages), len(before.attempts), len(before.queues), len(before.marks))
	}
	for range 2 {
		mustClose(t, s)
		s = mustOpen(t, path)
		after := readEverything(t, s, c.now())
		if len(after.marks) != len(after.queues) { // each is to be counted once
			t.Errorf("reopened: %d marks of %d queues", len(after.marks), len(after.queues))
		}
		after.marks = before.marks
		if !reflect.DeepEqual(after, before) {
			t.Errorf("reopened: %+v\nwant: %+v", after, before)
		}
	}
}

// useEverything runs every statement of the package at least once, and leaves
// messages in every state.
func useEverything(t *testing.T, s *Store, svc *message.Service, c *clock) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	putBrief(t, svc, "q")
	putBrief(t, svc, "r")
	set := message.DefaultSettings()
	set.Backoff = message.Backoff{Schedule: []time.Duration{time.Second, time.Minute}, Jitter: message.JitterFull}
	set.Shards, set.RequireReceipt = new(4), true
	_, _, err := svc.PutQueue(ctx, "set", set)
	check(err)
	_, _, err = svc.PutQueue(ctx, "gone", set)
	check(err)
	check(svc.DeleteQueue(ctx, "gone"))
	_, err = svc.Queue(ctx, "q")
	check(err)
	_, _, err = svc.ListQueues(ctx, "q", "", 10)
	check(err)

	settle(t, svc, c, "q", "succeed") // expires
	c.advance(time.Hour)
	settle(t, svc, c, "q", "succeed")
	settle(t, svc, c, "q", "reject")
	replayed := settle(t, svc, c, "q", "reject")
	_, err = svc.Replay(ctx, "q", replayed.ID)
	check(err)
	check(svc.Delete(ctx, "q", replayed.ID))
	for range 2 {
		_, _, err = svc.Enqueue(ctx, "q", message.Draft{Payload: "nul\x00\n", Key: "key"})
		check(err)
	}
	check(answer(ctx, svc, "release", mustClaim(t, svc, "q")))
	c.advance(time.Second)
	mustClaim(t, svc, "q") // its lease runs out
	c.advance(time.Hour)
	report, err := svc.Sweep(ctx, message.SweepOptions{})
	check(err)
	if report.Returned != 1 {
		t.Fatalf("Sweep = %+v, want one returned", report)
	}
	_, err = svc.Sweep(ctx, message.SweepOptions{Count: true})
	check(err)
	check(s.Unmark(ctx, message.Mark{Queue: "unused"}))
	mustEnqueue(t, svc, "q", "")
	m := mustClaim(t, svc, "q")
	_, err = svc.Extend(ctx, "q", m.ID, message.Extension{Receipt: &m.Receipt, Timeout: new(time.Hour)})
	check(err)
	mustEnqueue(t, svc, "q", "waits")
	for _, descending := range []bool{false, true} {
		for _, payload := range []bool{false, true} {
			_, _, err = svc.List(ctx, message.List{Queue: "q", Descending: descending, Payload: payload, Limit: 10})
			check(err)
		}
	}
	_, err = s.RemoveExpired(ctx, c.now().Add(-time.Hour), 1)
	check(err)
	for _, verb := range []string{"succeed", "reject", "fail", "release"} {
		settle(t, svc, c, "r", verb)
		c.advance(time.Millisecond)
	}
	if n, err := s.Count(ctx, "q", c.now()); err != nil || len(n.Depth) != 4 {
		t.Fatalf("Count = %v, %v", n, err)
	}
}

func TestEveryStatementUsesAnIndex(t *testing.T) {
	t.Parallel()
	s, c := mustOpen(t, InMemory), newClock() // there one connection runs everything
	useEverything(t, s, newService(s, c), c)
	plans := make(map[string]string)
	onWriter(t, s, func(c *conn) error {
		for _, sql := range slices.Sorted(maps.Keys(c.queries)) {
			q := c.prepare(`EXPLAIN QUERY PLAN ` + sql)
			var steps []string
			for q.next() {
				steps = append(steps, q.st.ColumnText(3))
			}
			if err := q.done(); err != nil {
				return err
			}
			plans[strings.Join(strings.Fields(sql), " ")] = strings.Join(steps, "; ")
		}
		return nil
	})
	for sql, plan := range plans {
		t.Logf("%s\n\t%s", sql, plan)
		if strings.Contains(sql, "FROM sqlite_schema") { // ours is small
			continue
		}
		for step := range strings.SplitSeq(plan, "; ") {
			// A subquery that is limited has been read through an index already.
			scan := strings.HasPrefix(step, "SCAN") && step != "SCAN (subquery-1)" && step != "SCAN CONSTANT ROW"
			if scan || strings.Contains(step, "B-TREE") {
				t.Errorf("%s\n\t%s", sql, step)
			}
		}
	}
	const (
		due     = "message USING INDEX message_due "
		payload = "; SEARCH payload USING INTEGER PRIMARY KEY (rowid=?)"
		ordered = due + "(queue=? AND status=? AND "
	)
	const (
		fromMessage = "fingerprint FROM message WHERE "
		withPayload = "JOIN payload ON payload.id = message.payload WHERE "
		inOrder     = "queue = ? AND status = ? AND (expires_at = 0 OR expires_at > ?) AND (due, message.id) "
		byKey       = "SEARCH message USING PRIMARY KEY (queue=? AND id=?)"
	)
	for _, tt := range []struct{ name, part, plan string }{
		{"claim", "status = 'pending' AND due <= ?", "SEARCH " + ordered + "due<?)" + payload},
		{
			"lapsed", "status = 'processing' AND due <= ?",
			"SEARCH message USING COVERING INDEX message_due (queue=? AND status=? AND (due,id)>(?,?) AND due<?)",
		},
		{"list", fromMessage + inOrder + "> (?, ?)", "SEARCH " + ordered + "(due,id)>(?,?))"},
		{"list with payloads", withPayload + inOrder + "> (?, ?)", "SEARCH " + ordered + "(due,id)>(?,?))" + payload},
		{"list backwards", fromMessage + inOrder + "< (?, ?)", "SEARCH " + ordered + "(due,id)<(?,?))"},
		{
			"list backwards with payloads", withPayload + inOrder + "< (?, ?)",
			"SEARCH " + ordered + "(due,id)<(?,?))" + payload,
		},
		{
			"count", "FROM (SELECT 1 FROM message WHERE queue = ? AND status = ?",
			"SEARCH message USING COVERING INDEX message_due (queue=? AND status=?)",
		},
		{
			"oldest", "SELECT due FROM message",
			"SEARCH message USING COVERING INDEX message_due (queue=? AND status=?)",
		},
		{
			"expiry", "WHERE expires_at > 0 AND expires_at <= ?",
			"SEARCH message USING INDEX message_expiry (expires_at>? AND expires_at<?)",
		},
		{"find", fromMessage + "queue = ? AND message.id = ?", byKey},
		{"find with payload", withPayload + "queue = ? AND message.id = ?", byKey + payload},
		{"save", "UPDATE message SET", byKey},
		{"remove", "DELETE FROM message", byKey},
		{"remove payload", "DELETE FROM payload", "SEARCH payload USING INTEGER PRIMARY KEY (rowid=?)"},
		{"remove attempts", "DELETE FROM attempt", "SEARCH attempt USING PRIMARY KEY (queue=? AND id=?)"},
		{"attempts", "FROM attempt WHERE", "SEARCH attempt USING PRIMARY KEY (queue=? AND id=?)"},
		{"in use", "FROM mark WHERE queue > ?", "SEARCH mark USING PRIMARY KEY (queue>?)"},
		{
			"unmark", "status IN ('pending', 'processing', 'dead')",
			"SEARCH message USING COVERING INDEX message_due (queue=? AND status=?)",
		},
		{"queue", "FROM queue WHERE name = ?", "SEARCH queue USING PRIMARY KEY (name=?)"},
		{"list queues", "FROM queue WHERE name > ?", "SEARCH queue USING PRIMARY KEY (name>? AND name<?)"},
		{
			"delete queue", "FROM message WHERE queue = ? AND (expires_at = 0",
			"SEARCH message USING COVERING INDEX message_due (queue=?)",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found := false
			for sql, plan := range plans {
				if !strings.Contains(sql, tt.part) {
					continue
				}
				found = true
				if !strings.Contains(plan, tt.plan) {
					t.Errorf("%s\n\tplan %s\n\twant %s", sql, plan, tt.plan)
				}
			}
			if !found {
				t.Error("no such statement was run")
			}
		})
	}
}
