package message

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendRange adds a fault if value is not in [least, most].
func appendRange[T int | float64](faults []Fault, field string, value, least, most T) []Fault {
	if value >= least && value <= most {
		return faults
	}
	return append(faults, Fault{
		field, CodeInvalid, fmt.Sprintf("%s must be between %v and %v.", field, least, most),
	})
}

// appendSecondsRange adds a fault if value is not in [least, most]; the text
// speaks of seconds, as the request does.
func appendSecondsRange(faults []Fault, field string, value, least, most time.Duration) []Fault {
	if value >= least && value <= most {
		return faults
	}
	return append(faults, secondsFault(field, least, most))
}

func secondsFault(field string, least, most time.Duration) Fault {
	return Fault{
		field, CodeInvalid,
		fmt.Sprintf("%s must be between %s and %s seconds.", field, seconds(least), seconds(most)),
	}
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// ReceiptFaults lists what is wrong with the text of a receipt, whether or not
// it is the current one. Nil, for one that was not given, has no fault.
func ReceiptFaults(receipt *string) []Fault {
	switch {
	case receipt == nil:
		return nil
	case *receipt == "":
		return []Fault{{"receipt", CodeInvalid, "receipt must not be empty."}}
	case utf8.RuneCountInString(*receipt) > MaxReceiptLength:
		return []Fault{{
			"receipt", CodeTooLong, fmt.Sprintf("receipt must have at most %d characters.", MaxReceiptLength),
		}}
	}
	return nil
}

// requireReceipt adds a fault for a receipt that was not given.
func requireReceipt(receipt *string, faults []Fault) []Fault {
	if receipt != nil {
		return faults
	}
	return append(faults, Fault{"receipt", CodeRequired, "receipt is required."})
}

// answerFaults adds a fault for a receipt that was not given where the queue
// insists on one.
func (set Settings) answerFaults(receipt *string, faults []Fault) []Fault {
	if !set.RequireReceipt {
		return faults
	}
	return requireReceipt(receipt, faults)
}
