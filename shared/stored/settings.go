// Package stored holds how settings are written down, the same in every store:
// names and units that stay when the program changes. It knows no store.
package stored

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

type settings struct {
	MaxRetries          int      `json:"max_retries"`
	ProcessingTimeoutMS int64    `json:"processing_timeout_ms"`
	MaxStalls           int      `json:"max_stalls"`
	RequireReceipt      bool     `json:"require_receipt"`
	Shards              int      `json:"shards"`
	Backoff             backoff  `json:"backoff"`
	SucceededDays       float64  `json:"succeeded_days"`
	DeadDays            *float64 `json:"dead_days"`
}

type backoff struct {
	InitialMS  int64          `json:"initial_ms"`
	Factor     float64        `json:"factor"`
	MaxMS      int64          `json:"max_ms"`
	ScheduleMS []int64        `json:"schedule_ms"`
	Jitter     message.Jitter `json:"jitter"`
}

// Encode writes settings as JSON.
func Encode(set message.Settings) (string, error) {
	text, err := json.Marshal(toStored(set))
	return string(text), err
}

// Decode reads what Encode, or an older version of it, wrote: what that lacks has
// its default. Settings that no queue may have are an error.
func Decode(text string) (message.Settings, error) {
	stored := toStored(message.DefaultSettings())
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return message.Settings{}, err
	}
	set := message.Settings{
		MaxRetries: stored.MaxRetries, ProcessingTimeout: millis(stored.ProcessingTimeoutMS),
		MaxStalls: stored.MaxStalls, RequireReceipt: stored.RequireReceipt, Shards: &stored.Shards,
		Backoff: message.Backoff{
			Initial: millis(stored.Backoff.InitialMS), Factor: stored.Backoff.Factor,
			Max: millis(stored.Backoff.MaxMS), Jitter: stored.Backoff.Jitter,
		},
		SucceededDays: stored.SucceededDays, DeadDays: stored.DeadDays,
	}
	for _, delay := range stored.Backoff.ScheduleMS {
		set.Backoff.Schedule = append(set.Backoff.Schedule, millis(delay))
	}
	if faults := set.Faults(); len(faults) > 0 {
		return message.Settings{}, fmt.Errorf("stored settings are damaged: %s", faults[0].Message)
	}
	return set, nil
}

func toStored(set message.Settings) settings {
	stored := settings{
		MaxRetries: set.MaxRetries, ProcessingTimeoutMS: set.ProcessingTimeout.Milliseconds(),
		MaxStalls: set.MaxStalls, RequireReceipt: set.RequireReceipt, Shards: *set.Shards,
		Backoff: backoff{
			InitialMS: set.Backoff.Initial.Milliseconds(), Factor: set.Backoff.Factor,
			MaxMS: set.Backoff.Max.Milliseconds(), Jitter: set.Backoff.Jitter,
		},
		SucceededDays: set.SucceededDays, DeadDays: set.DeadDays,
	}
	for _, delay := range set.Backoff.Schedule {
		stored.Backoff.ScheduleMS = append(stored.Backoff.ScheduleMS, delay.Milliseconds())
	}
	return stored
}

// millis returns a duration, or the longest one: a product must not begin again
// within the range that settings may have.
func millis(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(min(n, most), -most)) * time.Millisecond
}
