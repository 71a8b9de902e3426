// Soak runs a server for an hour at half of what it can do, and compares the
// last ten minutes with the first: what a server leaks, or what becomes slower
// as it is used, shows. Messages are kept for a minute and a half after they have
// succeeded, so that what it holds is soon always the same.
//
// It needs Linux, whose /proc shows how much memory the server takes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redrivehq/redrive/local/load"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == serveArgument {
		signal.Ignore(os.Interrupt) // it ends when its parent has
		if err := serve(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "soak: server:", err)
			os.Exit(1)
		}
		return
	}
	p := plan{burst: 20 * time.Second, warmUp: 2 * time.Minute, window: 10 * time.Second}
	flag.DurationVar(&p.duration, "duration", time.Hour, "observe the server for so long")
	svg := flag.String("svg", "", "draw pictures into files with this `prefix`, such as docs/img/soak-")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, p, *svg, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// plan says how long each part takes.
type plan struct {
	burst    time.Duration // to find the top rate
	warmUp   time.Duration // at half of that, until as much is removed as comes in
	duration time.Duration // what is observed
	window   time.Duration // between two samples
}

// part is how long the beginning and the end are that are compared.
func (p plan) part() time.Duration { return min(10*time.Minute, p.duration/6) }

const (
	queue   = "soak"
	payload = 1_000                      // bytes
	kept    = `{"succeeded_days":0.001}` // 86.4 s, the shortest there is
	// clients is enough for the top rate. The open loop may have twice as many, so
	// that a short stall does not make messages wait for a client.
	clients = 32
)

// run carries out the plan, and reports whether all goals are met.
func run(ctx context.Context, p plan, svg string, stdout, stderr io.Writer) (ok bool, err error) {
	folder, err := os.MkdirTemp("", "redrive-soak-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	c, err := start(context.WithoutCancel(ctx), folder)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := configure(ctx, c.url); err != nil {
		return false, err
	}
	fmt.Fprintf(stderr, "… %v with %d clients, for the top rate\n", p.burst, clients)
	top, err := load.Run(ctx, load.Options{
		URL: c.url, Queue: queue, Clients: clients, Payload: payload, Duration: p.burst, Drain: time.Minute, Window: p.burst,
	})
	if err != nil {
		return false, err
	}
	rate := top.Rate(load.Round) / 2
	fmt.Fprintf(stderr, "… %v at %.0f messages a second, half the top rate\n", p.warmUp+p.duration, rate)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &observer{child: c, out: stderr, giveUp: cancel}
	report, err := load.Run(ctx, load.Options{
		URL: c.url, Queue: queue, Clients: 2 * clients, Payload: payload, Rate: rate,
		Duration: p.warmUp + p.duration, Drain: time.Minute, Window: p.window, Each: o.each,
	})
	if err := errors.Join(err, o.err); err != nil {
		return false, err
	}
	fmt.Fprintf(stdout, "Top rate %.0f messages a second, of %d bytes; observed for %v at %.0f\n\n",
		2*rate, payload, p.duration, rate)
	ok, err = compare(p, o.samples, report, stdout)
	if err == nil && svg != "" {
		err = draw(o.samples, svg)
	}
	return ok, err
}

// configure has what has succeeded removed soon.
func configure(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url+"/queues/"+queue, strings.NewReader(kept))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("PUT %s: %s", req.URL, resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// sample is what was seen of a window.
type sample struct {
	load.Window
	size
}

// observer takes a sample at the end of each window.
type observer struct {
	child   *child
	out     io.Writer
	giveUp  func()
	samples []sample
	err     error
}

func (o *observer) each(w load.Window) {
	if o.err != nil {
		return
	}
	var s size
	if s, o.err = o.child.size(); o.err != nil {
		o.giveUp()
		return
	}
	o.samples = append(o.samples, sample{w, s})
	fmt.Fprintf(o.out, "… %v: %d messages, p50 %.1f ms, p99 %.1f ms, %d errors; %.1f MiB, heap %.1f MiB, files %.1f MiB,"+
		" %.0f goroutines\n", w.End.Round(time.Second), w.Count, millis(w.P50), millis(w.P99), w.Errors,
		mebi(s.memory), mebi(s.heap), mebi(s.files), s.goroutines)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mebi(bytes float64) float64 { return bytes / (1 << 20) }
