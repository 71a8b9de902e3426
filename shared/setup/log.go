package setup

import (
	"context"
	"log/slog"
	"os"

	"github.com/redrivehq/redrive/shared/dynamo"
)

// logger writes one JSON object a line to standard output, which Lambda keeps.
func logger() *slog.Logger { return slog.New(meteredLog{slog.NewJSONHandler(os.Stdout, nil)}) }

// meteredLog adds to each record what DynamoDB was asked for in its context.
type meteredLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (h meteredLog) Handle(ctx context.Context, r slog.Record) error {
	if u := dynamo.UsageOf(ctx); u.Requests > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("dynamodb_requests", u.Requests),
			slog.Float64("write_units", u.WriteUnits), slog.Float64("read_units", u.ReadUnits))
		if u.LostWrites > 0 {
			r.AddAttrs(slog.Int("lost_writes", u.LostWrites))
		}
		if u.Spread > 1 {
			r.AddAttrs(slog.Float64("spread", u.Spread), slog.Int("shards_left", u.Left))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h meteredLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return meteredLog{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h meteredLog) WithGroup(name string) slog.Handler { return meteredLog{h.Handler.WithGroup(name)} }
