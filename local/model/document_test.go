package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/local/tables"
)

func TestATableIsPutInItsPlace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "doc.md")
	const before, after = "Text.\n<!-- ages, by make model -->\n", "<!-- end -->\nMore.\n<!-- end -->\n"
	if err := os.WriteFile(path, []byte(before+"old\n"+after), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := openDocument(path)
	if err != nil {
		t.Fatal(err)
	}
	ages := newTable("ages", "name", "years")
	ages.add("Ada", "36")
	if err := d.replace(ages); err != nil {
		t.Fatal(err)
	}
	if err := d.save(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := before + "| name | years |\n|---|---:|\n| Ada | 36 |\n" + after; string(got) != want {
		t.Errorf("the document is\n%s\nwant\n%s", got, want)
	}
	if err := d.replace(newTable("heights", "name")); err == nil || !strings.Contains(err.Error(), `"heights"`) {
		t.Errorf("a table without a place: %v, want an error that names it", err)
	}
}

func TestNumbersAsTheyAreShown(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		tables.Count(7): "7", tables.Count(999): "999", tables.Count(1_000): "1,000", tables.Count(1_234_056): "1,234,056",
		money(0.006): "0.01", money(1.2): "1.20", money(3_373.688): "3,373.69", money(0.999): "1.00",
		tables.Size(100): "100 B", tables.Size(1_024): "1 KB", tables.Size(256 * kb): "256 KB",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
