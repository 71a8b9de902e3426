package dynamo

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/message"
)

// IndexName is the one index. Its partition is a status of a shard of a queue,
// its order the due time.
const IndexName = "queue-status-retry_after"

// Attributes of keys.
const (
	attrPK          = "pk"
	attrSK          = "sk"
	attrQueueStatus = "queue_status"
	attrDue         = "due"
	attrExpiresAt   = "expires_at" // epoch seconds: the table's TTL
)

// Partitions that hold no message. No queue's name holds a "#".
const (
	pkQueues = "#queues" // the settings, by queue
	pkActive = "#active" // the marks of queues in use
	pkSweep  = "#sweep"  // where the sweeps have come
)

// Definition returns the table as CreateTable makes it. The deployed one is made
// from template.yaml; a test compares the two. That one has a stream too, which
// nothing reads on a laptop, and with which an engine there becomes slower with each
// write.
func Definition(table string) *dynamodb.CreateTableInput {
	key := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: &hash, KeyType: types.KeyTypeHash},
			{AttributeName: &sort, KeyType: types.KeyTypeRange},
		}
	}
	var attributes []types.AttributeDefinition
	for _, name := range []string{attrPK, attrSK, attrQueueStatus, attrDue} {
		attributes = append(attributes, types.AttributeDefinition{
			AttributeName: &name, AttributeType: types.ScalarAttributeTypeS,
		})
	}
	return &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: attributes, KeySchema: key(attrPK, attrSK),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: aws.String(IndexName), KeySchema: key(attrQueueStatus, attrDue),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}},
	}
}

// TimeToLive returns the table's setting for the expiry of items.
func TimeToLive(table string) *dynamodb.UpdateTimeToLiveInput {
	return &dynamodb.UpdateTimeToLiveInput{TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{
		AttributeName: aws.String(attrExpiresAt), Enabled: aws.Bool(true),
	}}
}

// createWithin bounds how long a new table may take to become active.
const createWithin = time.Minute

// CreateTable makes the table, unless it exists, and waits until it can be used.
// It is for laptops and tests: a deployed table is made by its stack.
func CreateTable(ctx context.Context, client *dynamodb.Client, table string) error {
	_, err := client.CreateTable(ctx, Definition(table))
	exists := errors.As(err, new(*types.ResourceInUseException))
	if err != nil && !exists {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	err = dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 10*time.Millisecond, time.Second
	}).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, createWithin)
	if err == nil && !exists {
		_, err = client.UpdateTimeToLive(ctx, TimeToLive(table))
	}
	if err != nil {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	return nil
}

// primary returns the key of an item.
func primary(pk, sk string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{attrPK: text(pk), attrSK: text(sk)}
}

// Sort keys of the items of a message.
const (
	skMessage     = "m"
	payloadPrefix = "p#"
	attemptPrefix = "a#"
)

func messagePK(queue, id string) string { return queue + "#" + id }

// splitPK is the reverse of messagePK.
func splitPK(pk string) (queue, id string) {
	queue, id, _ = strings.Cut(pk, "#")
	return queue, id
}

// attemptSK makes a ring of the newest attempts.
func attemptSK(number int) string {
	return fmt.Sprintf("%s%02d", attemptPrefix, number%message.HistorySize)
}

// partition names a partition of the index.
func partition(status message.Status, shard int, queue string) string {
	return fmt.Sprintf("%s#%02d#%s", status, shard, queue)
}

// splitPartition is the reverse of partition, without the queue.
func splitPartition(partition string) (status message.Status, shard int) {
	name, rest, _ := strings.Cut(partition, "#")
	digits, _, _ := strings.Cut(rest, "#")
	shard, _ = strconv.Atoi(digits) // what was not written by partition is in no shard
	return message.Status(name), shard
}

// shardOf spreads messages evenly. The message says itself in which shard it
// stands, so that readers need not agree.
func shardOf(id string, shards int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))             // never fails
	return int(h.Sum32() % uint32(shards)) //nolint:gosec // 1 to message.MaxShards
}

// sortKey orders the entries of a partition: by time, then by id. Fixed width makes
// the order of text that of time.
func sortKey(due time.Time, id string) string { return fmt.Sprintf("%013d#%s", due.UnixMilli(), id) }

// until is the bound of all that is due at the time given: "$" follows "#".
func until(due time.Time) string { return fmt.Sprintf("%013d$", due.UnixMilli()) }

// Bounds of every sort key of the index.
const (
	lowest  = "0"
	highest = ":" // follows the digits
)

// after and before return keys that lie between that key and its neighbours, which
// are as long and differ in a character that ids are made of.
func after(key string) string { return key + "!" }

func before(key string) string {
	last := key[len(key)-1]
	return key[:len(key)-1] + string(last-1) + "~"
}

// splitSortKey is the reverse of sortKey.
func splitSortKey(key string) (due time.Time, id string) {
	digits, id, _ := strings.Cut(key, "#")
	n, _ := strconv.ParseInt(digits, 10, 64) // what was not written by sortKey is due at once
	return time.UnixMilli(n).UTC(), id
}
