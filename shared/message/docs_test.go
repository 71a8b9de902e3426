package message_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

func readPage(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestDocumentedSchedule(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(readPage(t, "docs/api.md"), "### Backoff")
	row := func(name string) []int {
		var numbers []int
		line := regexp.MustCompile(`(?m)^\| ` + name + ` \|(.*)$`).FindStringSubmatch(section)
		if line == nil {
			t.Fatalf("docs/api.md has no row %q under Backoff", name)
		}
		for cell := range strings.SplitSeq(strings.Trim(line[1], " |"), "|") {
			n, err := strconv.Atoi(strings.TrimSpace(cell))
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, n)
		}
		return numbers
	}
	t.Run("S118 the documented schedule is the one in the code", func(t *testing.T) {
		t.Parallel()
		set := message.DefaultSettings()
		failures, delays := row("n"), row("seconds")
		if len(failures) < 10 || len(failures) != len(delays) {
			t.Fatalf("the table has %d failures and %d delays", len(failures), len(delays))
		}
		for i, n := range failures {
			want := time.Duration(delays[i]) * time.Second
			if got := set.Backoff.Delay(n, 0); got != want {
				t.Errorf("Delay(%d) = %v, docs/api.md says %v", n, got, want)
			}
		}
		if set.MaxRetries != 3 || set.Backoff.Delay(1, 0)+set.Backoff.Delay(2, 0) != 6*time.Second {
			t.Error("docs/api.md says that a message is tried at 0, 2 and 6 seconds, and then dead")
		}
	})
}

// The numbers that people read are those of the code.
func TestDocumentedLimits(t *testing.T) {
	t.Parallel()
	grouped := func(n int) string { // 262144 as 262,144
		text := strconv.Itoa(n)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	}
	to := func(least string, most int) string { return least + "–" + grouped(most) }
	seconds := func(d time.Duration) int { return int(d / time.Second) }
	set := message.DefaultSettings()
	defaults := func(n int) string { return "| " + strconv.Itoa(n) + " | " }
	for _, tt := range []struct{ page, says string }{
		{"docs/api.md", "at most " + grouped(message.MaxPayloadBytes) + " bytes of UTF-8, and " +
			grouped(message.MaxPayloadJSONBytes) + " bytes as JSON text"},
		{"docs/problems.md", "more than " + grouped(message.MaxPayloadBytes) + " bytes of UTF-8 or " +
			grouped(message.MaxPayloadJSONBytes) + " bytes as JSON text"},
		{"docs/api.md", "| `delay_seconds` | " + to("0", seconds(message.MaxDelay)) + " |"},
		{"docs/api.md", "| `max_retries` | " + to("1", message.MaxRetries) + " |"},
		{"docs/api.md", "| `processing_timeout` | " + to("1", seconds(message.MaxTimeout)) + " |"},
		{"docs/api.md", "| `max_messages` | " + to("1", message.MaxClaim) + " |"},
		{"docs/api.md", "`retry_after_seconds` " + to("0", seconds(message.MaxRetryAfter))},
		{"docs/api.md", "kept to " + grouped(message.MaxErrorBytes) + " bytes"},
		{"docs/api.md", "cut to " + grouped(message.ShortErrorBytes) + " bytes"},
		{"docs/api.md", "| `limit` | " + to("1", message.MaxListLimit) + " (50)"},
		{"docs/api.md", "at most " + grouped(message.MaxReceiptLength) + " characters"},
		{"docs/api.md", "counted to " + grouped(message.CountLimit) + " each"},
		{"docs/api.md", "newest " + grouped(message.HistorySize) + " hand-outs and " +
			grouped(seconds(message.HistoryAge)/86_400) + " days"},
		{"docs/api.md", "at most " + grouped(seconds(message.MaxHold)/3_600) + " hours after the claim"},
		{"docs/api.md", "about " + grouped(seconds(message.SweepGrace)) + " seconds after its end"},
		{"docs/api.md", "| `max_retries` " + defaults(set.MaxRetries) + to("1", message.MaxRetries)},
		{"docs/api.md", "| `max_stalls` " + defaults(set.MaxStalls) + to("1", message.MaxStalls)},
		{"docs/api.md", "| `processing_timeout` " + defaults(seconds(set.ProcessingTimeout)) +
			to("1", seconds(message.MaxTimeout))},
		{"docs/api.md", "| `succeeded_days` " + defaults(int(set.SucceededDays))},
		{"docs/api.md", "| `shards` " + defaults(*set.Shards) + to("1", message.MaxShards)},
		{"docs/api.md", "with 1–" + grouped(message.MaxSchedule) + " delays"},
		{"README.md", "tried " + strconv.Itoa(set.MaxRetries) + " times, " +
			strconv.Itoa(seconds(set.Backoff.Delay(1, 0))) + " and " + strconv.Itoa(seconds(set.Backoff.Delay(2, 0))) +
			" seconds apart, and a\nlease lasts " + strconv.Itoa(seconds(set.ProcessingTimeout)) + " seconds"},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(readPage(t, tt.page), tt.says) {
				t.Errorf("%s does not say %q", tt.page, tt.says)
			}
		})
	}
}
