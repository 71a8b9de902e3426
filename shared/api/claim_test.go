package api_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const emailsClaim = "/queues/emails/claim"

func TestClaimRefusesValues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue(t, "stays where it is")
	rows := []invalid{
		{
			"everything is wrong", `{"max_messages":0,"processing_timeout":"30","Max_messages":1}`,
			[]string{
				"processing_timeout invalid processing_timeout must be a whole number.",
				"max_messages invalid max_messages must be between 1 and 10.",
				"Max_messages unknown Max_messages is not known.",
			},
		},
		{"eleven messages", `{"max_messages":11}`, invalidIn("max_messages", "must be between 1 and 10.")},
		{"a receipt", `{"receipt":"x"}`, []string{"receipt unknown receipt is not known."}},
	}
	rows = append(rows, integerRows(`{"max_messages":VALUE}`, "max_messages", "must be between 1 and 10.")...)
	rows = append(rows, integerRows(`{"processing_timeout":VALUE}`, "processing_timeout",
		"must be between 1 and 43200 seconds.")...)
	f.refuseValues(t, "POST", emailsClaim, rows)
}

func TestClaimHandsOutOneMessageOrAsManyAsAsked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	none := f.do(t, "POST", emailsClaim, "")
	if none.status != 204 || len(none.header) != 0 {
		t.Errorf("claim of an unknown queue = %d %v, want 204 without headers", none.status, none.header)
	}
	var empty listedClaim
	if f.do(t, "POST", emailsClaim, `{"max_messages":1}`).into(t, 200,
		&empty); empty.Messages == nil || len(empty.Messages) > 0 {
		t.Errorf("claim of several on an unknown queue = %v, want an empty array", empty.Messages)
	}
	f.unchanged(t, map[string]any{}) // asking does not create the queue

	var want []string
	for _, payload := range []string{"", "two", "three", "four", "five"} {
		want = append(want, f.enqueue(t, payload).ID)
	}
	f.clock.at(time.Second)
	one := f.do(t, "POST", emailsClaim, `{"processing_timeout":43200}`).message(t, 200)
	wantOne := msg{
		ID: want[0], Queue: "emails", Status: "processing", Payload: new(""), MaxRetries: 3, MaxStalls: 3, ClaimCount: 1,
		LeaseExpiresAt: new(at(43_201 * time.Second)), CreatedAt: at(0), UpdatedAt: at(time.Second), Receipt: one.Receipt,
	}
	if diff := cmp.Diff(wantOne, one); diff != "" || one.Receipt == "" {
		t.Errorf("receipt %q; claim differs (-want +got):\n%s", one.Receipt, diff)
	}
	var several listedClaim
	f.do(t, "POST", emailsClaim, `{"max_messages":3.0,"processing_timeout":1}`).into(t, 200, &several)
	if diff := cmp.Diff(want[1:4], ids(several.Messages)); diff != "" {
		t.Errorf("claim of three differs (-want +got):\n%s", diff)
	}
	seen := map[string]bool{one.Receipt: true}
	for _, m := range several.Messages {
		if m.Receipt == "" || seen[m.Receipt] || m.Payload == nil || *m.LeaseExpiresAt != at(2*time.Second) {
			t.Errorf("claim of three holds %+v, want a payload, a receipt of its own and a lease of 1 s", m)
		}
		seen[m.Receipt] = true
	}
	several = listedClaim{}
	f.do(t, "POST", emailsClaim, `{"max_messages":10}`).into(t, 200, &several)
	if diff := cmp.Diff(want[4:], ids(several.Messages)); diff != "" {
		t.Errorf("claim of the rest differs (-want +got):\n%s", diff)
	}
	if a := f.do(t, "POST", emailsClaim, "{}"); a.status != 204 {
		t.Errorf("claim of nothing due = %d, want 204", a.status)
	}
}

// listedClaim is the answer to a claim of several.
type listedClaim struct {
	Messages []msg `json:"messages"`
}
