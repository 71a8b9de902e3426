package dynamo_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/redrivehq/redrive/shared/dynamo/wire"
	"github.com/redrivehq/redrive/shared/message"
)

// example is an item as stored.
type example struct {
	kind string
	item map[string]types.AttributeValue
}

// String returns it in the JSON of DynamoDB, an attribute a line, keys first.
func (e example) String() string {
	var shown map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line(e.item)), &shown); err != nil {
		panic(err) // it was written a moment ago
	}
	names := []string{"pk", "sk", "queue_status", "due"}
	names = slices.DeleteFunc(names, func(name string) bool { return shown[name] == nil })
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("      %q: %s", name, shown[name])
	}
	return fmt.Sprintf("  {\n    \"kind\": %q,\n    \"item\": {\n%s\n    }\n  }", e.kind, strings.Join(names, ",\n"))
}

// examples makes one item of each kind.
func examples(t *testing.T, r *rig) []example {
	t.Helper()
	ctx := t.Context()
	var all []example
	keep := func(kind, of string, pick func(item map[string]types.AttributeValue) bool) {
		t.Helper()
		for _, m := range r.items(t) {
			if kindOf(m) == of && (pick == nil || pick(m)) {
				all = append(all, example{kind, m})
				return
			}
		}
		t.Fatalf("there is no item %q", kind)
	}
	has := func(name string) func(map[string]types.AttributeValue) bool {
		return func(m map[string]types.AttributeValue) bool { return m[name] != nil }
	}
	r.put(t, "orders", func(set *message.Settings) { set.DeadDays = new(30.0) })
	r.clock.at(1234 * time.Millisecond)
	r.send(t, "orders", message.Draft{Payload: `{"order":42}`, Key: "order-42", Delay: new(time.Minute)})
	keep("message, its payload inside, waiting under a key", "message", nil)
	m := r.held(t, "orders", order(10_000))
	keep("message, its payload apart, being processed", "message", has("payload_key"))
	r.clock.at(2345 * time.Millisecond)
	r.fail(t, m, "connection refused")
	keep("message, its payload apart, waiting after a failure", "message", has("last_error"))
	r.clock.at(10 * time.Second)
	m = r.claim(t, "orders")
	_, err := r.plain.Fail(ctx, "orders", m.ID, message.Failure{Receipt: &m.Receipt, Error: "410 Gone", Permanent: true})
	wantErr(t, "Fail", err, nil)
	keep("message, its payload apart, dead", "message", has("dead_reason"))
	keep("payload of a dead message", "payload", nil)
	keep("attempt", "attempt", nil)
	r.clock.at(2 * time.Minute)
	m = r.claim(t, "orders")
	_, err = r.plain.Succeed(ctx, "orders", m.ID, &m.Receipt)
	wantErr(t, "Succeed", err, nil)
	keep("message, its payload inside, succeeded", "message", has("fingerprint"))
	_, err = r.plain.Sweep(ctx, message.SweepOptions{Count: true})
	wantErr(t, "Sweep", err, nil)
	keep("queue", "queue", nil)
	keep("mark of a queue in use", "mark", nil)
	r.put(t, "returns", func(set *message.Settings) { set.Shards = new(4) })
	wantErr(t, "DeleteQueue", r.plain.DeleteQueue(ctx, "returns"), nil)
	keep("queue that was deleted", "queue", has("deleted"))
	wantErr(t, "SaveRound", r.store.SaveRound(ctx, message.Round{
		After: "orders", Totals: message.Totals{Dead: 1, DeadMost: 1, OldestDead: began.Add(time.Minute)},
	}), nil)
	keep("round of the sweep that was not done", "round", nil)
	r.wantSound(t, 0)
	return all
}

func TestTheLayoutOfEachItem(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	var all []string
	for _, e := range examples(t, r) {
		const most = 45 // bytes of a packed payload, for readers
		if b, ok := e.item["payload"].(*types.AttributeValueMemberB); ok {
			b.Value = b.Value[:most]
		}
		all = append(all, e.String())
	}
	got := "[\n" + strings.Join(all, ",\n") + "\n]\n"
	const golden = "testdata/items.golden.json"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, golden, strings.Split(got, "\n"), strings.Split(string(want), "\n"))
}

func TestS109AnExpiryIsANumberOfSeconds(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	m := r.held(t, "q", "p")
	_, err := r.plain.Succeed(t.Context(), "q", m.ID, &m.Receipt)
	wantErr(t, "Succeed", err, nil)
	wantEqual(t, "expires_at", line(map[string]types.AttributeValue{"expires_at": r.item(t, "message")["expires_at"]}),
		`{"expires_at":{"N":"1767830400"}}`)
	got, err := r.engine.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &r.table})
	if err != nil || aws.ToString(got.TimeToLiveDescription.AttributeName) != "expires_at" {
		t.Errorf("DescribeTimeToLive = %+v, %v, want expires_at", got, err)
	}
}

// Through a float the last digits of such times are lost, or they become text
// with an exponent.
func TestS111NoNumberGoesThroughAFloat(t *testing.T) {
	t.Parallel()
	r := newRig(t, engine(t))
	for _, now := range []time.Time{
		began.Add(time.Millisecond), began.Add(123 * time.Millisecond), time.UnixMilli(1_556_893_286_484).UTC(),
		time.UnixMilli(9_007_199_254_740).UTC(),
	} {
		r.clock.at(now.Sub(began))
		m := r.send(t, "q", message.Draft{Key: now.String(), Delay: new(message.MaxDelay)})
		got := r.get(t, m).Message
		wantEqual(t, "the times", []time.Time{got.CreatedAt, got.UpdatedAt, got.Due},
			[]time.Time{now, now, now.Add(message.MaxDelay)})
	}
	r.wantSound(t, 0) // looks at every number
}

// inExpressions is what may stand in an expression: placeholders, functions and
// operators, and not one name.
var inExpressions = regexp.MustCompile(`^(#[a-z_]+|:[0-9]+|attribute_(not_)?exists|begins_with|` +
	`AND|OR|BETWEEN|SET|REMOVE|ADD|[=<>(),]|<=|>=)$`)

var token = regexp.MustCompile(`[#:]?\w+|<=|>=|\S`)

func TestS112ExpressionsHoldPlaceholdersOnly(t *testing.T) {
	t.Parallel()
	engine := engine(t)
	r := newRig(t, engine)
	lifeCycle(t, r)
	requests := r.wire.Take()
	r = newRig(t, engine)
	for name, call := range everyVerb(t, r) {
		if err := call(t.Context()); err != nil && !errors.Is(err, message.ErrConflict) &&
			!errors.Is(err, message.ErrNotFound) && !errors.Is(err, message.ErrQueueNotEmpty) {
			t.Errorf("%s = %v", name, err)
		}
	}
	used := make(map[string]bool)
	for _, req := range append(requests, r.wire.Take()...) {
		switch req.Action {
		case "GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem", "DeleteItem":
		default:
			t.Errorf("%s is not used: the functions have no right to it", req.Action)
		}
		for param := range req.Params {
			text := wire.At(req.Params, param)
			switch {
			case param == "FilterExpression", param == "Expected", param == "ScanFilter", param == "QueryFilter":
				t.Errorf("%s has a %s", req, param)
			case strings.HasSuffix(param, "Expression"):
				for _, part := range token.FindAllString(text, -1) {
					if !inExpressions.MatchString(part) {
						t.Errorf("%s: %s %q holds %q", req, param, text, part)
					}
				}
			}
		}
		names, _ := req.Params["ExpressionAttributeNames"].(map[string]any)
		for _, name := range names {
			used[name.(string)] = true
		}
	}
	reserved := 0
	for name := range used {
		condition := name + " = :0"
		_, err := engine.PutItem(t.Context(), &dynamodb.PutItemInput{
			TableName: &r.table, ConditionExpression: &condition,
			Item:                      map[string]types.AttributeValue{"pk": str("x"), "sk": str("x")},
			ExpressionAttributeValues: map[string]types.AttributeValue{":0": str("x")},
		})
		if api, ok := errors.AsType[smithy.APIError](err); ok && strings.Contains(api.ErrorMessage(), "reserved") {
			reserved++
		}
	}
	if reserved == 0 {
		t.Errorf("none of %q is a reserved word: does the engine know them?", slices.Sorted(maps.Keys(used)))
	}
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func num(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }

// items returns the whole table, by key.
func (r *rig) items(t *testing.T) []map[string]types.AttributeValue {
	t.Helper()
	in := &dynamodb.ScanInput{TableName: &r.table, ConsistentRead: aws.Bool(true)}
	var all []map[string]types.AttributeValue
	for {
		page, err := r.engine.Scan(t.Context(), in)
		if err != nil {
			t.Fatalf("Scan = %v", err)
		}
		all = append(all, page.Items...)
		if in.ExclusiveStartKey = page.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			break
		}
	}
	slices.SortFunc(all, func(a, b map[string]types.AttributeValue) int {
		return cmp.Or(strings.Compare(textOf(a["pk"]), textOf(b["pk"])), strings.Compare(textOf(a["sk"]), textOf(b["sk"])))
	})
	return all
}

// kindOf names what the item is.
func kindOf(m map[string]types.AttributeValue) string {
	kind := wire.KindOf(textOf(m["pk"]), textOf(m["sk"]))
	if kind == "message" && m["queue_status"] == nil {
		return "gravestone"
	}
	return kind
}

// item returns the one item of its kind.
func (r *rig) item(t *testing.T, kind string) map[string]types.AttributeValue {
	t.Helper()
	var found []map[string]types.AttributeValue
	for _, m := range r.items(t) {
		if kindOf(m) == kind {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		t.Fatalf("table holds %d items of kind %s, want 1", len(found), kind)
	}
	return found[0]
}

// textOf returns a value as JSON would show it, without its type.
func textOf(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return base64.StdEncoding.EncodeToString(v.Value)
	case *types.AttributeValueMemberBOOL:
		return strconv.FormatBool(v.Value)
	}
	return ""
}

// typeOf returns the letters by which DynamoDB calls the type of a value.
func typeOf(v types.AttributeValue) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", v), "*types.AttributeValueMember")
}

// dump returns the table as JSON, an item a line, without what the store itself
// makes up: names of payloads, and revisions.
func (r *rig) dump(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, m := range r.items(t) {
		all = append(all, line(m))
	}
	slices.Sort(all) // what is made up decides the order of some
	return all
}

func line(m map[string]types.AttributeValue) string {
	shown := make(map[string]map[string]any)
	for name, v := range m {
		text := textOf(v)
		switch {
		case name == "payload_key", name == "sk" && strings.HasPrefix(text, "p#"):
			text = "p#0123456789abcdef"
		case name == "revision":
			text = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
		}
		shown[name] = map[string]any{typeOf(v): text}
		if b, ok := v.(*types.AttributeValueMemberBOOL); ok {
			shown[name][typeOf(v)] = b.Value
		}
	}
	text, err := json.Marshal(shown)
	if err != nil {
		panic(err) // it is text
	}
	return string(text)
}

// shape is what an item of a kind consists of: attributes and their types. Text
// that is packed counts as text.
type shape struct{ must, may string }

var shapes = map[string]shape{
	"message": {
		"pk:S sk:S queue_status:S due:S v:N receipt:S max_retries:N max_stalls:N created_at:N updated_at:N " +
			"payload_bytes:N nonce:S",
		"retry_count:N stall_count:N claim_count:N replay_count:N last_verb:S dead_reason:S fingerprint:S payload_key:S " +
			"claimed_at:N expires_at:N payload:S last_error:S last_number:N last_outcome:S last_claimed_at:N " +
			"last_ended_at:N",
	},
	"gravestone": {"pk:S sk:S v:N nonce:S expires_at:N", ""},

	"payload": {"pk:S sk:S life:N payload:S", "expires_at:N"},
	"attempt": {"pk:S sk:S number:N outcome:S error:S claimed_at:N ended_at:N expires_at:N", ""},
	"queue":   {"pk:S sk:S settings:S created_at:N v:N revision:S", "counts:S deleted:BOOL"},
	"mark":    {"pk:S sk:S at:N", ""},
	"round":   {"pk:S sk:S round:S", ""},
}

// fault returns what is wrong with the item; empty if nothing.
func (s shape) fault(m map[string]types.AttributeValue) string {
	must, may := strings.Fields(s.must), strings.Fields(s.may)
	for name, v := range m {
		field := name + ":" + typeOf(v)
		if packed := name == "payload" || name == "error"; packed && typeOf(v) == "B" {
			field = name + ":S"
		}
		i := slices.Index(must, field)
		switch {
		case i >= 0:
			must = slices.Delete(must, i, i+1)
		case !slices.Contains(may, field):
			return "has " + field
		}
		digits := map[bool]int{true: 10, false: 13}[name == "expires_at"]
		isTime := name == "at" || strings.HasSuffix(name, "_at")
		if typeOf(v) == "N" && (!whole.MatchString(textOf(v)) || isTime && len(textOf(v)) != digits) {
			return fmt.Sprintf("has %s = %s", name, textOf(v))
		}
	}
	if len(must) > 0 {
		return "has no " + must[0]
	}
	return ""
}

var whole = regexp.MustCompile(`^[0-9]+$`)

// wantSound checks that each item of the table has its shape and belongs to
// another, and that nothing is missing that a message needs. As many payloads as
// given may belong to nobody, and if any, attempts too: a crash leaves them.
func (r *rig) wantSound(t *testing.T, orphans int) {
	t.Helper()
	kinds := make(map[string]map[string]map[string]types.AttributeValue) // by kind, pk and sk
	for _, m := range r.items(t) {
		pk, sk := textOf(m["pk"]), textOf(m["sk"])
		kind := kindOf(m)
		if fault := shapes[kind].fault(m); fault != "" {
			t.Errorf("%s %s %s %s", kind, pk, sk, fault)
		}
		if kinds[kind] == nil {
			kinds[kind] = make(map[string]map[string]types.AttributeValue)
		}
		kinds[kind][pk+" "+sk] = m
	}
	for key, m := range kinds["message"] {
		pk := textOf(m["pk"])
		queue, id, _ := strings.Cut(pk, "#")
		status, _, _ := strings.Cut(textOf(m["queue_status"]), "#")
		if status != "succeeded" && kinds["mark"]["#active "+queue] == nil {
			t.Errorf("message %s is %s, and its queue has no mark", id, status)
		}
		if q := kinds["queue"]["#queues "+queue]; q == nil || q["deleted"] != nil {
			t.Errorf("message %s is in a queue that is not there", id)
		}
		payload := kinds["payload"][pk+" "+textOf(m["payload_key"])]
		switch named := m["payload_key"] != nil; {
		case !named && m["payload"] == nil:
			t.Errorf("message %s has no payload", key)
		case named && payload == nil:
			t.Errorf("the payload of message %s is missing", key)
		case named && m["expires_at"] == nil && payload["expires_at"] != nil:
			t.Errorf("message %s is %s, and its payload has an expiry", key, status)
		}
	}
	for key, m := range kinds["attempt"] {
		if owner := kinds["message"][textOf(m["pk"])+" m"]; owner == nil && orphans == 0 {
			t.Errorf("attempt %s belongs to nobody", key)
		}
	}
	for _, m := range kinds["payload"] {
		if owner := kinds["message"][textOf(m["pk"])+" m"]; textOf(owner["payload_key"]) != textOf(m["sk"]) &&
			m["expires_at"] == nil {
			orphans--
		}
	}
	if orphans < 0 {
		t.Errorf("%d payloads more than allowed belong to nobody and stay for ever", -orphans)
	}
}
