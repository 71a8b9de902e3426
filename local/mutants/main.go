// Mutants shows that the tests bite. Each mutant is one hand-made fault, such as
// a condition left out: it is put into a copy of the repository, and the suites
// run there, the cheapest first, until one fails. A mutant that no suite catches
// is a gap in the tests. The faults stand in the folder faults; suites.go says
// which suite may catch what.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	run := flag.String("run", "", "only mutants whose names match the `regexp`")
	only := flag.String("suite", "", "only suites whose names match the `regexp`")
	parallel := flag.Int("j", 1, "so many mutants at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := hunt(ctx, *run, *only, *parallel)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// hunt tries the mutants and suites that are picked, and prints what became of
// each. Errors: a mutant survives, the list has rotted, or a suite fails without
// any mutant.
func hunt(ctx context.Context, run, only string, parallel int) error {
	mutants, err := pick(run)
	if err != nil {
		return err
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	picked := slices.DeleteFunc(suites(), func(s suite) bool { return !wanted.MatchString(s.name) })
	dir, err := os.MkdirTemp("", "redrive-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	h := newHunter(ctx, dir, picked, len(mutants))
	if err := snapshot(ctx, h.source()); err != nil {
		return err
	}
	for _, m := range mutants {
		if err := m.check(h.source()); err != nil {
			return err
		}
	}
	fates := make([]fate, len(mutants))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, m := range mutants {
		group.Go(func() (err error) {
			fates[i], err = h.try(ctx, m)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return report(os.Stdout, fates)
}

// pick returns the mutants whose names match.
func pick(run string) ([]mutant, error) {
	wanted, err := regexp.Compile(run)
	if err != nil {
		return nil, err
	}
	all, err := mutants()
	if err != nil {
		return nil, err
	}
	picked := slices.DeleteFunc(all, func(m mutant) bool { return !wanted.MatchString(m.name) })
	if len(picked) == 0 {
		return nil, fmt.Errorf("no mutant matches %q", run)
	}
	return picked, nil
}

// hunter tries mutants in copies of the repository below dir.
type hunter struct {
	dir    string
	suites []suite
	limits map[string]func() (time.Duration, error) // of each suite, found when it is first needed
	all    int                                      // mutants
	tried  atomic.Int32                             // of them
}

func newHunter(ctx context.Context, dir string, suites []suite, all int) *hunter {
	h := &hunter{dir: dir, suites: suites, limits: make(map[string]func() (time.Duration, error)), all: all}
	for _, s := range suites {
		h.limits[s.name] = sync.OnceValues(func() (time.Duration, error) { return h.limit(ctx, s) })
	}
	return h
}

// source is where the repository stands as it was when the hunt began: it may be
// edited meanwhile.
func (h *hunter) source() string { return filepath.Join(h.dir, "source") }

// snapshot copies what git tracks, or would track, from the working directory.
func snapshot(ctx context.Context, to string) error {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(name)      //nolint:gosec // git has named it
		if errors.Is(err, os.ErrNotExist) { // deleted, and still tracked
			continue
		}
		if err == nil {
			err = write(filepath.Join(to, name), text)
		}
		if err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(to, "go.mod")); err != nil {
		return errors.New("run it in the folder of go.mod")
	}
	return nil
}

func write(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o700) //nolint:gosec // some are scripts
}

// healthyWithin bounds a suite that is run without any mutant.
const healthyWithin = time.Hour

// limit runs a suite without any mutant: one that fails in any case catches
// nothing. It returns how long the suite may take with one.
func (h *hunter) limit(ctx context.Context, s suite) (time.Duration, error) {
	began := time.Now()
	result, err := s.run(ctx, h.source(), healthyWithin)
	if err != nil {
		return 0, err
	}
	if result.failed {
		return 0, fmt.Errorf("suite %s fails without any mutant: %s\n%s", s.name, result.test, result.output)
	}
	took := time.Since(began)
	progress("suite %s passes without any mutant, %s", s.name, seconds(took))
	return time.Minute + 4*took, nil
}

// fate is what became of a mutant.
type fate struct {
	mutant
	suite string // that caught it; empty if none did
	test  string
	took  time.Duration
}

// try hunts one mutant in a copy of its own. Errors: it does not compile.
func (h *hunter) try(ctx context.Context, m mutant) (fate, error) {
	if err := ctx.Err(); err != nil {
		return fate{}, err
	}
	began := time.Now()
	dir, err := os.MkdirTemp(h.dir, "mutant-")
	if err != nil {
		return fate{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	if err := os.CopyFS(dir, os.DirFS(h.source())); err != nil {
		return fate{}, err
	}
	if err := m.apply(dir); err != nil {
		return fate{}, err
	}
	f := fate{mutant: m}
	for _, s := range h.suites {
		if !s.mayCatch(m) {
			continue
		}
		limit, err := h.limits[s.name]()
		if err != nil {
			return fate{}, err
		}
		result, err := s.run(ctx, dir, limit)
		if err != nil {
			return fate{}, fmt.Errorf("%s: %w", m.name, err)
		}
		if result.failed {
			f.suite, f.test = s.name, result.test
			break
		}
	}
	f.took = time.Since(began)
	progress("%d of %d, %s: %s, %s", h.tried.Add(1), h.all, m.name, cmp.Or(f.suite, "SURVIVES"), seconds(f.took))
	return f, nil
}

// report prints a table. Error: a mutant survives.
func report(to io.Writer, fates []fate) error {
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "mutant\tsuite\ttest\ttook")
	survivors := 0
	for _, f := range fates {
		if f.suite == "" {
			survivors++
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", f.name, cmp.Or(f.suite, "SURVIVES"), f.test, seconds(f.took))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(to, "\n%d mutants, %d caught\n", len(fates), len(fates)-survivors)
	if survivors > 0 {
		return fmt.Errorf("%d of %d mutants survive", survivors, len(fates))
	}
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "… "+format+"\n", args...)
}
