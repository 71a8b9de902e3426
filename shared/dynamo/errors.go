package dynamo

import (
	"errors"
	"fmt"

	"github.com/aws/smithy-go"

	"github.com/redrivehq/redrive/shared/message"
)

// explain makes an error of the SDK one of the store. A request that DynamoDB
// takes for wrong is a fault of this package. All else, throttling, outages,
// networks, deadlines, a table that is missing and rights that are, may be well
// when the call is repeated.
func (s *Store) explain(call string, err error) error {
	err = fmt.Errorf("dynamo: %s on table %q %s: %w", call, s.Table, s.Where, err)
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		switch api.ErrorCode() {
		case "ValidationException", "SerializationException":
			return err
		}
	}
	return fmt.Errorf("%w: %w", err, message.ErrUnavailable)
}

// contended is for a write that lost to others again and again.
func contended(call string) error {
	return fmt.Errorf("dynamo: %s: the message changes faster than it can be written: %w", call, message.ErrUnavailable)
}
