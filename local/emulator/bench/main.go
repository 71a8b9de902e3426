// Bench measures the functions as Lambda runs them: how long each takes to start
// beside one that does nothing, how large it is, and how much memory it takes.
//
// It needs AWS's Runtime Interface Emulator, and a DynamoDB engine at
// AWS_ENDPOINT_URL_DYNAMODB, on Linux.
package main

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/redrivehq/redrive/local/emulator"
	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/setup"
)

// empty is the program that does nothing.
const empty = "empty"

// The goals.
const (
	startRatio = 1.3 // of the empty function's start, or
	startMore  = 15 * time.Millisecond
	zipMost    = 8_000_000 // bytes
	peakMost   = 64 << 20  // bytes, of enqueue
)

func main() {
	rounds := flag.Int("rounds", 15, "start each function so often")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *rounds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is what the measurements share.
type bench struct {
	rie    string
	folder string // of the programs
	engine string
	table  string
	names  []string // of the functions
}

// result is what was measured of a function.
type result struct {
	init  []time.Duration // from the start of its process until it asks for an event
	first []time.Duration // until its first answer
	zip   int64
	peak  int64
}

func run(ctx context.Context, rounds int) (err error) {
	b := &bench{engine: os.Getenv(setup.Endpoint), table: "bench-" + rand.Text()}
	if b.engine == "" {
		return errors.New("AWS_ENDPOINT_URL_DYNAMODB is not set: start an engine with `dynoxide --port 8000`" +
			" or `make dynamodb-local`, then set it to http://127.0.0.1:8000")
	}
	if b.rie, err = emulator.Find(); err != nil {
		return err
	}
	if b.folder, err = os.MkdirTemp("", "redrive-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if err := emulator.Build(ctx, ".", b.folder, "./functions/...", "./local/emulator/bench/empty"); err != nil {
		return err
	}
	programs, err := os.ReadDir(b.folder)
	if err != nil {
		return err
	}
	client := dynamo.NewLocalClient(b.engine)
	if err := dynamo.CreateTable(ctx, client, b.table); err != nil {
		return err
	}
	defer func() {
		_, failed := client.DeleteTable(context.WithoutCancel(ctx), &dynamodb.DeleteTableInput{TableName: &b.table})
		err = errors.Join(err, failed)
	}()
	results := map[string]*result{}
	for _, p := range programs {
		results[p.Name()] = new(result)
		if p.Name() != empty {
			b.names = append(b.names, p.Name())
		}
	}
	if err := b.measureStarts(ctx, rounds, results); err != nil {
		return err
	}
	if err := b.measureMemory(ctx, results); err != nil {
		return err
	}
	for name, r := range results {
		if r.zip, err = zipped(filepath.Join(b.folder, name)); err != nil {
			return err
		}
	}
	b.print(results)
	return nil
}

func (b *bench) start(ctx context.Context, name string) (*emulator.Function, error) {
	f, err := emulator.Start(ctx, emulator.Config{
		Emulator: b.rie, Program: filepath.Join(b.folder, name), Env: []string{
			setup.Table + "=" + b.table, setup.Endpoint + "=" + b.engine,
			"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local",
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// measureStarts starts the programs in turn, so that whatever else the machine
// does meets all of them alike.
func (b *bench) measureStarts(ctx context.Context, rounds int, results map[string]*result) error {
	for range rounds {
		for name, r := range results {
			f, err := b.start(ctx, name)
			if err != nil {
				return err
			}
			began := time.Now()
			_, err = f.Invoke(ctx, []byte("{}")) // which no route takes: nothing else is measured
			took := time.Since(began)
			if err := errors.Join(err, f.Stop()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			inits := f.Inits()
			if len(inits) != 1 {
				return fmt.Errorf("%s was started %d times", name, len(inits))
			}
			r.init, r.first = append(r.init, inits[0]), append(r.first, took)
		}
	}
	return nil
}

// zipped returns the size of the archive in which a program is deployed.
func zipped(program string) (size int64, err error) {
	from, err := os.Open(program) //nolint:gosec // one that it has built
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	var n counter
	archive := zip.NewWriter(&n)
	to, err := archive.Create("bootstrap")
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(to, from); err != nil {
		return 0, err
	}
	err = archive.Close()
	return int64(n), err
}

// counter counts what is written.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

func (b *bench) print(results map[string]*result) {
	none := median(results[empty].init)
	var missed []string
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "function\tstart\tto empty\tmore\tfirst answer\tzip\tpeak memory\t")
	for _, name := range append([]string{empty}, b.names...) {
		r := results[name]
		start := median(r.init)
		ratio, more := float64(start)/float64(none), start-none
		fmt.Fprintf(table, "%s\t%.1f ms\t%.2f\t%+.1f ms\t%.1f ms\t%.2f MB\t%s\t\n", name,
			millis(start), ratio, millis(more), millis(median(r.first)), float64(r.zip)/1e6, mebibytes(r.peak))
		if ratio > startRatio && more > startMore {
			missed = append(missed, name+" takes too long to start")
		}
		if r.zip > zipMost {
			missed = append(missed, name+" is too large")
		}
	}
	if results["enqueue"].peak > peakMost {
		missed = append(missed, "enqueue takes too much memory")
	}
	_ = table.Flush() // to a terminal
	fmt.Printf("Goals: start %.1f times that of the empty function, or %v more; zip %d MB; enqueue %d MiB.\n",
		startRatio, startMore, zipMost/1_000_000, peakMost>>20)
	for _, goal := range missed {
		fmt.Println("Missed:", goal)
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mebibytes(n int64) string {
	return cmp.Or(map[bool]string{true: "-"}[n == 0], fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)))
}
