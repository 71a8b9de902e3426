package message_test

import (
	"context"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redrivehq/redrive/shared/message"
)

// FuzzBackoff computes delays for any setting that a queue may have, and any
// count: none is negative, longer than the most, or a part of a millisecond, and
// jitter never makes one longer.
func FuzzBackoff(f *testing.F) {
	for _, n := range []int{1, 2, 12, math.MaxInt, 0, math.MinInt} { // S048, S052
		f.Add(int64(2_000), 2.0, int64(3_600_000), n, 0.5, false)
	}
	f.Add(int64(100), 1.1, int64(604_800_000), 3, math.Nextafter(1, 0), false)
	f.Add(int64(604_800_000), 10.0, int64(100), 3, 0.0, false)
	f.Add(int64(5_000), 1.0, int64(300_000), 2, 0.999, true)
	f.Fuzz(func(t *testing.T, initial int64, factor float64, most int64, n int, random float64, scheduled bool) {
		const largest = int64(math.MaxInt64 / ms) // that a duration can hold
		if initial < -largest || initial > largest || most < -largest || most > largest || random < 0 || random >= 1 {
			return
		}
		b := message.Backoff{
			Initial: time.Duration(initial) * ms, Factor: factor, Max: time.Duration(most) * ms, Jitter: message.JitterNone,
		}
		limit := b.Max
		if scheduled {
			b.Schedule = []time.Duration{b.Initial, b.Max}
			limit = max(b.Initial, b.Max)
		}
		set := message.DefaultSettings()
		if set.Backoff = b; len(set.Faults()) > 0 {
			return
		}
		plain := b.Delay(n, random)
		if plain < 100*ms && !scheduled && initial >= 100 && most >= 100 {
			t.Errorf("%+v: Delay(%d) = %v, which is shorter than any that can be set", b, n, plain)
		}
		if n > 0 && n < math.MaxInt && !scheduled && b.Delay(n+1, random) < plain {
			t.Errorf("%+v: Delay(%d) = %v, longer than the next, %v", b, n, plain, b.Delay(n+1, random))
		}
		for _, b.Jitter = range []message.Jitter{message.JitterNone, message.JitterEqual, message.JitterFull} {
			d := b.Delay(n, random)
			if d < 0 || d > limit || d > plain || d%ms != 0 {
				t.Errorf("%+v: Delay(%d, %v) = %v, want whole milliseconds up to %v", b, n, random, d, plain)
			}
			if b.Jitter == message.JitterEqual && d < plain/2-ms {
				t.Errorf("%+v: Delay(%d, %v) = %v, less than half of %v", b, n, random, d, plain)
			}
		}
	})
}

// FuzzCutError shortens any text: the result is UTF-8, not too long, and as much
// of the text as fits, with nothing changed but what was not UTF-8.
func FuzzCutError(f *testing.F) {
	for _, text := range []string{
		"", "550 no such mailbox", "a\xff\xfeb", "\xf0\x9f\x98", strings.Repeat("é", 101), strings.Repeat("😀", 51) + "x",
		"\xed\xa0\x80", "\x00\ufffd",
	} {
		f.Add(text, message.ShortErrorBytes)
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 0 {
			return
		}
		whole := strings.ToValidUTF8(text, "\ufffd")
		got := message.CutError(text, limit)
		if !utf8.ValidString(got) || len(got) > limit || !strings.HasPrefix(whole, got) {
			t.Fatalf("CutError(%q, %d) = %q", text, limit, got)
		}
		if _, next := utf8.DecodeRuneInString(whole[len(got):]); next > 0 && len(got)+next <= limit {
			t.Errorf("CutError(%q, %d) = %q, though one more character fits", text, limit, got)
		}
		if again := message.CutError(got, limit); again != got {
			t.Errorf("CutError of %q = %q", got, again)
		}
	})
}

// FuzzIDs derives an identifier from any queue and key, and asks of any text
// whether it is one.
func FuzzIDs(f *testing.F) {
	pattern := regexp.MustCompile(`\Amsg_[0-9A-HJKMNP-TV-Z]{26}\z`)
	for _, text := range []string{
		"msg_01KB9Z0000000000000000000A", "msg_01KB9Z000000000000000000A", "msg_01kb9z0000000000000000000a",
		"MSG_01KB9Z0000000000000000000A", "msg_01KB9Z0000000000000000000I", "msg_01KB9Z0000000000000000000A\n", "",
	} {
		f.Add(text, "key")
	}
	f.Fuzz(func(t *testing.T, text, key string) {
		if got, want := message.IsID(text), pattern.MatchString(text); got != want {
			t.Errorf("IsID(%q) = %t, want %t", text, got, want)
		}
		if key == "" {
			return
		}
		id := keyed(t, text, key).ID
		if !message.IsID(id) {
			t.Errorf("queue %q, key %q: the id is %q", text, key, id)
		}
		if other := keyed(t, text, key+"x").ID; other == id {
			t.Errorf("queue %q: the keys %q and %q have one id", text, key, key+"x")
		}
	})
}

// accepting is a store that takes every message.
type accepting struct {
	message.Store
	message.QueueStore
}

func (accepting) Enqueue(_ context.Context, m message.Message) (message.Message, bool, error) {
	return m, true, nil
}

func (accepting) Queue(context.Context, string) (message.Queue, error) {
	return message.Queue{}, message.ErrQueueNotFound
}

func keyed(t *testing.T, queue, key string) message.Message {
	t.Helper()
	svc := message.Service{
		Store: accepting{}, Queues: accepting{}, Random: func(b []byte) { clear(b) },
		Now: func() time.Time { return time.UnixMilli(0) },
	}
	m, _, err := svc.Enqueue(t.Context(), queue, message.Draft{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
