package emulator_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/message"
)

// rarities are what the functions do only where something has gone wrong, or long
// ago. A client cannot bring it about, so that no story tells of it.
var rarities = []struct {
	name string
	tell func(*testing.T, *deployment)
}{
	{"an enqueue that loses to another under its key takes its payload back", func(t *testing.T, d *deployment) {
		const messages = "/queues/rare-keys/messages"
		draft := `{"payload":"` + large() + `"}`
		first := d.do(t, "POST", messages, draft, http.StatusCreated, "Idempotency-Key", "k").message(t)
		d.blind(t, "enqueue")
		second := d.do(t, "POST", messages, draft, http.StatusOK, "Idempotency-Key", "k").message(t)
		if first.ID != second.ID {
			t.Errorf("the second enqueue is answered with %s, want %s", second.ID, first.ID)
		}
		if items := d.items(t, "rare-keys#"+first.ID); len(items) != 2 {
			t.Errorf("items %v, want the message and one payload", sortKeys(items))
		}
	}},
	{"the payload of a settled message goes with it, unless that is replayed", func(t *testing.T, d *deployment) {
		const queue = "/queues/rare-payloads"
		d.do(t, "PUT", queue, `{"dead_days":1,"processing_timeout":3600}`, http.StatusCreated)
		id := d.do(t, "POST", queue+"/messages", `{"payload":"`+large()+`"}`, http.StatusCreated).message(t).ID
		wantTTL := func(after string, want bool) {
			t.Helper()
			for sk, item := range d.items(t, "rare-payloads#"+id) {
				if _, ttl := item["expires_at"]; strings.HasPrefix(sk, "p#") && ttl != want {
					t.Errorf("after %s the payload has a TTL: %v, want %v", after, ttl, want)
				}
			}
		}
		claim := func() string {
			return d.do(t, "POST", queue+"/claim", "", http.StatusOK).message(t).Receipt
		}
		path := queue + "/messages/" + id
		d.do(t, "POST", path+"/fail", `{"receipt":"`+claim()+`","error":"x","permanent":true}`, http.StatusOK)
		wantTTL("fail", true)
		d.do(t, "POST", path+"/replay", "", http.StatusOK)
		wantTTL("replay", false)
		d.do(t, "POST", path+"/succeed", `{"receipt":"`+claim()+`"}`, http.StatusOK)
		wantTTL("succeed", true)
		d.do(t, "DELETE", path, "", http.StatusNoContent)
		left := d.items(t, "rare-payloads#"+id)
		keys := sortKeys(left)
		if len(keys) != 2 || left["m"]["queue_status"] != nil || !strings.HasPrefix(keys[1], "p#") {
			t.Errorf("after delete there is %v, want a gravestone, and the payload for another day", keys)
		}
	}},
	{"a replay finds that its message has gone", func(t *testing.T, d *deployment) {
		const queue = "/queues/rare-replays"
		d.do(t, "PUT", queue, `{"dead_days":1}`, http.StatusCreated)
		id := d.do(t, "POST", queue+"/messages", `{"payload":"`+large()+`"}`, http.StatusCreated).message(t).ID
		d.do(t, "POST", queue+"/claim", "", http.StatusOK)
		path := queue + "/messages/" + id
		d.do(t, "POST", path+"/fail", `{"error":"x","permanent":true}`, http.StatusOK)
		deleted := false
		d.answer("replay", func(c call) *reply {
			if c.Action == "dynamodb:UpdateItem" && c.key() == "m" && !deleted {
				deleted = true
				d.do(t, "DELETE", path, "", http.StatusNoContent)
			}
			return nil
		})
		defer d.answer("replay", nil)
		d.do(t, "POST", path+"/replay", "", http.StatusNotFound)
	}},
	{"a claimed message whose payload is missing dies", func(t *testing.T, d *deployment) {
		const queue = "/queues/rare-losses"
		id := d.do(t, "POST", queue+"/messages", `{"payload":"`+large()+`"}`, http.StatusCreated).message(t).ID
		for sk := range d.items(t, "rare-losses#"+id) {
			if strings.HasPrefix(sk, "p#") {
				d.remove(t, "rare-losses#"+id, sk)
			}
		}
		d.do(t, "POST", queue+"/claim", "", http.StatusNoContent)
		if body := d.do(t, "GET", queue+"/messages/"+id, "", http.StatusOK).body; !strings.Contains(
			string(body), `"dead_reason":"payload_missing"`) {
			t.Errorf("message = %s, want it dead", body)
		}
	}},
	{"a claim that finds nothing ends a lease that ran out", func(t *testing.T, d *deployment) {
		id := d.lapse(t, "rare-leases", time.Hour)
		d.do(t, "POST", "/queues/rare-leases/claim", "", http.StatusNoContent)
		d.wantStalled(t, "rare-leases", id, "pending")
	}},
	{"a sweep returns what lapsed, and buries it at the last stall", func(t *testing.T, d *deployment) {
		d.do(t, "PUT", "/queues/rare-stalls", `{"max_stalls":1}`, http.StatusCreated)
		buried, returned := d.lapse(t, "rare-stalls", time.Hour), d.lapse(t, "rare-returns", time.Hour)
		d.sweepOnce(t)
		d.wantStalled(t, "rare-stalls", buried, "dead")
		d.wantStalled(t, "rare-returns", returned, "pending")
	}},
	{"a sweep takes the mark of a queue away that is out of use", func(t *testing.T, d *deployment) {
		d.succeed(t, "rare-marks", time.Hour)
		if d.items(t, "#active")["rare-marks"] == nil {
			t.Fatal("the queue is not marked before the sweep")
		}
		d.sweepOnce(t)
		if d.items(t, "#active")["rare-marks"] != nil {
			t.Error("the queue is marked after the sweep")
		}
	}},
	{"a sweep brings a queue back that was deleted while a message came", func(t *testing.T, d *deployment) {
		d.do(t, "POST", "/queues/rare-returners/messages", `{"payload":"x"}`, http.StatusCreated)
		d.remove(t, "#queues", "rare-returners")
		d.sweepOnce(t)
		if d.items(t, "#queues")["rare-returners"] == nil {
			t.Error("the queue is not there after the sweep")
		}
	}},
	{"a queue whose messages are past their retention can be deleted", func(t *testing.T, d *deployment) {
		d.succeed(t, "rare-ends", 30*24*time.Hour)
		d.do(t, "DELETE", "/queues/rare-ends", "", http.StatusNoContent)
	}},
}

// large returns a payload that does not fit into a message, however it is packed.
func large() string {
	b := make([]byte, 15_000)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// answer has calls of the function answered by something else than the engine.
func (d *deployment) answer(name string, instead func(call) *reply) {
	for _, i := range d.fleets[name].all {
		i.answer(instead)
	}
}

// blind lets the next look of the function for a message find nothing.
func (d *deployment) blind(t *testing.T, name string) {
	t.Helper()
	var done atomic.Bool
	d.answer(name, func(c call) *reply {
		if c.Action == "dynamodb:GetItem" && c.key() == "m" && done.CompareAndSwap(false, true) {
			return &reply{status: http.StatusOK, body: "{}"}
		}
		return nil
	})
	t.Cleanup(func() {
		d.answer(name, nil)
		if !done.Load() {
			t.Errorf("%s has not looked for a message", name)
		}
	})
}

// items returns the items under the partition key, by sort key.
func (w *world) items(t *testing.T, pk string) map[string]map[string]types.AttributeValue {
	t.Helper()
	out, err := w.client.Query(t.Context(), &dynamodb.QueryInput{
		TableName: &w.table, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("pk = :pk"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":pk": &types.AttributeValueMemberS{Value: pk}},
	})
	if err != nil {
		t.Fatal(err)
	}
	items := map[string]map[string]types.AttributeValue{}
	for _, item := range out.Items {
		items[item["sk"].(*types.AttributeValueMemberS).Value] = item
	}
	return items
}

func (w *world) remove(t *testing.T, pk, sk string) {
	t.Helper()
	if _, err := w.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: &w.table, Key: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: pk}, "sk": &types.AttributeValueMemberS{Value: sk},
		},
	}); err != nil {
		t.Fatal(err)
	}
}

// lapse enqueues and claims a message so long ago, and returns its ID.
func (w *world) lapse(t *testing.T, queue string, ago time.Duration) string {
	t.Helper()
	return w.claimed(t, w.service(ago), queue).ID
}

// succeed has a message of the queue worked so long ago.
func (w *world) succeed(t *testing.T, queue string, ago time.Duration) {
	t.Helper()
	svc := w.service(ago)
	m := w.claimed(t, svc, queue)
	if _, err := svc.Succeed(t.Context(), queue, m.ID, &m.Receipt); err != nil {
		t.Fatal(err)
	}
}

func (w *world) claimed(t *testing.T, svc *message.Service, queue string) message.Message {
	t.Helper()
	if _, _, err := svc.Enqueue(t.Context(), queue, message.Draft{Payload: "x"}); err != nil {
		t.Fatal(err)
	}
	claimed, err := svc.Claim(t.Context(), queue, message.ClaimOptions{})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("Claim = %v, %v, want one message", claimed, err)
	}
	return claimed[0]
}

func (d *deployment) sweepOnce(t *testing.T) {
	t.Helper()
	if _, err := d.invoke(t.Context(), t, "sweep", struct{}{}); err != nil {
		t.Fatal(err)
	}
}

func (d *deployment) wantStalled(t *testing.T, queue, id, status string) {
	t.Helper()
	var m struct {
		Status     string
		StallCount int `json:"stall_count"`
		Attempts   []struct{ Outcome string }
	}
	body := d.do(t, "GET", "/queues/"+queue+"/messages/"+id, "", http.StatusOK).body
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	if m.Status != status || m.StallCount != 1 || len(m.Attempts) != 1 || m.Attempts[0].Outcome != "stalled" {
		t.Errorf("message = %s, want it %s after one stall", body, status)
	}
}

func sortKeys(items map[string]map[string]types.AttributeValue) []string {
	return slices.Sorted(maps.Keys(items))
}
