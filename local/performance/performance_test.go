package main

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/local/tables"
)

// empty is a document with all the places.
const empty = `# Speed
<!-- machine, by local/performance -->
<!-- end -->
Words.
<!-- clients, by local/performance -->
old
<!-- end -->
<!-- payload, by local/performance -->
<!-- end -->
<!-- waiting, by local/performance -->
<!-- end -->
<!-- costs, by local/performance -->
<!-- end -->
The end.
`

func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRun measures for so short that the figures mean nothing, but they are there.
func TestRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a process takes is read as Linux shows it")
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	path := write(t, empty)
	if err := run(t.Context(), plan{}.quick(), path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	for _, words := range []string{"# Speed\n", "\nWords.\n", "\nThe end.\n", "| compiler | go1", "not answered | 0 |"} {
		if !strings.Contains(doc, words) {
			t.Errorf("the document lacks %q", words)
		}
	}
	for _, row := range []string{"1", "8", "32", "128", "100 B", "1 KB", "10 KB", "100 KB", "100", "1,000"} {
		found := regexp.MustCompile(`(?m)^\| ` + row + ` \|(.*)\|$`).FindStringSubmatch(doc)
		if found == nil {
			t.Errorf("the document has no row %q", row)
			continue
		}
		first, _, _ := strings.Cut(found[1], "|")
		rate, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(first), ",", ""), 64)
		if err != nil || math.IsNaN(rate) || rate <= 0 {
			t.Errorf("the row %q has no rate: %q", row, found[1])
		}
	}
	if t.Failed() {
		t.Logf("the document:\n%s", doc)
	}
	for _, name := range []string{"clients", "payload", "waiting"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "performance", name+".svg")); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v, want nothing", left, err)
	}
}

func TestPlacesAreThoseThatAreFilled(t *testing.T) {
	t.Parallel()
	place := func(name string) string { return "<!-- " + name + ", by local/performance -->\n<!-- end -->\n" }
	for _, tt := range []struct{ name, text, want string }{
		{"all of them", empty, ""},
		{"others' places", empty + "<!-- soak -->\n<!-- end -->\n<!-- bench -->\n", ""},
		{"one that is unknown", empty + place("weather"), `"weather"`},
		{"one twice", empty + place("costs"), `"costs"`},
		{"one is missing", strings.Replace(empty, "<!-- waiting,", "<!-- waits,", 1), `"wait`},
		{"one without an end", strings.TrimSuffix(empty, "<!-- end -->\nThe end.\n"), `"costs"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := openDocument(write(t, tt.text))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("openDocument = %v, want an error with %q, or none", err, tt.want)
			}
		})
	}
}

func TestMedianAndSpread(t *testing.T) {
	t.Parallel()
	c := cell{"SQLite", 1, standard, 0}
	b := &bench{plan: plan{turns: 3}, results: map[cell][]result{c: {{rate: 30}, {rate: 10, refused: 2}, {rate: 20}}}}
	if got := b.shown(c, rate); got != "20" {
		t.Errorf("the median is %s, want 20", got)
	}
	if got := b.shown(cell{}, rate); got != "–" {
		t.Errorf("what was not measured is shown as %s", got)
	}
	for _, words := range []string{"up to 3.00", "not answered | 2 |"} {
		if got := b.conditions(); !strings.Contains(got, words) {
			t.Errorf("the conditions lack %q:\n%s", words, got)
		}
	}
}

func TestNumbersAsTheyAreShown(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		number(0.01234): "0.012", number(1.25): "1.2", number(99.6): "100", number(4_312): "4,300",
		number(1_234_567): "1,200,000", number(-0.5): "-0.5", number(0): "0",
		tables.Count(7): "7", tables.Count(1_000): "1,000", tables.Count(1_000_000): "1,000,000",
		tables.Size(100): "100 B", tables.Size(10 * kb): "10 KB",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
