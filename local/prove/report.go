package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/redrivehq/redrive/local/prove/history"
)

// results are the parts of a campaign that are done, in a file of one line each.
type results struct {
	*os.File

	mu       sync.Mutex
	outcomes []*outcome
}

func openResults(name string) (*results, error) {
	//nolint:gosec // in the folder that was asked for
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	r := &results{File: file}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		o := new(outcome)
		if err := json.Unmarshal(lines.Bytes(), o); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
		}
		r.outcomes = append(r.outcomes, o)
	}
	return r, lines.Err()
}

func (r *results) has(part int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.outcomes, func(o *outcome) bool { return o.Part == part })
}

func (r *results) add(o *outcome) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = append(r.outcomes, o)
	_, err = r.Write(append(line, '\n'))
	return err
}

// table is what came of the campaign on one store.
type table struct {
	store string
	parts []*outcome
}

func (t *table) violations() (n int) {
	for _, o := range t.parts {
		n += len(o.Violations) + o.Unfinished
	}
	return n
}

func (t *table) sum(of func(*outcome) int) (n int) {
	for _, o := range t.parts {
		n += of(o)
	}
	return n
}

func (t *table) count(kinds ...history.Kind) int {
	return t.sum(func(o *outcome) (n int) {
		for _, v := range o.Violations {
			if slices.Contains(kinds, v.Kind) {
				n++
			}
		}
		return n
	})
}

func (t *table) total(of func(*outcome) map[string]int) map[string]int {
	all := make(map[string]int)
	for _, o := range t.parts {
		for kind, n := range of(o) {
			all[kind] += n
		}
	}
	return all
}

func (t *table) faults() map[string]int {
	return t.total(func(o *outcome) map[string]int { return o.Faults })
}

// printed writes the tables, as Markdown that reads well as it is.
func printed(out io.Writer, seed uint64, tables []*table) error {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	row := func(name string, cell func(*table) string) {
		fmt.Fprintf(w, "| %s\t", name)
		for _, t := range tables {
			fmt.Fprintf(w, "| %s\t", cell(t))
		}
		fmt.Fprintln(w, "|")
	}
	number := func(name string, of func(*table) int) {
		row(name, func(t *table) string { return strconv.Itoa(of(t)) })
	}
	sum := func(name string, of func(*outcome) int) { number(name, func(t *table) int { return t.sum(of) }) }
	row("", func(t *table) string { return t.store })
	row("---", func(*table) string { return "---:" })
	row("seed", func(*table) string { return strconv.FormatUint(seed, 10) })
	sum("operations", func(o *outcome) int { return o.Operations })
	sum("messages", func(o *outcome) int { return o.Messages })
	sum("acknowledged", func(o *outcome) int { return o.Known })
	sum("outcome unknown", func(o *outcome) int { return o.Unknown })
	sum("claims that no answer names", func(o *outcome) int { return o.Unseen })
	number("lost", func(t *table) int { return t.count(history.Lost) })
	number("held twice", func(t *table) int { return t.count(history.HeldTwice) })
	number("counted twice", func(t *table) int { return t.count(history.CountedTwice) })
	sum("unfinished", func(o *outcome) int { return o.Unfinished })
	number("other violations", func(t *table) int {
		return t.count(history.Impossible, history.Undecided, history.Misanswered)
	})
	kinds := make(map[string]bool)
	for _, t := range tables {
		for kind := range t.faults() {
			kinds[kind] = true
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		number("fault: "+kind, func(t *table) int { return t.faults()[kind] })
	}
	number("places at which functions were killed", func(t *table) int {
		return len(t.total(func(o *outcome) map[string]int { return o.Deaths }))
	})
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range tables {
		for _, o := range t.parts {
			for _, v := range o.Violations {
				fmt.Fprintf(out, "%s, part %d: %s: %s: %s\n", t.store, o.Part, v.Kind, v.ID, v.Text)
			}
		}
	}
	return nil
}

// progress is a line that says how far the campaign has come.
type progress struct {
	out         io.Writer
	store       string
	began       time.Time
	total, done int // parts

	mu     sync.Mutex
	sum    int         // operations of finished parts
	counts map[int]int // of the others
	width  int         // of the line that stands there
}

func newProgress(out io.Writer, store string, total, done int) *progress {
	return &progress{out: out, store: store, began: time.Now(), total: total, done: done, counts: make(map[int]int)}
}

func (p *progress) show(part, operations int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[part] = operations
	p.line()
}

func (p *progress) finished(part, operations int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.counts, part)
	p.sum += operations
	p.done++
	p.line()
}

func (p *progress) line() {
	n := p.sum
	for _, count := range p.counts {
		n += count
	}
	took := time.Since(p.began)
	line := fmt.Sprintf("… %s: %d of %d parts, %d operations, %.0f a second, %v", p.store, p.done, p.total, n,
		float64(n)/took.Seconds(), took.Round(time.Second))
	width := utf8.RuneCountInString(line)
	fmt.Fprint(p.out, "\r", line, strings.Repeat(" ", max(p.width-width, 0)))
	p.width = width
}

func (p *progress) end() { fmt.Fprintln(p.out) }
