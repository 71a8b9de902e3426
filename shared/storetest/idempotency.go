package storetest

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// testIdempotency has enqueues under a key.
func testIdempotency(t *testing.T, open Open) {
	first := message.Draft{Payload: "A", Key: "k1"}
	for _, tt := range []struct {
		name  string
		again message.Draft
		want  error
	}{
		{"the same content is a repeat", message.Draft{Payload: "A", Key: "k1"}, nil},
		{"other content reuses the key", message.Draft{Payload: "B", Key: "k1"}, message.ErrKeyReused},
		{"less content reuses the key", message.Draft{Key: "k1"}, message.ErrKeyReused},
		{
			"the default given is not the default taken: max_retries",
			message.Draft{Payload: "A", Key: "k1", MaxRetries: new(3)},
			message.ErrKeyReused,
		},
		{
			"the default given is not the default taken: delay",
			message.Draft{Payload: "A", Key: "k1", Delay: new(time.Duration(0))},
			message.ErrKeyReused,
		},
	} {
		t.Run("S097 under one key "+tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			m := f.send(t, emails, first)
			before := f.get(t, m)
			f.at(time.Minute)
			got, created, err := f.Enqueue(t.Context(), emails, tt.again)
			wantError(t, "Enqueue again", err, tt.want)
			if created {
				t.Error("Enqueue again = created, want not")
			}
			if tt.want == nil {
				wantSame(t, "the answer", got, m)
			} else {
				wantSame(t, "the answer, which shows nothing of the first,", got, message.Message{})
			}
			wantSame(t, "what is stored", f.get(t, m), before)
			wantSame(t, "the messages", ids(f.list(t, message.List{Queue: emails})), []string{m.ID})
		})
	}
	for _, tt := range []struct {
		name string
		a, b message.Draft
		want error
	}{
		{
			"max_retries is compared",
			message.Draft{Key: "k", MaxRetries: new(3)},
			message.Draft{Key: "k", MaxRetries: new(4)},
			message.ErrKeyReused,
		},
		{
			"the delay is compared to the millisecond",
			message.Draft{Key: "k", Delay: new(time.Second)},
			message.Draft{Key: "k", Delay: new(time.Second + ms)},
			message.ErrKeyReused,
		},
		{
			"equal options are equal",
			message.Draft{Key: "k", MaxRetries: new(3), Delay: new(time.Second)},
			message.Draft{Key: "k", MaxRetries: new(3), Delay: new(time.Second)},
			nil,
		},
		{
			"text in the payload is no option",
			message.Draft{Key: "k", Payload: "p", MaxRetries: new(3)},
			message.Draft{Key: "k", Payload: "max_retries=3\npayload=p"},
			message.ErrKeyReused,
		},
	} {
		t.Run("under one key "+tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			m := f.send(t, emails, tt.a)
			_, _, err := f.Enqueue(t.Context(), emails, tt.b)
			wantError(t, "Enqueue again", err, tt.want)
			wantSame(t, "the messages", f.list(t, message.List{Queue: emails, Payload: true}), []message.Message{m})
		})
	}
	runRows(t, open, []row{
		{"S097 keys are per queue", func(t *testing.T, f *fixture) {
			a, b := f.send(t, emails, first), f.send(t, "orders", first)
			c := f.send(t, emails, message.Draft{Payload: "A", Key: "k2"})
			if a.ID == b.ID || a.ID == c.ID {
				t.Errorf("ids %s, %s, %s, want three different ones", a.ID, b.ID, c.ID)
			}
			wantSame(t, "the counts", [][4]int{f.count(t, emails), f.count(t, "orders")}, [][4]int{{2}, {1}})
		}},
		{"the pair of queue and key is compared, not their text", func(t *testing.T, f *fixture) {
			a := f.send(t, "ab", message.Draft{Payload: "1", Key: "c"})
			b := f.send(t, "a", message.Draft{Payload: "2", Key: "bc"})
			if a.ID == b.ID {
				t.Errorf("both have the id %s", a.ID)
			}
		}},
		{"S006 one key under one queue is one id", func(t *testing.T, f *fixture) {
			m := f.send(t, emails, first)
			for range 3 {
				got, created, err := f.instance(t).Enqueue(t.Context(), emails, first)
				if err != nil || created || got.ID != m.ID {
					t.Errorf("Enqueue again = %s, created %v, %v, want %s", got.ID, created, err, m.ID)
				}
			}
			if !message.IsID(m.ID) {
				t.Errorf("%q is no id", m.ID)
			}
		}},
		{"without a key the same content makes another message", func(t *testing.T, f *fixture) {
			a, b := f.enqueue(t, "A"), f.enqueue(t, "A")
			wantSame(t, "the messages", ids(f.list(t, message.List{Queue: emails})), []string{a.ID, b.ID})
		}},
		{"a repeat shows the message as it is now", func(t *testing.T, f *fixture) {
			f.send(t, emails, first)
			held := f.claim(t)
			repeat := func(want message.Message) {
				t.Helper()
				got, created, err := f.Enqueue(t.Context(), emails, first)
				if err != nil || created {
					t.Errorf("Enqueue again = created %v, %v, want a repeat", created, err)
				}
				want.Payload = "A"
				wantSame(t, "the answer", got, want)
			}
			repeat(held)
			repeat(f.fail(t, held, "x"))
			f.at(3 * time.Second)
			repeat(f.succeed(t, f.claim(t)))
		}},
		{"S096 a dead message keeps its key", func(t *testing.T, f *fixture) {
			m := f.send(t, emails, first)
			dead := f.reject(t, f.claim(t), "x")
			got, created, err := f.Enqueue(t.Context(), emails, first)
			if err != nil || created || got.ID != m.ID || got.Status != message.Dead {
				t.Errorf("Enqueue again = %s, %s, created %v, %v, want %s, dead", got.ID, got.Status, created, err, m.ID)
			}
			_, _, err = f.Enqueue(t.Context(), emails, message.Draft{Payload: "B", Key: "k1"})
			wantError(t, "Enqueue with other content", err, message.ErrKeyReused)
			f.replay(t, dead)
			f.wantStatus(t, m, message.Pending)
		}},
		{"after a delete the key makes a new message with the same id", func(t *testing.T, f *fixture) {
			f.send(t, emails, first)
			m := f.reject(t, f.claim(t), "x")
			wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)
			f.at(time.Hour)
			f.wantAnew(t, m)
		}},
		{"a new message shows no attempt of one that was deleted in the same millisecond", func(t *testing.T, f *fixture) {
			f.send(t, emails, first)
			m := f.reject(t, f.claim(t), "x")
			wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)
			f.wantAnew(t, m)
		}},
		{"after its expiry the key makes a new message with the same id", func(t *testing.T, f *fixture) {
			f.send(t, emails, first)
			m := f.succeed(t, f.claim(t))
			f.clock.set(m.ExpiresAt.Add(-ms))
			_, created, err := f.Enqueue(t.Context(), emails, first)
			if err != nil || created {
				t.Errorf("Enqueue before the expiry = created %v, %v, want a repeat", created, err)
			}
			f.clock.set(m.ExpiresAt)
			f.wantAnew(t, m)
		}},
		{"a key that was refused can be used", func(t *testing.T, f *fixture) {
			_, _, err := f.Enqueue(t.Context(), emails, message.Draft{Payload: "A", Key: "k1", MaxRetries: new(0)})
			wantError(t, "Enqueue", err, message.ErrInvalid)
			f.send(t, emails, first)
		}},
	})
}

// wantAnew enqueues other content under the key of m, which is gone, and expects
// a message of which nothing is older.
func (f *fixture) wantAnew(t *testing.T, m message.Message) {
	t.Helper()
	now := f.clock.Now()
	got := f.send(t, emails, message.Draft{Payload: "new", Key: "k1"})
	want := message.Message{
		ID: m.ID, Queue: emails, Status: message.Pending, Due: now, Payload: "new", PayloadBytes: 3,
		MaxRetries: 3, MaxStalls: 3, Receipt: got.Receipt, CreatedAt: now, UpdatedAt: now, Fingerprint: got.Fingerprint,
	}
	wantSame(t, "the new message", got, want)
	wantSame(t, "what is stored", f.get(t, got), snapshot{want, []message.Attempt{}})
	if got.Receipt == m.Receipt || got.Fingerprint == m.Fingerprint {
		t.Errorf("the new message has the receipt or the fingerprint of the old one")
	}
	before := f.get(t, got)
	_, err := f.Succeed(t.Context(), emails, m.ID, &m.Receipt)
	wantError(t, "Succeed with the old receipt", err,
		conflict(message.VerbSucceed, message.Pending, message.ReasonState))
	wantSame(t, "what is stored", f.get(t, got), before)
	wantSame(t, "the messages", f.list(t, message.List{Queue: emails, Payload: true}), []message.Message{want})
	f.succeed(t, f.claim(t))
	f.wantStatus(t, got, message.Succeeded)
}
