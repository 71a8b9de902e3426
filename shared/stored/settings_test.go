package stored_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/stored"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	scheduled := message.DefaultSettings()
	scheduled.Backoff = message.Backoff{
		Initial: 100 * time.Millisecond, Factor: 1.5, Max: time.Minute,
		Schedule: []time.Duration{100 * time.Millisecond, time.Hour}, Jitter: message.JitterFull,
	}
	scheduled.RequireReceipt, scheduled.Shards, scheduled.DeadDays = true, new(64), new(0.01)
	for _, tt := range []struct {
		name string
		set  message.Settings
		text string // as it stands in files that are out there
	}{
		{
			"the defaults", message.DefaultSettings(),
			`{"max_retries":3,"processing_timeout_ms":30000,"max_stalls":3,"require_receipt":false,"shards":1,` +
				`"backoff":{"initial_ms":2000,"factor":2,"max_ms":3600000,"schedule_ms":null,"jitter":"none"},` +
				`"succeeded_days":7,"dead_days":null}`,
		},
		{
			"a schedule", scheduled,
			`{"max_retries":3,"processing_timeout_ms":30000,"max_stalls":3,"require_receipt":true,"shards":64,` +
				`"backoff":{"initial_ms":100,"factor":1.5,"max_ms":60000,"schedule_ms":[100,3600000],"jitter":"full"},` +
				`"succeeded_days":7,"dead_days":0.01}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if text, err := stored.Encode(tt.set); err != nil || text != tt.text {
				t.Errorf("Encode = %s, %v, want %s", text, err, tt.text)
			}
			set, err := stored.Decode(tt.text)
			if diff := cmp.Diff(tt.set, set); diff != "" || err != nil {
				t.Errorf("Decode = %v (-want +got):\n%s", err, diff)
			}
		})
	}
	t.Run("what an older file lacks has its default", func(t *testing.T) {
		t.Parallel()
		want := message.DefaultSettings()
		want.MaxRetries = 9
		set, err := stored.Decode(`{"max_retries":9}`)
		if diff := cmp.Diff(want, set); diff != "" || err != nil {
			t.Errorf("Decode = %v (-want +got):\n%s", err, diff)
		}
	})
}
