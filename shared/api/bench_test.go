package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/message"
)

// canned is a store that does nothing and answers always the same. It stands in
// where the store's own work is not of interest.
type canned struct{ store }

// cannedMessage is in every answer of the canned store.
func cannedMessage() message.Message {
	return message.Message{
		ID: someID, Queue: "emails", Status: message.Dead, Due: epoch, Payload: `{"to":"alice@example.com"}`,
		PayloadBytes: 26,
		RetryCount:   1, MaxRetries: 3, MaxStalls: 3, ClaimCount: 1, LastError: new("connect: connection refused"),
		DeadReason: message.Rejected, Receipt: "WlpaWgAAAAAAAAAD", ClaimedAt: epoch, CreatedAt: epoch, UpdatedAt: epoch,
	}
}

func (canned) Enqueue(_ context.Context, m message.Message) (message.Message, bool, error) {
	return m, true, nil
}

func (canned) Get(context.Context, string, string) (message.Message, []message.Attempt, error) {
	m := cannedMessage()
	return m, []message.Attempt{{
		Number: 1, ClaimedAt: m.ClaimedAt, EndedAt: epoch, Outcome: message.OutcomeRejected, Error: *m.LastError,
	}}, nil
}

func (canned) List(_ context.Context, q message.ListQuery) ([]message.Message, bool, error) {
	page := make([]message.Message, q.Limit)
	for i := range page {
		page[i] = cannedMessage()
	}
	return page, true, nil
}

func (canned) Claim(context.Context, string, int, func() message.Claim) ([]message.Message, error) {
	return []message.Message{cannedMessage()}, nil
}

func (canned) Apply(context.Context, string, string, message.Transition) (message.Message, error) {
	return cannedMessage(), nil
}

func (canned) Delete(context.Context, string, string, time.Time) error { return nil }

func (canned) Queue(_ context.Context, name string) (message.Queue, error) {
	return message.Queue{Name: name, CreatedAt: epoch, Settings: message.DefaultSettings()}, nil
}

func (canned) PutQueue(_ context.Context, q message.Queue) (message.Queue, bool, error) {
	set, err := message.DefaultSettings().Replace(q.Settings)
	q.Settings = set
	return q, true, err
}

func (canned) DeleteQueue(context.Context, string, time.Time) error { return nil }

func (canned) ListQueues(_ context.Context, _, _ string, limit int) ([]message.Queue, error) {
	page := make([]message.Queue, limit)
	for i := range page {
		page[i] = message.Queue{Name: fmt.Sprint("e", i), CreatedAt: epoch, Settings: message.DefaultSettings()}
	}
	return page, nil
}

func (canned) Count(context.Context, string, time.Time, ...message.Status) (message.Counts, error) {
	return message.Counts{Depth: map[message.Status]int{message.Pending: 1}, At: epoch}, nil
}

// nowhere takes what is logged: it is formatted all the same, unlike with
// slog.DiscardHandler.
type nowhere struct{}

func (*nowhere) Write(p []byte) (int, error) { return len(p), nil }

// cannedAPI is the API without a store; it logs as a Lambda function does.
func cannedAPI() *api.API {
	return &api.API{
		Service: &message.Service{
			Store: canned{}, Queues: canned{}, Now: func() time.Time { return epoch }, Random: counted(),
		},
		Log: slog.New(slog.NewJSONHandler(new(nowhere), nil)),
	}
}

// maxAllocs is what one request may cost, the store left out.
const maxAllocs = 120

// TestHandlerAllocatesLittle counts; it does not run beside other tests, whose
// allocations would count too.
func TestHandlerAllocatesLittle(t *testing.T) { //nolint:paralleltest // see above
	a := cannedAPI()
	for _, name := range eventNames(t) {
		step(t, name, func(t *testing.T) {
			event, handle := readEvent(t, name), a.Function(function(name))
			status := 0
			allocs := testing.AllocsPerRun(100, func() {
				resp, err := handle(context.Background(), event)
				if err != nil {
					t.Error(err)
				}
				status = resp.StatusCode
			})
			if want := map[bool]bool{true: status == 405, false: status < 300}[name == api.Fallback]; !want {
				t.Fatalf("status %d", status)
			}
			if allocs > maxAllocs {
				t.Errorf("%.0f allocations a request, want at most %d", allocs, maxAllocs)
			}
		})
	}
}

func BenchmarkHandler(b *testing.B) {
	a := cannedAPI()
	for _, name := range eventNames(b) {
		b.Run(name, func(b *testing.B) {
			event, handle := readEvent(b, name), a.Function(function(name))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := handle(context.Background(), event); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
