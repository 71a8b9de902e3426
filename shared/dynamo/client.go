package dynamo

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// How long the SDK tries. DynamoDB answers within milliseconds: what takes longer
// is lost, and asking again is faster than waiting. A call that fails each time
// takes at most 11 s.
const (
	dialTime    = time.Second
	requestTime = 3 * time.Second
	attempts    = 3
	longestWait = time.Second // between two, with jitter
	connections = 256         // kept open
)

// NewClient returns a client that reads every answer whole before the SDK sees
// it, that gives up on an answer in time, and that asks again with jitter.
func NewClient(cfg aws.Config, options ...func(*dynamodb.Options)) *dynamodb.Client {
	base, ok := cfg.HTTPClient.(*awshttp.BuildableClient) // knows the certificates of AWS_CA_BUNDLE
	if !ok {
		base = awshttp.NewBuildableClient()
	}
	base = base.WithTimeout(requestTime).WithDialerOptions(func(d *net.Dialer) {
		d.Timeout = dialTime
	}).WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = connections, connections
	})
	return dynamodb.NewFromConfig(cfg, append([]func(*dynamodb.Options){func(o *dynamodb.Options) {
		o.HTTPClient = &wholeAnswers{base}
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts, r.MaxBackoff = attempts, longestWait
		})
	}}, options...)...)
}

// NewLocalClient returns a client of a DynamoDB engine on this machine. Such
// engines keep tables apart by key and region, if they look at them: so these are
// fixed, here and in the Makefile.
func NewLocalClient(endpoint string, options ...func(*dynamodb.Options)) *dynamodb.Client {
	return NewClient(aws.Config{
		Region:      "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	}, append([]func(*dynamodb.Options){func(o *dynamodb.Options) { o.BaseEndpoint = &endpoint }}, options...)...)
}

// wholeAnswers reads the body before it returns. Else aws-sdk-go-v2 loses answers
// above 4 KB now and then, to "use of closed network connection", though the
// write was done (its issue 2737).
type wholeAnswers struct{ next aws.HTTPClient }

// Do implements aws.HTTPClient.
func (c *wholeAnswers) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.next.Do(req)
	if err != nil {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it has been read
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
