// Bench measures Redrive side by side with what bounds it, in one run on one
// machine: the same operations through HTTP and on the store directly, each layer
// of the server by itself, and on a DynamoDB engine whole rounds beside the same
// calls made by AWS's SDK alone. Read its figures as ratios: a rate alone says
// more about the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"text/tabwriter"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/setup"
	"github.com/redrivehq/redrive/shared/sqlite"
)

func main() {
	n := flag.Int("n", 20_000, "operations a measurement with many clients; one with a single client does an eighth")
	rounds := flag.Int("rounds", 3, "measure so often, and show the median")
	waiting := flag.String("waiting", "1000,100000,1000000", "claim with so many messages waiting")
	engine := flag.String("dynamodb", os.Getenv(setup.Endpoint), "measure the DynamoDB engine at this `URL` too")
	flag.Parse()
	if err := run(context.Background(), *n, *rounds, *waiting, *engine); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// many is how many clients there are at once, where there are many.
const many = 32

func run(ctx context.Context, n, rounds int, waiting, engine string) error {
	dir, err := os.MkdirTemp("", "redrive-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	// Logs are written, to nowhere: that is a part of what a request costs.
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close() //nolint:errcheck // nothing was written
	log := slog.New(slog.NewTextHandler(null, nil))
	debug.SetGCPercent(400) // as the server does for itself, and so for all that it is compared with
	if err := compare(ctx, "SQLite", layers(dir, log), n, rounds); err != nil {
		return err
	}
	if engine != "" {
		const slower = 4 // a round on an engine than one on SQLite
		if err := compare(ctx, "DynamoDB", onDynamoDB(engine, log), n/slower, rounds); err != nil {
			return err
		}
	}
	if err := eachOperation(ctx, dir, log, n, rounds); err != nil {
		return err
	}
	return claimDepth(ctx, dir, waiting)
}

// eachOperation measures the operations one by one, through HTTP and on the store.
func eachOperation(ctx context.Context, dir string, log *slog.Logger, n, rounds int) error {
	const alone = 8 // as slow is a lone client
	rates := make(map[string][]float64)
	for round := range rounds {
		for clients, total := range map[int]int{1: n / alone, many: n} {
			progress("each operation: round %d of %d, %d clients", round+1, rounds, clients)
			file := filepath.Join(dir, fmt.Sprintf("%d-%d", round, clients))
			if err := bothWays(ctx, file, log, clients, total, rates); err != nil {
				return err
			}
		}
	}
	return report(rates)
}

func bothWays(
	ctx context.Context, file string, log *slog.Logger, clients, total int, rates map[string][]float64,
) error {
	note := func(kind string) func(operation string, rate float64) {
		return func(operation string, rate float64) {
			key := fmt.Sprintf("%s %s %d", kind, operation, clients)
			rates[key] = append(rates[key], rate)
		}
	}
	store, err := sqlite.Open(file + "-store.db")
	if err != nil {
		return err
	}
	err = phases(clients, total, onStore(ctx, store, total), note("store"))
	if err := errors.Join(err, store.Close()); err != nil {
		return fmt.Errorf("on the store: %w", err)
	}
	err = serveRedrive(ctx, server.Config{Data: file + "-http.db", Log: log}, func(address string) error {
		return phases(clients, total, throughHTTP(address, total), note("http"))
	})
	if err != nil {
		return fmt.Errorf("through HTTP: %w", err)
	}
	return nil
}

func report(rates map[string][]float64) error {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	rate := func(kind, operation string, clients int) float64 {
		return median(rates[fmt.Sprintf("%s %s %d", kind, operation, clients)])
	}
	fmt.Fprintln(out, "\nclients\toperation\tHTTP/s\tstore/s\tHTTP:store\t")
	for _, clients := range []int{1, many} {
		for _, operation := range []string{"enqueue", "claim", "succeed", "round"} {
			through, direct := rate("http", operation, clients), rate("store", operation, clients)
			fmt.Fprintf(out, "%d\t%s\t%.0f\t%.0f\t%.2f\t\n", clients, operation, through, direct, through/direct)
		}
	}
	fmt.Fprintf(out, "\nstore, durable inserts: %d goroutines together %.1f times one alone\n", many,
		rate("store", "enqueue", many)/rate("store", "enqueue", 1))
	return out.Flush()
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "… "+format+"\n", args...)
}
