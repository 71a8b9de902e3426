package message_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redrivehq/redrive/shared/message"
)

const ms = time.Millisecond

// seconds returns a backoff without jitter.
func seconds(initial, factor, most float64) message.Backoff {
	return message.Backoff{
		Initial: duration(initial), Factor: factor, Max: duration(most), Jitter: message.JitterNone,
	}
}

func duration(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds*1000)) * ms
}

func TestBackoffDelay(t *testing.T) {
	t.Parallel()
	schedule := message.Backoff{
		Schedule: []time.Duration{5 * time.Second, 300 * time.Second, 100 * ms}, Jitter: message.JitterNone,
	}
	for _, tt := range []struct {
		name    string
		backoff message.Backoff
		want    []float64 // seconds after the first failure, the second, …
	}{
		{
			"the default doubles from 2 s to an hour", message.DefaultSettings().Backoff,
			[]float64{2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600},
		},
		{"S048 one second, at most 300", seconds(1, 2, 300), []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}},
		{"S048 ten seconds", seconds(10, 2, 300), []float64{10, 20, 40, 80, 160, 300}},
		{"S048 a tenth of a second", seconds(0.1, 2, 300), []float64{0.1, 0.2, 0.4, 0.8, 1.6}},
		{"S118 five tries are 15 s in all", seconds(1, 2, 300), []float64{1, 2, 4, 8}},
		{"a factor of one stays", seconds(7, 1, 3600), []float64{7, 7, 7, 7}},
		{"a factor of ten is clamped", seconds(1, 10, 500), []float64{1, 10, 100, 500, 500}},
		{"a broken factor is rounded to the millisecond", seconds(1, 1.1, 500), []float64{1, 1.1, 1.21, 1.331, 1.464, 1.611}},
		{"a beginning above the most is the most", seconds(10, 2, 4), []float64{4, 4}},
		{"a beginning at the most is the most", seconds(4, 2, 4), []float64{4, 4}},
		{"a schedule is followed, and its last entry repeats", schedule, []float64{5, 300, 0.1, 0.1, 0.1}},
		{"the least", seconds(0.1, 1, 0.1), []float64{0.1, 0.1}},
		{"the most", seconds(604_800, 10, 604_800), []float64{604_800, 604_800}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for i, want := range tt.want {
				if got := tt.backoff.Delay(i+1, 0.999); got != duration(want) {
					t.Errorf("Delay(%d) = %v, want %v", i+1, got, duration(want))
				}
			}
			for _, n := range []int{0, -1, math.MinInt} {
				if got := tt.backoff.Delay(n, 0); got != duration(tt.want[0]) {
					t.Errorf("Delay(%d) = %v, want that of the first failure, %v", n, got, duration(tt.want[0]))
				}
			}
		})
	}
}

func TestBackoffDelayOfManyFailures(t *testing.T) {
	t.Parallel()
	schedule := message.Backoff{Schedule: []time.Duration{time.Second, 300 * time.Second}, Jitter: message.JitterNone}
	for name, backoff := range map[string]message.Backoff{
		"S049 doubling": seconds(1, 2, 300), "S049 tenfold": seconds(604_800, 10, 300), "S049 schedule": schedule,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{34, 35, 36, 63, 64, 65, 66, 100, 1000, math.MaxInt32, math.MaxInt} {
				if got := backoff.Delay(n, 0); got != 300*time.Second {
					t.Errorf("Delay(%d) = %v, want %v", n, got, 300*time.Second)
				}
			}
		})
	}
}

func TestBackoffJitter(t *testing.T) {
	t.Parallel()
	plain := message.Backoff{Initial: 4 * time.Second, Factor: 2, Max: time.Hour}
	odd := message.Backoff{Initial: 101 * ms, Factor: 2, Max: time.Hour}
	tiny := message.Backoff{Initial: 1, Factor: 1, Max: 1} // S050: below what may be set
	for _, tt := range []struct {
		name    string
		backoff message.Backoff
		jitter  message.Jitter
		random  float64
		want    time.Duration
	}{
		{"none takes no notice of chance", plain, message.JitterNone, 0.5, 4 * time.Second},
		{"equal begins at one half", plain, message.JitterEqual, 0, 2 * time.Second},
		{"equal is half random", plain, message.JitterEqual, 0.5, 3 * time.Second},
		{"equal ends below the whole", plain, message.JitterEqual, 1 - 1e-16, 4*time.Second - ms},
		{"full begins at nothing", plain, message.JitterFull, 0, 0},
		{"full is all random", plain, message.JitterFull, 0.25, time.Second},
		{"full ends below the whole", plain, message.JitterFull, 1 - 1e-16, 4*time.Second - ms},
		{"half of an odd delay is whole milliseconds", odd, message.JitterEqual, 0, 50 * ms},
		{"S050 equal of a nanosecond is nothing", tiny, message.JitterEqual, 0.5, 0},
		{"S050 full of a nanosecond is nothing", tiny, message.JitterFull, 0.5, 0},
		{"S050 none of a nanosecond is nothing", tiny, message.JitterNone, 0.5, 0},
		{"S050 full of no delay is nothing", message.Backoff{Max: time.Hour, Factor: 2}, message.JitterFull, 0.5, 0},
		{"S050 equal of no delay is nothing", message.Backoff{Max: time.Hour, Factor: 2}, message.JitterEqual, 0.5, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.backoff.Jitter = tt.jitter
			// One below one is rounded down to the millisecond.
			if got := tt.backoff.Delay(1, tt.random); got != tt.want {
				t.Errorf("Delay(1, %v) = %v, want %v", tt.random, got, tt.want)
			}
		})
	}
}

func TestBackoffDelayProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := message.Backoff{
			Initial: time.Duration(rapid.Int64Range(100, 604_800_000).Draw(rt, "initial")) * ms,
			Factor:  rapid.Float64Range(1, 10).Draw(rt, "factor"),
			Max:     time.Duration(rapid.Int64Range(100, 604_800_000).Draw(rt, "max")) * ms,
			Jitter:  message.JitterNone,
		}
		if rapid.Bool().Draw(rt, "scheduled") {
			for _, millis := range rapid.SliceOfN(rapid.Int64Range(100, 604_800_000), 1, 20).Draw(rt, "schedule") {
				b.Schedule = append(b.Schedule, time.Duration(millis)*ms)
			}
		}
		n := rapid.OneOf(rapid.IntRange(1, 30), rapid.IntRange(1, math.MaxInt-1)).Draw(rt, "n")
		random := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(rt, "random")
		plain := b.Delay(n, random)
		if plain < 100*ms || plain > 604_800*time.Second || plain%ms != 0 {
			rt.Fatalf("%+v.Delay(%d) = %v, want whole milliseconds in the range of the settings", b, n, plain)
		}
		if next := b.Delay(n+1, random); b.Schedule == nil && next < plain {
			rt.Fatalf("%+v.Delay(%d) = %v, and %v before", b, n+1, next, plain)
		}
		for jitter, least := range map[message.Jitter]time.Duration{
			message.JitterEqual: plain/2 - ms, message.JitterFull: 0,
		} {
			b.Jitter = jitter
			if got := b.Delay(n, random); got < least || got > plain || got%ms != 0 {
				rt.Fatalf("%+v.Delay(%d, %v) = %v, want whole milliseconds from %v to %v",
					b, n, random, got, least, plain)
			}
		}
	})
}

func TestBackoffSpread(t *testing.T) {
	t.Parallel()
	b := message.Backoff{Initial: time.Second, Factor: 2, Max: 300 * time.Second}
	for jitter, least := range map[message.Jitter]time.Duration{
		message.JitterEqual: 2 * time.Second, message.JitterFull: 0,
	} {
		b.Jitter = jitter
		seen := make(map[time.Duration]bool)
		for i := range 1000 {
			got := b.Delay(3, float64(i)/1000)
			if got < least || got > 4*time.Second {
				t.Errorf("S060 jitter %s: Delay(3) = %v, want %v to 4s", jitter, got, least)
			}
			seen[got] = true
		}
		if len(seen) < 900 {
			t.Errorf("S060 jitter %s: %d different delays of 1000", jitter, len(seen))
		}
	}
}
