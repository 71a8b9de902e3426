package dynamo_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/dynamotest"
	"github.com/redrivehq/redrive/shared/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	client := engine(t)
	storetest.Run(t, func(t *testing.T, now func() time.Time) storetest.Harness {
		t.Helper()
		table := newTable(t, client)
		open := func(t *testing.T) storetest.Store {
			t.Helper()
			return newStore(t, client, table, now)
		}
		return storetest.Harness{Store: open(t), Another: open}
	})
}

func engine(tb testing.TB) *dynamodb.Client {
	tb.Helper()
	return dynamotest.Client(tb)
}

func newTable(tb testing.TB, client *dynamodb.Client) string {
	tb.Helper()
	return dynamotest.Table(tb, client)
}

func newStore(tb testing.TB, client dynamo.Client, table string, now func() time.Time) *dynamo.Store {
	tb.Helper()
	return dynamo.New(dynamo.Options{Client: client, Table: table, Now: now, Log: slog.New(slog.DiscardHandler)})
}
