package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// subject is something that whole rounds are measured on.
type subject struct {
	name string
	// with sets it up, hands the operations on it to do, and takes it down.
	with func(ctx context.Context, total int, do func(operations) error) error

	rates []float64 // rounds a second
	cpu   []float64 // µs of this process for a request
}

// overHTTP makes a subject of something that serves while do runs.
func overHTTP(name string, serve func(ctx context.Context, do func(address string) error) error) *subject {
	return &subject{name: name, with: func(ctx context.Context, total int, do func(operations) error) error {
		return serve(ctx, func(address string) error { return do(throughHTTP(address, total)) })
	}}
}

// measure runs rounds of the subject, after some to warm up.
func (s *subject) measure(ctx context.Context, total int) error {
	err := s.with(ctx, total, func(ops operations) error {
		// Some wait always, as it is where there is much to do.
		if _, err := work(many, 2*many, ops.enqueue); err != nil {
			return err
		}
		if _, err := work(many, total/10, ops.round); err != nil {
			return err
		}
		began := cpuTime()
		rate, err := work(many, total, ops.round)
		s.rates = append(s.rates, rate)
		s.cpu = append(s.cpu, float64((cpuTime()-began)/time.Nanosecond)/1e3/float64(total*requests))
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// layers are the parts of the server, from the outside in: each subject has one
// more, and the last has the store alone.
func layers(dir string, log *slog.Logger) []*subject {
	file := func() string {
		f, _ := os.MkdirTemp(dir, "") // its error is that of the file in it
		return filepath.Join(f, "redrive.db")
	}
	return []*subject{
		overHTTP("client and sockets", socketOnly),
		overHTTP("+ net/http", func(ctx context.Context, do func(string) error) error {
			return serveHTTP(ctx, bare(), do)
		}),
		overHTTP("+ gateway", func(ctx context.Context, do func(string) error) error {
			return serveHTTP(ctx, emptyGateway(log), do)
		}),
		overHTTP("+ handlers", func(ctx context.Context, do func(string) error) error {
			return serveHTTP(ctx, handlers(log), do)
		}),
		overHTTP("+ SQLite: all", func(ctx context.Context, do func(string) error) error {
			return serveRedrive(ctx, server.Config{Data: file(), Log: log}, do)
		}),
		{name: "SQLite alone", with: func(ctx context.Context, total int, do func(operations) error) error {
			store, err := sqlite.Open(file())
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // a temporary file
			return do(onStore(ctx, store, total))
		}},
	}
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// compare measures the subjects in turns, so that what else the machine does meets
// all of them alike, and prints them beside the last, which bounds them.
func compare(ctx context.Context, title string, subjects []*subject, total, rounds int) error {
	for round := range rounds {
		for _, s := range subjects {
			progress("%s: round %d of %d, %d clients: %s", title, round+1, rounds, many, s.name)
			if err := s.measure(ctx, total); err != nil {
				return err
			}
		}
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "\n%s, %d clients\trounds/s\tCPU µs/request\tratio of rates\t\n", title, many)
	last := subjects[len(subjects)-1]
	for _, s := range subjects {
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = s.rates[i] / last.rates[i]
		}
		fmt.Fprintf(out, "%s\t%.0f\t%.1f\t%.2f\t\n", s.name, median(s.rates), median(s.cpu), median(ratios))
	}
	return out.Flush()
}
