package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// unusual are settings none of which is a default.
func unusual() message.Settings {
	return message.Settings{
		MaxRetries: 9, ProcessingTimeout: 77 * time.Second, MaxStalls: 42, RequireReceipt: true, Shards: new(5),
		Backoff: message.Backoff{
			Initial: 1234 * ms, Factor: 1.5, Max: 98765 * ms, Jitter: message.JitterEqual,
		},
		SucceededDays: 0.123, DeadDays: new(12.5),
	}
}

// testQueues has queues and their settings.
func testQueues(t *testing.T, open Open) {
	scheduled := unusual()
	scheduled.Backoff = message.Backoff{
		Schedule: []time.Duration{100 * ms, 5 * time.Second, 604_800 * time.Second}, Jitter: message.JitterFull,
	}
	for name, set := range map[string]message.Settings{
		"the defaults": message.DefaultSettings(), "unusual ones": unusual(), "a schedule": scheduled,
		"the smallest": {
			MaxRetries: 1, ProcessingTimeout: time.Second, MaxStalls: 1, Shards: new(1),
			Backoff:       message.Backoff{Initial: 100 * ms, Factor: 1, Max: 100 * ms, Jitter: message.JitterNone},
			SucceededDays: 0.001, DeadDays: new(0.01),
		},
		"the largest": {
			MaxRetries: 10, ProcessingTimeout: message.MaxTimeout, MaxStalls: 100, Shards: new(64),
			Backoff: message.Backoff{
				Initial: 604_800 * time.Second, Factor: 10, Max: 604_800 * time.Second, Jitter: message.JitterFull,
			},
			SucceededDays: 365, DeadDays: new(3650.0),
		},
	} {
		t.Run("settings come back as they were put: "+name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			f.at(time.Hour)
			want := message.Queue{Name: emails, CreatedAt: T(time.Hour), Settings: set}
			got, created, err := f.PutQueue(t.Context(), emails, set)
			if err != nil || !created {
				t.Errorf("PutQueue = created %v, %v, want a new queue", created, err)
			}
			wantSame(t, "the counts of a new queue", depths(*got.Counts), [4]int{})
			got.Counts = nil
			wantSame(t, "the answer", got, want)
			wantSame(t, "what is stored", f.queue(t, emails), want)
			// Replaced as a whole, but for the time of creation and the shards.
			f.at(2 * time.Hour)
			want.Settings = message.DefaultSettings()
			want.Settings.Shards = set.Shards
			next := message.DefaultSettings()
			next.Shards = nil
			got, created, err = f.PutQueue(t.Context(), emails, next)
			if err != nil || created {
				t.Errorf("PutQueue again = created %v, %v, want the queue replaced", created, err)
			}
			got.Counts = nil
			wantSame(t, "the second answer", got, want)
			wantSame(t, "what is stored then", f.queue(t, emails), want)
		})
	}
	for field, spoil := range map[string]func(*message.Settings){
		"max_retries":             func(set *message.Settings) { set.MaxRetries = 0 },
		"max_stalls":              func(set *message.Settings) { set.MaxStalls = 101 },
		"processing_timeout":      func(set *message.Settings) { set.ProcessingTimeout = 0 },
		"shards":                  func(set *message.Settings) { set.Shards = new(65) },
		"backoff.initial_seconds": func(set *message.Settings) { set.Backoff.Initial = 0 },
		"backoff.factor":          func(set *message.Settings) { set.Backoff.Factor = 0.5 },
		"succeeded_days":          func(set *message.Settings) { set.SucceededDays = 366 },
		"dead_days":               func(set *message.Settings) { set.DeadDays = new(0.001) },
	} {
		t.Run("settings outside their range are refused, and nothing is stored: "+field, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			f.put(t, "there", func(set *message.Settings) { *set = unusual() })
			before := f.queue(t, "there")
			set := message.DefaultSettings()
			spoil(&set)
			for _, name := range []string{"there", "new"} {
				_, _, err := f.PutQueue(t.Context(), name, set)
				wantFault(t, err, field)
			}
			wantSame(t, "what is stored", f.queue(t, "there"), before)
			_, err := f.Queue(t.Context(), "new")
			wantError(t, "Queue", err, message.ErrQueueNotFound)
		})
	}
	runRows(t, open, []row{
		{"the first enqueue makes the queue, with the defaults", func(t *testing.T, f *fixture) {
			_, err := f.Queue(t.Context(), emails)
			wantError(t, "Queue before", err, message.ErrQueueNotFound)
			f.at(time.Hour)
			f.enqueue(t, "p")
			f.at(2 * time.Hour)
			f.enqueue(t, "p")
			wantSame(t, "the queue", f.queue(t, emails), message.Queue{
				Name: emails, CreatedAt: T(time.Hour), Settings: message.DefaultSettings(),
			})
		}},
		{"an enqueue leaves the settings of its queue as they are", func(t *testing.T, f *fixture) {
			want := f.put(t, emails, func(set *message.Settings) { *set = unusual() })
			f.enqueue(t, "p")
			wantSame(t, "the queue", f.queue(t, emails), want)
		}},
		{"shards only ever grow", func(t *testing.T, f *fixture) {
			for _, tt := range []struct {
				put  *int
				want int // 0: refused
			}{{new(8), 8}, {nil, 8}, {new(8), 8}, {new(7), 0}, {new(1), 0}, {new(64), 64}, {new(63), 0}, {nil, 64}} {
				before, _ := f.Queue(t.Context(), emails)
				set := message.DefaultSettings()
				set.Shards = tt.put
				set.MaxRetries = 7
				_, _, err := f.PutQueue(t.Context(), emails, set)
				if tt.want == 0 {
					wantFault(t, err, "shards")
					wantSame(t, "what is stored", f.queue(t, emails).Settings, before.Settings)
					continue
				}
				wantError(t, "PutQueue", err, nil)
				wantSame(t, "the shards", *f.queue(t, emails).Settings.Shards, tt.want)
			}
		}},
		{"a queue that holds any message cannot be deleted", func(t *testing.T, f *fixture) {
			f.send(t, string(message.Pending), message.Draft{})
			f.send(t, "delayed", message.Draft{Delay: new(message.MaxDelay)})
			f.held(t, string(message.Processing))
			f.succeed(t, f.held(t, string(message.Succeeded)))
			f.dead(t, string(message.Dead))
			for _, queue := range []string{"pending", "delayed", "processing", "succeeded", "dead"} {
				wantError(t, "DeleteQueue("+queue+")", f.DeleteQueue(t.Context(), queue), message.ErrQueueNotEmpty)
				f.queue(t, queue)
				wantSame(t, "the number of messages", len(f.list(t, message.List{Queue: queue})), 1)
			}
		}},
		{"a deleted queue is gone, but for its shards", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { *set = unusual() })
			f.put(t, "emails2", func(*message.Settings) {})
			m := f.dead(t, emails)
			wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)
			wantError(t, "DeleteQueue", f.DeleteQueue(t.Context(), emails), nil)
			_, err := f.Queue(t.Context(), emails)
			wantError(t, "Queue", err, message.ErrQueueNotFound)
			wantError(t, "DeleteQueue again", f.DeleteQueue(t.Context(), emails), message.ErrQueueNotFound)
			wantSame(t, "the queues", f.queues(t, ""), []string{"emails2"})
			set := message.DefaultSettings()
			set.Shards = new(4)
			_, _, err = f.PutQueue(t.Context(), emails, set)
			wantFault(t, err, "shards")
			_, err = f.Queue(t.Context(), emails)
			wantError(t, "Queue after the refusal", err, message.ErrQueueNotFound)

			f.at(time.Hour)
			if m := f.enqueue(t, "p"); m.MaxRetries != 3 {
				t.Errorf("Enqueue into the deleted queue = max_retries %d, want the default 3", m.MaxRetries)
			}
			want := message.DefaultSettings()
			want.Shards = new(5)
			wantSame(t, "the queue", f.queue(t, emails), message.Queue{Name: emails, CreatedAt: T(time.Hour), Settings: want})
			wantSame(t, "the queues", f.queues(t, ""), []string{emails, "emails2"})
		}},
		{"a deleted queue can be put again", func(t *testing.T, f *fixture) {
			f.put(t, emails, func(set *message.Settings) { *set = unusual() })
			wantError(t, "DeleteQueue", f.DeleteQueue(t.Context(), emails), nil)
			f.at(time.Hour)
			set := message.DefaultSettings()
			set.Shards = nil
			q, created, err := f.PutQueue(t.Context(), emails, set)
			if err != nil || !created || !q.CreatedAt.Equal(T(time.Hour)) || *q.Settings.Shards != 5 {
				t.Errorf("PutQueue = %+v, created %v, %v, want a new queue with 5 shards", q, created, err)
			}
			q.Counts = nil
			wantSame(t, "what is stored", f.queue(t, emails), q)
		}},
		{"deleting an unknown queue is not found", func(t *testing.T, f *fixture) {
			f.enqueue(t, "p")
			wantError(t, "DeleteQueue", f.DeleteQueue(t.Context(), "email"), message.ErrQueueNotFound)
			wantSame(t, "the queues", f.queues(t, ""), []string{emails})
		}},
		{"a change of settings applies at once here, and within 10 s elsewhere", func(t *testing.T, f *fixture) {
			other := f.instance(t)
			try := func(svc *message.Service) int {
				t.Helper()
				m, _, err := svc.Enqueue(t.Context(), emails, message.Draft{})
				wantError(t, "Enqueue", err, nil)
				return m.MaxRetries
			}
			wantSame(t, "max_retries", []int{try(f.Service), try(other)}, []int{3, 3})
			f.put(t, emails, func(set *message.Settings) { set.MaxRetries = 7 })
			wantSame(t, "max_retries here", try(f.Service), 7)
			f.at(10 * time.Second)
			wantSame(t, "max_retries elsewhere", try(other), 7)
		}},
		{"queues are listed by name, by prefix and page by page", func(t *testing.T, f *fixture) {
			names := []string{"a", "a%", "a_b", "ab", "ab1", "ab2", "abc", "b", "ä", "äb", "😀", "\U0010ffff"}
			for _, i := range []int{3, 0, 7, 11, 9, 1, 5, 2, 8, 10, 4, 6} {
				f.put(t, names[i], func(*message.Settings) {})
			}
			slices.Sort(names)
			for prefix, want := range map[string][]string{
				"": names, "a": {"a", "a%", "a_b", "ab", "ab1", "ab2", "abc"}, "ab": {"ab", "ab1", "ab2", "abc"},
				"a_": {"a_b"}, "a%": {"a%"}, "ä": {"ä", "äb"}, "😀": {"😀"}, "\U0010ffff": {"\U0010ffff"}, "A": nil,
				"ab1": {"ab1"}, "abcd": nil,
			} {
				wantSame(t, fmt.Sprintf("the queues of %q", prefix), f.queues(t, prefix), want)
				for limit := 1; limit <= len(want)+1; limit++ {
					wantSame(t, fmt.Sprintf("the queues of %q by %d", prefix, limit), f.queuesBy(t, prefix, limit), want)
				}
			}
		}},
	})
}

// queue returns the queue as stored, without its counts.
func (f *fixture) queue(t *testing.T, name string) message.Queue {
	t.Helper()
	q, err := f.Queue(t.Context(), name)
	if err != nil {
		t.Fatalf("Queue(%q) = %v", name, err)
	}
	if q.Counts == nil || !q.Counts.At.Equal(f.clock.Now()) {
		t.Errorf("Queue(%q) = counts %+v, want those of now", name, q.Counts)
	}
	q.Counts = nil
	return q
}

func (f *fixture) queues(t *testing.T, prefix string) []string {
	t.Helper()
	return f.queuesBy(t, prefix, 100)
}

// queuesBy lists queues so many at a time.
func (f *fixture) queuesBy(t *testing.T, prefix string, limit int) []string {
	t.Helper()
	var names []string
	for after := ""; ; {
		f.settle()
		page, more, err := f.ListQueues(t.Context(), prefix, after, limit)
		if err != nil || len(page) > limit || more && len(page) < limit {
			t.Fatalf("ListQueues(%q, %q, %d) = %d queues, more %v, %v", prefix, after, limit, len(page), more, err)
		}
		for _, q := range page {
			names = append(names, q.Name)
			after = q.Name
		}
		if !more {
			return names
		}
	}
}

func wantFault(t *testing.T, err error, field string) {
	t.Helper()
	invalid, ok := errors.AsType[*message.ValidationError](err)
	if !ok || len(invalid.Faults) != 1 || invalid.Faults[0].Field != field ||
		invalid.Faults[0].Code != message.CodeInvalid {
		t.Errorf("PutQueue = %v %+v, want one fault of %s", err, invalid, field)
	}
}
