// Package dynamotest gives tests a DynamoDB engine: the one that the environment
// names, and tables of their own in it.
package dynamotest

import (
	"context"
	"crypto/rand"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/shared/dynamo"
)

// Endpoint returns the URL of the engine. Without one it skips the test, and says
// how to start one; where REDRIVE_REQUIRE_ENGINE is set, as in CI, the test fails
// instead.
func Endpoint(tb testing.TB) string {
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
	return url
}

// Client returns a client of the engine.
func Client(tb testing.TB, options ...func(*dynamodb.Options)) *dynamodb.Client {
	tb.Helper()
	return dynamo.NewLocalClient(Endpoint(tb), options...)
}

// Table makes a table that is deleted when the test ends, and returns its name.
func Table(tb testing.TB, client *dynamodb.Client) string {
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
