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
func engine(t testing.TB) *dynamodb.Client {
	t.Helper()
	url := os.Getenv("AWS_ENDPOINT_URL_DYNAMODB")
	if url == "" {
		const help = "no DynamoDB engine: start one with `dynoxide --port 8000` or `make dynamodb-local`," +
			" then set AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000"
		if os.Getenv("REDRIVE_REQUIRE_ENGINE") != "" {
			t.Fatal(help)
		}
		t.Skip(help)
	}
	return dynamo.NewClient(aws.Config{
		Region:      cmp.Or(os.Getenv("AWS_REGION"), "eu-central-1"),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}, func(o *dynamodb.Options) { o.BaseEndpoint = &url })
}

// newTable makes a table that is deleted when t ends.
func newTable(t testing.TB, client *dynamodb.Client) string {
	t.Helper()
	table := "test-" + rand.Text()
	if err := dynamo.CreateTable(t.Context(), client, table); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table}); err != nil {
			t.Errorf("DeleteTable = %v", err)
		}
	})
	return table
}

func newStore(t testing.TB, client dynamo.Client, table string, now func() time.Time) *dynamo.Store {
	t.Helper()
	return dynamo.New(dynamo.Options{Client: client, Table: table, Now: now, Log: slog.New(slog.DiscardHandler)})
}
