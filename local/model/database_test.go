package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/virtual"
)

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// shownAt returns what a query shows, up to the bound.
func shownAt(t *testing.T, c *client, high string) (dues []string) {
	t.Helper()
	limit := int32(10)
	out, err := c.Query(t.Context(), &dynamodb.QueryInput{
		Limit: &limit, ExpressionAttributeValues: item{":0": str("pending#00#q"), ":1": str("0"), ":2": str(high)},
	})
	if err != nil || *out.ConsumedCapacity.CapacityUnits != 0.5 {
		t.Fatalf("Query = %v, %v", out, err)
	}
	for _, m := range out.Items {
		dues = append(dues, text(m["due"]))
	}
	return dues
}

func TestTheIndexLags(t *testing.T) {
	t.Parallel()
	c := &client{database: newDatabase(virtual.New(seed), 20*time.Millisecond)}
	wait := func() { c.Now = c.Now.Add(c.lag) }
	want := func(when, high string, dues ...string) {
		t.Helper()
		if got := shownAt(t, c, high); !slices.Equal(got, dues) {
			t.Errorf("%s the index shows %v, want %v", when, got, dues)
		}
	}
	for _, due := range []string{"3", "1", "2"} {
		m := item{"pk": str("q#" + due), "sk": str("m"), "queue_status": str("pending#00#q"), "due": str(due)}
		if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{Item: m}); err != nil {
			t.Fatal(err)
		}
	}
	want("at once", "9")
	wait()
	want("when it has caught up", "9", "1", "2", "3")
	want("up to two", "2", "1", "2")

	condition, update := "#due = :0", "SET #queue_status = :1 REMOVE #last_verb"
	take := &dynamodb.UpdateItemInput{
		Key: item{"pk": str("q#2"), "sk": str("m")}, ConditionExpression: &condition, UpdateExpression: &update,
		ExpressionAttributeValues: item{":0": str("2"), ":1": str("processing#00#q")},
	}
	out, err := c.UpdateItem(t.Context(), take)
	if err != nil || text(out.Attributes["queue_status"]) != "processing#00#q" || text(out.Attributes["due"]) != "2" {
		t.Fatalf("UpdateItem = %v, %v", out, err)
	}
	take.ExpressionAttributeValues[":0"] = str("1")
	if _, err := c.UpdateItem(t.Context(), take); fmt.Sprintf("%T", err) != "*types.ConditionalCheckFailedException" {
		t.Errorf("UpdateItem of what is otherwise = %v", err)
	}
	want("when one is taken", "9", "1", "2", "3")
	wait()
	want("when it has caught up with that", "9", "1", "3")
	if got := c.countPending(); got != 2 {
		t.Errorf("%d are pending, want 2", got)
	}
}
