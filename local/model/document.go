package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redrivehq/redrive/local/chart"
)

// document is a text with tables between marks, and pictures beside it.
type document struct {
	path, text string
}

func openDocument(path string) (*document, error) {
	text, err := os.ReadFile(path) //nolint:gosec // it is docs/cost.md
	return &document{path, string(text)}, err
}

func (d *document) save() error { return os.WriteFile(d.path, []byte(d.text), 0o600) }

// table is rows under a head.
type table struct {
	name string // of its place in the document
	rows [][]string
}

func newTable(name string, head ...string) *table {
	rule := []string{"---"}
	for range head[1:] {
		rule = append(rule, "---:")
	}
	return &table{name, [][]string{head, rule}}
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	var b strings.Builder
	for i, row := range t.rows {
		if i == 1 {
			fmt.Fprintf(&b, "|%s|\n", strings.Join(row, "|"))
			continue
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// replace prints the table, and puts it in its place.
func (d *document) replace(t *table) error {
	fmt.Printf("\n%s\n%s", t.name, t)
	before, _, after, ok := d.place(t.name)
	if !ok {
		return fmt.Errorf("%s has no place for the table %q", d.path, t.name)
	}
	d.text = before + t.String() + after
	return nil
}

// place returns what stands between the marks of that name, and around it.
func (d *document) place(name string) (before, old, after string, ok bool) {
	begin, end := "<!-- "+name+", by make model -->\n", "<!-- end -->\n"
	before, rest, found := strings.Cut(d.text, begin)
	old, after, ok = strings.Cut(rest, end)
	return before + begin, old, end + after, found && ok
}

// draw writes a picture of the document.
func (d *document) draw(name string, c chart.Chart) error {
	return c.WriteFile(filepath.Join(filepath.Dir(d.path), "cost", name+".svg"))
}

func money(dollars float64) string {
	whole, cents, _ := strings.Cut(fmt.Sprintf("%.2f", dollars), ".") // as docs/capacity.md rounds
	n, _ := strconv.Atoi(whole)                                       // it is a number
	return count(n) + "." + cents
}

// size writes a number of bytes.
func size(bytes int) string {
	if bytes < kb {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%d KB", bytes/kb)
}

// count writes a number with commas.
func count(n int) string {
	if n < 1_000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", count(n/1_000), n%1_000)
}
