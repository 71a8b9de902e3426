package sqlite

import (
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

// A payload can go missing only by a damage of the file. The message must then
// neither be handed out, nor vanish, nor keep others from being handed out.
func TestMissingPayload(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, InMemory)
	defer mustClose(t, s)
	svc := &message.Service{
		Store: s, Queues: s, Sweeps: s, Now: time.Now, Random: func(b []byte) { clear(b) },
	}
	m := mustEnqueue(t, svc, "q", "gone")
	next := mustEnqueue(t, svc, "q", "here")
	if err := s.write(t.Context(), func(c *conn) error {
		return c.prepare(`DELETE FROM payload WHERE body = CAST('gone' AS BLOB)`).run()
	}); err != nil {
		t.Fatal(err)
	}
	claimed, err := svc.Claim(t.Context(), "q", message.ClaimOptions{Max: new(10)})
	if err != nil || len(claimed) != 1 || claimed[0].ID != next.ID {
		t.Fatalf("Claim = %v, %v, want %s alone", claimed, err, next.ID)
	}
	got, attempts, err := svc.Get(t.Context(), "q", m.ID)
	if err != nil || got.Status != message.Dead || got.DeadReason != message.PayloadMissing || len(attempts) > 0 {
		t.Errorf("Get = %+v, %v, %v, want it dead for its missing payload", got, attempts, err)
	}
	list, _, err := svc.List(t.Context(), message.List{Queue: "q", Status: message.Dead, Limit: 10, Payload: true})
	if err != nil || len(list) != 1 {
		t.Errorf("List = %v, %v, want the dead message", list, err)
	}
}
