package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/redrivehq/redrive/local/chart"
	"github.com/redrivehq/redrive/local/load"
)

// measure is something that is to stay as it is.
type measure struct {
	name, format string
	of           func(sample) float64
	least, most  float64 // that the ratio of last to first may be; most is zero if there is no goal
}

// The goals: flat is within a tenth.
const flatLeast, flatMost, slowerMost = 0.9, 1.1, 1.5

func measures() []measure {
	return []measure{
		{"memory", "%.1f MiB", func(s sample) float64 { return mebi(s.memory) }, flatLeast, flatMost},
		{"heap", "%.1f MiB", func(s sample) float64 { return mebi(s.heap) }, 0, 0},
		{"database and its log", "%.1f MiB", func(s sample) float64 { return mebi(s.files) }, flatLeast, flatMost},
		{"goroutines", "%.1f", func(s sample) float64 { return s.goroutines }, flatLeast, flatMost},
		{"p50", "%.2f ms", func(s sample) float64 { return millis(s.P50) }, 0, 0},
		{"p99", "%.2f ms", func(s sample) float64 { return millis(s.P99) }, 0, slowerMost},
	}
}

// compare prints the first part of the observed time beside the last, and
// reports whether the goals are met.
func compare(p plan, samples []sample, report *load.Report, to io.Writer) (ok bool, err error) {
	begin, end := p.warmUp+p.window/2, p.warmUp+p.duration+p.window/2 // a ticker may be late
	first, last := between(samples, begin, begin+p.part()), between(samples, end-p.part(), end)
	if len(first) == 0 || len(last) == 0 {
		return false, errors.New("it was not observed for long enough to compare")
	}
	ok = true
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\tfirst %v\tlast %v\tratio\tgoal\t\n", p.part(), p.part())
	for _, m := range measures() {
		before, after := median(first, m.of), median(last, m.of)
		ratio, goal := after/before, "-"
		if m.most > 0 {
			goal = fmt.Sprintf("%g to %g", m.least, m.most)
			if !(ratio >= m.least && ratio <= m.most) {
				ok, goal = false, goal+" MISSED"
			}
		}
		fmt.Fprintf(table, "%s\t"+m.format+"\t"+m.format+"\t%.3f\t%s\t\n", m.name, before, after, ratio, goal)
	}
	_ = table.Flush() // to a terminal
	var failed int64
	for _, t := range report.Tallies {
		for _, n := range t.Errors {
			failed += n
		}
	}
	fmt.Fprintf(to, "\n%d messages enqueued, %d succeeded; %d left, %d not started, %d errors: goal 0",
		report.Enqueued, report.Succeeded, report.Left, report.NotStarted, failed)
	if report.Enqueued != report.Succeeded || report.NotStarted > 0 || failed > 0 {
		ok = false
		fmt.Fprint(to, " MISSED")
	}
	fmt.Fprintln(to)
	return ok, nil
}

// between returns the samples of windows that ended in that time.
func between(samples []sample, begin, end time.Duration) []sample {
	var all []sample
	for _, s := range samples {
		if s.End > begin && s.End <= end {
			all = append(all, s)
		}
	}
	return all
}

// median keeps out what else the machine did at a time.
func median(samples []sample, of func(sample) float64) float64 {
	all := make([]float64, len(samples))
	for i, s := range samples {
		all[i] = of(s)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// draw makes a picture each of latency, sizes and goroutines.
func draw(samples []sample, prefix string) error {
	line := func(name string, of func(sample) float64) chart.Series {
		s := chart.Series{Name: name}
		for _, at := range samples {
			s.Points = append(s.Points, [2]float64{at.End.Minutes(), of(at)})
		}
		return s
	}
	minutes := chart.Axis{Label: "time (min)"}
	return errors.Join(
		chart.Chart{
			Title: "From when a message came until it had succeeded, at half the top rate", X: minutes,
			Y: chart.Axis{Label: "latency (ms)", Log: true},
			Series: []chart.Series{
				line("max", func(s sample) float64 { return millis(s.Max) }),
				line("p99", func(s sample) float64 { return millis(s.P99) }),
				line("p50", func(s sample) float64 { return millis(s.P50) }),
			},
		}.WriteFile(prefix+"latency.svg"),
		chart.Chart{
			Title: "What the server takes at half its top rate", X: minutes, Y: chart.Axis{Label: "size (MiB)"},
			Series: []chart.Series{
				line("database and log", func(s sample) float64 { return mebi(s.files) }),
				line("memory", func(s sample) float64 { return mebi(s.memory) }),
				line("heap", func(s sample) float64 { return mebi(s.heap) }),
			},
		}.WriteFile(prefix+"size.svg"),
		chart.Chart{
			Title: "Goroutines of the server", X: minutes, Y: chart.Axis{Label: "goroutines"},
			Series: []chart.Series{line("", func(s sample) float64 { return s.goroutines })},
		}.WriteFile(prefix+"goroutines.svg"),
	)
}
