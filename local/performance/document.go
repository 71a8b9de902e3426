package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redrivehq/redrive/local/chart"

	"github.com/redrivehq/redrive/local/tables"
)

// document is a text with places for what is measured, and pictures beside it.
type document struct {
	path, text string
}

// parts are what has a place in the document, by name.
type parts map[string]string

// openDocument reads the document. It is an error if its places are others than
// those that will be filled: better now than after all is measured.
func openDocument(path string) (*document, error) {
	text, err := os.ReadFile(path) //nolint:gosec // it is docs/performance.md
	if err != nil {
		return nil, err
	}
	d := &document{path, string(text)}
	_, err = d.with(parts{"machine": "", "clients": "", "payload": "", "waiting": "", "costs": ""})
	return d, err
}

// with returns the text with each part in its place.
func (d *document) with(p parts) (text string, err error) {
	var (
		place  = regexp.MustCompile(`(?s)(<!-- (\S+), by local/performance -->\n).*?(<!-- end -->\n)`)
		filled = make(map[string]bool)
	)
	text = place.ReplaceAllStringFunc(d.text, func(old string) string {
		found := place.FindStringSubmatch(old)
		name := found[2]
		part, known := p[name]
		if !known || filled[name] {
			err = fmt.Errorf("%s has a place %q that is unknown, or there twice", d.path, name)
		}
		filled[name] = true
		return found[1] + part + found[3]
	})
	for name := range p {
		if !filled[name] {
			err = cmp.Or(err, fmt.Errorf("%s has no place for %q", d.path, name))
		}
	}
	return text, err
}

// fill writes the document and its pictures.
func (d *document) fill(b *bench, machine string) error {
	text, err := d.with(parts{
		"machine": machine + b.conditions(), "clients": b.clientsTable(), "payload": b.payloadTable(),
		"waiting": b.waitingTable(), "costs": b.costsTable(),
	})
	if err != nil {
		return err
	}
	folder := filepath.Join(filepath.Dir(d.path), "performance")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	for name, picture := range map[string]chart.Chart{
		"clients": b.clientsPicture(), "payload": b.payloadPicture(), "waiting": b.waitingPicture(),
	} {
		if err := picture.WriteFile(filepath.Join(folder, name+".svg")); err != nil {
			return err
		}
	}
	return os.WriteFile(d.path, []byte(text), 0o644) //nolint:gosec // a document is for everyone to read
}

// machine is rows about where and when it is measured. Files are in the folder.
func machine(ctx context.Context, dir string) (string, error) {
	system, err := exec.CommandContext(ctx, "df", "--output=fstype", dir).Output() //nolint:gosec // a folder of ours
	if err != nil {
		return "", err
	}
	about := map[string]string{}
	for name, path := range map[string]string{
		"cpu": "/proc/cpuinfo", "memory": "/proc/meminfo", "kernel": "/proc/sys/kernel/osrelease",
	} {
		text, err := os.ReadFile(path) //nolint:gosec // of the kernel
		if err != nil {
			return "", err
		}
		about[name] = string(text)
	}
	value := func(text, name string) string {
		_, rest, _ := strings.Cut(text, name)
		line, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(strings.TrimLeft(line, "\t :"))
	}
	kib, err := strconv.ParseInt(strings.TrimSuffix(value(about["memory"], "MemTotal"), " kB"), 10, 64)
	if err != nil {
		return "", err
	}
	kind := strings.Fields(string(system)) // below a head
	return tables.Rows([][]string{
		{"", ""},
		{"---", "---"},
		{"date", time.Now().UTC().Format(time.DateOnly)},
		{"processor", fmt.Sprintf("%s, %d cores", value(about["cpu"], "model name"), runtime.NumCPU())},
		{"memory", fmt.Sprintf("%.0f GiB", mebi(kib))},
		{"system", fmt.Sprintf("Linux %s, files on %s", strings.TrimSpace(about["kernel"]), kind[len(kind)-1])},
		{"compiler", runtime.Version()},
	}), nil
}

// conditions is more of these rows.
func (b *bench) conditions() string {
	var refused, turns int64
	var apart float64
	for _, results := range b.results {
		least, most := results[0].rate, results[0].rate
		for _, r := range results {
			turns, refused = turns+1, refused+r.refused
			least, most = min(least, r.rate), max(most, r.rate)
		}
		apart = max(apart, most/least)
	}
	return tables.Rows([][]string{
		{"a figure", fmt.Sprintf("the median of %d turns of %v, after %v that do not count", b.turns, b.duration, b.warmUp)},
		{"turns of one figure", fmt.Sprintf("apart by a factor of up to %.2f", apart)},
		{"requests refused, or not answered", tables.Count(int(refused))},
	})
}
