package stored_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/stored"
)

// FuzzDecode reads any text as settings: it is refused, or gives settings that a
// queue may have, and that come back from being written. A store relies on them:
// with no shards it would divide by zero.
func FuzzDecode(f *testing.F) {
	text, err := stored.Encode(message.DefaultSettings())
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		text, "", "null", "{}", "[]", `{"max_retries":9}`, `{"max_retries":1e0}`, `{"max_retries":"9"}`,
		`{"shards":0}`, `{"shards":1000000000}`, `{"dead_days":0}`, `{"processing_timeout_ms":9223372036854775807}`,
		`{"processing_timeout_ms":92233754775807}`, // in nanoseconds it would begin again at nine hours
		`{"shards":64,"dead_days":0.01,"backoff":{"schedule_ms":[100,3600000],"jitter":"full"}}`,
		`{"backoff":{"schedule_ms":[],"initial_ms":100,"factor":1.5,"max_ms":604800000,"jitter":"equal"}}`,
		`{"Max_Retries":2,"unknown":{"a":[1]}}`, `{"backoff":null,"dead_days":null}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := stored.Decode(text)
		if err != nil {
			return
		}
		if faults := set.Faults(); len(faults) > 0 || set.Shards == nil {
			t.Fatalf("Decode(%q) = %+v, which no queue may have: %+v", text, set, faults)
		}
		written, err := stored.Encode(set)
		if err != nil {
			t.Fatalf("Encode(%+v) = %v", set, err)
		}
		again, err := stored.Decode(written)
		if diff := cmp.Diff(set, again); diff != "" || err != nil {
			t.Errorf("Decode(%q) is written as %s and comes back (%v) as (-want +got):\n%s", text, written, err, diff)
		}
	})
}
