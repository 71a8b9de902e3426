package dynamo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
)

// verb is a call that changes something, made by an instance that remembers
// nothing yet: so it makes every write that it ever makes.
type verb struct {
	name    string
	prepare func(*testing.T, *rig) message.Message
	call    func(context.Context, *rig, message.Message) (any, error)
	writes  string // in this order
	// after checks what a crash, and the call again, leave behind.
	after func(t *testing.T, r, quiet *rig, m message.Message, again error)
}

// outcome is what becomes of a call.
type outcome struct {
	Answer any
	Err    error
	Items  []string
}

// run makes the call on a rig of its own, with the fault.
func (v verb) run(t *testing.T, engine *dynamodb.Client, f wire.Fault) (outcome, *rig) {
	t.Helper()
	r := newRig(t, engine)
	m := v.prepare(t, r)
	r.wire.Set(f)
	answer, err := v.call(t.Context(), r, m)
	r.wire.Set(nil)
	return outcome{answer, err, r.dump(t)}, r
}

const lapsedAfter = message.SweepGrace + 30*time.Second // a lease can be swept

// What verbs are prepared with. Each returns the message to be called for.

func nobody(*testing.T, *rig) message.Message { return message.Message{} }

func waiting(payloads ...string) func(*testing.T, *rig) message.Message {
	return func(t *testing.T, r *rig) (m message.Message) {
		t.Helper()
		for _, payload := range payloads {
			m = r.send(t, "q", message.Draft{Payload: payload})
		}
		return m
	}
}

func held(payload string) func(*testing.T, *rig) message.Message {
	return func(t *testing.T, r *rig) message.Message {
		t.Helper()
		m := r.held(t, "q", payload)
		r.clock.at(time.Second)
		return m
	}
}

// brief lets every budget end at once, and what is dead expire.
func brief(set *message.Settings) { set.MaxRetries, set.MaxStalls, set.DeadDays = 1, 1, new(1.0) }

func heldLast(payload string) func(*testing.T, *rig) message.Message {
	return func(t *testing.T, r *rig) message.Message {
		t.Helper()
		r.put(t, "q", brief)
		return held(payload)(t, r)
	}
}

func lapsed(prepare func(*testing.T, *rig) message.Message) func(*testing.T, *rig) message.Message {
	return func(t *testing.T, r *rig) message.Message {
		t.Helper()
		m := prepare(t, r)
		r.clock.at(lapsedAfter)
		return m
	}
}

func dead(prepare func(*testing.T, *rig) message.Message) func(*testing.T, *rig) message.Message {
	return func(t *testing.T, r *rig) message.Message {
		t.Helper()
		m := r.reject(t, prepare(t, r))
		r.clock.at(time.Minute)
		return m
	}
}

// briefQueue is a queue without messages.
func briefQueue(t *testing.T, r *rig) message.Message {
	t.Helper()
	r.put(t, "q", brief)
	return message.Message{}
}

// without removes the one item of that kind from what is prepared.
func without(kind string, prepare func(*testing.T, *rig) message.Message) func(*testing.T, *rig) message.Message {
	return func(t *testing.T, r *rig) message.Message {
		t.Helper()
		m := prepare(t, r)
		r.remove(t, kind)
		return m
	}
}

// The calls.

func enqueues(d message.Draft) func(context.Context, *rig, message.Message) (any, error) {
	return func(ctx context.Context, r *rig, _ message.Message) (any, error) {
		m, created, err := r.Enqueue(ctx, "q", d)
		return []any{m, created}, err
	}
}

func claims(n int) func(context.Context, *rig, message.Message) (any, error) {
	return func(ctx context.Context, r *rig, _ message.Message) (any, error) {
		return r.Claim(ctx, "q", message.ClaimOptions{Max: &n})
	}
}

func succeeds(ctx context.Context, r *rig, m message.Message) (any, error) {
	return r.Succeed(ctx, "q", m.ID, &m.Receipt)
}

func fails(ctx context.Context, r *rig, m message.Message) (any, error) {
	return r.Fail(ctx, "q", m.ID, message.Failure{Receipt: &m.Receipt, Error: noise(1_000), RetryAfter: new(time.Second)})
}

func rejects(ctx context.Context, r *rig, m message.Message) (any, error) {
	return r.Fail(ctx, "q", m.ID, message.Failure{Receipt: &m.Receipt, Error: "x", Permanent: true})
}

func releases(ctx context.Context, r *rig, m message.Message) (any, error) {
	return r.Release(ctx, "q", m.ID, &m.Receipt)
}

func extends(ctx context.Context, r *rig, m message.Message) (any, error) {
	return r.Extend(ctx, "q", m.ID, message.Extension{Receipt: &m.Receipt, Timeout: new(time.Hour)})
}

func replays(ctx context.Context, r *rig, m message.Message) (any, error) {
	return r.Replay(ctx, "q", m.ID)
}

func deletes(ctx context.Context, r *rig, m message.Message) (any, error) {
	return nil, r.Delete(ctx, "q", m.ID)
}

// sweeps leaves the report out: it cannot tell a lost answer of its own from the
// work of another sweep.
func sweeps(ctx context.Context, r *rig, _ message.Message) (any, error) {
	_, err := r.Sweep(ctx, message.SweepOptions{})
	return nil, err
}

func counts(ctx context.Context, r *rig, _ message.Message) (any, error) {
	return r.Sweep(ctx, message.SweepOptions{Count: true})
}

func puts(ctx context.Context, r *rig, _ message.Message) (any, error) {
	set := message.DefaultSettings()
	set.MaxRetries = 7
	q, created, err := r.PutQueue(ctx, "q", set)
	return []any{q, created}, err
}

func verbs() []verb {
	return []verb{
		{
			"an enqueue", nobody, enqueues(message.Draft{Payload: "p"}),
			"PutItem mark, UpdateItem queue, PutItem message", perhapsTwice,
		},
		{
			"an enqueue, payload apart", nobody, enqueues(message.Draft{Payload: big}),
			"PutItem mark, UpdateItem queue, PutItem payload, PutItem message", perhapsTwice,
		},
		{
			"a keyed enqueue", nobody, enqueues(message.Draft{Payload: "p", Key: "k"}),
			"PutItem mark, UpdateItem queue, PutItem message", keyed,
		},
		{
			"a keyed enqueue, payload apart", nobody, enqueues(message.Draft{Payload: big, Key: "k"}),
			"PutItem mark, UpdateItem queue, PutItem payload, PutItem message", keyed,
		},
		{
			"a keyed enqueue in the place of an expired message", func(t *testing.T, r *rig) message.Message {
				t.Helper()
				r.put(t, "q", brief)
				r.send(t, "q", message.Draft{Payload: big, Key: "k"})
				m := r.reject(t, r.claim(t, "q"))
				r.clock.at(48 * time.Hour)
				return m
			}, enqueues(message.Draft{Payload: big, Key: "k"}),
			"PutItem mark, PutItem payload, PutItem message", keyed,
		},
		{"a claim", waiting("p"), claims(1), "PutItem mark, UpdateItem message", allComeBack},
		{"a claim, payload apart", waiting(big), claims(1), "PutItem mark, UpdateItem message", allComeBack},
		{
			"a claim of three", waiting(big, "p", big), claims(3),
			"PutItem mark, UpdateItem message, UpdateItem message, UpdateItem message", allComeBack,
		},
		{
			"a claim that finds no payload", without("payload", waiting(big)), claims(1),
			"PutItem mark, UpdateItem message, UpdateItem message", buried,
		},
		{"a success", held("p"), succeeds, "UpdateItem message", same},
		{"a success, payload apart", held(big), succeeds, "UpdateItem message, UpdateItem payload", same},
		{
			"a success without a receipt", held(big), func(ctx context.Context, r *rig, m message.Message) (any, error) {
				return r.Succeed(ctx, "q", m.ID, nil)
			}, "UpdateItem message, UpdateItem payload", sameState,
		},
		{"a failure", held("p"), fails, "PutItem mark, UpdateItem message, PutItem attempt", same},
		{
			"a failure without a receipt", held("p"), func(ctx context.Context, r *rig, m message.Message) (any, error) {
				return r.Fail(ctx, "q", m.ID, message.Failure{Error: "x"})
			}, "PutItem mark, UpdateItem message, PutItem attempt", sameState,
		},
		{
			"a last failure, payload apart", heldLast(big), fails,
			"PutItem mark, UpdateItem message, PutItem attempt, UpdateItem payload", same,
		},
		{"a release", held("p"), releases, "PutItem mark, UpdateItem message", same},
		{"an extension", held("p"), extends, "PutItem mark, UpdateItem message", same},
		{"a replay", dead(held(big)), replays, "PutItem mark, UpdateItem message", refused},
		{
			"a replay of what expires, payload apart", dead(heldLast(big)), replays,
			"PutItem mark, UpdateItem payload, UpdateItem message", refused,
		},
		{
			"a delete", func(t *testing.T, r *rig) message.Message {
				t.Helper()
				r.fail(t, r.held(t, "q", big), "x")
				r.clock.at(time.Hour)
				return r.reject(t, r.claim(t, "q"))
			}, deletes, "DeleteItem message, UpdateItem payload, DeleteItem attempt, DeleteItem attempt", gone,
		},
		{
			"a sweep that returns a message", lapsed(held("p")), sweeps,
			"PutItem mark, UpdateItem message, PutItem attempt", sameState,
		},
		{
			"a sweep that buries a message, payload apart", lapsed(heldLast(big)), sweeps,
			"PutItem mark, UpdateItem message, PutItem attempt, UpdateItem payload", sameState,
		},
		{
			"an empty claim that ends a lease", lapsed(held("p")), claims(1),
			"PutItem mark, UpdateItem message, PutItem attempt", sameState,
		},
		{
			"a sweep that counts, and takes a mark away", func(t *testing.T, r *rig) message.Message {
				t.Helper()
				m := r.held(t, "q", "p")
				if _, err := r.plain.Succeed(t.Context(), "q", m.ID, &m.Receipt); err != nil {
					t.Fatal(err)
				}
				r.clock.at(time.Hour)
				return m
			}, counts, "UpdateItem queue, DeleteItem mark", same,
		},
		{
			"a sweep that finds messages and no queue", without("queue", waiting("p")), counts,
			"UpdateItem queue, UpdateItem queue", sameState,
		},
		{
			"a round of sweeps that is kept", nobody, func(ctx context.Context, r *rig, _ message.Message) (any, error) {
				return nil, r.store.SaveRound(ctx, message.Round{After: "q", Totals: message.Totals{Dead: 1}})
			}, "PutItem round", same,
		},
		{"a put of a new queue", nobody, puts, "UpdateItem queue", same},
		{"a put of a queue", briefQueue, puts, "UpdateItem queue", same},
		{
			"a delete of a queue", briefQueue, func(ctx context.Context, r *rig, _ message.Message) (any, error) {
				return nil, r.DeleteQueue(ctx, "q")
			}, "UpdateItem queue", refused,
		},
	}
}

// The program stops between any two requests of every verb: before one is sent,
// without its answer, or as its time is up. Then another instance is asked for the
// same.
func TestACrashLosesNothing(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	for _, v := range verbs() {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			_, quiet := v.run(t, engine, nil)
			requests := names(quiet.wire.Take())
			for i, asked := range requests {
				for name, stop := range map[string]func(cancel func()) wire.Fault{
					"before":         func(func()) wire.Fault { return wire.From(i, wire.Cut) },
					"without answer": func(func()) wire.Fault { return wire.From(i, wire.Lose) },
					"in time": func(cancel func()) wire.Fault {
						return wire.Only(i, wire.Any, func(_ *wire.Request, send wire.Send) (*http.Response, error) {
							cancel()
							return send()
						})
					},
				} {
					t.Run(fmt.Sprintf("request %d, %s: %s", i, asked, name), func(t *testing.T) {
						t.Parallel()
						r := newRig(t, engine)
						m := v.prepare(t, r)
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						r.wire.Set(stop(cancel))
						_, err := v.call(ctx, r, m)
						if err != nil && !errors.Is(err, message.ErrUnavailable) && !errors.Is(err, context.Canceled) {
							t.Errorf("the call = %v, want %v", err, message.ErrUnavailable)
						}
						r.Service, r.store = r.on(t, engine, r.clock.Now)
						_, err = v.call(t.Context(), r, m)
						v.after(t, r, quiet, m, err)
					})
				}
			}
		})
	}
}

// What a crash, and then the same call again, leave behind, which ended with the
// error given; quiet is where there was no crash.

// same is what the call leaves without a crash.
func same(t *testing.T, r, quiet *rig, _ message.Message, again error) {
	t.Helper()
	wantErr(t, "the call again", again, nil)
	wantEqual(t, "what is stored", r.dump(t), quiet.dump(t))
	r.wantSound(t, 0)
}

// refused is the same, but the call again may say that it was done before.
func refused(t *testing.T, r, quiet *rig, _ message.Message, again error) {
	t.Helper()
	if again != nil && !errors.Is(again, message.ErrConflict) && !errors.Is(again, message.ErrQueueNotFound) {
		t.Errorf("the call again = %v, want nil or a refusal", again)
	}
	wantEqual(t, "what is stored", stripped(r.dump(t)), stripped(quiet.dump(t)))
	r.wantSound(t, 0)
}

// keyed is the same, but for a payload that nobody names.
func keyed(t *testing.T, r, quiet *rig, _ message.Message, again error) {
	t.Helper()
	wantErr(t, "the call again", again, nil)
	wantEqual(t, "what is stored", stripped(r.dump(t)), stripped(quiet.dump(t)))
	r.wantSound(t, 1)
}

var receipt = regexp.MustCompile(`"(receipt|nonce)":{"S":"[^"]*"}`)

// stripped leaves out what each call makes up afresh, and what stands there twice.
func stripped(items []string) []string {
	for i := range items {
		items[i] = receipt.ReplaceAllString(items[i], `"$1":{"S":"…"}`)
	}
	return slices.Compact(items)
}

// sameState shows to every caller what a call without a crash leaves. The second
// write may be missing: nobody asks for it again.
func sameState(t *testing.T, r, quiet *rig, m message.Message, again error) {
	t.Helper()
	if again != nil && !errors.Is(again, message.ErrConflict) {
		t.Errorf("the call again = %v, want nil or a refusal", again)
	}
	wantEqual(t, "the message", r.get(t, m), quiet.get(t, m))
	r.wantSound(t, 0)
}

// perhapsTwice may be there twice: nobody can tell that it was the same.
func perhapsTwice(t *testing.T, r, quiet *rig, _ message.Message, again error) {
	t.Helper()
	wantErr(t, "the call again", again, nil)
	list := message.List{Queue: "q", Limit: 10, Payload: true}
	got, _, err := r.List(t.Context(), list)
	wantErr(t, "List", err, nil)
	want, _, err := quiet.List(t.Context(), list)
	wantErr(t, "List", err, nil)
	if len(got) < 1 || len(got) > 2 {
		t.Errorf("List = %d messages, want 1 or 2", len(got))
	}
	for _, m := range got {
		wantEqual(t, "the payload", m.Payload, want[0].Payload)
	}
	r.wantSound(t, 1)
}

// allComeBack: what was claimed and not handed out comes back with its lease.
func allComeBack(t *testing.T, r, quiet *rig, _ message.Message, again error) {
	t.Helper()
	wantErr(t, "the call again", again, nil)
	list := message.List{Queue: "q", Limit: 10, Payload: true}
	want, _, err := quiet.List(t.Context(), list)
	wantErr(t, "List", err, nil)
	r.clock.at(lapsedAfter)
	if report, err := r.plain.Sweep(t.Context(), message.SweepOptions{}); err != nil || report.Err != nil {
		t.Errorf("Sweep = %+v, %v", report, err)
	}
	r.clock.at(time.Hour)
	got, err := r.plain.Claim(t.Context(), "q", message.ClaimOptions{Max: new(10)})
	wantErr(t, "Claim", err, nil)
	wantEqual(t, "the number of messages", len(got), len(want))
	payloads := make(map[string]string)
	for _, m := range got {
		payloads[m.ID] = m.Payload
		seen := r.get(t, m)
		if m.RetryCount != 0 || m.StallCount >= m.ClaimCount || len(seen.Attempts) != m.StallCount {
			t.Errorf("message has %d failures, %d stalls, %d claims and %d attempts",
				m.RetryCount, m.StallCount, m.ClaimCount, len(seen.Attempts))
		}
	}
	for _, m := range want {
		wantEqual(t, "the payload of "+m.ID, payloads[m.ID], m.Payload)
	}
	r.wantSound(t, 0)
}

// buried is dead, at the latest when it is claimed again.
func buried(t *testing.T, r, _ *rig, m message.Message, again error) {
	t.Helper()
	wantErr(t, "the call again", again, nil)
	r.clock.at(lapsedAfter)
	_, err := r.plain.Sweep(t.Context(), message.SweepOptions{})
	wantErr(t, "Sweep", err, nil)
	r.clock.at(time.Hour)
	got, err := r.plain.Claim(t.Context(), "q", message.ClaimOptions{})
	wantErr(t, "Claim", err, nil)
	wantEqual(t, "the number of messages", len(got), 0)
	seen := r.get(t, m)
	wantEqual(t, "the reason", seen.Message.DeadReason, message.PayloadMissing)
}

// gone shows nothing of the message. What is left belongs to nobody.
func gone(t *testing.T, r, _ *rig, m message.Message, again error) {
	t.Helper()
	if again != nil && !errors.Is(again, message.ErrNotFound) {
		t.Errorf("the call again = %v, want nil or %v", again, message.ErrNotFound)
	}
	_, _, err := r.plain.Get(t.Context(), "q", m.ID)
	wantErr(t, "Get", err, message.ErrNotFound)
	r.wantSound(t, 1)
}
