package dynamo

import (
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/redrivehq/redrive/shared/message"
)

// explain makes an error of the SDK one of the store. The same call may succeed
// later after throttling, an outage, a deadline, and where the table cannot be
// reached, as while it is being made. What else DynamoDB refuses, a request that
// is wrong or rights that are missing, is a fault of this package or of the stack.
func (s *Store) explain(call string, err error) error {
	err = fmt.Errorf("dynamo: %s on table %q %s: %w", call, s.Table, s.Where, err)
	if refusal, ok := errors.AsType[*http.ResponseError](err); ok && refusal.HTTPStatusCode()/100 == 4 &&
		!throttled(err) && !errors.As(err, new(*types.ResourceNotFoundException)) {
		return err
	}
	return fmt.Errorf("%w: %w", err, message.ErrUnavailable)
}

// throttled reports whether there were too many requests: they are refused as
// wrong ones are.
func throttled(err error) bool {
	return retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err).Bool()
}

// contended is for a write that lost to others again and again.
func contended(call string) error {
	return fmt.Errorf("dynamo: %s: the message changes faster than it can be written: %w", call, message.ErrUnavailable)
}
