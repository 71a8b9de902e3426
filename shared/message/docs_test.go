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

func TestDocumentedSchedule(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Backoff")
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
