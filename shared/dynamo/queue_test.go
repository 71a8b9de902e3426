package dynamo_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
)

// An instance that has the queue in memory does not look whether it is still
// there: the sweep brings it back.
func TestADeletedQueueComesBackWithAMessageThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for name, deletedFirst := range map[string]bool{"after the delete": true, "while it looks for messages": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			r.put(t, "q", func(set *message.Settings) { brief(set); set.Shards = new(5) })
			m := r.held(t, "q", "old") // the other instance knows the queue from now on
			_, err := r.plain.Succeed(t.Context(), "q", m.ID, &m.Receipt)
			wantErr(t, "Succeed", err, nil)
			wantErr(t, "Delete", r.plain.Delete(t.Context(), "q", m.ID), nil)
			send := func() { m = r.send(t, "q", message.Draft{Payload: "new"}) }
			if !deletedFirst {
				r.wire.Set(wire.Only(0, func(r *wire.Request) bool { return r.String() == "UpdateItem queue" },
					func(_ *wire.Request, answer wire.Send) (*http.Response, error) {
						send()
						return answer()
					}))
			}
			wantErr(t, "DeleteQueue", r.DeleteQueue(t.Context(), "q"), nil)
			if deletedFirst {
				send()
			}
			r.wire.Set(nil)
			_, err = r.Queue(t.Context(), "q")
			wantErr(t, "Queue before the sweep", err, message.ErrQueueNotFound)
			r.clock.at(time.Minute)
			report, err := r.Sweep(t.Context(), message.SweepOptions{Count: true})
			wantErr(t, "Sweep", errors.Join(err, report.Err), nil)
			want := message.DefaultSettings()
			want.Shards = new(5)
			q, err := r.Queue(t.Context(), "q")
			wantErr(t, "Queue after the sweep", err, nil)
			wantEqual(t, "its settings", q.Settings, want)
			wantEqual(t, "its birth", q.CreatedAt, r.clock.Now())
			wantEqual(t, "the messages", q.Counts.Depth[message.Pending], 1)
			if got := r.claim(t, "q"); got.ID != m.ID || got.Payload != "new" {
				t.Errorf("Claim = %s, want %s", got.ID, m.ID)
			}
			r.wantSound(t, 0)
		})
	}
}

// Messages may be in shards of which another instance does not know yet.
func TestMoreShardsAreSeenElsewhereWithinTenSeconds(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	const messages = 20
	lister, _ := r.on(t, r.engine, r.clock.Now)
	_, err := r.Claim(t.Context(), "q", message.ClaimOptions{}) // has the defaults in memory now
	wantErr(t, "Claim", err, nil)
	list := message.List{Queue: "q", Limit: messages}
	_, _, err = lister.List(t.Context(), list) // this one too
	wantErr(t, "List", err, nil)
	r.put(t, "q", func(set *message.Settings) { set.Shards = new(16) })
	for range messages {
		r.send(t, "q", message.Draft{})
	}
	r.clock.at(10*time.Second - time.Millisecond)
	page, _, err := lister.List(t.Context(), list)
	wantErr(t, "List", err, nil)
	wantEqual(t, "the number of messages listed", len(page), messages)
	claimed := 0
	for range messages / message.MaxClaim {
		got, err := r.Claim(t.Context(), "q", message.ClaimOptions{Max: new(message.MaxClaim), Timeout: new(time.Hour)})
		wantErr(t, "Claim", err, nil)
		claimed += len(got)
	}
	wantEqual(t, "the number of messages claimed", claimed, messages)
	r.clock.at(2 * time.Hour)
	report, err := r.Sweep(t.Context(), message.SweepOptions{})
	wantErr(t, "Sweep", errors.Join(err, report.Err), nil)
	wantEqual(t, "the number of leases that ran out", report.Returned, messages)
}

// Two puts at once: the second writes on what the first has left.
func TestOfTwoPutsOneIsTheLast(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	settings := func(retries, shards int) message.Settings {
		set := message.DefaultSettings()
		set.MaxRetries, set.DeadDays = retries, new(float64(retries))
		if set.Shards = nil; shards > 0 {
			set.Shards = &shards
		}
		return set
	}
	for _, tt := range []struct {
		name          string
		before        bool // the queue is there
		first, second message.Settings
		fault         bool // the second is refused: the shards would shrink
		shards        int
	}{
		{"a new queue", false, settings(5, 0), settings(7, 0), false, 1},
		{"a queue", true, settings(5, 0), settings(7, 0), false, 2},
		{"a queue whose shards the first makes more", true, settings(5, 8), settings(7, 0), false, 8},
		{"a queue whose shards both make more", true, settings(5, 8), settings(7, 16), false, 16},
		{"a queue whose shards the first makes more than the second", true, settings(5, 8), settings(7, 4), true, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			if tt.before {
				r.put(t, "q", func(set *message.Settings) { *set = settings(3, 2) })
			}
			r.wire.Set(wire.Only(0, isWrite, func(_ *wire.Request, send wire.Send) (*http.Response, error) {
				_, created, err := r.plain.PutQueue(t.Context(), "q", tt.first)
				if err != nil || created == tt.before {
					t.Errorf("the first PutQueue = created %v, %v", created, err)
				}
				return send()
			}))
			r.clock.at(time.Second)
			_, created, err := r.PutQueue(t.Context(), "q", tt.second)
			want := tt.second
			if tt.fault {
				wantErr(t, "the second PutQueue", err, message.ErrInvalid)
				want = tt.first
			} else {
				wantErr(t, "the second PutQueue", err, nil)
			}
			wantEqual(t, "whether the second made it", created, false)
			got, err := r.plain.Queue(t.Context(), "q")
			wantErr(t, "Queue", err, nil)
			want.Shards = &tt.shards
			wantEqual(t, "the settings", got.Settings, want)
		})
	}
}

func TestAQueueThatChangesAllTheTimeIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	r.put(t, "q", brief)
	r.wire.Set(wire.Each(isWrite, func(_ *wire.Request, send wire.Send) (*http.Response, error) {
		r.put(t, "q", brief)
		return send()
	}))
	_, _, err := r.PutQueue(t.Context(), "q", message.DefaultSettings())
	wantErr(t, "PutQueue", err, message.ErrUnavailable)
	wantErr(t, "DeleteQueue", r.DeleteQueue(t.Context(), "q"), message.ErrUnavailable)
}

// The settings are the queue's own, and copies of old requests leave them alone.
func TestALateCopyOfAPutChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	var old []*wire.Request
	step := func(name string, call func() error) {
		t.Helper()
		r.clock.after.Add(int64(time.Minute))
		wantErr(t, name, call(), nil)
		before := r.dump(t)
		for _, late := range old {
			resp, err := late.SendTo(r.wire.Next)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		wantEqual(t, "what is stored after the "+name+" and late copies", r.dump(t), before)
		for _, write := range r.wire.Take() {
			if write.String() == "UpdateItem queue" {
				old = append(old, write)
			}
		}
	}
	put := func(retries int) func() error {
		return func() error {
			set := message.DefaultSettings()
			set.MaxRetries, set.Shards = retries, nil
			_, _, err := r.PutQueue(t.Context(), "q", set)
			return err
		}
	}
	remove := func() error { return r.DeleteQueue(t.Context(), "q") }
	step("put", put(4))
	step("second put", put(5))
	step("delete", remove)
	step("put of the deleted", put(6))
	step("second delete", remove)
	step("enqueue", func() error {
		m, _, err := r.Enqueue(t.Context(), "q", message.Draft{Payload: "p"})
		return errors.Join(err, r.Delete(t.Context(), "q", m.ID))
	})
	step("third delete", remove)
}

// A run that is out of time leaves word of how far it came; the next one, of
// another instance, goes on behind it, and the totals are those of both.
func TestASweepGoesOnWhereTheLastStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	for i := range 5 {
		queue := fmt.Sprintf("queue-%d", i)
		r.reject(t, r.held(t, queue, "p"))
		r.send(t, queue, message.Draft{})
		r.send(t, queue, message.Draft{})
	}
	r.clock.at(time.Minute)
	// The first has stopped behind two queues, where one had many dead.
	wantErr(t, "SaveRound", r.store.SaveRound(t.Context(), message.Round{After: "queue-1", Totals: message.Totals{
		Pending: 4, Dead: 9, DeadMost: 8, OldestPending: began.Add(-time.Hour), OldestDead: began.Add(time.Hour),
	}}), nil)
	until := r.clock.Now().Add(time.Minute)
	sweep := func(svc *message.Service, want message.SweepReport) {
		t.Helper()
		got, err := svc.Sweep(t.Context(), message.SweepOptions{Count: true, Until: until})
		wantErr(t, "Sweep", err, nil)
		wantEqual(t, "the report", got, want)
	}
	r.wire.Take()
	r.lateAfter(3, "UpdateItem queue", until) // the last counts
	sweep(r.Service, message.SweepReport{Queues: 3, Done: true, Totals: &message.Totals{
		Pending: 10, Dead: 12, DeadMost: 8, OldestPending: began.Add(-time.Hour), OldestDead: began.Add(time.Millisecond),
	}})
	wantEqual(t, "the round that begins anew", line(r.item(t, "round")), `{"pk":{"S":"#sweep"},"round":{"S":`+
		`"{\"after\":\"\",\"pending\":0,\"dead\":0,\"dead_most\":0}"},"sk":{"S":"round"}}`)
	sweep(r.plain, message.SweepReport{Queues: 5, Done: true, Totals: &message.Totals{
		Pending: 10, Dead: 5, DeadMost: 1, OldestPending: began, OldestDead: began.Add(time.Millisecond),
	}})
}

func TestOddNamesOfQueues(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	queues := []string{
		"$", "!", "a", "a!", "a$", "a:1", "a@b", "m", "p", "%23active", "..", `"`, `\`, "\u2028", "💥",
		strings.Repeat("é", 64),
	}
	for _, queue := range queues {
		r.send(t, queue, message.Draft{Payload: queue, Key: "k"})
	}
	for _, queue := range queues {
		held := r.claim(t, queue)
		wantEqual(t, "the payload in "+queue, held.Payload, queue)
	}
	r.clock.at(lapsedAfter)
	report, err := r.Sweep(t.Context(), message.SweepOptions{Count: true})
	wantErr(t, "Sweep", errors.Join(err, report.Err), nil)
	wantEqual(t, "the number of leases that ran out", report.Returned, len(queues))
	r.wantSound(t, 0)
	r.clock.at(time.Hour)
	for _, queue := range queues {
		m := r.claim(t, queue)
		r.fail(t, m, "x")
		wantErr(t, "DeleteQueue", r.DeleteQueue(t.Context(), queue), message.ErrQueueNotEmpty)
		wantErr(t, "Delete", r.Delete(t.Context(), queue, m.ID), nil)
		wantErr(t, "DeleteQueue", r.DeleteQueue(t.Context(), queue), nil)
	}
	r.wantSound(t, 0)
}

// The history is a ring: the items of twenty hand-outs, however many there were.
func TestTheRingOfAttempts(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	m := r.send(t, "q", message.Draft{Payload: "p"})
	for n := 1; n <= 27; n++ {
		r.clock.at(time.Duration(n) * time.Minute)
		held := r.claim(t, "q")
		if n == 26 { // is no attempt
			_, err := r.plain.Release(t.Context(), "q", m.ID, &held.Receipt)
			wantErr(t, "Release", err, nil)
			continue
		}
		_, err := r.plain.Fail(t.Context(), "q", m.ID, message.Failure{
			Receipt: &held.Receipt, Error: strconv.Itoa(n), Permanent: true,
		})
		wantErr(t, "Fail", err, nil)
		if n < 27 {
			_, err = r.plain.Replay(t.Context(), "q", m.ID)
			wantErr(t, "Replay", err, nil)
		}
		stored := 0
		for _, item := range r.items(t) {
			if kindOf(item) == "attempt" {
				stored++
			}
		}
		wantEqual(t, fmt.Sprintf("the number of attempts stored after %d", n), stored, min(n, message.HistorySize))
	}
	var got, want []string
	for _, a := range r.get(t, m).Attempts {
		got = append(got, fmt.Sprintf("%d %s", a.Number, a.Error))
	}
	for n := 8; n <= 27; n++ {
		if n != 26 {
			want = append(want, fmt.Sprintf("%d %d", n, n))
		}
	}
	wantEqual(t, "the history", got, want)
	r.wantSound(t, 0)
}

// A crash may leave attempts of a message that was deleted. They are not those of
// the next one under its key.
func TestAttemptsOfADeletedMessageAreNotShown(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	d := message.Draft{Payload: "p", Key: "k"}
	r.send(t, "q", d)
	m := r.fail(t, r.claim(t, "q"), "first")
	r.clock.at(time.Minute)
	r.fail(t, r.claim(t, "q"), "second")
	r.wire.Set(wire.From(2, wire.Cut))
	wantErr(t, "Delete", r.Delete(t.Context(), "q", m.ID), message.ErrUnavailable)
	r.wire.Set(nil)
	r.clock.at(2 * time.Minute)
	r.send(t, "q", d)
	wantEqual(t, "the history of the next message", r.get(t, m).Attempts, nil)
	r.clock.at(3 * time.Minute)
	m = r.claim(t, "q")
	want := []message.Attempt{{
		Number: 1, ClaimedAt: r.clock.Now(), EndedAt: r.clock.Now().Add(time.Millisecond),
		Outcome: message.OutcomeFailed, Error: "third",
	}}
	r.wire.Set(wire.Each(func(r *wire.Request) bool { return r.String() == "PutItem attempt" }, wire.Cut))
	for _, wantError := range []error{message.ErrUnavailable, nil} { // first the old one is still in its place
		_, err := r.Fail(t.Context(), "q", m.ID, message.Failure{Receipt: &m.Receipt, Error: "third"})
		wantErr(t, "Fail", err, wantError)
		got := r.get(t, m)
		wantEqual(t, "the history", got.Attempts, want)
		wantEqual(t, "the last error", *got.Message.LastError, "third")
		r.wire.Set(nil)
	}
}

// A late attempt does not take the place of a newer one of the same number.
func TestAnOldAttemptTakesNoNewOnesPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	d := message.Draft{Payload: "p", Key: "k"}
	r.send(t, "q", d)
	m := r.claim(t, "q")
	r.wire.Set(wire.Only(0, func(r *wire.Request) bool { return r.String() == "PutItem attempt" },
		func(_ *wire.Request, send wire.Send) (*http.Response, error) { // it is slow
			wantErr(t, "Delete", r.plain.Delete(t.Context(), "q", m.ID), nil)
			r.clock.at(time.Minute)
			r.send(t, "q", d)
			r.fail(t, r.claim(t, "q"), "new")
			return send()
		}))
	_, err := r.Fail(t.Context(), "q", m.ID, message.Failure{Receipt: &m.Receipt, Error: "old"})
	wantErr(t, "Fail", err, nil)
	got := r.get(t, m).Attempts
	if len(got) != 1 || got[0].Error != "new" {
		t.Errorf("history = %+v, want the new failure alone", got)
	}
	wantEqual(t, "the error stored", textOf(r.item(t, "attempt")["error"]), "new")
}
