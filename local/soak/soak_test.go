package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/local/load"
)

// TestMain is the server too, as main is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == serveArgument {
		if err := serve(os.Args[2], os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// TestRun is a soak in a few seconds. Nothing can be said of its goals.
func TestRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read as Linux shows it")
	}
	temporary, pictures := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	p := plan{
		burst: 300 * time.Millisecond, warmUp: 500 * time.Millisecond, duration: 3 * time.Second,
		window: 100 * time.Millisecond,
	}
	var stdout, stderr bytes.Buffer
	if _, err := run(t.Context(), p, filepath.Join(pictures, "soak-"), &stdout, &stderr); err != nil {
		t.Fatalf("run = %v; standard error:\n%s", err, &stderr)
	}
	for _, words := range []string{"first 500ms", "last 500ms", "memory", "goroutines", "p99", " 0 left", " 0 errors"} {
		if !strings.Contains(stdout.String(), words) {
			t.Errorf("the result lacks %q:\n%s", words, &stdout)
		}
	}
	if strings.Contains(stdout.String(), "NaN") || strings.Contains(stdout.String(), " 0.0 MiB") {
		t.Errorf("something was not measured:\n%s", &stdout)
	}
	for _, name := range []string{"latency", "size", "goroutines"} {
		if _, err := os.Stat(filepath.Join(pictures, "soak-"+name+".svg")); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v, want nothing", left, err)
	}
}

func TestServerDies(t *testing.T) {
	t.Parallel()
	c, err := start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Process.Kill()
	c.cmd.Wait() // killed
	ctx, cancel := context.WithCancel(t.Context())
	o := &observer{child: c, giveUp: cancel}
	o.each(load.Window{})
	o.each(load.Window{})
	if o.err == nil || !errors.Is(ctx.Err(), context.Canceled) || len(o.samples) > 0 {
		t.Errorf("error %v, load %v, %d samples, want that it gives up", o.err, ctx.Err(), len(o.samples))
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	p := plan{warmUp: 20 * time.Second, duration: time.Minute, window: time.Second}
	for _, tt := range []struct {
		name   string
		change func(i int, s *sample, r *load.Report) // of the sample in second i
		missed []string
	}{
		{"flat", func(int, *sample, *load.Report) {}, nil},
		{"memory grows", func(i int, s *sample, _ *load.Report) { s.memory *= 1 + 0.0025*float64(i) }, []string{"memory"}},
		{"files shrink", func(i int, s *sample, _ *load.Report) { s.files *= 1 - 0.0025*float64(i) }, []string{"database"}},
		{"goroutines and p99", func(i int, s *sample, _ *load.Report) {
			if i > 70 {
				s.goroutines, s.P99 = 2*s.goroutines, 2*s.P99
			}
		}, []string{"goroutines", "p99"}},
		{"all that it may", func(i int, s *sample, _ *load.Report) {
			if i > 70 {
				s.memory, s.files, s.goroutines, s.P99 = 1.09*s.memory, 0.91*s.files, 1.09*s.goroutines, 3*s.P99/2
				s.heap, s.P50, s.Max = 2*s.heap, 2*s.P50, 9*s.Max
			}
		}, nil},
		{"faster", func(i int, s *sample, _ *load.Report) { s.P99 -= time.Duration(i) * time.Millisecond / 10 }, nil},
		{"only the warm-up and the middle differ", func(i int, s *sample, _ *load.Report) {
			if i <= 20 || i > 30 && i <= 70 {
				*s = sample{}
			}
			s.End = time.Duration(i) * time.Second
		}, nil},
		{"one bad second", func(i int, s *sample, _ *load.Report) {
			if i == 75 {
				s.memory, s.P99 = 2*s.memory, 9*s.P99
			}
		}, nil},
		{"lost", func(_ int, _ *sample, r *load.Report) { r.Succeeded, r.Left = 999, 1 }, []string{"1000 messages"}},
		{"too much", func(_ int, _ *sample, r *load.Report) { r.NotStarted = 1 }, []string{"1000 messages"}},
		{"refused", func(_ int, _ *sample, r *load.Report) {
			r.Tallies[load.Claim].Errors = map[int]int64{503: 1}
		}, []string{"1000 messages"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			report := &load.Report{Enqueued: 1000, Succeeded: 1000}
			var samples []sample
			for i := 1; i <= 80; i++ {
				s := sample{
					load.Window{
						End:     time.Duration(i) * time.Second,
						Latency: load.Latency{P50: time.Millisecond, P99: 10 * time.Millisecond, Max: time.Second},
					},
					size{memory: 1e8, heap: 1e7, files: 1e9, goroutines: 50},
				}
				tt.change(i, &s, report)
				samples = append(samples, s)
			}
			var out bytes.Buffer
			ok, err := compare(p, samples, report, &out)
			if err != nil {
				t.Fatal(err)
			}
			var missed []string
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, "MISSED") {
					missed = append(missed, strings.TrimSpace(line))
				}
			}
			if ok != (len(tt.missed) == 0) || len(missed) != len(tt.missed) {
				t.Fatalf("ok is %v, missed are %q, want %q:\n%s", ok, missed, tt.missed, &out)
			}
			for i, want := range tt.missed {
				if !strings.HasPrefix(missed[i], want) {
					t.Errorf("missed is %q, want %q", missed[i], want)
				}
			}
		})
	}
	if _, err := compare(p, nil, &load.Report{}, &bytes.Buffer{}); err == nil {
		t.Error("nothing can be compared, and compare does not say so")
	}
}
