package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/message"
)

// tariff is a DynamoDB that holds nothing, and tells what each look costs. No
// condition on what it holds can be met.
type tariff struct{ dynamo.Client }

func (tariff) GetItem(
	context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options),
) (*dynamodb.GetItemOutput, error) {
	return &dynamodb.GetItemOutput{ConsumedCapacity: &types.ConsumedCapacity{CapacityUnits: aws.Float64(0.5)}}, nil
}

func (tariff) UpdateItem(
	context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options),
) (*dynamodb.UpdateItemOutput, error) {
	return nil, &types.ConditionalCheckFailedException{}
}

func TestLogIsMetered(t *testing.T) {
	t.Parallel()
	look := func(t *testing.T, ctx context.Context, s *dynamo.Store) {
		t.Helper()
		if _, err := s.Queue(ctx, "emails"); err == nil {
			t.Fatal("the queue is there")
		}
	}
	for _, tt := range []struct {
		name string
		do   func(*testing.T, context.Context, *dynamo.Store)
		want map[string]any // beside level and text
	}{
		{"nothing was asked for", func(*testing.T, context.Context, *dynamo.Store) {}, map[string]any{}},
		{"two reads", func(t *testing.T, ctx context.Context, s *dynamo.Store) {
			look(t, ctx, s)
			look(t, ctx, s)
		}, map[string]any{"dynamodb_requests": 2., "read_units": 1., "write_units": 0.}},
		{"a write whose condition did not hold", func(t *testing.T, ctx context.Context, s *dynamo.Store) {
			if err := s.SaveCounts(ctx, "emails", message.Counts{}); err != nil {
				t.Fatal(err)
			}
		}, map[string]any{"dynamodb_requests": 1., "read_units": 0., "write_units": 1., "lost_writes": 1.}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var written bytes.Buffer
			log := slog.New(meteredLog{slog.NewJSONHandler(&written, nil)})
			store := dynamo.New(dynamo.Options{Client: tariff{}, Table: "redrive", Now: time.Now, Log: log})
			metered, _ := dynamo.WithMeter(t.Context())
			tt.do(t, metered, store)
			tt.do(t, t.Context(), store) // counts for nobody

			log.InfoContext(metered, "request")
			tt.want["level"], tt.want["msg"] = "INFO", "request"
			wantLine(t, &written, tt.want)

			log.With("function", "claim").InfoContext(metered, "request")
			tt.want["function"] = "claim"
			wantLine(t, &written, tt.want)

			log.InfoContext(t.Context(), "request")
			wantLine(t, &written, map[string]any{"level": "INFO", "msg": "request"})
		})
	}
}

// wantLine takes one line, and compares it but for its time.
func wantLine(t *testing.T, written *bytes.Buffer, want map[string]any) {
	t.Helper()
	line, err := written.ReadBytes('\n')
	if err != nil {
		t.Fatalf("no line: %v", err)
	}
	var got map[string]any
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if _, err := time.Parse(time.RFC3339, got["time"].(string)); err != nil {
		t.Errorf("time: %v", err)
	}
	delete(got, "time")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the line (-want +got):\n%s", diff)
	}
}
