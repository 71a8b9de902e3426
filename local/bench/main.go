// Bench measures Redrive side by side with what bounds it, in one run on one
// machine: the same operations through HTTP and on the store directly, beside a
// bare HTTP handler that reads and answers as many bytes. Read its figures as
// ratios: a rate alone says more about the machine.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/shared/sqlite"
)

func main() {
	n := flag.Int("n", 20_000, "operations a measurement with many clients; one with a single client does an eighth")
	rounds := flag.Int("rounds", 3, "measure so often, and show the median")
	waiting := flag.String("waiting", "1000,100000,1000000", "claim with so many messages waiting")
	flag.Parse()
	if err := run(context.Background(), *n, *rounds, *waiting); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, n, rounds int, waiting string) error {
	dir, err := os.MkdirTemp("", "redrive-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	rates := make(map[string][]float64)
	for round := range rounds {
		for _, clients := range []int{1, 32} {
			total := n
			if clients == 1 {
				total = n / 8
			}
			progress("round %d of %d, %d clients, %d operations each", round+1, rounds, clients, total)
			file := filepath.Join(dir, fmt.Sprintf("%d-%d", round, clients))
			if err := measure(ctx, file, clients, total, rates); err != nil {
				return err
			}
		}
	}
	report(rates)
	return claimDepth(ctx, dir, waiting)
}

// measure runs the three kinds of load one after the other and notes their rates.
func measure(ctx context.Context, file string, clients, total int, rates map[string][]float64) error {
	note := func(kind string) func(operation string, rate float64) {
		return func(operation string, rate float64) {
			key := fmt.Sprintf("%s %s %d", kind, operation, clients)
			rates[key] = append(rates[key], rate)
		}
	}
	if err := bare(ctx, clients, total, note("bare")); err != nil {
		return fmt.Errorf("bare handler: %w", err)
	}
	store, err := sqlite.Open(file + "-store.db")
	if err != nil {
		return err
	}
	if err := onStore(ctx, store, clients, total, note("store")); err != nil {
		return fmt.Errorf("on the store: %w", err)
	}
	if err := store.Close(); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close() //nolint:errcheck // nothing was written
	return serving(ctx, server.Config{
		Addr: "127.0.0.1:0", Data: file + "-http.db", Log: slog.New(slog.NewTextHandler(null, nil)),
	}, func(url string) error { return throughHTTP(ctx, url, clients, total, note("http")) })
}

// serving runs the server while do runs.
func serving(ctx context.Context, cfg server.Config, do func(url string) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ready, ended := make(chan string, 1), make(chan error, 1)
	cfg.Ready = func(url string) { ready <- url }
	go func() { ended <- server.Run(ctx, cfg) }()
	select {
	case err := <-ended:
		return err
	case url := <-ready:
		err := do(url)
		stop()
		return cmp.Or(err, <-ended)
	}
}

// bare measures a handler that does nothing but read and answer.
func bare(ctx context.Context, clients, total int, note func(string, float64)) error {
	answer := make([]byte, 1_000) // about what an enqueue answers
	for i := range answer {
		answer[i] = 'a'
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			if err == nil {
				_, _ = w.Write(answer)
			}
		})}
	go srv.Serve(listener) //nolint:errcheck // it ends with Close
	defer srv.Close()      //nolint:errcheck // as above
	c := newClient("http://" + listener.Addr().String())
	rate, err := load(clients, total, func(int) error {
		_, err := c.post(ctx, "/", enqueueBody)
		return err
	})
	note("request", rate)
	return err
}

func report(rates map[string][]float64) {
	median := func(kind, operation string, clients int) float64 {
		all := slices.Sorted(slices.Values(rates[fmt.Sprintf("%s %s %d", kind, operation, clients)]))
		return all[len(all)/2]
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "clients\toperation\tHTTP/s\tstore/s\tbare/s\tHTTP:store\tHTTP:bare\t")
	for _, clients := range []int{1, 32} {
		bare := median("bare", "request", clients)
		for _, operation := range []string{"enqueue", "claim", "succeed", "round"} {
			through, direct := median("http", operation, clients), median("store", operation, clients)
			requests := 1.0
			if operation == "round" {
				requests = 3
			}
			fmt.Fprintf(out, "%d\t%s\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t\n", clients, operation,
				through, direct, bare, through/direct, through*requests/bare)
		}
	}
	_ = out.Flush() // to standard output
	fmt.Printf("\nstore, durable inserts: 32 goroutines together %.1f times one alone\n",
		median("store", "enqueue", 32)/median("store", "enqueue", 1))
	fmt.Println("(a round is enqueue, claim, succeed: three requests; HTTP:bare counts requests)")
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "… "+format+"\n", args...)
}
