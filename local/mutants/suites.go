package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// suite is a program that fails where something is wrong.
type suite struct {
	name   string
	covers []string // the folders whose faults it may catch
	build  []string // the arguments of the go command that builds it, but for -o
	folder string   // that it runs in
	args   []string
	// whole says not to end it at the first test that fails: it has started other
	// processes, and is to end them.
	whole bool
}

// suites lists them in the order of what they cost.
func suites() []suite {
	const rules = "shared/message"
	message := tests("message", "shared/message")
	api := tests("api", "shared/api", rules)
	sqlite := tests("sqlite", "shared/sqlite", rules)
	sqlite.args = append(sqlite.args, noShrinking)
	server := tests("server", "local/server", rules, "shared/api", "shared/sqlite")
	server.whole = true
	dynamo := tests("dynamo", "shared/dynamo", rules)
	dynamo.args = append(dynamo.args, noShrinking)
	return []suite{message, api, sqlite, server, dynamo}
}

// noShrinking keeps rapid from looking for the shortest failure: any will do.
const noShrinking = "-rapid.shrinktime=1ms"

// tests is the suite of a package's own tests. It covers the package, and the
// folders given.
func tests(name, folder string, covers ...string) suite {
	return suite{
		name: name, covers: append(covers, folder), folder: folder,
		build: []string{"test", "-c", "-trimpath", "./" + folder},
		args:  []string{"-test.v=test2json", "-test.failfast"}, // in that form a subtest is told before its parent
	}
}

// mayCatch reports whether the fault is in what the suite covers.
func (s suite) mayCatch(m mutant) bool {
	return slices.ContainsFunc(s.covers, func(folder string) bool { return strings.HasPrefix(m.file, folder+"/") })
}

// result is what a suite says of a copy of the repository.
type result struct {
	failed bool
	test   string // that failed first, if that is known
	output string
}

// run builds the suite in the copy at root, and runs it. One that then takes longer
// than the limit hangs, and has failed. Errors: it does not compile, or that of
// ctx.
func (s suite) run(ctx context.Context, root string, limit time.Duration) (result, error) {
	program := filepath.Join(root, "suite")
	if err := goCommand(ctx, root, slices.Insert(slices.Clone(s.build), len(s.build)-1, "-o", program)...); err != nil {
		return result{}, fmt.Errorf("suite %s: %w", s.name, err)
	}
	defer os.Remove(program) //nolint:errcheck // in a temporary folder
	running, stop := context.WithTimeout(ctx, limit)
	defer stop()
	cmd := exec.CommandContext(running, program, s.args...) //nolint:gosec // it was built just now
	cmd.Dir = filepath.Join(root, filepath.FromSlash(s.folder))
	cmd.Env = append(os.Environ(), "REDRIVE_REQUIRE_ENGINE=1") // a test that is skipped catches nothing
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	var r result
	var text strings.Builder
	for lines := bufio.NewReader(out); err == nil; {
		var line string
		line, err = lines.ReadString('\n')
		text.WriteString(line)
		if _, test, fails := strings.Cut(line, "--- FAIL: "); fails && r.test == "" {
			r.test, _, _ = strings.Cut(test, " (")
			if !s.whole {
				stop()
			}
		}
	}
	err = cmd.Wait()
	r.failed, r.output = err != nil, text.String()
	if errors.Is(running.Err(), context.DeadlineExceeded) {
		r.test = "hangs"
	}
	return r, ctx.Err()
}

// goCommand runs the go command in the copy at root. Errors come with what it
// says.
func goCommand(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are those of this program
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
