package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/dynamo/wire"
)

// stub is an engine that is not there.
type stub func(*http.Request) (*http.Response, error)

func (s stub) Do(req *http.Request) (*http.Response, error) { return s(req) }

// request is as the SDK sends it.
func request(ctx context.Context, t *testing.T, action string, params map[string]any) *http.Request {
	t.Helper()
	body, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+action)
	return req
}

// key is a key as JSON shows it.
func key(pk, sk string) map[string]any {
	return map[string]any{"pk": map[string]any{"S": pk}, "sk": map[string]any{"S": sk}}
}

func TestARequestIsNamedAfterWhatItAsksFor(t *testing.T) {
	t.Parallel()
	of := func(pk, sk string) map[string]any { return map[string]any{"Key": key(pk, sk)} }
	query := func(pk string) map[string]any {
		return map[string]any{"ExpressionAttributeValues": map[string]any{":0": map[string]any{"S": pk}}}
	}
	entries := query("pending#00#q")
	entries["IndexName"] = dynamo.IndexName
	for _, tt := range []struct {
		action string
		params map[string]any
		want   string
		writes bool
	}{
		{"GetItem", of("q#msg_0", "m"), "GetItem message", false},
		{"UpdateItem", of("q#msg_0", "m"), "UpdateItem message", true},
		{"UpdateItem", of("q#msg_0", "p#0"), "UpdateItem payload", true},
		{"DeleteItem", of("q#msg_0", "a#0"), "DeleteItem attempt", true},
		{"PutItem", map[string]any{"Item": key("#active", "q")}, "PutItem mark", true},
		{"PutItem", map[string]any{"Item": key("#queues", "p#q")}, "PutItem queue", true},
		{"PutItem", map[string]any{"Item": key("#sweep", "q")}, "PutItem round", true},
		{"BatchGetItem", map[string]any{"RequestItems": map[string]any{}}, "BatchGetItem", false},
		{"Query", query("#active"), "Query mark", false},
		{"Query", entries, "Query pending", false},
	} {
		r := wire.Parse(request(t.Context(), t, tt.action, tt.params))
		if r.String() != tt.want || r.Writes() != tt.writes {
			t.Errorf("%s %v is %q, a write: %v, want %q, %v", tt.action, tt.params, r, r.Writes(), tt.want, tt.writes)
		}
	}
}

func TestAFaultDecidesWhatBecomesOfRequests(t *testing.T) {
	t.Parallel()
	writes := func(r *wire.Request) bool { return r.Writes() }
	for name, tt := range map[string]struct {
		fault wire.Fault
		want  []string // of each request in turn, who hears of it
	}{
		"none":            {nil, []string{"both", "both", "both", "both"}},
		"all cut":         {wire.Cut, []string{"nobody", "nobody", "nobody", "nobody"}},
		"all lost":        {wire.Lose, []string{"engine", "engine", "engine", "engine"}},
		"the first lost":  {wire.Only(0, wire.Any, wire.Lose), []string{"engine", "both", "both", "both"}},
		"the last write":  {wire.Only(1, writes, wire.Cut), []string{"both", "both", "both", "nobody"}},
		"each write":      {wire.Each(writes, wire.Lose), []string{"both", "engine", "both", "engine"}},
		"a crash":         {wire.From(1, wire.Lose), []string{"both", "engine", "nobody", "nobody"}},
		"a crash at once": {wire.From(0, wire.Cut), []string{"nobody", "nobody", "nobody", "nobody"}},
	} {
		arrived := 0
		w := wire.New(stub(func(*http.Request) (*http.Response, error) {
			arrived++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		w.Set(tt.fault)
		var got []string
		for _, action := range []string{"GetItem", "PutItem", "Query", "DeleteItem"} {
			before := arrived
			resp, err := w.Do(request(t.Context(), t, action, nil))
			switch {
			case err == nil && arrived == before+1:
				got = append(got, "both")
				resp.Body.Close()
			case errors.Is(err, wire.ErrCut) && arrived == before+1:
				got = append(got, "engine")
			case errors.Is(err, wire.ErrCut) && arrived == before:
				got = append(got, "nobody")
			default:
				t.Errorf("%s, %s = %v, and arrived %d times", name, action, err, arrived-before)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: of requests hear %q, want %q", name, got, tt.want)
		}
	}
}

func TestARefusalIsAnErrorOfDynamoDB(t *testing.T) {
	t.Parallel()
	w := wire.New(stub(func(*http.Request) (*http.Response, error) {
		t.Error("a request that is refused arrived")
		return nil, wire.ErrCut
	}))
	w.Set(wire.Refuse(http.StatusBadRequest, "ProvisionedThroughputExceededException"))
	client := dynamo.NewLocalClient("http://127.0.0.1", func(o *dynamodb.Options) {
		o.HTTPClient, o.Retryer = w, aws.NopRetryer{}
	})
	_, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: keyOf("a")})
	if _, ok := errors.AsType[*types.ProvisionedThroughputExceededException](err); !ok {
		t.Errorf("GetItem = %v, want that the throughput is exceeded", err)
	}
}

// What was sent arrives as a whole, though nobody waits for it, and again if asked.
func TestARequestOnItsWayArrives(t *testing.T) {
	t.Parallel()
	var arrived []string
	w := wire.New(stub(func(req *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(req.Body)
		if err != nil || req.Context().Err() != nil || req.ContentLength != int64(len(body)) {
			t.Errorf("a body of %d bytes, said to be %d, %v; the context is %v",
				len(body), req.ContentLength, err, req.Context().Err())
		}
		arrived = append(arrived, string(body))
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	w.Set(func(_ *wire.Request, send wire.Send) (*http.Response, error) {
		cancel()
		resp, err := send()
		if err == nil {
			resp.Body.Close()
		}
		return send()
	})
	resp, err := w.Do(request(ctx, t, "GetItem", map[string]any{"Key": "k"}))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if want := []string{`{"Key":"k"}`, `{"Key":"k"}`}; !slices.Equal(arrived, want) {
		t.Errorf("%q arrived, want %q", arrived, want)
	}
}

func TestAWireNotesRequestsUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	next := stub(func(*http.Request) (*http.Response, error) { return nil, wire.ErrCut })
	noting, plain := wire.New(next), &wire.Wire{Next: next}
	for _, w := range []*wire.Wire{noting, plain} {
		for _, action := range []string{"GetItem", "DeleteItem", "GetItem"} {
			if resp, err := w.Do(request(t.Context(), t, action, map[string]any{"Key": key("q#msg_0", "m")})); err == nil {
				resp.Body.Close()
			}
		}
	}
	if got := noting.Saw("GetItem message"); got != 2 {
		t.Errorf("Saw = %d, want 2", got)
	}
	if got := noting.Take(); len(got) != 3 || got[1].String() != "DeleteItem message" {
		t.Errorf("Take = %v, want all three, in order", got)
	}
	if got := noting.Take(); len(got) != 0 {
		t.Errorf("Take = %v, want none, they were taken", got)
	}
	if got := plain.Take(); len(got) != 0 {
		t.Errorf("Take of a wire that notes none = %v", got)
	}
}

func TestAnotherRequestGoesToTheSameTable(t *testing.T) {
	t.Parallel()
	req := request(t.Context(), t, "DeleteItem", map[string]any{"TableName": "t", "Key": key("q#msg_0", "m")})
	r := wire.Parse(req)
	get := r.As("GetItem", map[string]any{"Key": r.Params["Key"]})
	target := get.HTTP.Header.Get("X-Amz-Target")
	if get.String() != "GetItem message" || target != "DynamoDB_20120810.GetItem" {
		t.Errorf("As = %s of %s, want GetItem message", get, target)
	}
	if want := `{"Key":{"pk":{"S":"q#msg_0"},"sk":{"S":"m"}},"TableName":"t"}`; string(get.Payload) != want {
		t.Errorf("it says %s, want %s", get.Payload, want)
	}
	if target := req.Header.Get("X-Amz-Target"); r.Action != "DeleteItem" || target != "DynamoDB_20120810.DeleteItem" {
		t.Errorf("the first became a %s of %s", r.Action, target)
	}
}
