package dynamo_test

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
)

// holdUp keeps the first message that is put on its way, as the sender sees it
// lost, until deliver is called.
func holdUp(r *rig) (deliver func() error) {
	var mu sync.Mutex
	var late wire.Send
	put := func(req *wire.Request) bool { return req.String() == "PutItem message" }
	r.wire.Set(wire.Only(0, put, func(_ *wire.Request, send wire.Send) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		late = send
		return nil, wire.ErrCut
	}))
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		resp, err := late()
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
}

// The message is put by the second try; the first arrives when it has been
// deleted.
func TestALateEnqueueBringsNoDeletedMessageBack(t *testing.T) {
	t.Parallel()
	for name, draft := range map[string]message.Draft{
		"without a key": {Payload: "p"}, "with a key": {Payload: "p", Key: "k"},
		"whose payload stands apart": {Payload: big}, "with a key, whose payload stands apart": {Payload: big, Key: "k"},
	} {
		for _, claimed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, engine(t))
				deliver := holdUp(r)
				m, created, err := r.Enqueue(t.Context(), "q", draft)
				if err != nil || !created {
					t.Fatalf("Enqueue = created %v, %v, want a new message", created, err)
				}
				r.clock.at(59 * time.Second)
				if claimed {
					held := r.claim(t, "q")
					if _, err := r.plain.Release(t.Context(), "q", m.ID, &held.Receipt); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.plain.Delete(t.Context(), "q", m.ID); err != nil {
					t.Fatal(err)
				}
				if err := deliver(); err != nil {
					t.Fatal(err)
				}
				wantGone(t, r, m)
				// The key is free for another.
				again, created, err := r.Enqueue(t.Context(), "q", draft)
				if err != nil || !created || again.Payload != draft.Payload {
					t.Errorf("Enqueue after the delete = created %v, %v, want a new message", created, err)
				}
				if got := r.claim(t, "q"); got.ID != again.ID || got.Payload != draft.Payload || got.ClaimCount != 1 {
					t.Errorf("Claim = %s, claim %d, want the new message", got.ID, got.ClaimCount)
				}
			})
		}
	}
}

// wantGone fails unless the message is absent for every verb, and its queue empty.
func wantGone(t *testing.T, r *rig, m message.Message) {
	t.Helper()
	ctx, receipt := t.Context(), "receipt"
	_, _, err := r.plain.Get(ctx, m.Queue, m.ID)
	wantErr(t, "Get", err, message.ErrNotFound)
	_, err = r.plain.Succeed(ctx, m.Queue, m.ID, &receipt)
	wantErr(t, "Succeed", err, message.ErrNotFound)
	_, err = r.plain.Fail(ctx, m.Queue, m.ID, message.Failure{})
	wantErr(t, "Fail", err, message.ErrNotFound)
	_, err = r.plain.Replay(ctx, m.Queue, m.ID)
	wantErr(t, "Replay", err, message.ErrNotFound)
	wantErr(t, "Delete", r.plain.Delete(ctx, m.Queue, m.ID), message.ErrNotFound)
	if all := r.list(t); len(all) > 0 {
		t.Errorf("List = %v, want none", idsOf(all))
	}
	claimed, err := r.plain.Claim(ctx, m.Queue, message.ClaimOptions{})
	if err != nil || len(claimed) > 0 {
		t.Errorf("Claim = %v, %v, want none", idsOf(claimed), err)
	}
}

// A message that was enqueued long ago leaves nothing: no copy is under way.
func TestAGravestoneIsLeftByYoungMessagesOnly(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]int{time.Minute - time.Millisecond: 1, time.Minute: 0} {
		r := newRig(t, engine(t))
		m := r.send(t, "q", message.Draft{Payload: "p"})
		r.clock.at(age)
		if err := r.plain.Delete(t.Context(), "q", m.ID); err != nil {
			t.Fatal(err)
		}
		var left []item
		for _, m := range r.items(t) {
			if kindOf(m) == "gravestone" {
				left = append(left, m)
			}
		}
		if len(left) != want {
			t.Fatalf("%v after the enqueue, a delete leaves %v, want %d", age, left, want)
		}
		until := strconv.FormatInt(began.Add(time.Minute+time.Hour).Unix(), 10) // whole seconds, rounded up
		for _, stone := range left {
			if len(stone) != 5 || textOf(stone["expires_at"]) != until {
				t.Errorf("the gravestone is %v, want 5 attributes, until %s", stone, until)
			}
		}
		wantGone(t, r, m)
		if err := r.plain.DeleteQueue(t.Context(), "q"); err != nil {
			t.Errorf("DeleteQueue = %v: it holds no message", err)
		}
	}
}

// The answer to the put is lost, and the message is deleted before the second try.
func TestAnEnqueueThatFindsItsOwnGravestoneWasDone(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	put := func(req *wire.Request) bool { return req.String() == "PutItem message" }
	r.wire.Set(wire.Only(0, put, func(req *wire.Request, send wire.Send) (*http.Response, error) {
		_, err := wire.Lose(req, send)
		for _, m := range r.list(t) {
			if err := r.plain.Delete(t.Context(), "q", m.ID); err != nil {
				t.Error(err)
			}
		}
		return nil, err
	}))
	m, created, err := r.Enqueue(t.Context(), "q", message.Draft{Payload: "p", Key: "k"})
	if err != nil || !created || m.Status != message.Pending || m.Payload != "p" {
		t.Errorf("Enqueue = %+v, created %v, %v, want what it has put", m, created, err)
	}
	wantGone(t, r, m)
}
