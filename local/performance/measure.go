package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/redrivehq/redrive/local/load"
	"github.com/redrivehq/redrive/local/prove/process"

	"github.com/redrivehq/redrive/local/tables"
)

const (
	queue    = "performance"
	kb       = 1_024
	standard = 1 * kb // the payload, where it is not what is varied
	many     = 32     // clients, likewise
)

// cell is something to measure.
type cell struct {
	store                     string
	clients, payload, waiting int
}

// result is what one turn of a cell gave.
type result struct {
	messages           float64 // that were enqueued, claimed and succeeded
	rate               float64 // of them a second
	p50, p99           float64 // of a message's three requests together, in ms
	processor, engine  float64 // seconds per 1,000 messages
	rest, memory, most float64 // MiB of the server: before, behind, and the most in between
	refused            int64   // requests that were, or had no answer
}

// bench carries out a plan.
type bench struct {
	plan
	binary  string
	stores  []store
	results map[cell][]result
}

// clients, payloads are what is varied while no other message waits.
func clients() []int  { return []int{1, 8, many, 128} }
func payloads() []int { return []int{100, standard, 10 * kb, 100 * kb} }

// inFront is how many clients work before a backlog.
func inFront() []int { return []int{1, many} }

// measureAlone measures each cell on a server and a place of its own. The cells
// take turns, so that what else the machine does meets all of them alike.
func (b *bench) measureAlone(ctx context.Context) error {
	var cells []cell
	for _, n := range clients() {
		cells = append(cells, cell{clients: n, payload: standard})
	}
	for _, n := range payloads() {
		if c := (cell{clients: many, payload: n}); !slices.Contains(cells, c) {
			cells = append(cells, c)
		}
	}
	for turn := range b.turns {
		for _, c := range cells {
			for _, s := range b.stores {
				c.store = s.name
				if err := b.measureFresh(ctx, s, c, turn); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
		}
	}
	return nil
}

func (b *bench) measureFresh(ctx context.Context, s store, c cell, turn int) (err error) {
	p, err := s.newPlace(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.remove()) }()
	server, err := process.Start(ctx, b.binary, p.disk, p.args...)
	if err != nil {
		return err
	}
	return errors.Join(b.measure(ctx, server, c, turn), server.Stop(context.WithoutCancel(ctx)))
}

// backlog is a place in which messages wait, and its server, if there is one.
type backlog struct {
	store
	*place
	waiting int
	server  *process.Server
}

// measureBacklogs measures before a backlog in each store, which grows. As each
// client enqueues a message before it claims one, it is as long all the time.
func (b *bench) measureBacklogs(ctx context.Context) (err error) {
	var backlogs []*backlog
	for _, s := range b.stores {
		p, err := s.newPlace(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.remove()) }()
		backlogs = append(backlogs, &backlog{store: s, place: p})
	}
	for _, n := range b.waiting {
		backlogs = slices.DeleteFunc(backlogs, func(l *backlog) bool { return n > l.most })
		if err := b.measureBacklog(ctx, backlogs, n); err != nil {
			return err
		}
	}
	return nil
}

// measureBacklog makes the backlogs as long, and measures before each in turns.
func (b *bench) measureBacklog(ctx context.Context, backlogs []*backlog, waiting int) (err error) {
	for _, l := range backlogs {
		progress("%s: until %s messages wait", l.name, tables.Count(waiting))
		if err := l.fill(ctx, waiting-l.waiting, standard); err != nil {
			return fmt.Errorf("filling %s: %w", l.name, err)
		}
		l.waiting = waiting
		server, err := process.Start(ctx, b.binary, l.disk, l.args...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()
		l.server = server
	}
	for turn := range b.turns {
		for _, n := range inFront() {
			for _, l := range backlogs {
				c := cell{store: l.name, clients: n, payload: standard, waiting: waiting}
				if err := b.measure(ctx, l.server, c, turn); err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
			}
		}
	}
	return nil
}

// measure takes one turn of a cell.
func (b *bench) measure(ctx context.Context, server *process.Server, c cell, turn int) error {
	_, rest, err := server.Usage()
	if err != nil {
		return err
	}
	o := load.Options{
		URL: server.URL, Queue: queue, Clients: c.clients, Payload: c.payload,
		Duration: b.warmUp, Drain: drain, Window: look,
	}
	if _, err := untilDone(ctx, o); err != nil {
		return err
	}
	before, err := b.takenBy(server)
	if err != nil {
		return err
	}
	most := max(rest, before.memory)
	o.Duration = b.duration
	o.Each = func(load.Window) {
		if _, now, err := server.Usage(); err == nil { // an error stays, and is told below
			most = max(most, now)
		}
	}
	report, err := untilDone(ctx, o)
	if err != nil {
		return err
	}
	after, err := b.takenBy(server)
	if err != nil {
		return err
	}
	r := newResult(report, before, after)
	r.rest, r.most = mebi(rest), mebi(max(most, after.memory))
	b.results[c] = append(b.results[c], r)
	progress("turn %d of %d: %s, %s, %s, %s waiting: %.0f messages a second",
		turn+1, b.turns, c.store, clientsAtWork(c.clients), tables.Size(c.payload), tables.Count(c.waiting), r.rate)
	return nil
}

func newResult(report *load.Report, before, after taken) result {
	round, messages := report.Tallies[load.Round], float64(report.Succeeded)
	perThousand := func(d time.Duration) float64 { return d.Seconds() / messages * 1_000 }
	return result{
		messages: messages, rate: report.Rate(load.Round), p50: millis(round.P50), p99: millis(round.P99),
		processor: perThousand(after.processor - before.processor), engine: perThousand(after.engine - before.engine),
		memory: mebi(after.memory), refused: refused(report),
	}
}

// untilDone loads the server until a message has gone round: a machine that is
// busy may not let a client begin in time.
func untilDone(ctx context.Context, o load.Options) (*load.Report, error) {
	for {
		report, err := load.Run(ctx, o)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		if report.Tallies[load.Round].Count > 0 {
			return report, nil
		}
		if n := refused(report); n > 0 {
			return nil, fmt.Errorf("no message went round: %d requests were refused, or not answered", n)
		}
	}
}

// refused counts requests that were, or had no answer.
func refused(report *load.Report) (all int64) {
	for _, tally := range report.Tallies {
		for _, n := range tally.Errors {
			all += n
		}
	}
	return all
}

const (
	// drain is how long messages are looked for that a claim did not find, though
	// they were there: on DynamoDB some do, where many claim.
	drain = 5 * time.Second
	look  = 50 * time.Millisecond // between two looks at the memory
)

// taken is what the server and the engine have taken so far.
type taken struct {
	processor, engine time.Duration
	memory            int64 // of the server, in bytes
}

func (b *bench) takenBy(server *process.Server) (t taken, err error) {
	if t.processor, t.memory, err = server.Usage(); err != nil || b.enginePID == 0 {
		return t, err
	}
	t.engine, err = processorTime(b.enginePID)
	return t, err
}

// processorTime reads /proc/PID/stat, proc_pid_stat(5).
func processorTime(pid int) (time.Duration, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(name) //nolint:gosec // of the kernel
	if err != nil {
		return 0, err
	}
	const tick = time.Second / 100
	const user, system = 14 - 3, 15 - 3 // behind the program's name, which may hold anything, the third field comes
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= system {
		return 0, fmt.Errorf("%s: %q", name, text)
	}
	inUser, err := strconv.Atoi(string(fields[user]))
	inSystem, err2 := strconv.Atoi(string(fields[system]))
	return time.Duration(inUser+inSystem) * tick, errors.Join(err, err2)
}

// median is that of the turns of a cell, which was measured.
func (b *bench) median(c cell, of func(result) float64) float64 {
	values := make([]float64, 0, b.turns)
	for _, r := range b.results[c] {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }
