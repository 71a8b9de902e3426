package wire_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/dynamotest"
	"github.com/redrivehq/redrive/shared/dynamo/wire"
)

// item is what DynamoDB stores.
type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// bench is a table with two ways to it.
type bench struct {
	t      *testing.T
	table  string
	engine *dynamodb.Client // past the index
	client *dynamodb.Client // through the index, and then the line
	line   *wire.Wire
	now    int64
	lag    int64
}

const mostLag = 150

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, engine: dynamotest.Client(t)}
	b.table = dynamotest.Table(t, b.engine)
	b.line = wire.New(b.engine.Options().HTTPClient)
	index := wire.NewIndex(b.line, func() int64 { return b.now }, mostLag, func() int64 { return b.lag })
	b.client = dynamodb.New(b.engine.Options(), func(o *dynamodb.Options) {
		o.HTTPClient, o.Retryer = index, aws.NopRetryer{}
	})
	return b
}

func keyOf(id string) item { return item{"pk": text("q#" + id), "sk": text("m")} }

func (b *bench) put(id, status, due string, condition *string) error {
	m := keyOf(id)
	m["queue_status"], m["due"], m["created_at"] = text(status), text(due+"#"+id), &types.AttributeValueMemberN{Value: "1"}
	_, err := b.client.PutItem(b.t.Context(), &dynamodb.PutItemInput{
		TableName: &b.table, Item: m, ConditionExpression: condition,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return err
}

func (b *bench) update(id, status, due string) error {
	change := "SET queue_status = :0, due = :1"
	_, err := b.client.UpdateItem(b.t.Context(), &dynamodb.UpdateItemInput{
		TableName: &b.table, Key: keyOf(id), UpdateExpression: &change,
		ExpressionAttributeValues: item{":0": text(status), ":1": text(due + "#" + id)},
	})
	return err
}

func (b *bench) remove(id string) error {
	_, err := b.client.DeleteItem(b.t.Context(), &dynamodb.DeleteItemInput{TableName: &b.table, Key: keyOf(id)})
	return err
}

// page returns what is due from 0#5 to 3#3, limit at most.
func (b *bench) page(client *dynamodb.Client, status string, forward bool, limit int) (due []string) {
	b.t.Helper()
	condition, index := "#queue_status = :0 AND #due BETWEEN :1 AND :2", dynamo.IndexName
	out, err := client.Query(b.t.Context(), &dynamodb.QueryInput{
		TableName: &b.table, IndexName: &index, KeyConditionExpression: &condition,
		ExpressionAttributeNames:  map[string]string{"#queue_status": "queue_status", "#due": "due"},
		ExpressionAttributeValues: item{":0": text(status), ":1": text("0#5"), ":2": text("3#3")},
		Limit:                     new(int32(limit)), ScanIndexForward: &forward,
	})
	if err != nil {
		b.t.Fatalf("Query = %v", err)
	}
	for _, m := range out.Items {
		due = append(due, m["due"].(*types.AttributeValueMemberS).Value)
	}
	return due
}

// wantAsItIs checks that the index shows now what the engine has.
func (b *bench) wantAsItIs(what string, entries int) {
	b.t.Helper()
	got, want := b.page(b.client, "pending", true, 100), b.page(b.engine, "pending", true, 100)
	if !slices.Equal(got, want) || len(want) != entries {
		b.t.Errorf("%s the index shows %v, the engine %v, want %d entries", what, got, want, entries)
	}
}

// What an index shows is what the engine showed that long ago, whatever became of
// the writes and their answers.
func TestAnIndexThatLagsAnswersAsTheEngineDidThen(t *testing.T) {
	t.Parallel()
	b, random := newBench(t), rand.New(rand.NewPCG(1, 2))
	statuses := []string{"pending", "processing"}
	then := []map[string][]string{{}} // by time and status
	faults := []wire.Fault{
		wire.Lose, wire.Cut, wire.Refuse(http.StatusInternalServerError, "InternalServerError"),
		wire.Refuse(http.StatusBadRequest, "ThrottlingException"),
		func(r *wire.Request, send wire.Send) (*http.Response, error) { // it was done, for all that
			_, _ = wire.Lose(r, send)
			return wire.Respond(r, http.StatusServiceUnavailable, "{}"), nil
		},
	}
	writes := func(r *wire.Request) bool { return r.Writes() }
	shown := 0
	for range 600 {
		b.now++
		spoilt := random.IntN(3) == 0
		if spoilt {
			b.line.Set(wire.Each(writes, faults[random.IntN(len(faults))]))
		}
		id, status, due := strconv.Itoa(random.IntN(12)), statuses[random.IntN(2)], strconv.Itoa(random.IntN(4))
		var err error
		switch random.IntN(4) {
		case 0:
			err = b.put(id, status, due, nil)
		case 1:
			err = b.remove(id)
		default:
			err = b.update(id, status, due)
		}
		if b.line.Set(nil); (err != nil) != spoilt {
			t.Fatalf("a write = %v, and was to be spoilt: %v", err, spoilt)
		}
		there := make(map[string][]string)
		for _, status := range statuses {
			there[status] = b.page(b.engine, status, true, 100)
		}
		then = append(then, there)
		b.lag = random.Int64N(min(mostLag, b.now) + 1)
		forward, limit := random.IntN(2) == 0, 1+random.IntN(8)
		for _, status := range statuses {
			want := slices.Clone(then[b.now-b.lag][status])
			if !forward {
				slices.Reverse(want)
			}
			want = want[:min(limit, len(want))]
			got := b.page(b.client, status, forward, limit)
			if !slices.Equal(got, want) {
				t.Fatalf("at %d, %d late, the index shows %v, want %v", b.now, b.lag, got, want)
			}
			shown += len(got)
		}
	}
	if shown < 600 {
		t.Errorf("the index has shown %d entries, want many", shown)
	}
}

// A write that nobody heard of may be done later. Who tries it again is shown what
// is there, and so is the index.
func TestAnIndexLearnsOfALateWriteFromAConditionThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var arrive wire.Send
	b.line.Set(wire.Only(0, wire.Any, func(_ *wire.Request, send wire.Send) (*http.Response, error) {
		arrive = send
		return nil, wire.ErrCut
	}))
	if err := b.put("a", "pending", "2", nil); !errors.Is(err, wire.ErrCut) {
		t.Errorf("PutItem = %v, want %v", err, wire.ErrCut)
	}
	b.wantAsItIs("before the write", 0)
	resp, err := arrive()
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	condition := "attribute_not_exists(pk)"
	if err := b.put("a", "processing", "1", &condition); err == nil {
		t.Error("PutItem = nil, want a failed condition")
	}
	b.wantAsItIs("after the write", 1)
}

func TestAnIndexThatCannotSeeWhatAWriteDidSaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.put("a", "pending", "2", nil); err != nil {
		t.Fatal(err)
	}
	for name, fault := range map[string]wire.Fault{
		"no answer": wire.Cut, "an outage": wire.Refuse(http.StatusInternalServerError, "InternalServerError"),
	} {
		b.line.Set(fault)
		if err := b.remove("a"); err == nil || !strings.Contains(err.Error(), "cannot see") {
			t.Errorf("DeleteItem with %s = %v, want that nobody can see what it did", name, err)
		}
		b.line.Set(nil)
		b.wantAsItIs("after "+name, 1)
	}
}

func TestAnIndexRefusesQueriesThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	condition, index := "queue_status = :0", dynamo.IndexName
	_, err := b.client.Query(t.Context(), &dynamodb.QueryInput{
		TableName: &b.table, IndexName: &index, KeyConditionExpression: &condition,
		ExpressionAttributeValues: item{":0": text("pending")},
	})
	if err == nil || !strings.Contains(err.Error(), condition) {
		t.Errorf("Query = %v, want an error that names %s", err, condition)
	}
}

// Only messages are in the index: what else is written passes as it is.
func TestAnIndexLeavesOtherItemsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	change := "SET life = :0"
	update := func(sk string) string {
		t.Helper()
		if _, err := b.client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: &b.table, Key: item{"pk": text("q#a"), "sk": text(sk)}, UpdateExpression: &change,
			ExpressionAttributeValues: item{":0": text("1")},
		}); err != nil {
			t.Fatalf("UpdateItem = %v", err)
		}
		return wire.At(b.line.Take()[0].Params, "ReturnValues")
	}
	if got := update("p#0"); got != "" {
		t.Errorf("of a payload the engine is asked for %s, want nothing", got)
	}
	if got := update("m"); got != "ALL_NEW" {
		t.Errorf("of a message the engine is asked for %q, want ALL_NEW", got)
	}
	b.wantAsItIs("after writes of what has no status", 0)
}
