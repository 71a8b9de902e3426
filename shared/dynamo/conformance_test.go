package dynamo_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/dynamo"
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

// engine returns a client of the DynamoDB engine that the tests run on, and skips
// the test where there is none.
func engine(tb testing.TB) *dynamodb.Client {
	tb.Helper()
	url := os.Getenv("AWS_ENDPOINT_URL_DYNAMODB")
	if url == "" {
		const help = "no DynamoDB engine: start one with `dynoxide --port 8000` or `make dynamodb-local`," +
			" then set AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000"
		if os.Getenv("REDRIVE_REQUIRE_ENGINE") != "" {
			tb.Fatal(help)
		}
		tb.Skip(help)
	}
	return dynamo.NewClient(aws.Config{
		Region:      cmp.Or(os.Getenv("AWS_REGION"), "eu-central-1"),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}, func(o *dynamodb.Options) { o.BaseEndpoint = &url })
}

// newTable makes a table that is deleted when t ends.
func newTable(tb testing.TB, client *dynamodb.Client) string {
	tb.Helper()
	table := "test-" + rand.Text()
	if err := dynamo.CreateTable(tb.Context(), client, table); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx := context.WithoutCancel(tb.Context())
		if _, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table}); err != nil {
			tb.Errorf("DeleteTable = %v", err)
		}
	})
	return table
}

func newStore(tb testing.TB, client dynamo.Client, table string, now func() time.Time) *dynamo.Store {
	tb.Helper()
	return dynamo.New(dynamo.Options{Client: client, Table: table, Now: now, Log: slog.New(slog.DiscardHandler)})
}
