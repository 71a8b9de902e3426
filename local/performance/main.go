// Performance measures the one-process server on both stores: how many messages
// a second go through it by clients, by payload and by how many others wait, and
// what processor time and memory they take. It writes the tables and pictures of
// docs/performance.md, from the root of the repository.
//
// Clients, server and engine share the machine: read the figures as ratios.
//
// It needs Linux, whose /proc shows what a process takes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redrivehq/redrive/local/prove/process"
	"github.com/redrivehq/redrive/shared/setup"
)

func main() {
	p := plan{
		turns: 3, warmUp: 500 * time.Millisecond, duration: 3 * time.Second,
		waiting: []int{1_000, 10_000, 100_000, 1_000_000},
	}
	flag.StringVar(&p.engine, "dynamodb", os.Getenv(setup.Endpoint), "measure on the DynamoDB engine at this `URL` too")
	flag.IntVar(&p.enginePID, "engine-pid", 0, "count the processor time of the engine, which has this `ID` of a process")
	quick := flag.Bool("quick", false, "take little time, to try the program: the figures mean nothing")
	flag.Parse()
	if *quick {
		p = p.quick()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, p, "docs/performance.md")
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "performance:", err)
		os.Exit(1)
	}
}

// plan says what is measured, and for how long.
type plan struct {
	turns     int           // of each cell; the median counts
	warmUp    time.Duration // before each
	duration  time.Duration
	waiting   []int // ascending
	engine    string
	enginePID int // 0 if it is not known
}

func (p plan) quick() plan {
	p.turns, p.warmUp, p.duration, p.waiting = 1, 100*time.Millisecond, 200*time.Millisecond, []int{100, 1_000}
	return p
}

// run carries out the plan, and fills in the document.
func run(ctx context.Context, p plan, document string) (err error) {
	d, err := openDocument(document)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "redrive-performance-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := machine(ctx, dir)
	if err != nil {
		return err
	}
	b := &bench{plan: p, results: make(map[cell][]result)}
	if b.binary, err = process.Build(ctx, dir); err != nil {
		return err
	}
	b.stores = []store{onSQLite(dir)}
	if p.engine != "" {
		b.stores = append(b.stores, onDynamoDB(dir, p.engine))
	}
	if err := b.measureAlone(ctx); err != nil {
		return err
	}
	if err := b.measureBacklogs(ctx); err != nil {
		return err
	}
	return d.fill(b, m)
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "… "+format+"\n", args...)
}
