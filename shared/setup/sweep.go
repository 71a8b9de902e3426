package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/redrivehq/redrive/shared/message"
)

// stopBefore is how long before its deadline a sweep takes up no other queue.
const stopBefore = 10 * time.Second

// settledEvery is how often the succeeded messages are counted: DynamoDB counts
// for the price of reading.
const settledEvery = 10 * time.Minute

// Sweep runs the function that the schedule starts. It does not return.
func Sweep() {
	log := logger()
	store := mustOpen(log)
	s := &sweeper{Service: NewService(store), log: log, table: store.Table}
	lambda.Start(s.handle)
}

type sweeper struct {
	*message.Service
	log   *slog.Logger
	table string
}

// handle runs one sweep, whatever the event says, and tells in one line what it
// did. It fails where something was left undone, so that the alarm on the
// function's errors hears of it; the next run finds it again.
func (s *sweeper) handle(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			s.log.ErrorContext(ctx, "sweep", "error", err, "stack", string(debug.Stack()))
		}
	}()
	o := message.SweepOptions{Count: true, SettledEvery: settledEvery}
	if deadline, ok := ctx.Deadline(); ok {
		o.Until = deadline.Add(-stopBefore)
	}
	ctx, cancel := invocation(ctx)
	defer cancel()
	began := s.Now()
	report, err := s.Sweep(ctx, o)
	attrs := []slog.Attr{
		slog.Int("queues", report.Queues), slog.Int("returned", report.Returned), slog.Int("buried", report.Buried),
		slog.Int("failed", report.Failed), slog.Bool("done", report.Done),
		slog.Float64("duration_ms", float64(s.Now().Sub(began).Microseconds())/1000),
	}
	if err == nil {
		attrs = append(attrs, s.metrics(report)...)
	}
	level := slog.LevelInfo
	if err = errors.Join(err, report.Err); err != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.Any("error", err))
	}
	s.log.LogAttrs(ctx, level, "sweep", attrs...)
	return err
}

// metrics makes the line one from which CloudWatch reads metrics ("Embedded
// metric format specification"). A sweep that could not look at the queues has
// none, and so the alarm on missing sweeps hears of it. There is no dimension for
// queues: each value of one is billed as a metric of its own.
func (s *sweeper) metrics(report message.SweepReport) []slog.Attr {
	now := s.Now()
	values := []metric{{"SweepRuns", "Count", 1}}
	if t := report.Totals; t != nil {
		values = append(values,
			metric{"PendingMessages", "Count", float64(t.Pending)},
			metric{"OldestPendingSeconds", "Seconds", age(t.OldestPending, now)},
			metric{"DeadMessages", "Count", float64(t.Dead)},
			metric{"DeadMessagesMax", "Count", float64(t.DeadMost)},
			metric{"OldestDeadSeconds", "Seconds", age(t.OldestDead, now)})
	}
	attrs := []slog.Attr{slog.String("Table", s.table)}
	for _, m := range values {
		attrs = append(attrs, slog.Float64(m.Name, m.value))
	}
	return append(attrs, slog.Any("_aws", map[string]any{
		"Timestamp": now.UnixMilli(),
		"CloudWatchMetrics": []any{map[string]any{
			"Namespace": "Redrive", "Dimensions": [][]string{{"Table"}}, "Metrics": values,
		}},
	}))
}

type metric struct {
	Name  string
	Unit  string
	value float64
}

// age is in seconds; zero if there is nothing.
func age(since, now time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(now.Sub(since), 0).Truncate(time.Millisecond).Seconds()
}
