// Prove lets many clients use Redrive while everything around it fails, and
// judges what they saw: whether anything was lost, handed out or counted twice.
//
// It runs in parts, each on servers and queues of its own. What came of a part is
// kept in a file, so that a campaign that was stopped goes on where it was.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/redrivehq/redrive/local/prove/history"
	"github.com/redrivehq/redrive/local/prove/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(prove(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// campaign is what the arguments ask for.
type campaign struct {
	store, engine, dir string
	operations, parts  int
	seed               uint64
	atOnce             int

	binary string // of the server, for SQLite
}

// partSize is how many calls a part makes: enough for everything to happen, few
// enough to be judged at once.
const partSize = 20_000

// prove is the program. It returns its exit code: 0 if nothing was found, 1 if
// something was, or if the campaign could not go on, 2 for arguments that it does
// not know.
func prove(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := campaign{}
	flags := flag.NewFlagSet("prove", flag.ContinueOnError)
	flags.SetOutput(stderr)
	stores := flags.String("store", "sqlite,dynamodb", "try these stores")
	flags.StringVar(&c.engine, "engine", os.Getenv("AWS_ENDPOINT_URL_DYNAMODB"), "the `URL` of a DynamoDB engine")
	flags.IntVar(&c.operations, "operations", 40_000, "make so many calls on each store")
	flags.Uint64Var(&c.seed, "seed", rand.Uint64()>>1, "repeat the choices of another campaign, or go on with it")
	flags.IntVar(&c.atOnce, "parts-at-once", 2, "so many parts at a time")
	flags.StringVar(&c.dir, "dir", ".prove", "keep results, and histories of violations, in this `folder`")
	check := flags.String("check", "", "judge the history in this `file` again, and do nothing else")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if *check != "" {
		return recheck(*check, stdout, stderr)
	}
	c.parts = (c.operations + partSize - 1) / partSize
	found, err := c.run(ctx, strings.Split(*stores, ","), stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "prove:", err)
	}
	if err != nil || found {
		return 1
	}
	return 0
}

// run makes the campaign on each store, and prints the tables.
func (c *campaign) run(ctx context.Context, stores []string, stdout, stderr io.Writer) (found bool, err error) {
	if err := os.MkdirAll(c.dir, 0o750); err != nil {
		return false, err
	}
	var all []*table
	for _, c.store = range stores {
		if c.store != "sqlite" && c.store != "dynamodb" {
			return false, fmt.Errorf("-store knows sqlite and dynamodb, not %q", c.store)
		}
		if c.store == "dynamodb" && c.engine == "" {
			return false, errors.New("DynamoDB needs an engine: start one, and name it with -engine or" +
				" AWS_ENDPOINT_URL_DYNAMODB; or choose -store sqlite")
		}
		t, err := c.onStore(ctx, stderr)
		if t != nil {
			all = append(all, t)
			found = found || t.violations() > 0
		}
		if err != nil {
			return found, errors.Join(printed(stdout, c.seed, all), err)
		}
	}
	return found, printed(stdout, c.seed, all)
}

// onStore makes all parts on one store that have not been made.
func (c *campaign) onStore(ctx context.Context, stderr io.Writer) (*table, error) {
	if c.store == "sqlite" {
		remove, err := c.build(ctx)
		if err != nil {
			return nil, err
		}
		defer remove()
	}
	name := filepath.Join(c.dir, fmt.Sprintf("%s-%d.jsonl", c.store, c.seed))
	results, err := openResults(name)
	if err != nil {
		return nil, err
	}
	defer results.Close() //nolint:errcheck // each line was written through
	p := newProgress(stderr, c.store, c.parts, len(results.outcomes))
	defer p.end()
	var working errgroup.Group
	working.SetLimit(c.atOnce)
	for part := range c.parts {
		if results.has(part) || ctx.Err() != nil {
			continue
		}
		working.Go(func() error {
			o, err := c.part(ctx, part, p)
			if err == nil {
				err = results.add(o)
			}
			if err != nil {
				return fmt.Errorf("%s, part %d: %w", c.store, part, err)
			}
			return nil
		})
	}
	err = working.Wait()
	if stopped := ctx.Err(); stopped != nil {
		err = fmt.Errorf("stopped; `-seed %d` with the same numbers goes on: %w", c.seed, stopped)
	}
	return &table{store: c.store, parts: results.outcomes}, err
}

// build compiles the server. What it leaves, remove takes away.
func (c *campaign) build(ctx context.Context) (remove func(), err error) {
	dir, err := os.MkdirTemp("", "redrive-prove-")
	if err != nil {
		return nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // a temporary folder
	if c.binary, err = process.Build(ctx, dir); err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}

// part makes one part, and writes down the history of each violation.
func (c *campaign) part(ctx context.Context, part int, p *progress) (*outcome, error) {
	plan := plan{
		part: part, seed: c.seed, workers: sqliteWorkers,
		operations: min(partSize, c.operations-part*partSize),
		progress:   func(n int) { p.show(part, n) },
	}
	if c.store == "dynamodb" {
		plan.workers = dynamoDBWorkers
	}
	random := rand.New(rand.NewPCG(c.seed, ^uint64(part)))
	sys, err := c.system(ctx, random)
	if err != nil {
		return nil, err
	}
	o, h, err := plan.run(ctx, sys)
	if err = errors.Join(err, sys.close(ctx)); err != nil {
		return nil, err
	}
	p.finished(part, o.Operations)
	return o, c.explain(h, o)
}

func (c *campaign) system(ctx context.Context, random *rand.Rand) (system, error) {
	if c.store == "sqlite" {
		return newOnSQLite(ctx, c.binary, random)
	}
	return newOnDynamoDB(ctx, c.engine, random)
}

// How many clients there are at a time. On DynamoDB, they mostly wait: for the SDK
// to ask again.
const (
	sqliteWorkers   = 24
	dynamoDBWorkers = 16
)

// mostExplained violations of a part are written down: what is wrong is wrong
// often.
const mostExplained = 5

// explain writes the shortest history of each violation, and a page that shows it.
func (c *campaign) explain(h *history.History, o *outcome) error {
	done := make(map[string]bool)
	for _, v := range o.Violations {
		if v.ID == "" || done[v.ID] || len(done) == mostExplained {
			continue
		}
		done[v.ID] = true
		name := filepath.Join(c.dir, fmt.Sprintf("%s-%d-%d-%s", c.store, c.seed, o.Part, v.ID))
		whole := h.Of(v.ID)
		short := whole.Shortest()
		err := errors.Join(write(name+".json", whole), write(name+".short.json", short), draw(name+".html", short))
		if err != nil {
			return err
		}
	}
	return nil
}

func write(name string, h *history.History) error {
	text, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

func draw(name string, h *history.History) error {
	file, err := os.Create(name) //nolint:gosec // in the folder that was asked for
	if err != nil {
		return err
	}
	return errors.Join(h.Draw(file), file.Close())
}

// recheck judges a history that was written down.
func recheck(name string, stdout, stderr io.Writer) int {
	text, err := os.ReadFile(name) //nolint:gosec // the file that was asked for
	var h history.History
	if err = cmp.Or(err, json.Unmarshal(text, &h)); err != nil {
		fmt.Fprintln(stderr, "prove:", err)
		return 1
	}
	r := h.Check()
	for _, v := range r.Violations {
		fmt.Fprintln(stdout, v)
	}
	fmt.Fprintf(stdout, "%d operations on %d messages, %d violations\n", r.Operations, r.Messages, len(r.Violations))
	if len(r.Violations) > 0 {
		return 1
	}
	return 0
}
