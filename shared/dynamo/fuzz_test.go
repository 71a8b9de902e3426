package dynamo

import (
	"context"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/stored"
)

// FuzzUnpack unpacks any bytes: it is an error, or a text that is not too long,
// and neither takes much memory, whatever size the bytes promise. As a text they
// come back from being packed.
func FuzzUnpack(f *testing.F) {
	for _, text := range []string{"", "x", strings.Repeat("a", worthPacking), strings.Repeat("é\x00", 100_000)} {
		f.Add([]byte(text))
		f.Add(encoder().EncodeAll([]byte(text), nil))
	}
	long := encoder().EncodeAll(make([]byte, message.MaxPayloadBytes+1), nil)
	f.Add(long)
	f.Add(slices.Repeat(encoder().EncodeAll(make([]byte, message.MaxPayloadBytes/2), nil), 100))
	f.Add([]byte("\x28\xb5\x2f\xfd\xe0\xff\xff\xff\xff\xff\xff\xff\x7f\x02\xff\xff\x00")) // promises 9 EB
	f.Add(slices.Concat([]byte("\x28\xb5\x2f\xfd\x00\x40"), slices.Repeat([]byte("\x02\x00\x10a"), 100)))
	decoder() // takes memory once
	f.Fuzz(func(t *testing.T, raw []byte) {
		const allowed = 8 << 20 // bytes
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		text, err := unpack(&types.AttributeValueMemberB{Value: raw})
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > allowed {
			t.Errorf("%d bytes take %d bytes of memory", len(raw), used)
		}
		if err != nil && text != "" || len(text) > message.MaxPayloadBytes {
			t.Errorf("%d bytes unpack to %d, %v", len(raw), len(text), err)
		}
		if len(raw) > message.MaxPayloadBytes {
			return
		}
		packed := pack(string(raw))
		if again, err := unpack(packed); err != nil || again != string(raw) {
			t.Errorf("%.100q comes back as %.100q, %v", raw, again, err)
		}
		if size := itemSize(item{"": packed}); size > len(raw) {
			t.Errorf("%.100q is packed into %d bytes", raw, size)
		}
	})
}

// FuzzKeys takes any text for a key: no part of one is read out of it that was
// not put in, and the order of keys is that of times, then of identifiers.
func FuzzKeys(f *testing.F) {
	const id = "msg_01KB9Z0000000000000000000A"
	for _, text := range []string{
		sortKey(time.UnixMilli(0), id), sortKey(time.UnixMilli(1_767_225_600_000), id), partition(message.Dead, 63, "a b"),
		messagePK("é", id), "", "#", "##", "pending#", "pending#-1#q", "pending#99999999999999999999#q", "9999999999999#x",
		"-1#x", "99999999999999999999#x",
	} {
		f.Add(text, int64(1_767_225_600_000), int64(1), 1)
	}
	f.Fuzz(func(t *testing.T, text string, due, later int64, shard int) {
		_, _ = splitPK(text)
		_, _ = splitPartition(text)
		_, _ = splitSortKey(text)
		const most = 9_999_999_999_999 // thirteen digits
		if due < 0 || due > most || later <= 0 || later > most-due || shard < 0 || shard >= message.MaxShards {
			return
		}
		at, then := time.UnixMilli(due).UTC(), time.UnixMilli(due+later).UTC()
		key := sortKey(at, id)
		if gotAt, gotID := splitSortKey(key); !gotAt.Equal(at) || gotID != id {
			t.Errorf("%q is split into %v, %q", key, gotAt, gotID)
		}
		next := sortKey(at, id[:len(id)-1]+"B")
		inOrder := []string{lowest, before(key), key, after(key), next, until(at), sortKey(then, id), highest}
		if !slices.IsSorted(inOrder) || len(slices.Compact(slices.Clone(inOrder))) != len(inOrder) {
			t.Errorf("not in order: %q", inOrder)
		}
		if strings.Contains(text, "#") {
			return // no name of a queue
		}
		if queue, gotID := splitPK(messagePK(text, id)); queue != text || gotID != id {
			t.Errorf("queue %q comes back as %q, %q", text, queue, gotID)
		}
		for _, status := range message.Statuses() {
			p := partition(status, shard, text)
			if gotStatus, gotShard := splitPartition(p); gotStatus != status || gotShard != shard {
				t.Errorf("%q is split into %s, %d", p, gotStatus, gotShard)
			}
		}
		if n := shardOf(text, shard+1); n < 0 || n > shard {
			t.Errorf("%q stands in shard %d of %d", text, n, shard+1)
		}
	})
}

// FuzzMessage writes any message as an item, and reads it.
func FuzzMessage(f *testing.F) {
	f.Add("receipt", "fail", "no such mailbox", "print", "rejected", int64(1_767_225_600_000), int64(30_000), 3, 2, true)
	f.Add("", "", "", "", "", int64(1), int64(0), 0, 0, false)
	f.Fuzz(func(t *testing.T, receipt, verb, text, key, reason string, at, later int64, count, other int, failed bool) {
		const most = 5_000_000_000_000 // milliseconds: half of what thirteen digits hold
		if at <= 0 || at > most || later < 0 || later > most {
			return
		}
		for _, status := range message.Statuses() {
			was := row{shard: 7}
			was.Queue, was.ID, was.Status = "a b", "msg_01KB9Z0000000000000000000A", status
			was.Due, was.CreatedAt = time.UnixMilli(at+later).UTC(), time.UnixMilli(at).UTC()
			was.UpdatedAt, was.ExpiresAt = was.CreatedAt, time.Unix(at, 0).UTC()
			was.Receipt, was.LastVerb, was.Fingerprint = receipt, message.Verb(verb), key
			was.DeadReason = message.DeadReason(reason)
			was.RetryCount, was.StallCount, was.ClaimCount, was.ReplayCount = count, other, count, other
			was.MaxRetries, was.MaxStalls, was.PayloadBytes = other, count, other
			if failed {
				was.ClaimedAt = was.CreatedAt
				was.LastError = new(message.CutError(text, message.ShortErrorBytes))
				was.last = &message.Attempt{
					Number: count, ClaimedAt: was.ClaimedAt, EndedAt: was.Due, Outcome: message.Outcome(verb), Error: *was.LastError,
				}
				if was.ExpiresAt = (time.Time{}); count != 0 {
					was.payloadKey = key
				}
			}
			if diff := cmp.Diff(was, decode(encode(was)), cmp.AllowUnexported(row{})); diff != "" {
				t.Errorf("the row comes back as another (-want +got):\n%s", diff)
			}
			if was.last == nil {
				continue
			}
			a := *was.last
			a.Error = text
			if got, err := decodeAttempt(encodeAttempt(was, a)); err != nil || got != a {
				t.Errorf("the attempt %+v comes back as %+v, %v", a, got, err)
			}
		}
	})
}

// FuzzDamage damages what stands in the table, in one or two attributes of any
// item: no call panics, asks without end, or takes much memory. What it answers
// may be an error.
func FuzzDamage(f *testing.F) {
	places := byte(len(newDamaged(f, message.Pending).places()))
	for place := range places {
		f.Add(place, byte(asText), "", byte(0), byte(asItIs), "", false)
		f.Add(place, byte(removed), "", byte(0), byte(asItIs), "", true)
	}
	for i, value := range []string{
		"0", "-1", "99", "1e9", "9223372036854775807", "msg_", "fail", "stall", "succeed", "dead#00#q", "processing#-1#q",
		`{"shards":0}`, `{"shards":1000000000}`, `{"depth":null,"more":["x"],"at":-1}`, "null", "[]",
		"p#x", "9999999999999#" + damagedID, "\x28\xb5\x2f\xfd",
	} {
		f.Add(byte(i), byte(asText), value, byte(i+7), byte(asNumber), value, i%2 == 0)
	}
	f.Fuzz(func(
		t *testing.T, place, how byte, value string, place2, how2 byte, value2 string, refuses bool,
	) {
		const allowed = 64 << 20 // bytes
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, status := range message.Statuses() {
			table := newDamaged(t, status)
			table.refuses = refuses
			table.damage(place, how, value)
			table.damage(place2, how2, value2)
			table.callAll(t)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > allowed {
			t.Errorf("the calls take %d bytes of memory", used)
		}
	})
}

// damaged is a table that holds items that may be damaged. It keeps no change: a
// write is either done without any effect, or refused with what is stored.
type damaged struct {
	tb      testing.TB
	items   []item
	refuses bool
	calls   atomic.Int32 // since the last one of the service
}

const damagedID = "msg_01KB9Z0000000000000000000A"

// What an attribute becomes.
const (
	asItIs = iota
	asText
	asNumber
	asBinary
	asNull
	removed
	damages
)

// damagedAt is the time of every call.
var damagedAt = time.UnixMilli(1_767_225_600_000).UTC()

func newDamaged(tb testing.TB, status message.Status) *damaged {
	tb.Helper()
	r := row{payloadKey: payloadPrefix + "1"}
	r.Queue, r.ID, r.Status, r.Receipt, r.Fingerprint = "q", damagedID, status, "receipt", "print"
	r.Due, r.ClaimedAt, r.CreatedAt, r.UpdatedAt = damagedAt, damagedAt, damagedAt, damagedAt
	r.MaxRetries, r.MaxStalls, r.PayloadBytes, r.ClaimCount, r.RetryCount = 3, 3, 3, 2, 1
	if status == message.Dead || status == message.Succeeded {
		r.LastVerb, r.ExpiresAt = message.VerbFail, damagedAt.Add(time.Hour)
	}
	r.LastError = new("no")
	r.last = &message.Attempt{
		Number: 2, ClaimedAt: damagedAt, EndedAt: damagedAt, Outcome: message.OutcomeFailed, Error: "no",
	}
	if status == message.Processing {
		r.Due = damagedAt.Add(-time.Minute)
	}
	settings, err := stored.Encode(message.DefaultSettings())
	if err != nil {
		tb.Fatal(err)
	}
	counts, err := encodeCounts(message.Counts{Depth: map[message.Status]int{message.Dead: 1}, At: damagedAt})
	if err != nil {
		tb.Fatal(err)
	}
	queue, mark, round := primary(pkQueues, "q"), primary(pkActive, "q"), primary(pkSweep, skRound)
	queue[attrSettings], queue[attrCounts], queue[attrRevision] = text(settings), text(counts), text("1")
	queue[attrCreatedAt], mark[attrAt] = millis(damagedAt), millis(damagedAt)
	round[attrRound] = text(`{"after":"a","pending":1}`)
	payload := primary(messagePK("q", damagedID), r.payloadKey)
	payload[attrPayload], payload[attrLife] = pack(strings.Repeat("x", 100)), number(0)
	return &damaged{tb: tb, items: []item{encode(r), encodeAttempt(r, *r.last), payload, queue, mark, round}}
}

// spot is an attribute of an item.
type spot struct {
	item
	attr string
}

// places are all that may be damaged: not the keys by which items are found.
func (d *damaged) places() []spot {
	var all []spot
	for _, m := range d.items {
		for _, attr := range slices.Sorted(maps.Keys(m)) {
			if attr != attrPK && attr != attrSK {
				all = append(all, spot{m, attr})
			}
		}
	}
	return all
}

// damage changes one attribute. What is a key of the index stays a string:
// DynamoDB takes nothing else.
func (d *damaged) damage(which, how byte, value string) {
	places := d.places()
	at := places[int(which)%len(places)]
	isKey := at.attr == attrQueueStatus || at.attr == attrDue
	how %= damages
	switch {
	case how == asText || isKey && how > asItIs && how < removed:
		at.item[at.attr] = text(value)
	case how == asNumber:
		at.item[at.attr] = &types.AttributeValueMemberN{Value: value}
	case how == asBinary:
		at.item[at.attr] = &types.AttributeValueMemberB{Value: []byte(value)}
	case how == asNull:
		at.item[at.attr] = &types.AttributeValueMemberNULL{Value: true}
	case how == removed:
		delete(at.item, at.attr)
	}
}

// callAll calls everything that reads what is stored.
func (d *damaged) callAll(t *testing.T) {
	t.Helper()
	now := func() time.Time { return damagedAt }
	newService := func() *message.Service { // remembers nothing
		s := New(Options{Client: d, Table: "t", Where: "here", Now: now, Log: slog.New(slog.DiscardHandler)})
		return &message.Service{Store: s, Queues: s, Sweeps: s, Now: now, Random: func(b []byte) { clear(b) }}
	}
	ctx, receipt := t.Context(), new("receipt")
	for name, call := range map[string]func(svc *message.Service) error{
		"enqueue": func(svc *message.Service) error {
			_, _, err := svc.Enqueue(ctx, "q", message.Draft{Key: "k", Payload: "x"})
			return err
		},
		"get":  func(svc *message.Service) error { _, _, err := svc.Get(ctx, "q", damagedID); return err },
		"list": func(svc *message.Service) error { return listAll(ctx, svc) },
		"claim": func(svc *message.Service) error {
			_, err := svc.Claim(ctx, "q", message.ClaimOptions{Max: new(10)})
			return err
		},
		"succeed": func(svc *message.Service) error { _, err := svc.Succeed(ctx, "q", damagedID, receipt); return err },
		"fail": func(svc *message.Service) error {
			_, err := svc.Fail(ctx, "q", damagedID, message.Failure{Receipt: receipt, Error: "x"})
			return err
		},
		"extend": func(svc *message.Service) error {
			_, err := svc.Extend(ctx, "q", damagedID, message.Extension{Receipt: receipt})
			return err
		},
		"release": func(svc *message.Service) error { _, err := svc.Release(ctx, "q", damagedID, receipt); return err },
		"replay":  func(svc *message.Service) error { _, err := svc.Replay(ctx, "q", damagedID); return err },
		"delete":  func(svc *message.Service) error { return svc.Delete(ctx, "q", damagedID) },
		"queue":   func(svc *message.Service) error { _, err := svc.Queue(ctx, "q"); return err },
		"queues":  func(svc *message.Service) error { _, _, err := svc.ListQueues(ctx, "", "", 10); return err },
		"put": func(svc *message.Service) error {
			_, _, err := svc.PutQueue(ctx, "q", message.DefaultSettings())
			return err
		},
		"delete queue": func(svc *message.Service) error { return svc.DeleteQueue(ctx, "q") },
		"sweep": func(svc *message.Service) error {
			report, err := svc.Sweep(ctx, message.SweepOptions{Count: true, Until: damagedAt.Add(time.Second)})
			if report.Err != nil {
				return report.Err
			}
			return err
		},
	} {
		d.calls.Store(0)
		if err := call(newService()); err != nil && strings.Contains(err.Error(), "panic") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func listAll(ctx context.Context, svc *message.Service) error {
	_, _, err := svc.List(ctx, message.List{Queue: "q", Limit: 10, Payload: true, PayloadBytes: 1_000})
	return err
}

// called bounds the calls.
func (d *damaged) called() {
	const most = 1_000
	if d.calls.Add(1) == most {
		d.tb.Errorf("a call of the service makes %d of the table", most)
		panic("it does not end")
	}
}

// find returns a copy of the items that want chooses, by their keys.
func (d *damaged) find(want func(m item) bool) []item {
	var found []item
	for _, m := range d.items {
		if want(m) {
			found = append(found, maps.Clone(m))
		}
	}
	slices.SortFunc(found, func(a, b item) int { return strings.Compare(str(a, attrSK), str(b, attrSK)) })
	return found
}

func (d *damaged) at(key item) item {
	found := d.find(func(m item) bool { return same(m[attrPK], key[attrPK]) && same(m[attrSK], key[attrSK]) })
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// write is the outcome of a write with a condition, or without one.
func (d *damaged) write(key item, condition *string) (stored item, err error) {
	d.called()
	stored = d.at(key)
	if condition != nil && d.refuses {
		return nil, &types.ConditionalCheckFailedException{Item: stored}
	}
	return stored, nil
}

// The methods below implement Client.

func (d *damaged) GetItem(
	_ context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	d.called()
	return &dynamodb.GetItemOutput{Item: d.at(in.Key)}, nil
}

func (d *damaged) BatchGetItem(
	_ context.Context, in *dynamodb.BatchGetItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.BatchGetItemOutput, error) {
	d.called()
	out := &dynamodb.BatchGetItemOutput{Responses: make(map[string][]item)}
	for table, keys := range in.RequestItems {
		for _, key := range keys.Keys {
			if m := d.at(key); m != nil {
				out.Responses[table] = append(out.Responses[table], m)
			}
		}
	}
	return out, nil
}

// Query returns what stands in the partition, wherever it stands there. Each
// query of this package names the partition first.
func (d *damaged) Query(
	_ context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options),
) (*dynamodb.QueryOutput, error) {
	d.called()
	hash := attrPK
	if in.IndexName != nil {
		hash = attrQueueStatus
	}
	partition := in.ExpressionAttributeValues[":0"]
	return &dynamodb.QueryOutput{Items: d.find(func(m item) bool { return same(m[hash], partition) })}, nil
}

func (d *damaged) PutItem(
	_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.PutItemOutput, error) {
	_, err := d.write(in.Item, in.ConditionExpression)
	return &dynamodb.PutItemOutput{}, err
}

func (d *damaged) UpdateItem(
	_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.UpdateItemOutput, error) {
	stored, err := d.write(in.Key, in.ConditionExpression)
	return &dynamodb.UpdateItemOutput{Attributes: stored}, err
}

func (d *damaged) DeleteItem(
	_ context.Context, in *dynamodb.DeleteItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.DeleteItemOutput, error) {
	_, err := d.write(in.Key, in.ConditionExpression)
	return &dynamodb.DeleteItemOutput{}, err
}
