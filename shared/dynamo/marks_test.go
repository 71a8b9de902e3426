package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
)

// marked counts the marks set.
func marked(w *wire.Wire) (n int) {
	for _, name := range names(w.Take()) {
		if name == "PutItem mark" {
			n++
		}
	}
	return n
}

func TestAnInstanceMarksAQueueEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	send := func(at time.Duration, queue string) int {
		t.Helper()
		r.clock.at(at)
		_, _, err := r.Enqueue(t.Context(), queue, message.Draft{})
		wantErr(t, "Enqueue", err, nil)
		return marked(r.wire)
	}
	for _, tt := range []struct {
		at    time.Duration
		queue string
		want  int
	}{
		{0, "q", 1},
		{0, "q", 0},
		{0, "other", 1},
		{5*time.Minute - time.Millisecond, "q", 0},
		{5 * time.Minute, "q", 1},
		{5 * time.Minute, "q", 0},
		{10 * time.Minute, "q", 1},
		{14 * time.Minute, "q", 0},
		{time.Minute, "q", 1}, // the clock was put back: nobody knows how old the mark is
	} {
		wantEqual(t, fmt.Sprintf("the marks set for %s at %v", tt.queue, tt.at), send(tt.at, tt.queue), tt.want)
	}
}

func TestAMarkThatFailedIsNotReliedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	r.wire.Set(wire.Each(func(r *wire.Request) bool { return r.String() == "PutItem mark" }, wire.Cut))
	for range 2 {
		_, _, err := r.Enqueue(t.Context(), "q", message.Draft{})
		wantErr(t, "Enqueue", err, message.ErrUnavailable)
	}
	wantEqual(t, "what is stored", r.dump(t), nil)
	r.wire.Set(nil)
	r.wire.Take()
	_, _, err := r.Enqueue(t.Context(), "q", message.Draft{})
	wantErr(t, "Enqueue", err, nil)
	wantEqual(t, "the marks set", marked(r.wire), 1)
}

// inTurn lets a writer stop before it writes the message, and go on.
type inTurn struct {
	begin, reached, goOn, done chan struct{}
}

// slowly makes the call in two steps.
func slowly(w *wire.Wire, call func()) *inTurn {
	s := &inTurn{make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})}
	w.Set(wire.Only(0, isMessageWrite, func(_ *wire.Request, send wire.Send) (*http.Response, error) {
		close(s.reached)
		<-s.goOn
		return send()
	}))
	go func() {
		defer close(s.done)
		<-s.begin
		call()
	}()
	return s
}

// mark does all that comes before the message is written.
func (s *inTurn) mark() {
	close(s.begin)
	select {
	case <-s.reached:
	case <-s.done:
	}
}

// write does the rest.
func (s *inTurn) write() {
	close(s.goOn)
	<-s.done
}

// A mark that is as old as may be is taken away, while a writer relies on it or
// sets it afresh. In whatever order their requests come, no message is left
// without a mark. The clock of the writer may be late by as much as it relies on a
// mark.
func TestNoOrderOfRequestsLeavesAMessageWithoutAMark(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	const looks, gone = 3, 10 * time.Minute // requests of Unmark before it deletes
	for _, v := range []struct {
		name    string
		prepare func(*testing.T, *rig, string) message.Message
		call    func(context.Context, *message.Service, message.Message) error
	}{
		{
			"an enqueue", func(*testing.T, *rig, string) message.Message { return message.Message{} },
			func(ctx context.Context, svc *message.Service, m message.Message) error {
				_, _, err := svc.Enqueue(ctx, m.Queue, message.Draft{})
				return err
			},
		},
		{
			"a claim", func(t *testing.T, r *rig, queue string) message.Message {
				t.Helper()
				return r.send(t, queue, message.Draft{})
			}, func(ctx context.Context, svc *message.Service, m message.Message) error {
				got, err := svc.Claim(ctx, m.Queue, message.ClaimOptions{})
				if err == nil && len(got) != 1 {
					err = errors.New("there was no message")
				}
				return err
			},
		},
		{
			"a release", func(t *testing.T, r *rig, queue string) message.Message { t.Helper(); return r.held(t, queue, "p") },
			func(ctx context.Context, svc *message.Service, m message.Message) error {
				_, err := svc.Release(ctx, m.Queue, m.ID, &m.Receipt)
				return err
			},
		},
		{
			"a failure", func(t *testing.T, r *rig, queue string) message.Message { t.Helper(); return r.held(t, queue, "p") },
			func(ctx context.Context, svc *message.Service, m message.Message) error {
				_, err := svc.Fail(ctx, m.Queue, m.ID, message.Failure{Receipt: &m.Receipt})
				return err
			},
		},
		{
			"a replay", func(t *testing.T, r *rig, queue string) message.Message {
				t.Helper()
				return r.reject(t, r.held(t, queue, "p"))
			}, func(ctx context.Context, svc *message.Service, m message.Message) error {
				_, err := svc.Replay(ctx, m.Queue, m.ID)
				return err
			},
		},
	} {
		for _, late := range []time.Duration{0, gone / 2} {
			t.Run(fmt.Sprintf("%s, its clock late by %v", v.name, late), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, engine)
				clock := new(handClock)
				for marks := range looks + 2 { // before that request of the sweeper
					for writes := marks; writes < looks+2; writes++ {
						queue := fmt.Sprintf("q-%d-%d", marks, writes)
						r.clock.at(0)
						clock.at(0)
						writer, _, line := r.wired(t, clock.Now)
						h, _, err := writer.Enqueue(t.Context(), queue, message.Draft{})
						wantErr(t, "Enqueue", err, nil)
						wantErr(t, "Delete", writer.Delete(t.Context(), queue, h.ID), nil)
						m := v.prepare(t, r, queue)
						m.Queue = queue
						r.clock.at(gone)
						clock.at(gone - late)
						s := slowly(line, func() { wantErr(t, v.name, v.call(t.Context(), writer, m), nil) })
						mark := message.Mark{Queue: queue, At: began}
						step := int32(-1)
						r.wire.Set(wire.Each(func(r *wire.Request) bool { return r.String() != "GetItem queue" },
							func(_ *wire.Request, send wire.Send) (*http.Response, error) {
								now := int(atomic.AddInt32(&step, 1))
								if now == marks {
									s.mark()
								}
								if now == writes {
									s.write()
								}
								return send()
							}))
						wantErr(t, "Unmark", r.store.Unmark(t.Context(), mark), nil)
						r.wire.Set(nil)
						if last := int(step); last < writes {
							if last < marks {
								s.mark()
							}
							s.write()
						}
					}
				}
				r.wantSound(t, 0)
			})
		}
	}
}

// What a sweep costs follows what is in use, not what exists.
func TestQueuesOutOfUseCostNothing(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	r := newRig(t, engine)
	const queues, inUseOnce = 1_000, 120 // more than a page of marks
	r.put(t, "queue-0", func(*message.Settings) {})
	queue, stored := r.item(t, "queue"), []types.WriteRequest{}
	add := func(m map[string]types.AttributeValue) {
		stored = append(stored, types.WriteRequest{PutRequest: &types.PutRequest{Item: m}})
	}
	for i := range queues {
		m := maps.Clone(queue)
		m["sk"] = str("queue-" + strconv.Itoa(i))
		add(m)
		if i < inUseOnce {
			at := num(strconv.FormatInt(began.UnixMilli(), 10))
			add(map[string]types.AttributeValue{"pk": str("#active"), "sk": m["sk"], "at": at})
		}
	}
	for batch := range slices.Chunk(stored, 25) {
		if _, err := engine.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{r.table: batch},
		}); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(at time.Duration) (int, dynamo.Usage) {
		t.Helper()
		r.clock.at(at)
		ctx, meter := dynamo.WithMeter(t.Context())
		report, err := r.plain.Sweep(ctx, message.SweepOptions{Count: true})
		wantErr(t, "Sweep", errors.Join(err, report.Err), nil)
		return report.Queues, meter.Usage()
	}
	visited, _ := sweep(10*time.Minute - time.Millisecond)
	wantEqual(t, "the number of queues visited while the marks may be relied on", visited, inUseOnce)
	visited, _ = sweep(10 * time.Minute)
	wantEqual(t, "the number of queues visited once they may not", visited, inUseOnce)
	visited, usage := sweep(11 * time.Minute)
	wantEqual(t, "the number of queues visited then", visited, 0)
	wantEqual(t, "what that costs", usage, dynamo.Usage{Requests: 1, ReadUnits: 1})
}

// A claim that finds nothing helps the sweeper: it ends the earliest lease, and
// looks again only when it can have changed.
func TestAnEmptyClaimLooksAtTheLeasesWhenItShould(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	m := r.held(t, "q", "p") // until 30 s
	const nothing, look = "Query pending", "Query pending, Query processing"
	const ends = look + ", GetItem message, PutItem mark, UpdateItem message, PutItem attempt"
	for _, tt := range []struct {
		at   time.Duration
		want string
	}{
		{0, look},
		{0, nothing},
		{5*time.Second - time.Millisecond, nothing},
		{5 * time.Second, look},
		{9 * time.Second, nothing},
		{29 * time.Second, look},
		{32*time.Second - time.Millisecond, nothing}, // the lease is over, the grace is not
		{32 * time.Second, ends},
		{32 * time.Second, look}, // others may have run out too
		{32 * time.Second, nothing},
	} {
		r.clock.at(tt.at)
		got, err := r.Claim(t.Context(), "q", message.ClaimOptions{})
		if err != nil || len(got) > 0 {
			t.Errorf("Claim at %v = %d messages, %v, want none", tt.at, len(got), err)
		}
		requests := slices.DeleteFunc(names(r.wire.Take()), func(name string) bool { return name == "GetItem queue" })
		wantEqual(t, fmt.Sprintf("the requests at %v", tt.at), join(requests), tt.want)
	}
	if got := r.get(t, m); got.Message.StallCount != 1 || len(got.Attempts) != 1 {
		t.Errorf("message has %d stalls and %d attempts, want 1 of each", got.Message.StallCount, len(got.Attempts))
	}
	r.clock.at(time.Minute)
	got, err := r.Claim(t.Context(), "q", message.ClaimOptions{})
	if err != nil || len(got) != 1 {
		t.Errorf("Claim = %d messages, %v, want the one", len(got), err)
	}
	wantEqual(t, "the lease looked at by a claim that finds something",
		slices.Contains(names(r.wire.Take()), "Query processing"), false)
}

func TestEmptyClaimsAtOnceEndALeaseOnce(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	r := newRig(t, engine)
	m := r.held(t, "q", "p")
	r.clock.at(lapsedAfter)
	var all sync.WaitGroup
	for range 8 {
		svc, _ := r.on(t, engine, r.clock.Now)
		all.Go(func() {
			if got, err := svc.Claim(t.Context(), "q", message.ClaimOptions{}); err != nil || len(got) > 0 {
				t.Errorf("Claim = %d messages, %v, want none", len(got), err)
			}
		})
	}
	all.Wait()
	if got := r.get(t, m); got.Message.StallCount != 1 || len(got.Attempts) != 1 {
		t.Errorf("message has %d stalls and %d attempts, want 1 of each", got.Message.StallCount, len(got.Attempts))
	}
	r.wantSound(t, 0)
}
