package load

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redrivehq/redrive/local/chart"
)

const usage = `bench loads a Redrive server and shows how long it takes to answer:

  go run ./local bench -url http://127.0.0.1:3000                  32 clients, each as fast as it is answered
  go run ./local bench -url http://127.0.0.1:3000 -rate 500        500 messages a second, whatever the answers

A token in REDRIVE_TOKEN is sent along. The flags:

`

// Main is the command. It reads the arguments, loads the server, shows what it
// measured, and returns the exit code: 1 if it could not, 2 for arguments that
// it does not know. Refusals of the server are a result like any other.
func Main(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o := Options{Token: getenv("REDRIVE_TOKEN"), Window: time.Second, Each: func(w Window) {
		fmt.Fprintf(stderr, "… %3.0f s: %d messages, p50 %s, p99 %s, %d errors\n",
			w.End.Seconds(), w.Count, millis(w.P50), millis(w.P99), w.Errors)
	}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.URL, "url", "", "the server's `URL`")
	flags.BoolVar(&o.AllowRemote, "allow-remote", false, "load a server that is not on this machine. Do so only with one"+
		" that is yours:\nfor others it is an attack, and on AWS each request costs money")
	flags.StringVar(&o.Queue, "queue", "bench", "its queue of this `name`; what waits there is claimed too")
	flags.IntVar(&o.Clients, "clients", 32, "so many rounds at once; with -rate, at most")
	flags.Float64Var(&o.Rate, "rate", 0, "so many `messages` come in a second, at random times (an open loop)")
	flags.Float64Var(&o.FailPercent, "fail", 0, "fail this `percentage` of what is claimed")
	flags.IntVar(&o.Payload, "payload", 100, "`bytes` of a payload")
	flags.IntVar(&o.Waiting, "waiting", 0, "enqueue so many `messages` first, which stay in the queue")
	flags.DurationVar(&o.Duration, "duration", 10*time.Second, "begin no round after this")
	flags.DurationVar(&o.Drain, "drain", time.Minute, "then wait so long for messages that come back later")
	svg := flags.String("svg", "", "draw the latency over time into this `file`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "bench: unknown argument %q; see -help\n", flags.Arg(0))
		return 2
	}
	report, err := Run(ctx, o)
	if err == nil {
		report.print(stdout)
		if *svg != "" {
			err = report.draw(*svg)
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

func (r *Report) print(to io.Writer) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "verb\tcount\trate/s\tp50\tp99\tp99.9\tmax\terrors\t")
	for v, t := range r.Tallies {
		if t.Count == 0 {
			fmt.Fprintf(table, "%v\t0\t-\t-\t-\t-\t-\t%s\t\n", Verb(v), byStatus(t.Errors))
			continue
		}
		fmt.Fprintf(table, "%v\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t\n", Verb(v), t.Count, r.Rate(Verb(v)),
			millis(t.P50), millis(t.P99), millis(t.P999), millis(t.Max), byStatus(t.Errors))
	}
	_ = table.Flush() // to a terminal
	fmt.Fprintf(to, "\n%d messages enqueued: %d succeeded (%d of them after the measurement), %d dead, %d left\n",
		r.Enqueued, r.Succeeded, r.Drained, r.Dead, r.Left)
	fmt.Fprintf(to, "%d claims found no message, %d messages could not be started\n", r.Empty, r.NotStarted)
}

// byStatus writes the counts as "503: 2, no answer: 1".
func byStatus(counts map[int]int64) string {
	var all []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		name := strconv.Itoa(status)
		if status == NoAnswer {
			name = "no answer"
		}
		all = append(all, fmt.Sprintf("%s: %d", name, counts[status]))
	}
	return cmp.Or(strings.Join(all, ", "), "-")
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// draw shows the windows. One in which no round ended is a gap.
func (r *Report) draw(file string) error {
	series := []chart.Series{{Name: "max"}, {Name: "p99"}, {Name: "p50"}}
	for _, w := range r.Windows {
		for i, d := range []time.Duration{w.Max, w.P99, w.P50} {
			at := [2]float64{w.End.Seconds(), float64(d) / float64(time.Millisecond)}
			series[i].Points = append(series[i].Points, at)
		}
	}
	return chart.Chart{
		Title: "From when a message was due until it had succeeded", X: chart.Axis{Label: "time (s)"},
		Y: chart.Axis{Label: "latency (ms)", Log: true}, Series: series,
	}.WriteFile(file)
}
