// Package tables writes tables and figures as the documents show them, and finds
// the places of tables between what is written by hand. It knows nothing of what
// is in them.
package tables

import (
	"fmt"
	"strconv"
	"strings"
)

// Headed is a table in Markdown. Its first row is its head, its first column is
// text, and the others are figures.
func Headed(table [][]string) string {
	rule := "|---" + strings.Repeat("|---:", len(table[0])-1) + "|\n"
	return Rows(table[:1]) + rule + Rows(table[1:])
}

// Rows are lines of a table.
func Rows(table [][]string) string {
	var b strings.Builder
	for _, row := range table {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// Place returns what stands in a document between the marks of that name, and
// with them before and after it. It reports false if there are no such marks.
func Place(text, name, program string) (before, old, after string, ok bool) {
	begin, end := "<!-- "+name+", by "+program+" -->\n", "<!-- end -->\n"
	before, rest, found := strings.Cut(text, begin)
	old, after, ended := strings.Cut(rest, end)
	return before + begin, old, end + after, found && ended
}

// Count writes a number with commas.
func Count(n int) string {
	if n < 1_000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", Count(n/1_000), n%1_000)
}

// Size writes a number of bytes.
func Size(bytes int) string {
	const kb = 1_024
	if bytes < kb {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%d KB", bytes/kb)
}
