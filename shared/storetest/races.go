package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testRaces does things at once. Each row says what must come of it, whoever is
// first. An engine under pressure may answer "unavailable": then one calls again.
func testRaces(t *testing.T, open Open) {
	runRows(t, open, []row{
		{"S038 64 claims of one message have one winner", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "p")
			f.settle()
			var won collected[message.Message]
			together(64, func(int) {
				got, err := insist(func() ([]message.Message, error) {
					return f.Claim(t.Context(), emails, message.ClaimOptions{})
				})
				wantError(t, "Claim", err, nil)
				won.add(got...)
			})
			won.add(f.claimN(t, emails, 1)...) // if the index did not show it
			if len(won.all) != 1 {
				t.Fatalf("%d claims won, want 1", len(won.all))
			}
			got := f.get(t, m).Message
			if got.ClaimCount != 1 || got.Receipt != won.all[0].Receipt {
				t.Errorf("stored hand-out %d with receipt %s, want 1 with %s", got.ClaimCount, got.Receipt, won.all[0].Receipt)
			}
			f.succeed(t, won.all[0])
		}},
		{"S038 20 claims of five among ten messages hand each out once", func(t *testing.T, f *fixture) {
			var want []string
			for _, payload := range numbered("p", 10) {
				want = append(want, f.enqueue(t, payload).ID)
			}
			f.settle()
			var won collected[message.Message]
			together(20, func(int) {
				got, err := insist(func() ([]message.Message, error) {
					return f.Claim(t.Context(), emails, message.ClaimOptions{Max: new(5)})
				})
				wantError(t, "Claim", err, nil)
				if len(got) > 5 {
					t.Errorf("Claim(5) = %d messages", len(got))
				}
				won.add(got...)
			})
			won.add(f.claimN(t, emails, 10)...) // what conflicts left over
			got := ids(won.all)
			slices.Sort(got)
			wantSame(t, "what was handed out", got, want)
			for _, m := range won.all {
				if m.ClaimCount != 1 {
					t.Errorf("%s was handed out %d times", m.ID, m.ClaimCount)
				}
				f.succeed(t, m)
			}
		}},
		{"16 different answers to one receipt count once", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			var said collected[message.Verb]
			together(16, func(i int) {
				verb := []message.Verb{message.VerbSucceed, message.VerbFail, message.VerbRelease, message.VerbFail}[i%4]
				_, err := insist(func() (message.Message, error) {
					switch verb {
					case message.VerbSucceed:
						return f.Succeed(t.Context(), emails, m.ID, &m.Receipt)
					case message.VerbRelease:
						return f.Release(t.Context(), emails, m.ID, &m.Receipt)
					default:
						return f.Fail(t.Context(), emails, m.ID, message.Failure{
							Receipt: &m.Receipt, Error: fmt.Sprintf("error %d", i), Permanent: i%8 == 3,
						})
					}
				})
				if err == nil {
					said.add(verb)
				} else if !errors.Is(err, message.ErrConflict) {
					t.Errorf("%s = %v, want it to count or to conflict", verb, err)
				}
			})
			got := f.get(t, m)
			for _, verb := range said.all {
				if verb != got.Message.LastVerb {
					t.Errorf("a %s was said to count, the message shows a %s", verb, got.Message.LastVerb)
				}
			}
			failures, attempts := 0, 1
			if got.Message.LastVerb == message.VerbFail {
				failures = 1
			}
			if got.Message.LastVerb == message.VerbRelease {
				attempts = 0
			}
			if len(said.all) == 0 || got.Message.RetryCount != failures || len(got.Attempts) != attempts {
				t.Errorf("%d answers counted; stored %+v, want one %s", len(said.all), got, got.Message.LastVerb)
			}
			f.wantStatus(t, m, got.Message.Status)
		}},
		{"failures at once without a receipt count once", func(t *testing.T, f *fixture) {
			m := f.held(t, emails)
			together(16, func(i int) {
				_, err := insist(func() (message.Message, error) {
					return f.Fail(t.Context(), emails, m.ID, message.Failure{Error: fmt.Sprintf("error %d", i)})
				})
				if err != nil && !errors.Is(err, message.ErrConflict) {
					t.Errorf("Fail = %v, want it to count or to conflict", err)
				}
			})
			if got := f.get(t, m); got.Message.RetryCount != 1 || len(got.Attempts) != 1 {
				t.Errorf("stored %+v, want one failure", got)
			}
		}},
		{"S093 20 replays at once are one replay", func(t *testing.T, f *fixture) {
			m := f.dead(t, emails)
			var done collected[message.Message]
			together(20, func(int) {
				got, err := insist(func() (message.Message, error) { return f.Replay(t.Context(), emails, m.ID) })
				if err == nil {
					done.add(got)
				} else {
					wantError(t, "Replay", err, conflict(message.VerbReplay, message.Pending, message.ReasonState))
				}
			})
			if got := f.get(t, m).Message; len(done.all) != 1 || got.ReplayCount != 1 || got.Status != message.Pending {
				t.Errorf("%d replays said to be done, stored %d and %s, want 1, 1 and pending",
					len(done.all), got.ReplayCount, got.Status)
			}
		}},
		{"a replay and a delete at once leave the message once or not at all", func(t *testing.T, f *fixture) {
			for range 10 {
				m := f.dead(t, emails)
				var deleted, replayed error
				together(2, func(i int) {
					if i == 0 {
						_, deleted = insist(func() (bool, error) { return true, f.Delete(t.Context(), emails, m.ID) })
					} else {
						_, replayed = insist(func() (message.Message, error) { return f.Replay(t.Context(), emails, m.ID) })
					}
				})
				wantError(t, "Delete", deleted, nil) // of a dead or a pending message
				if replayed != nil {
					wantError(t, "Replay", replayed, message.ErrNotFound)
				}
				f.wantGone(t, m)
			}
		}},
		{"a claim and a delete at once never lose a message that is held", func(t *testing.T, f *fixture) {
			for range 20 {
				m := f.enqueue(t, "p")
				f.settle()
				var held []message.Message
				var deleted error
				together(2, func(i int) {
					if i == 0 {
						_, deleted = insist(func() (bool, error) { return true, f.Delete(t.Context(), emails, m.ID) })
						return
					}
					var err error
					held, err = insist(func() ([]message.Message, error) {
						return f.Claim(t.Context(), emails, message.ClaimOptions{})
					})
					wantError(t, "Claim", err, nil)
				})
				if len(held) == 0 {
					wantError(t, "Delete", deleted, nil)
					continue
				}
				wantError(t, "Delete", deleted, conflict(message.VerbDelete, message.Processing, message.ReasonState))
				f.succeed(t, held[0])
			}
		}},
		{"S099 two sweeps at once and a third count each lease once", func(t *testing.T, f *fixture) {
			var want []message.Message
			for _, payload := range numbered("p", 5) {
				want = append(want, f.enqueue(t, payload))
			}
			f.claimN(t, emails, 5)
			f.at(32 * time.Second)
			f.settle()
			other := f.instance(t)
			var reports collected[message.SweepReport]
			together(2, func(i int) {
				got, err := []*message.Service{f.Service, other}[i].Sweep(t.Context(), message.SweepOptions{})
				wantError(t, "Sweep", err, nil)
				reports.add(got)
			})
			f.settle()
			for range f.asks() {
				third, err := f.Sweep(t.Context(), message.SweepOptions{})
				wantError(t, "the third Sweep", err, nil)
				reports.add(third)
			}
			returned := 0
			for _, got := range reports.all {
				returned += got.Returned
				if got.Buried != 0 || got.Failed != 0 {
					t.Errorf("Sweep = %+v, want none buried or failed", got)
				}
			}
			if returned != 5 {
				t.Errorf("the sweeps returned %d, want 5", returned)
			}
			for _, m := range want {
				got := f.get(t, m)
				if got.Message.Status != message.Pending || got.Message.StallCount != 1 || len(got.Attempts) != 1 ||
					!got.Message.Due.Equal(T(34*time.Second)) {
					t.Errorf("swept message = %+v, want one stall, due %v", got, T(34*time.Second))
				}
			}
		}},
		{
			"a sweep and an extension at once: the holder keeps the lease, or hears that it is gone",
			func(t *testing.T, f *fixture) {
				f.raceSweep(t, func(m message.Message) (message.Message, error) {
					return f.Extend(t.Context(), emails, m.ID, message.Extension{Receipt: &m.Receipt})
				}, message.Processing)
			},
		},
		{"a sweep and a success at once: the answer counts, or is refused", func(t *testing.T, f *fixture) {
			f.raceSweep(t, func(m message.Message) (message.Message, error) {
				return f.Succeed(t.Context(), emails, m.ID, &m.Receipt)
			}, message.Succeeded)
		}},
		{"a sweep and a permanent failure at once: the answer counts, or is refused", func(t *testing.T, f *fixture) {
			f.raceSweep(t, func(m message.Message) (message.Message, error) {
				return f.Fail(t.Context(), emails, m.ID, message.Failure{Receipt: &m.Receipt, Permanent: true})
			}, message.Dead)
		}},
		{"20 enqueues at once with one key make one message", func(t *testing.T, f *fixture) {
			var stored, created collected[string]
			together(20, func(int) {
				var isNew bool
				m, err := insist(func() (m message.Message, err error) {
					m, isNew, err = f.Enqueue(t.Context(), emails, message.Draft{Payload: "p", Key: "k"})
					return m, err
				})
				wantError(t, "Enqueue", err, nil)
				stored.add(m.ID)
				if isNew {
					created.add(m.ID)
				}
			})
			if len(created.all) != 1 || len(stored.all) != 20 {
				t.Errorf("%d of %d enqueues created a message, want 1 of 20", len(created.all), len(stored.all))
			}
			wantSame(t, "the ids", slices.Compact(stored.all), created.all)
			wantSame(t, "the count", f.count(t, emails), [4]int{1})
		}},
		{"20 enqueues at once with one key and two contents: one content wins", func(t *testing.T, f *fixture) {
			var won collected[string]
			together(20, func(i int) {
				m, err := insist(func() (message.Message, error) {
					m, _, err := f.Enqueue(t.Context(), emails, message.Draft{Payload: strconv.Itoa(i % 2), Key: "k"})
					return m, err
				})
				if err == nil {
					won.add(m.Payload)
				} else {
					wantError(t, "Enqueue", err, message.ErrKeyReused)
				}
			})
			all := f.list(t, message.List{Queue: emails, Payload: true})
			wantSame(t, "the messages", payloads(all), slices.Compact(won.all))
			if len(won.all) != 10 {
				t.Errorf("%d enqueues were accepted, want the 10 of one content", len(won.all))
			}
		}},
		{"enqueues at once are all stored", func(t *testing.T, f *fixture) {
			var sent collected[string]
			together(100, func(i int) {
				m, err := insist(func() (message.Message, error) {
					m, _, err := f.Enqueue(t.Context(), emails, message.Draft{Payload: strconv.Itoa(i)})
					return m, err
				})
				wantError(t, "Enqueue", err, nil)
				sent.add(m.ID)
			})
			wantSame(t, "ids given twice", repeated(sent.all), nil)
			wantSame(t, "the messages", ids(f.list(t, message.List{Queue: emails, Limit: 7})), sent.all)
		}},
		{"a queue that is set and deleted while messages arrive loses none", func(t *testing.T, f *fixture) {
			for round := range 20 {
				queue := fmt.Sprintf("queue-%d", round)
				if round%2 == 0 {
					f.put(t, queue, func(*message.Settings) {})
				}
				f.raceQueue(t, queue)
			}
		}},
	})
}

// raceSweep sweeps 20 lapsed leases while their holders answer. Where the answer
// counts, the message is in that status, and else pending after one stall.
func (f *fixture) raceSweep(
	t *testing.T, answer func(message.Message) (message.Message, error), counted message.Status,
) {
	t.Helper()
	for _, payload := range numbered("p", 20) {
		f.enqueue(t, payload)
	}
	held := append(f.claimN(t, emails, 10), f.claimN(t, emails, 10)...)
	f.at(32 * time.Second)
	f.settle()
	var report message.SweepReport
	errs := make([]error, len(held))
	together(len(held)+1, func(i int) {
		if i == len(held) {
			var err error
			report, err = f.Sweep(t.Context(), message.SweepOptions{})
			wantError(t, "Sweep", err, nil)
			return
		}
		_, errs[i] = insist(func() (message.Message, error) { return answer(held[i]) })
	})
	returned := 0
	for i, m := range held {
		got := f.get(t, m)
		switch {
		case errs[i] == nil && got.Message.Status == counted && got.Message.StallCount == 0:
		case errors.Is(errs[i], message.ErrConflict) && got.Message.Status == message.Pending &&
			got.Message.StallCount == 1 && len(got.Attempts) == 1:
			returned++
		default:
			t.Errorf("the answer was %v, and stored is %+v", errs[i], got)
		}
	}
	if report.Returned != returned || report.Buried != 0 || report.Failed != 0 {
		t.Errorf("Sweep = %+v, want %d returned", report, returned)
	}
}

// raceQueue enqueues messages while the queue is set and deleted, and looks for
// them.
func (f *fixture) raceQueue(t *testing.T, queue string) {
	t.Helper()
	var sent collected[string]
	together(6, func(i int) {
		switch i % 3 {
		case 0:
			_, err := insist(func() (bool, error) {
				_, created, err := f.PutQueue(t.Context(), queue, message.DefaultSettings())
				return created, err
			})
			wantError(t, "PutQueue", err, nil)
		case 1:
			_, err := insist(func() (bool, error) { return true, f.DeleteQueue(t.Context(), queue) })
			if err != nil && !errors.Is(err, message.ErrQueueNotFound) && !errors.Is(err, message.ErrQueueNotEmpty) {
				t.Errorf("DeleteQueue = %v, want it deleted, absent or not empty", err)
			}
		default:
			m, err := insist(func() (message.Message, error) {
				m, _, err := f.Enqueue(t.Context(), queue, message.Draft{Payload: "p"})
				return m, err
			})
			wantError(t, "Enqueue", err, nil)
			sent.add(m.ID)
		}
	})
	f.countAll(t) // brings a queue back that was deleted at that very moment
	if _, err := f.Queue(t.Context(), queue); err != nil {
		t.Errorf("Queue(%q) = %v, want it there: it holds messages", queue, err)
	}
	wantError(t, "DeleteQueue", f.DeleteQueue(t.Context(), queue), message.ErrQueueNotEmpty)
	slices.Sort(sent.all)
	wantSame(t, "the messages", ids(f.list(t, message.List{Queue: queue})), sent.all)
	for _, m := range f.claimN(t, queue, 10) {
		f.succeed(t, m)
		sent.all = slices.DeleteFunc(sent.all, func(id string) bool { return id == m.ID })
	}
	wantSame(t, "what was never handed out", sent.all, []string{})
}

// insist calls again while the store says that it cannot do it now, a bounded
// number of times.
func insist[V any](call func() (V, error)) (V, error) {
	for range 50 {
		if v, err := call(); !errors.Is(err, message.ErrUnavailable) {
			return v, err
		}
	}
	return call()
}

// collected gathers what goroutines found.
type collected[V any] struct {
	mu  sync.Mutex
	all []V
}

func (c *collected[V]) add(values ...V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, values...)
}
