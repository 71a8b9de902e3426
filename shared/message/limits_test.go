package message_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/redrivehq/redrive/shared/message"
)

func TestCutError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{"nothing", "", 5, ""},
		{"to nothing", "abc", 0, ""},
		{"below the limit", "abcd", 5, "abcd"},
		{"at the limit", "abcde", 5, "abcde"},
		{"above the limit", "abcdef", 5, "abcde"},
		{"a character at the limit", "abcé", 5, "abcé"},
		{"a character across the limit", "abcdé", 5, "abcd"},
		{"an emoji across the limit", "ab😀", 5, "ab"},
		{"an emoji at the limit", "a😀b", 5, "a😀"},
		{"a first character that is too long", "😀", 3, ""},
		{"a byte that is not UTF-8", "a\xffb", 5, "a\ufffdb"},
		{"a replacement across the limit", "abc\xff", 5, "abc"},
		{"a cut character at the end", "ab\xf0\x9f\x98", 9, "ab\ufffd"},
		{"a surrogate in UTF-8", "\xed\xa0\x80", 9, "\ufffd"},
		{"an overlong NUL", "\xc0\x80", 9, "\ufffd"},
		{"what is valid, however odd", "\x00\r\n\ufeff\ufffd\U0010ffff", 99, "\x00\r\n\ufeff\ufffd\U0010ffff"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := message.CutError(tt.text, tt.limit); got != tt.want {
				t.Errorf("CutError(%q, %d) = %q, want %q", tt.text, tt.limit, got, tt.want)
			}
		})
	}
}

func TestCutErrorProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "bytes"))
		if rapid.Bool().Draw(rt, "valid") {
			text = rapid.StringN(0, 200, 400).Draw(rt, "text")
		}
		limit := rapid.IntRange(0, 250).Draw(rt, "limit")
		got := message.CutError(text, limit)
		whole := strings.ToValidUTF8(text, "\ufffd")
		switch {
		case !utf8.ValidString(got), len(got) > limit, !strings.HasPrefix(whole, got):
			rt.Fatalf("CutError(%q, %d) = %q, want a valid beginning of %q", text, limit, got, whole)
		case len(whole) <= limit && got != whole, len(whole) > limit && len(got) < limit-utf8.UTFMax+1:
			rt.Fatalf("CutError(%q, %d) = %q, want more of %q", text, limit, got, whole)
		}
	})
}

// The size of a payload as JSON is seen in what is refused. The reference is the
// standard encoder, without its care for HTML.
func TestPayloadSizeAsJSON(t *testing.T) {
	t.Parallel()
	encoded := func(text string) int {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(text); err != nil {
			t.Fatal(err)
		}
		// It writes two separators as six bytes, which need not be.
		return b.Len() - len("\n") - 3*(strings.Count(text, "\u2028")+strings.Count(text, "\u2029"))
	}
	for _, odd := range []string{
		"a", "\x00", "\x01", "\b", "\t", "\n", "\v", "\f", "\r", "\x1f", " ", `"`, `\`, "/", "<", "\x7f", "\u0080", "é",
		"\u2028", "\u2029", "\ufffd", "😀",
	} {
		fill := (message.MaxPayloadJSONBytes - encoded("")) / (encoded(odd) - encoded(""))
		if fill*len(odd) < message.MaxPayloadBytes {
			text := strings.Repeat(odd, fill)
			text += strings.Repeat("a", message.MaxPayloadJSONBytes-encoded(text))
			wantEnqueue(t, odd, text, nil)
			wantEnqueue(t, odd, text+"a", message.ErrPayloadTooLarge)
		} else {
			wantEnqueue(t, odd, strings.Repeat(odd, message.MaxPayloadBytes/len(odd)), nil)
		}
	}
}

func wantEnqueue(t *testing.T, what, payload string, want error) {
	t.Helper()
	svc := newService(t)
	if _, _, err := svc.Enqueue(t.Context(), "q", message.Draft{Payload: payload}); !errors.Is(err, want) {
		t.Errorf("Enqueue(%d bytes of %q) = %v, want %v", len(payload), what, err, want)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 201)
	fault := func(field string, code message.Code, text string) []message.Fault {
		return []message.Fault{{Field: field, Code: code, Message: text}}
	}
	put := func(change func(*message.Settings)) []message.Fault {
		set := message.DefaultSettings()
		change(&set)
		return set.Faults()
	}
	for _, tt := range []struct {
		name      string
		got, want []message.Fault
	}{
		{"an empty draft", message.Draft{}.Faults(), nil},
		{"a draft at its least", message.Draft{MaxRetries: new(1), Delay: new(time.Duration(0))}.Faults(), nil},
		{"a draft at its most", message.Draft{MaxRetries: new(10), Delay: new(31_536_000 * time.Second)}.Faults(), nil},
		{
			"max_retries of 0", message.Draft{MaxRetries: new(0)}.Faults(),
			fault("max_retries", message.CodeInvalid, "max_retries must be between 1 and 10."),
		},
		{
			"max_retries of 11", message.Draft{MaxRetries: new(11)}.Faults(),
			fault("max_retries", message.CodeInvalid, "max_retries must be between 1 and 10."),
		},
		{
			"a negative delay", message.Draft{Delay: new(-ms)}.Faults(),
			fault("delay_seconds", message.CodeInvalid, "delay_seconds must be between 0 and 31536000 seconds."),
		},
		{
			"every fault of a draft", message.Draft{MaxRetries: new(11), Delay: new(31_536_001 * time.Second)}.Faults(),
			append(
				fault("max_retries", message.CodeInvalid, "max_retries must be between 1 and 10."),
				fault("delay_seconds", message.CodeInvalid, "delay_seconds must be between 0 and 31536000 seconds.")...),
		},
		{"an empty claim", message.ClaimOptions{}.Faults(), nil},
		{"a claim at its least", message.ClaimOptions{Max: new(1), Timeout: new(time.Second)}.Faults(), nil},
		{"a claim at its most", message.ClaimOptions{Max: new(10), Timeout: new(43_200 * time.Second)}.Faults(), nil},
		{
			"every fault of a claim", message.ClaimOptions{Max: new(11), Timeout: new(43_201 * time.Second)}.Faults(),
			append(
				fault("processing_timeout", message.CodeInvalid, "processing_timeout must be between 1 and 43200 seconds."),
				fault("max_messages", message.CodeInvalid, "max_messages must be between 1 and 10.")...),
		},
		{"a failure without a receipt", message.Failure{}.Faults(), nil},
		{
			"an empty receipt", message.Failure{Receipt: new("")}.Faults(),
			fault("receipt", message.CodeInvalid, "receipt must not be empty."),
		},
		{
			"a receipt of 201 characters", message.Failure{Receipt: &long}.Faults(),
			fault("receipt", message.CodeTooLong, "receipt must have at most 200 characters."),
		},
		{"a receipt of 200 characters", message.Failure{Receipt: new(long[2:])}.Faults(), nil},
		{
			"a delay at its most", message.Failure{RetryAfter: new(604_800 * time.Second)}.Faults(), nil,
		},
		{
			"a delay that is too long", message.Failure{RetryAfter: new(604_800*time.Second + ms)}.Faults(),
			fault("retry_after_seconds", message.CodeInvalid, "retry_after_seconds must be between 0 and 604800 seconds."),
		},
		{
			"a delay of a permanent failure", message.Failure{RetryAfter: new(time.Duration(0)), Permanent: true}.Faults(),
			fault("retry_after_seconds", message.CodeInvalid,
				"retry_after_seconds cannot be given for a permanent failure: it is not retried."),
		},
		{"no receipt", message.ReceiptFaults(nil), nil},
		{
			"an extension for too short a time", message.Extension{Timeout: new(time.Second - ms)}.Faults(),
			fault("processing_timeout", message.CodeInvalid, "processing_timeout must be between 1 and 43200 seconds."),
		},
		{
			"every fault of an extension", message.Extension{Receipt: new(""), Timeout: new(43_201 * time.Second)}.Faults(),
			append(
				fault("receipt", message.CodeInvalid, "receipt must not be empty."),
				fault("processing_timeout", message.CodeInvalid, "processing_timeout must be between 1 and 43200 seconds.")...),
		},
		{"the default settings", message.DefaultSettings().Faults(), nil},
		{"settings that do not say the shards", put(func(set *message.Settings) { set.Shards = nil }), nil},
		{
			"no shard", put(func(set *message.Settings) { set.Shards = new(0) }),
			fault("shards", message.CodeInvalid, "shards must be between 1 and 64."),
		},
		{
			"too many stalls", put(func(set *message.Settings) { set.MaxStalls = 101 }),
			fault("max_stalls", message.CodeInvalid, "max_stalls must be between 1 and 100."),
		},
		{
			"a retention that is too short", put(func(set *message.Settings) { set.SucceededDays = 0.0009 }),
			fault("succeeded_days", message.CodeInvalid, "succeeded_days must be between 0.001 and 365."),
		},
		{
			"a retention of the dead that is too long", put(func(set *message.Settings) { set.DeadDays = new(3650.1) }),
			fault("dead_days", message.CodeInvalid, "dead_days must be between 0.01 and 3650."),
		},
		{
			"every fault of a backoff", put(func(set *message.Settings) {
				set.Backoff = message.Backoff{Initial: 99 * ms, Factor: 10.1, Max: 604_801 * time.Second, Jitter: "some"}
			}),
			[]message.Fault{
				{
					Field: "backoff.initial_seconds", Code: message.CodeInvalid,
					Message: "backoff.initial_seconds must be between 0.1 and 604800 seconds.",
				},
				{
					Field: "backoff.factor", Code: message.CodeInvalid,
					Message: "backoff.factor must be between 1 and 10.",
				},
				{
					Field: "backoff.max_seconds", Code: message.CodeInvalid,
					Message: "backoff.max_seconds must be between 0.1 and 604800 seconds.",
				},
				{
					Field: "backoff.jitter", Code: message.CodeInvalid,
					Message: "backoff.jitter must be none, equal or full.",
				},
			},
		},
		{
			"S052 an empty schedule", put(func(set *message.Settings) {
				set.Backoff = message.Backoff{Schedule: []time.Duration{}, Jitter: message.JitterNone}
			}),
			fault("backoff.schedule_seconds", message.CodeInvalid,
				"backoff.schedule_seconds must have between 1 and 20 entries."),
		},
		{
			"S052 a schedule with a zero", put(func(set *message.Settings) {
				set.Backoff = message.Backoff{Schedule: []time.Duration{time.Second, 0}, Jitter: message.JitterNone}
			}),
			fault("backoff.schedule_seconds[1]", message.CodeInvalid,
				"backoff.schedule_seconds[1] must be between 0.1 and 604800 seconds."),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.got); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
}

// What a verb requires is a fault beside the others, and nothing reaches the
// store.
func TestRequiredReceipts(t *testing.T) {
	t.Parallel()
	required := message.Fault{Field: "receipt", Code: message.CodeRequired, Message: "receipt is required."}
	for _, tt := range []struct {
		name    string
		require bool // the queue's setting
		call    func(context.Context, *message.Service) error
		want    []message.Fault // nil: carried out
	}{
		{"release", false, func(ctx context.Context, svc *message.Service) error {
			_, err := svc.Release(ctx, "q", "m", nil)
			return err
		}, []message.Fault{required}},
		{"extend", false, func(ctx context.Context, svc *message.Service) error {
			_, err := svc.Extend(ctx, "q", "m", message.Extension{Timeout: new(ms)})
			return err
		}, []message.Fault{{
			Field: "processing_timeout", Code: message.CodeInvalid,
			Message: "processing_timeout must be between 1 and 43200 seconds.",
		}, required}},
		{"succeed", false, func(ctx context.Context, svc *message.Service) error {
			_, err := svc.Succeed(ctx, "q", "m", nil)
			return err
		}, nil},
		{"succeed where the queue requires it", true, func(ctx context.Context, svc *message.Service) error {
			_, err := svc.Succeed(ctx, "q", "m", nil)
			return err
		}, []message.Fault{required}},
		{"fail", false, func(ctx context.Context, svc *message.Service) error {
			_, err := svc.Fail(ctx, "q", "m", message.Failure{})
			return err
		}, nil},
		{"fail where the queue requires it", true, func(ctx context.Context, svc *message.Service) error {
			_, err := svc.Fail(ctx, "q", "m", message.Failure{RetryAfter: new(-ms)})
			return err
		}, []message.Fault{{
			Field: "retry_after_seconds", Code: message.CodeInvalid,
			Message: "retry_after_seconds must be between 0 and 604800 seconds.",
		}, required}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			svc := newService(t)
			store, _ := svc.Store.(*memory)
			set := message.DefaultSettings()
			set.RequireReceipt = tt.require
			store.settings["q"] = set
			err := tt.call(t.Context(), svc)
			if tt.want == nil {
				if err != nil || len(store.applied) != 1 {
					t.Errorf("%s = %v with %d changes, want one", tt.name, err, len(store.applied))
				}
				return
			}
			invalid, ok := errors.AsType[*message.ValidationError](err)
			if !ok || cmp.Diff(tt.want, invalid.Faults) != "" || len(store.applied) > 0 {
				t.Errorf("%s = %v with %d changes, want the faults %+v", tt.name, err, len(store.applied), tt.want)
			}
			if got, err := svc.RequiresReceipt(t.Context(), "q"); err != nil || got != tt.require {
				t.Errorf("RequiresReceipt = %v, %v, want %v", got, err, tt.require)
			}
		})
	}
}

func TestSettingsReplace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		was  int
		next *int
		want int // 0: refused
	}{
		{"shards not said stay", 8, nil, 8},
		{"shards may stay", 8, new(8), 8},
		{"shards may grow", 8, new(9), 9},
		{"shards may not shrink", 8, new(7), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			was, next := message.DefaultSettings(), message.DefaultSettings()
			was.Shards, next.Shards = &tt.was, tt.next
			was.MaxRetries, next.MaxRetries = 9, 7
			got, err := was.Replace(next)
			if tt.want == 0 {
				invalid, ok := errors.AsType[*message.ValidationError](err)
				want := []message.Fault{{
					Field: "shards", Code: message.CodeInvalid, Message: "shards only ever grows; this queue has 8.",
				}}
				if !ok || cmp.Diff(want, invalid.Faults) != "" {
					t.Errorf("Replace = %v, want %+v", err, want)
				}
				return
			}
			if err != nil || *got.Shards != tt.want || got.MaxRetries != 7 {
				t.Errorf("Replace = %+v, %v, want %d shards and the next settings", got, err, tt.want)
			}
		})
	}
}
