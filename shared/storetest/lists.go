package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// stock fills the queue with messages of every state, some of them due at the
// same time, and returns them as lists should show them.
func (f *fixture) stock(t *testing.T, queue string) map[message.Status][]message.Message {
	t.Helper()
	f.at(0)
	for _, payload := range numbered("p", 12) {
		f.send(t, queue, message.Draft{Payload: payload})
	}
	held := append(f.claimN(t, queue, 10), f.claimN(t, queue, 2)...)
	for i, m := range held {
		f.at(time.Duration(i/3+1) * time.Second) // three by three at the same time
		switch i % 3 {
		case 0:
			f.succeed(t, m)
		case 1:
			f.reject(t, m, "x")
		default:
			f.extend(t, m, 30*time.Second)
		}
	}
	f.at(time.Minute)
	for i, key := range numbered("k", 8) { // keyed ids are in no order
		f.send(t, queue, message.Draft{Payload: key, Key: key, Delay: new(time.Duration(i/2) * time.Second)})
	}
	stocked := make(map[message.Status][]message.Message)
	for _, status := range message.Statuses() {
		stocked[status] = f.list(t, message.List{Queue: queue, Status: status, Payload: true})
	}
	return stocked
}

// testLists has pages of messages.
func testLists(t *testing.T, open Open) {
	for _, status := range append(message.Statuses(), "") {
		for _, descending := range []bool{false, true} {
			name := fmt.Sprintf("a list of %s, descending %v, shows each message once and in order, whatever the limit",
				cmp.Or(string(status), "every state"), descending)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, open)
				stocked := f.stock(t, emails)
				f.stock(t, "emails2") // other queues do not show
				f.stock(t, "emails:1")
				f.at(time.Minute)
				var want []message.Message
				for _, s := range message.Statuses() {
					if status == "" || status == s {
						want = append(want, stocked[s]...)
					}
				}
				if wantCount := map[message.Status]int{"": 20, message.Pending: 8}[status]; len(want) < max(wantCount, 4) {
					t.Fatalf("%d messages are stocked, want more", len(want))
				}
				if descending {
					slices.Reverse(want)
				}
				for _, limit := range []int{1, 2, 3, 4, 7, len(want) - 1, len(want), len(want) + 1, message.MaxListLimit} {
					l := message.List{Queue: emails, Status: status, Descending: descending, Limit: limit, Payload: true}
					wantSame(t, fmt.Sprintf("a list by %d", limit), f.list(t, l), want)
				}
			})
		}
	}
	runRows(t, open, []row{
		{"a list is sorted by due time, then by id", func(t *testing.T, f *fixture) {
			for status, messages := range f.stock(t, emails) {
				if len(messages) < 4 {
					t.Errorf("%d messages are %s, want at least 4", len(messages), status)
				}
				for i, m := range messages {
					if m.Status != status {
						t.Errorf("list of %s shows one that is %s", status, m.Status)
					}
					if i > 0 && byPlace(messages[i-1], m) >= 0 {
						t.Errorf("list of %s shows %v %s before %v %s", status,
							messages[i-1].Due, messages[i-1].ID, m.Due, m.ID)
					}
				}
			}
		}},
		{"a list shows what get shows", func(t *testing.T, f *fixture) {
			for _, messages := range f.stock(t, emails) {
				for _, m := range messages {
					wantSame(t, "the message in the list", m, f.get(t, m).Message)
				}
			}
		}},
		{"a list leaves the payloads out, and says their size, unless asked for them", func(t *testing.T, f *fixture) {
			m := f.enqueue(t, "häagen")
			wantSame(t, "the list", f.list(t, message.List{Queue: emails}), []message.Message{without(m)})
			wantSame(t, "the list with payloads", f.list(t, message.List{Queue: emails, Payload: true}), []message.Message{m})
		}},
		{"an unknown queue is an empty list, and is not made by it", func(t *testing.T, f *fixture) {
			page, more, err := f.List(t.Context(), message.List{Queue: "nobody's", Limit: 5})
			if len(page) > 0 || more || err != nil {
				t.Errorf("List = %v, more %v, %v, want none", ids(page), more, err)
			}
			_, err = f.Queue(t.Context(), "nobody's")
			wantError(t, "Queue", err, message.ErrQueueNotFound)
		}},
		{"S028 a page is filled from what is asked for, however much stands before it", func(t *testing.T, f *fixture) {
			for range 25 {
				f.enqueue(t, "p")
			}
			held := append(f.claimN(t, emails, 10), f.claimN(t, emails, 10)...)
			for _, m := range append(held, f.claimN(t, emails, 5)...) {
				if m.ID <= held[19].ID {
					f.succeed(t, m)
				} else {
					f.reject(t, m, "x")
				}
			}
			l := message.List{Queue: emails, Status: message.Dead, Limit: 3}
			f.at(ms)
			f.wantPages(t, l, 3, 2)
		}},
		{"S029 a page that takes the last message says that none follows", func(t *testing.T, f *fixture) {
			for range 10 {
				f.enqueue(t, "p")
			}
			for _, status := range []message.Status{message.Pending, ""} {
				for _, descending := range []bool{false, true} {
					l := message.List{Queue: emails, Status: status, Descending: descending}
					l.Limit = 10
					f.wantPages(t, l, 10)
					l.Limit = 5
					f.wantPages(t, l, 5, 5)
					l.Limit = 9
					f.wantPages(t, l, 9, 1)
				}
			}
		}},
		{"S029 a page that ends with a state says whether another state follows", func(t *testing.T, f *fixture) {
			f.enqueue(t, "done")
			f.enqueue(t, "waits")
			f.succeed(t, f.claim(t))
			l := message.List{Queue: emails, Limit: 1}
			f.wantPages(t, l, 1, 1)
			l.Descending = true
			f.wantPages(t, l, 1, 1)
			l.Limit = 2
			f.wantPages(t, l, 2)
		}},
		{"S033 a list stops at the limit of its payloads, and goes on from there", func(t *testing.T, f *fixture) {
			for range 10 {
				f.enqueue(t, strings.Repeat("a", 100))
			}
			l := message.List{Queue: emails, Limit: 50, Payload: true}
			for _, tt := range []struct {
				bytes int
				want  []int
			}{
				{0, []int{10}},
				{1, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
				{300, []int{3, 3, 3, 1}},
				{301, []int{4, 4, 2}},
				{500, []int{5, 5}},
				{1000, []int{10}},
				{1 << 30, []int{10}},
			} {
				l.PayloadBytes = tt.bytes
				f.wantPages(t, l, tt.want...)
			}
			// It counts what is shown.
			l.Payload, l.PayloadBytes = false, 1
			f.wantPages(t, l, 10)
		}},
		{"a list goes on behind a message that is gone", func(t *testing.T, f *fixture) {
			var all []message.Message
			for range 6 {
				all = append(all, f.enqueue(t, "p"))
			}
			for _, status := range []message.Status{message.Pending, ""} {
				f.settle()
				page, more, err := f.List(t.Context(), message.List{Queue: emails, Status: status, Limit: 3})
				if err != nil || !more || len(page) != 3 {
					t.Fatalf("List = %v, more %v, %v, want 3 and more", ids(page), more, err)
				}
				last := page[2]
				wantError(t, "Delete", f.Delete(t.Context(), emails, last.ID), nil)
				rest := f.list(t, message.List{Queue: emails, Status: status, After: new(last.Place())})
				i := slices.IndexFunc(all, func(m message.Message) bool { return m.ID == last.ID })
				wantSame(t, "the rest", ids(rest), ids(all[i+1:]))
				all = slices.Delete(all, i, i+1)
			}
		}},
		{"a list that others change goes on, and shows what did not change once", func(t *testing.T, f *fixture) {
			var still []string
			for range 20 {
				still = append(still, f.send(t, emails, message.Draft{Delay: new(time.Hour)}).ID)
				f.enqueue(t, "p")
			}
			f.settle()
			stop := make(chan struct{})
			var busy sync.WaitGroup
			for range 2 {
				busy.Go(func() { f.churn(t, stop) })
			}
			for i := range 20 {
				l := message.List{Queue: emails, Limit: i%4 + 1, Descending: i%2 == 0}
				if i%3 == 0 {
					l.Status = message.Pending
				}
				shown := ids(f.list(t, l))
				for _, id := range still {
					if n := count(shown, id); n != 1 {
						t.Errorf("the list shows a message that did not change %d times, want once", n)
					}
				}
			}
			close(stop)
			busy.Wait()
		}},
	})
}

// churn works on whatever is due until stop is closed, and puts something new in
// its place. It never changes what is not due.
func (f *fixture) churn(t *testing.T, stop <-chan struct{}) {
	t.Helper()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		held, err := insist(func() ([]message.Message, error) {
			return f.Claim(t.Context(), emails, message.ClaimOptions{})
		})
		wantError(t, "Claim", err, nil)
		for _, m := range held {
			if i%2 == 0 {
				_, err = f.Succeed(t.Context(), emails, m.ID, &m.Receipt)
			} else {
				_, err = f.Fail(t.Context(), emails, m.ID, message.Failure{Receipt: &m.Receipt, Permanent: true})
			}
			wantError(t, "the answer", err, nil)
			wantError(t, "Delete", f.Delete(t.Context(), emails, m.ID), nil)
			_, _, err = f.Enqueue(t.Context(), emails, message.Draft{Payload: "p"})
			wantError(t, "Enqueue", err, nil)
		}
	}
}

// wantPages follows the list to its end and compares the sizes of its pages.
func (f *fixture) wantPages(t *testing.T, l message.List, want ...int) {
	t.Helper()
	var got []int
	var seen []string
	for more := true; more && len(got) <= len(want); {
		f.settle()
		var page []message.Message
		var err error
		page, more, err = f.List(t.Context(), l)
		if err != nil {
			t.Fatalf("List = %v", err)
		}
		got = append(got, len(page))
		seen = append(seen, ids(page)...)
		if len(page) > 0 {
			l.After = new(page[len(page)-1].Place())
		}
	}
	wantSame(t, fmt.Sprintf("the sizes of the pages of %+v", l), got, want)
	wantSame(t, "messages shown twice", repeated(seen), nil)
}

// byPlace orders the messages of one state as a list does.
func byPlace(a, b message.Message) int {
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
}

func count(names []string, name string) int {
	n := 0
	for _, other := range names {
		if other == name {
			n++
		}
	}
	return n
}
