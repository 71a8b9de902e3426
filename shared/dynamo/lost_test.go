package dynamo_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
)

// writesOf names the writes among requests.
func join(names []string) string { return strings.Join(names, ", ") }

func writesOf(requests []*wire.Request) []string {
	return names(slices.DeleteFunc(requests, func(r *wire.Request) bool { return !r.Writes() }))
}

// What comes first decides what a crash may leave: see Enqueue.
func TestTheWritesOfEachVerbComeInOrder(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for _, v := range verbs() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			o, r := v.run(t, engine, nil)
			wantErr(t, v.name, o.Err, nil)
			wantEqual(t, "the writes", join(writesOf(r.wire.Take())), v.writes)
		})
	}
}

func isWrite(r *wire.Request) bool { return r.Writes() }

// S105, S106: every write of every verb in turn happens, and its answer is lost.
// The SDK asks again, and finds that its condition does not hold any more.
func TestAWriteWhoseAnswerIsLostCountsOnce(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for _, v := range verbs() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			want, r := v.run(t, engine, nil)
			requests := len(r.wire.Take())
			for i, write := range strings.Split(v.writes, ", ") {
				got, r := v.run(t, engine, wire.Only(i, isWrite, wire.Lose))
				wantEqual(t, fmt.Sprintf("the outcome without the answer to write %d, %s,", i, write), got, want)
				wantEqual(t, "the number of requests", len(r.wire.Take()), requests+1)
			}
		})
	}
}

// The network delivers every request twice.
func TestAWriteThatArrivesTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	quiet, r := newRig(t, engine), newRig(t, engine)
	r.wire.Set(wire.Each(isWrite, func(_ *wire.Request, send wire.Send) (*http.Response, error) {
		resp, err := send()
		if again, err := send(); err == nil {
			again.Body.Close()
		}
		return resp, err
	}))
	wantEqual(t, "what every verb answers", lifeCycle(t, r), lifeCycle(t, quiet))
	wantEqual(t, "what is stored", r.dump(t), quiet.dump(t))
}

// then sends the request, does something else, and loses the answer.
func then(do func()) wire.Fault {
	return func(r *wire.Request, send wire.Send) (*http.Response, error) {
		resp, err := wire.Lose(r, send)
		do()
		return resp, err
	}
}

func isMessageWrite(r *wire.Request) bool { return r.Writes() && wire.KindOf(r.Key()) == "message" }

func refusal(verb message.Verb, status message.Status, reason message.Reason) error {
	return &message.ConflictError{Verb: verb, Status: status, Reason: reason}
}

// The answer to the write of the message is lost, and before the SDK asks again
// the message has moved on.
func TestAWriteWhoseAnswerIsLostFindsThatTheMessageHasMovedOn(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	type mover func(*testing.T, *rig, message.Message)
	claimLater := func(t *testing.T, r *rig, _ message.Message) {
		t.Helper()
		r.clock.at(time.Hour)
		r.claim(t, "q")
	}
	remove := func(t *testing.T, r *rig, m message.Message) {
		t.Helper()
		r.clock.at(time.Hour)
		wantErr(t, "Delete", r.plain.Delete(t.Context(), "q", m.ID), nil)
	}
	replay := func(t *testing.T, r *rig, m message.Message) {
		t.Helper()
		r.clock.at(time.Hour)
		_, err := r.plain.Replay(t.Context(), "q", m.ID)
		wantErr(t, "Replay", err, nil)
	}
	again := func(payload string) mover {
		return func(t *testing.T, r *rig, _ message.Message) {
			t.Helper()
			r.send(t, "q", message.Draft{Payload: payload, Key: "k"})
		}
	}
	settle := func(t *testing.T, r *rig, m message.Message) {
		t.Helper()
		_, err := r.plain.Succeed(t.Context(), "q", m.ID, nil)
		wantErr(t, "Succeed", err, nil)
	}
	stall := func(t *testing.T, r *rig, _ message.Message) {
		t.Helper()
		r.clock.at(lapsedAfter)
		_, err := r.plain.Sweep(t.Context(), message.SweepOptions{})
		wantErr(t, "Sweep", err, nil)
	}
	keyed := func(payload string, ready mover) func(*testing.T, *rig) message.Message {
		return func(t *testing.T, r *rig) message.Message {
			t.Helper()
			m := r.send(t, "q", message.Draft{Payload: payload, Key: "k"})
			if ready != nil {
				m = r.claim(t, "q")
				r.clock.at(time.Second)
				ready(t, r, m)
			}
			return m
		}
	}
	nowhere := func(*testing.T, *rig, message.Message) {}
	rejected := func(t *testing.T, r *rig, m message.Message) { t.Helper(); r.reject(t, m) }
	in := func(movers ...mover) mover {
		return func(t *testing.T, r *rig, m message.Message) {
			t.Helper()
			for _, move := range movers {
				move(t, r, m)
			}
		}
	}
	for _, tt := range []struct {
		name    string
		prepare func(*testing.T, *rig) message.Message
		call    func(context.Context, *rig, message.Message) (any, error)
		move    mover
		want    error
		status  message.Status // of the message in the end; empty: there is none
	}{
		{"a claim, then a stall", waiting("p"), claims(1), stall, nil, message.Pending},
		{"a claim, then a success of somebody without a receipt", waiting("p"), claims(1), settle, nil, message.Succeeded},
		{"a success, then a delete", held(big), succeeds, remove, message.ErrNotFound, ""},
		{
			"a success, then a delete and a new message", keyed("p", nowhere), succeeds, in(remove, again("p")),
			refusal(message.VerbSucceed, message.Pending, message.ReasonState), message.Pending,
		},
		{
			"a failure, then a claim", held("p"), fails, claimLater,
			refusal(message.VerbFail, message.Processing, message.ReasonReceipt), message.Processing,
		},
		{
			"a rejection, then a replay", held(big), rejects, replay,
			refusal(message.VerbFail, message.Pending, message.ReasonState), message.Pending,
		},
		{
			"a last failure, then a replay", heldLast(big), rejects, replay,
			refusal(message.VerbFail, message.Pending, message.ReasonState), message.Pending,
		},
		{
			"a last failure, then a replay and a claim", heldLast(big), rejects, in(replay, claimLater),
			refusal(message.VerbFail, message.Processing, message.ReasonReceipt), message.Processing,
		},
		{"a rejection, then a delete", held(big), rejects, remove, message.ErrNotFound, ""},
		{
			"a release, then a claim", held("p"), releases, claimLater,
			refusal(message.VerbRelease, message.Processing, message.ReasonReceipt), message.Processing,
		},
		{
			"an extension, then a release", held("p"), extends, func(t *testing.T, r *rig, m message.Message) {
				t.Helper()
				_, err := releases(t.Context(), &rig{Service: r.plain}, m)
				wantErr(t, "Release", err, nil)
			}, refusal(message.VerbExtend, message.Pending, message.ReasonState), message.Pending,
		},
		{
			"a replay, then a claim", dead(held(big)), replays, claimLater,
			refusal(message.VerbReplay, message.Processing, message.ReasonState), message.Processing,
		},
		{
			"a replay of what expires, then a claim", dead(heldLast(big)), replays, claimLater,
			refusal(message.VerbReplay, message.Processing, message.ReasonState), message.Processing,
		},
		{
			"a replay of what expires, then a claim and a success", dead(heldLast(big)), replays, in(claimLater, settle),
			refusal(message.VerbReplay, message.Succeeded, message.ReasonState), message.Succeeded,
		},
		{"a replay, then a delete", dead(held(big)), replays, remove, message.ErrNotFound, ""},
		{"a replay of what expires, then a delete", dead(heldLast(big)), replays, remove, message.ErrNotFound, ""},
		{"a delete, then a new message", keyed(big, rejected), deletes, again(big), nil, message.Pending},
		{
			"a delete, then a new message and its claim", keyed(big, rejected), deletes, in(again(big), claimLater), nil,
			message.Processing,
		},
		{
			"a delete, then a new message and its failure", keyed("p", rejected), deletes,
			in(again("p"), claimLater, func(t *testing.T, r *rig, _ message.Message) {
				t.Helper()
				m := r.list(t)[0]
				_, err := r.plain.Fail(t.Context(), "q", m.ID, message.Failure{Error: noise(1_000)})
				wantErr(t, "Fail", err, nil)
			}), nil, message.Pending,
		},
		{"a delete, then a new message in the same millisecond", keyed("p", nil), deletes, again("p"), nil, message.Pending},
		{
			"a replay, then a claim and a death", dead(held(big)), replays, in(claimLater, func(
				t *testing.T, r *rig, m message.Message,
			) {
				t.Helper()
				_, err := r.plain.Fail(t.Context(), "q", m.ID, message.Failure{Permanent: true})
				wantErr(t, "Fail", err, nil)
			}), refusal(message.VerbReplay, message.Dead, message.ReasonReplayed), message.Dead,
		},
		{"an enqueue, then a claim", nobody, enqueues(message.Draft{Payload: "p"}), claimLater, nil, message.Processing},
		{
			"a keyed enqueue, then a claim", nobody, enqueues(message.Draft{Payload: "p", Key: "k"}), claimLater, nil,
			message.Processing,
		},
		{
			"a keyed enqueue, payload apart, then a claim", nobody, enqueues(message.Draft{Payload: big, Key: "k"}), claimLater,
			nil, message.Processing,
		},
		{"a sweep, then a claim", lapsed(held("p")), sweeps, claimLater, nil, message.Processing},
		{"a sweep, then a delete", lapsed(held(big)), sweeps, remove, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			m := tt.prepare(t, r)
			var moved []seen
			r.wire.Set(wire.Only(0, isMessageWrite, then(func() {
				tt.move(t, r, m)
				moved = r.views(t)
			})))
			_, err := tt.call(t.Context(), r, m)
			wantErr(t, "the call", err, tt.want)
			if moved == nil {
				t.Error("the message did not move")
			}
			views := r.views(t)
			if tt.status == "" && len(views) > 0 || tt.status != "" &&
				(len(views) != 1 || views[0].Message.Status != tt.status) {
				t.Errorf("the queue holds %d messages, want one that is %q, or none", len(views), tt.status)
			}
			wantEqual(t, "what the queue holds", views, moved)
			r.wantSound(t, 0)
		})
	}
}

// views returns all that callers can see of a queue.
func (r *rig) views(t *testing.T) []seen {
	t.Helper()
	all := []seen{}
	for _, m := range r.list(t) {
		all = append(all, r.get(t, m))
	}
	return all
}

// A success may fall on the very millisecond in which the lease ends: then the due
// time and the receipt are those of the message before, and only the status differs.
func TestNothingUndoesASuccessAtTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	state := func(verb message.Verb) error { return refusal(verb, message.Succeeded, message.ReasonState) }
	for name, tt := range map[string]struct {
		call func(context.Context, *rig, message.Message) (any, error)
		want error
	}{
		"a failure":    {fails, state(message.VerbFail)},
		"a release":    {releases, state(message.VerbRelease)},
		"an extension": {extends, state(message.VerbExtend)},
		"a sweep":      {sweeps, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			m := r.held(t, "q", "p")
			r.clock.at(lapsedAfter)
			r.wire.Set(wire.Only(0, isMessageWrite, func(_ *wire.Request, send wire.Send) (*http.Response, error) {
				r.clock.at(m.Due.Sub(began)) // by the clock of the holder
				_, err := succeeds(t.Context(), &rig{Service: r.plain}, m)
				wantErr(t, "Succeed", err, nil)
				return send()
			}))
			_, err := tt.call(t.Context(), r, m)
			wantErr(t, "the call", err, tt.want)
			wantEqual(t, "the status", r.get(t, m).Message.Status, message.Succeeded)
		})
	}
}

// Copies of old requests that the network kept: after every later step all of
// them arrive once more.
func TestALateCopyOfAWriteChangesNothing(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for name, d := range map[string]message.Draft{
		"inline": {Payload: "p"}, "apart": {Payload: big},
		"inline, keyed": {Payload: "p", Key: "k"}, "apart, keyed": {Payload: big, Key: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			r.put(t, "q", func(set *message.Settings) { set.MaxStalls, set.DeadDays = 2, new(1.0) })
			var old []*wire.Request
			deleted := false
			var m message.Message
			step := func(name string, call func(context.Context, *rig, message.Message) (any, error)) {
				t.Helper()
				r.clock.after.Add(int64(time.Minute))
				answer, err := call(t.Context(), r, m)
				wantErr(t, name, err, nil)
				if got, ok := answer.([]message.Message); ok {
					m = got[0]
				}
				items, views := r.dump(t), r.views(t)
				for _, late := range old {
					resp, err := late.SendTo(r.wire.Next)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
				}
				if !deleted { // then copies may bring back what readers do not show
					wantEqual(t, "what is stored after the "+name+" and late copies", r.dump(t), items)
				}
				wantEqual(t, "what is shown after the "+name+" and late copies", r.views(t), views)
				for _, write := range r.wire.Take() {
					// A copy of a mark is another mark; a copy of a put may bring back what was
					// deleted moments ago.
					if write.Writes() && write.String() != "PutItem mark" {
						old = append(old, write)
					}
				}
			}
			step("enqueue", func(ctx context.Context, r *rig, _ message.Message) (any, error) {
				got, _, err := r.Enqueue(ctx, "q", d)
				return []message.Message{got}, err
			})
			claim := claims(1)
			step("claim", claim)
			step("extension", extends)
			step("second extension", func(ctx context.Context, r *rig, m message.Message) (any, error) {
				return r.Extend(ctx, "q", m.ID, message.Extension{Receipt: &m.Receipt, Timeout: new(2 * time.Hour)})
			})
			step("release", releases)
			step("second claim", claim)
			step("failure", fails)
			step("third claim", claim)
			step("sweep", sweeps)
			step("fourth claim", claim)
			step("sweep that buries", sweeps)
			step("replay", replays)
			step("fifth claim", claim)
			step("rejection", rejects)
			step("second replay", replays)
			step("sixth claim", claim)
			r.wantSound(t, 0)
			if d.Key == "" {
				step("success", succeeds)
				r.wantSound(t, 0)
				return
			}
			step("second rejection", rejects)
			r.wantSound(t, 0)
			deleted = true
			old = slices.DeleteFunc(old, func(r *wire.Request) bool { return r.String() == "PutItem message" })
			step("delete", deletes)
			step("second enqueue", func(ctx context.Context, r *rig, _ message.Message) (any, error) {
				got, created, err := r.Enqueue(ctx, "q", d)
				if !created {
					t.Error("Enqueue = a message that was deleted")
				}
				return []message.Message{got}, err
			})
			step("seventh claim", claim)
			step("second release", releases)
			step("eighth claim", claim)
			step("failure in the place of another", fails)
			step("ninth claim", claim)
			step("success", succeeds)
		})
	}
}
