package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
)

// dense is text that becomes hardly smaller, and no larger as JSON.
func dense(n int) string {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range b {
		for b[i] = '"'; b[i] == '"' || b[i] == '\\'; {
			b[i] = byte(' ' + r.IntN(95))
		}
	}
	return string(b)
}

func TestTheLargestPayloadComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	payload := dense(message.MaxPayloadBytes)
	m := r.send(t, "q", message.Draft{Payload: payload, Key: strings.Repeat("k", 255)})
	if got := r.claim(t, "q"); got.Payload != payload {
		t.Errorf("Claim = a payload of %d bytes, want the one of %d", len(got.Payload), len(payload))
	}
	if got := r.get(t, m).Message; got.Payload != payload {
		t.Errorf("Get = a payload of %d bytes, want the one of %d", len(got.Payload), len(payload))
	}
	if got := r.list(t); len(got) != 1 || got[0].Payload != payload {
		t.Errorf("List = %d messages, want the one, whole", len(got))
	}
}

// place is where a payload stands.
type place string

const (
	inside place = "inside, as it is"
	packed place = "inside, packed"
	apart  place = "apart"
)

// A payload stands inside the message as long as no write on the way to success
// costs a unit more for it.
func TestAPayloadStandsWhereItCostsLeast(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for name, queue := range map[string]string{"a short name": "q", "the longest name": strings.Repeat("é", 64)} {
		for _, key := range []string{"", "k"} {
			t.Run(fmt.Sprintf("a queue with %s, key %q", name, key), func(t *testing.T) {
				t.Parallel()
				m := &meters{rig: newRig(t, engine), t: t}
				m.clock.at(123 * time.Millisecond) // numbers that end in zeros are smaller
				m.life(queue, key, 0)              // makes the instance warm
				largest := func(in ...place) int {
					low, high := 0, 2_000
					for high-low > 1 {
						middle := (low + high) / 2
						if where, _ := m.life(queue, key, middle); slices.Contains(in, where) {
							low = middle
						} else {
							high = middle
						}
					}
					return low
				}
				raw, most := largest(inside), largest(inside, packed)
				wantEqual(t, "whether a byte more would cost more", m.spare(queue, key, raw) <= 1, true)
				if raw < 300 || most < raw+raw/10 {
					t.Errorf("payloads of up to %d bytes stand inside, of up to %d packed, want more", raw, most)
				}
				for _, tt := range []struct {
					size  int
					place place
					units [3]float64
				}{
					{0, inside, [3]float64{2, 3, 3}},
					{raw, inside, [3]float64{2, 3, 3}},
					{raw + 1, packed, [3]float64{2, 3, 3}},
					{most, packed, [3]float64{2, 3, 3}},
					{most + 1, apart, [3]float64{3, 3, 4}},
				} {
					where, units := m.life(queue, key, tt.size)
					wantEqual(t, fmt.Sprintf("the place of %d bytes", tt.size), where, tt.place)
					wantEqual(t, fmt.Sprintf("the write units of %d bytes", tt.size), units, tt.units)
				}
			})
		}
	}
}

// twice is noise that says everything twice.
func twice(n int) string { return strings.Repeat(noise(n/2+1), 2)[:n] }

// spare returns how many bytes more the message could have when it has succeeded,
// for the same price.
func (m *meters) spare(queue, key string, size int) (bytes int) {
	m.t.Helper()
	m.soon()
	m.send(m.t, queue, message.Draft{Payload: twice(size), Key: key})
	held := []message.Message{m.claim(m.t, queue)}
	m.measure("Succeed", m.succeed(&held))
	item := m.item(m.t, "message")
	defer func() { wantErr(m.t, "Delete", m.plain.Delete(m.t.Context(), queue, held[0].ID), nil) }()
	for {
		item["payload"] = str(textOf(item["payload"]) + "x")
		out, err := m.engine.PutItem(m.t.Context(), &dynamodb.PutItemInput{
			TableName: &m.table, Item: item, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		})
		if err != nil {
			m.t.Fatal(err)
		}
		if *out.ConsumedCapacity.CapacityUnits > 1 {
			return bytes
		}
		bytes++
	}
}

// life takes a message with so many bytes through its life. It returns where they
// stood, and the write units of enqueue, claim and success.
func (m *meters) life(queue, key string, size int) (place, [3]float64) {
	m.t.Helper()
	m.soon()
	enqueue := m.measure("Enqueue", func(ctx context.Context) error {
		_, _, err := m.plain.Enqueue(ctx, queue, message.Draft{Payload: twice(size), Key: key})
		return err
	})
	var held []message.Message
	claim := m.measure("Claim", func(ctx context.Context) (err error) {
		held, err = m.plain.Claim(ctx, queue, message.ClaimOptions{})
		return err
	})
	succeed := m.measure("Succeed", m.succeed(&held))
	where := apart
	if payload := m.item(m.t, "message")["payload"]; payload != nil {
		where = map[string]place{"S": inside, "B": packed}[typeOf(payload)]
	}
	wantErr(m.t, "Delete", m.plain.Delete(m.t.Context(), queue, held[0].ID), nil)
	return where, [3]float64{enqueue.WriteUnits, claim.WriteUnits, succeed.WriteUnits}
}

const day = 24 * time.Hour

// life is what a payload's own item says of how long it is kept.
type life struct {
	Life    string
	Expires string // empty for never
}

func (r *rig) life(t *testing.T) life {
	t.Helper()
	m := r.item(t, "payload")
	return life{textOf(m["life"]), textOf(m["expires_at"])}
}

// until is that long after the clock of a rig began, as an expiry says it.
func until(after time.Duration) string { return strconv.FormatInt(began.Add(after).Unix(), 10) }

func TestThePayloadOutlivesItsMessageByADay(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	r.put(t, "q", brief) // the dead are kept a day, what succeeded a week
	m := r.held(t, "q", big)
	wantEqual(t, "the payload while its message is processed", r.life(t), life{"0", ""})
	r.clock.at(time.Second)
	r.reject(t, m)
	wantEqual(t, "the payload of a dead message", r.life(t), life{"0", until(2*day + time.Second)})
	r.clock.at(time.Minute)
	_, err := r.plain.Replay(t.Context(), "q", m.ID)
	wantErr(t, "Replay", err, nil)
	wantEqual(t, "the payload of a replayed message", r.life(t), life{"1", ""})
	m = r.claim(t, "q")
	_, err = r.plain.Succeed(t.Context(), "q", m.ID, &m.Receipt)
	wantErr(t, "Succeed", err, nil)
	wantEqual(t, "the payload of a succeeded message", r.life(t), life{"1", until(8*day + time.Minute)})
	r.clock.at(time.Hour)
	wantErr(t, "Delete", r.plain.Delete(t.Context(), "q", m.ID), nil)
	wantEqual(t, "the payload of a deleted message", r.life(t), life{"1", until(day + time.Hour)})
	r.wantSound(t, 0)
}

func TestThePayloadOfAMessageThatIsDeadForEverStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	m := r.reject(t, r.held(t, "q", big))
	wantEqual(t, "the payload", r.life(t), life{"0", ""})
	r.clock.at(time.Minute)
	_, err := r.plain.Replay(t.Context(), "q", m.ID)
	wantErr(t, "Replay", err, nil)
	wantEqual(t, "the payload of the replayed message", r.life(t), life{"0", ""})
	r.put(t, "q", brief)
	r.clock.at(time.Hour - time.Second)
	m = r.claim(t, "q")
	r.clock.at(time.Hour)
	r.reject(t, m)
	wantEqual(t, "the payload that now expires", r.life(t), life{"0", until(2*day + time.Hour)})
	_, err = r.plain.Replay(t.Context(), "q", m.ID)
	wantErr(t, "Replay", err, nil)
	wantEqual(t, "the payload of the message replayed again", r.life(t), life{"2", ""})
	r.wantSound(t, 0)
}

// The expiry is written last, and its writer may be slow: what happens to the
// message meanwhile decides.
func TestALateExpiryLeavesTheNextLifeAlone(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	replay := func(t *testing.T, r *rig, m message.Message) {
		t.Helper()
		r.clock.at(time.Minute)
		_, err := r.plain.Replay(t.Context(), "q", m.ID)
		wantErr(t, "Replay", err, nil)
	}
	die := func(t *testing.T, r *rig, _ message.Message) {
		t.Helper()
		r.clock.at(time.Hour - time.Second)
		m := r.claim(t, "q")
		r.clock.at(time.Hour)
		r.reject(t, m)
	}
	remove := func(t *testing.T, r *rig, m message.Message) {
		t.Helper()
		r.clock.at(time.Hour)
		wantErr(t, "Delete", r.plain.Delete(t.Context(), "q", m.ID), nil)
	}
	for _, tt := range []struct {
		name      string
		meanwhile []func(*testing.T, *rig, message.Message)
		want      life
	}{
		{"nothing", nil, life{"0", until(2*day + time.Second)}},
		{"a replay", []func(*testing.T, *rig, message.Message){replay}, life{"1", ""}},
		{
			"a replay and a death",
			[]func(*testing.T, *rig, message.Message){replay, die},
			life{"1", until(2*day + time.Hour)},
		},
		{
			"a replay, a death and a replay",
			[]func(*testing.T, *rig, message.Message){replay, die, replay},
			life{"2", ""},
		},
		// It may be given the longer time of its message.
		{"a delete", []func(*testing.T, *rig, message.Message){remove}, life{"0", until(2*day + time.Second)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			m := heldLast(big)(t, r)
			r.wire.Set(wire.Only(0, func(r *wire.Request) bool { return r.String() == "UpdateItem payload" },
				func(_ *wire.Request, send wire.Send) (*http.Response, error) {
					for _, step := range tt.meanwhile {
						step(t, r, m)
					}
					return send()
				}))
			_, err := fails(t.Context(), r, m)
			wantErr(t, "Fail", err, nil)
			wantEqual(t, "the payload", r.life(t), tt.want)
			r.wantSound(t, 0)
		})
	}
}

// A replay makes the payload stay before it makes the message live: whatever
// happens in between, a live message has its payload. If the message is gone, so is
// the payload in a day.
func TestAReplayThatFindsTheMessageGoneLetsThePayloadGo(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for _, write := range []string{"UpdateItem payload", "UpdateItem message"} {
		t.Run("before its "+write, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			m := dead(heldLast(big))(t, r)
			r.wire.Set(wire.Only(0, func(r *wire.Request) bool { return r.String() == write },
				func(_ *wire.Request, send wire.Send) (*http.Response, error) {
					wantErr(t, "Delete", r.plain.Delete(t.Context(), "q", m.ID), nil)
					return send()
				}))
			r.clock.at(time.Hour)
			_, err := replays(t.Context(), r, m)
			wantErr(t, "Replay", err, message.ErrNotFound)
			wantEqual(t, "the payload", r.life(t), life{"1", until(day + time.Hour)})
		})
	}
}

func TestARefusedEnqueueTakesItsPayloadAway(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for name, payload := range map[string]string{"the same payload": big, "another payload": noise(3_000)} {
		for place, want := range map[string]string{"apart": big, "inside": "p"} {
			if name == "the same payload" && want != payload {
				continue
			}
			t.Run(name+", the first one's "+place, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, engine)
				r.wire.Set(wire.Only(0, func(r *wire.Request) bool { return r.String() == "PutItem payload" },
					func(_ *wire.Request, send wire.Send) (*http.Response, error) {
						r.send(t, "q", message.Draft{Payload: want, Key: "k"})
						return send()
					}))
				m, created, err := r.Enqueue(t.Context(), "q", message.Draft{Payload: payload, Key: "k"})
				if payload == want {
					wantErr(t, "Enqueue", err, nil)
					wantEqual(t, "the payload shown", m.Payload, want)
				} else {
					wantErr(t, "Enqueue", err, message.ErrKeyReused)
				}
				wantEqual(t, "whether it is new", created, false)
				all := r.list(t)
				if len(all) != 1 || all[0].Payload != want {
					t.Errorf("List = %d messages, want the first", len(all))
				}
				r.wantSound(t, 0)
			})
		}
	}
}

// A payload that cannot be read now is not one that is lost: the message waits for
// the next claim, and not for the end of its lease.
func TestAClaimThatCannotReadThePayloadGivesTheMessageBack(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for name, timeIsUp := range map[string]bool{"an outage": false, "the time is up": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			m := r.send(t, "q", message.Draft{Payload: big})
			other := r.send(t, "q", message.Draft{Payload: "p"})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.wire.Set(wire.Each(func(r *wire.Request) bool { return r.String() == "GetItem payload" },
				func(req *wire.Request, send wire.Send) (*http.Response, error) {
					if timeIsUp {
						cancel()
					}
					return wire.Cut(req, send)
				}))
			got, err := r.Claim(ctx, "q", message.ClaimOptions{Max: new(2)})
			if err != nil || len(got) != 1 || got[0].ID != other.ID {
				t.Errorf("Claim = %d messages, %v, want the one that is whole", len(got), err)
			}
			wantEqual(t, "the status of the one that is not", r.get(t, m).Message.Status, message.Pending)
			r.clock.at(time.Second)
			_, err = r.Claim(ctx, "q", message.ClaimOptions{})
			wantErr(t, "Claim of that alone", err, message.ErrUnavailable)
			r.clock.at(2 * time.Second)
			again := r.claim(t, "q")
			if again.ID != m.ID || again.Payload != big || again.RetryCount != 0 || again.StallCount != 0 {
				t.Errorf("Claim = %s with %d failures and %d stalls, want %s without any",
					again.ID, again.RetryCount, again.StallCount, m.ID)
			}
			r.wantSound(t, 0)
		})
	}
}

// Of two claims that saw the same message one has it.
func TestAClaimOfWhatIsTakenMeanwhileTriesAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	first := r.send(t, "q", message.Draft{Payload: "p"})
	second := r.send(t, "q", message.Draft{Payload: big})
	r.clock.at(time.Minute) // so late that it is not left to the other
	r.wire.Set(wire.Only(0, isMessageWrite, func(_ *wire.Request, send wire.Send) (*http.Response, error) {
		wantEqual(t, "what the other claims", r.claim(t, "q").ID, first.ID)
		return send()
	}))
	got, err := r.Claim(t.Context(), "q", message.ClaimOptions{})
	if err != nil || len(got) != 1 || got[0].ID != second.ID {
		t.Errorf("Claim = %d messages, %v, want the second", len(got), err)
	}
}

// Nothing that is not there is given an expiry: that would make an item of it.
func TestAMessageWhosePayloadIsLostLeavesNothing(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for name, prepare := range map[string]func(*testing.T, *rig) message.Message{
		"waiting": waiting(big), "dead": dead(heldLast(big)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			m := without("payload", prepare)(t, r)
			wantErr(t, "Delete", r.Delete(t.Context(), "q", m.ID), nil)
			for _, item := range r.items(t) {
				if kind := kindOf(item); kind != "mark" && kind != "queue" && kind != "gravestone" {
					t.Errorf("there is a %s: %s", kind, line(item))
				}
			}
		})
	}
}

// A walk through the shards that fails on its way hands out what it has won.
func TestAClaimThatFailsOnItsWayHandsOutWholeMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	r.put(t, "q", func(set *message.Settings) { set.Shards = new(4) })
	const messages = 12
	for range messages {
		r.send(t, "q", message.Draft{Payload: big})
	}
	won := 0
	for won < messages {
		r.clock.after.Add(int64(10 * time.Second)) // no shard is passed over
		var queries atomic.Int32
		r.wire.Set(wire.Each(func(r *wire.Request) bool {
			return r.String() == "Query pending" && queries.Add(1) > 1
		}, wire.Cut))
		got, err := r.Claim(t.Context(), "q", message.ClaimOptions{Max: new(10), Timeout: new(time.Hour)})
		if err != nil && (len(got) > 0 || !errors.Is(err, message.ErrUnavailable)) {
			t.Fatalf("Claim = %d messages, %v", len(got), err)
		}
		for _, m := range got {
			won++
			wantEqual(t, "the payload", m.Payload, big)
		}
		counts, err := r.plain.Queue(t.Context(), "q")
		wantErr(t, "Queue", err, nil)
		wantEqual(t, "the messages being processed", counts.Counts.Depth[message.Processing], won)
	}
}

// What is damaged cannot be worked on, and a person must hear of it: see
// message.Bury. All else that may be done with the message still may.
func TestADamagedPayloadBuriesTheMessage(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for kind, payload := range map[string]string{"message": twice(800), "payload": big} {
		t.Run("in the item of the "+kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, engine)
			m := r.fail(t, r.held(t, "q", payload), "another reason")
			r.clock.at(time.Minute)
			item := r.item(t, kind)
			if _, err := engine.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
				TableName: &r.table, Key: map[string]types.AttributeValue{"pk": item["pk"], "sk": item["sk"]},
				UpdateExpression: aws.String("SET payload = :0"),
				ExpressionAttributeValues: map[string]types.AttributeValue{
					":0": &types.AttributeValueMemberB{Value: []byte("(\xb5/\xfd, and no more")},
				},
			}); err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "the message before", r.get(t, m).Message.Status, message.Pending)
			wantEqual(t, "the messages in a list", len(r.list(t)), 1)
			got, err := r.Claim(t.Context(), "q", message.ClaimOptions{})
			if err != nil || len(got) > 0 {
				t.Errorf("Claim = %d messages, %v, want none", len(got), err)
			}
			seen := r.get(t, m).Message
			wantEqual(t, "the status", seen.Status, message.Dead)
			wantEqual(t, "the reason", seen.DeadReason, message.PayloadMissing)
			wantEqual(t, "the error", *seen.LastError, "the payload is missing from the store")
			_, err = r.Replay(t.Context(), "q", m.ID)
			wantErr(t, "Replay", err, nil)
			wantErr(t, "Delete", r.Delete(t.Context(), "q", m.ID), nil)
			r.wantSound(t, 0)
		})
	}
}

// A text of the history that is damaged costs no more than itself.
func TestADamagedAttemptHidesNothingElse(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	r := newRig(t, engine)
	m := r.fail(t, r.held(t, "q", "p"), strings.Repeat("reason ", 100))
	item := r.item(t, "attempt")
	if _, err := engine.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &r.table, Key: map[string]types.AttributeValue{"pk": item["pk"], "sk": item["sk"]},
		UpdateExpression: aws.String("SET #0 = :0"), ExpressionAttributeNames: map[string]string{"#0": "error"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":0": &types.AttributeValueMemberB{Value: []byte("(\xb5/\xfd, and no more")},
		},
	}); err != nil {
		t.Fatal(err)
	}
	seen := r.get(t, m)
	wantEqual(t, "the number of attempts", len(seen.Attempts), 1)
	wantEqual(t, "the error, as the message has it", *seen.Message.LastError, strings.Repeat("reason ", 100)[:200])
}
