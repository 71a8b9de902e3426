package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redrivehq/redrive/local/chart"

	"github.com/redrivehq/redrive/local/tables"
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

func newTable(name string, head ...string) *table { return &table{name, [][]string{head}} }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string { return tables.Headed(t.rows) }

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

// place returns what stands in the place of that name, and around it.
func (d *document) place(name string) (before, old, after string, ok bool) {
	return tables.Place(d.text, name, "make model")
}

// draw writes a picture of the document.
func (d *document) draw(name string, c chart.Chart) error {
	return c.WriteFile(filepath.Join(filepath.Dir(d.path), "cost", name+".svg"))
}

func money(dollars float64) string {
	whole, cents, _ := strings.Cut(fmt.Sprintf("%.2f", dollars), ".") // as docs/capacity.md rounds
	n, _ := strconv.Atoi(whole)                                       // it is a number
	return tables.Count(n) + "." + cents
}
