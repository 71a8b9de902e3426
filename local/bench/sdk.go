package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/dynamo"
)

// onDynamoDB are whole rounds on an engine: through HTTP, on the store directly,
// and as the same four calls made by AWS's SDK alone. Each has a table of its own
// every time, so that none finds what another left.
func onDynamoDB(engine string, log *slog.Logger) []*subject {
	admin := dynamo.NewLocalClient(engine)
	withTable := func(ctx context.Context, do func(table string) error) error {
		table := "bench-" + rand.Text()
		if err := dynamo.CreateTable(ctx, admin, table); err != nil {
			return err
		}
		err := do(table)
		_, deleteErr := admin.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &table})
		return cmp.Or(err, deleteErr)
	}
	return []*subject{
		overHTTP("through HTTP", func(ctx context.Context, do func(string) error) error {
			return withTable(ctx, func(table string) error {
				return serveRedrive(ctx, server.Config{DynamoDB: engine, Table: table, Log: log}, do)
			})
		}),
		{name: "store alone", with: func(ctx context.Context, total int, do func(operations) error) error {
			return withTable(ctx, func(table string) error {
				return do(onStore(ctx, dynamo.New(dynamo.Options{
					Client: dynamo.NewLocalClient(engine), Table: table, Where: engine, Now: time.Now, Log: log,
				}), total))
			})
		}},
		{name: "bare SDK", with: func(ctx context.Context, total int, do func(operations) error) error {
			return withTable(ctx, func(table string) error { return do(bareSDK(ctx, newSDKClient(engine), table, total)) })
		}},
	}
}

// newSDKClient returns a client as the SDK makes it, but for connections: it would
// keep ten of them, and open one for every other request of 32 clients.
func newSDKClient(engine string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: &engine,
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient: awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConnsPerHost = many
		}),
	})
}

// bareSDK makes the calls of a round as the store does: as many, with keys, values
// and conditions of the same size. It spares itself all thinking: each message is
// claimed by the client that put it.
func bareSDK(ctx context.Context, client *dynamodb.Client, table string, total int) operations {
	b := &bareCalls{client, table}
	ids, dues := make([]string, total), make([]string, total)
	return operations{
		enqueue: func(i int) error {
			ids[i] = "msg_" + rand.Text()
			dues[i] = sortKey(time.Now(), ids[i])
			return b.enqueue(ctx, ids[i], dues[i])
		},
		claim:   func(i int) error { return b.claim(ctx, ids[i], dues[i]) },
		succeed: func(i int) error { return b.succeed(ctx, ids[i]) },
	}
}

type bareCalls struct {
	client *dynamodb.Client
	table  string
}

type item = map[string]types.AttributeValue

const (
	pending, processing, succeeded = "pending#00#" + queueName, "processing#00#" + queueName, "succeeded#00#" + queueName

	receipt  = "AAAAAAAAAAAAAAAA"
	capacity = types.ReturnConsumedCapacityIndexes
)

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func (b *bareCalls) key(id string) item {
	return item{"pk": text(queueName + "#" + id), "sk": text("m")}
}

func (b *bareCalls) enqueue(ctx context.Context, id, due string) error {
	now := time.Now()
	_, err := b.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &b.table, ReturnConsumedCapacity: capacity,
		Item: item{
			"pk": text(queueName + "#" + id), "sk": text("m"),
			"queue_status": text(pending), "due": text(due), "v": number(1), "receipt": text(receipt),
			"max_retries": number(3), "max_stalls": number(3), "payload_bytes": number(int64(len(payload))),
			"created_at": number(now.UnixMilli()), "updated_at": number(now.UnixMilli()), "payload": text(payload),
			"nonce": text(receipt),
		},
		ConditionExpression: aws.String(
			"attribute_not_exists(#pk) OR #expires_at <= :0 OR attribute_not_exists(#queue_status) AND #nonce <> :1"),
		ExpressionAttributeNames: map[string]string{
			"#pk": "pk", "#expires_at": "expires_at", "#queue_status": "queue_status", "#nonce": "nonce",
		},
		ExpressionAttributeValues: item{":0": number(now.Unix()), ":1": text(receipt)},
	})
	return err
}

func sortKey(t time.Time, id string) string { return fmt.Sprintf("%013d#%s", t.UnixMilli(), id) }

func (b *bareCalls) claim(ctx context.Context, id, due string) error {
	now := time.Now()
	_, err := b.client.Query(ctx, &dynamodb.QueryInput{
		TableName: &b.table, ReturnConsumedCapacity: capacity,
		IndexName: aws.String(dynamo.IndexName), Limit: aws.Int32(page), ScanIndexForward: aws.Bool(true),
		KeyConditionExpression:    aws.String("#queue_status = :0 AND #due BETWEEN :1 AND :2"),
		ExpressionAttributeNames:  map[string]string{"#queue_status": "queue_status", "#due": "due"},
		ExpressionAttributeValues: item{":0": text(pending), ":1": text("0"), ":2": text(sortKey(now, "$"))},
	})
	if err != nil {
		return err
	}
	_, err = b.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &b.table, ReturnConsumedCapacity: capacity,
		Key: b.key(id), ReturnValues: types.ReturnValueAllNew,
		ConditionExpression: aws.String("#queue_status = :0 AND #due = :1"),
		UpdateExpression: aws.String("SET #claimed_at = :2, #due = :3, #queue_status = :4, #receipt = :5, #updated_at = :6" +
			" REMOVE #last_verb ADD #claim_count :7"),
		ExpressionAttributeNames: map[string]string{
			"#queue_status": "queue_status", "#receipt": "receipt", "#claimed_at": "claimed_at", "#due": "due",
			"#updated_at": "updated_at", "#last_verb": "last_verb", "#claim_count": "claim_count",
		},
		ExpressionAttributeValues: item{
			":0": text(pending), ":1": text(due), ":2": number(now.UnixMilli()), ":3": text(sortKey(now, id)),
			":4": text(processing), ":5": text(receipt), ":6": number(now.UnixMilli()), ":7": number(1),
		},
	})
	return err
}

// page is how many entries the store reads of the index to choose from.
const page = 35

func (b *bareCalls) succeed(ctx context.Context, id string) error {
	now := time.Now()
	_, err := b.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &b.table, ReturnConsumedCapacity: capacity,
		Key: b.key(id), ReturnValues: types.ReturnValueAllNew,
		ConditionExpression: aws.String("begins_with(#queue_status, :0) AND #receipt = :1"),
		UpdateExpression: aws.String(
			"SET #due = :2, #expires_at = :3, #last_verb = :4, #queue_status = :5, #updated_at = :6"),
		ExpressionAttributeNames: map[string]string{
			"#queue_status": "queue_status", "#receipt": "receipt", "#due": "due", "#expires_at": "expires_at",
			"#last_verb": "last_verb", "#updated_at": "updated_at",
		},
		ExpressionAttributeValues: item{
			":0": text("processing#"), ":1": text(receipt), ":2": text(sortKey(now, id)),
			":3": number(now.Add(24 * time.Hour).Unix()), ":4": text("succeed"), ":5": text(succeeded),
			":6": number(now.UnixMilli()),
		},
	})
	return err
}
