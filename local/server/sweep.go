package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redrivehq/redrive/shared/message"
)

const (
	sweepEvery = time.Second // EventBridge's shortest schedule is a minute; nobody waits that long on a laptop
	countEvery = 10          // sweeps
	removeStep = 100         // expired messages removed at a time, some of 256 KiB
)

// sweep runs the sweeper until ctx ends: it does what EventBridge and
// DynamoDB's TTL do in a deployed stack.
func sweep(ctx context.Context, svc *message.Service, store *engine, log *slog.Logger) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	failing := false
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := sweepOnce(ctx, svc, store, log, n%countEvery == 0)
		if failed := err != nil && ctx.Err() == nil; failed != failing {
			failing = failed
			if failed {
				log.Error("the sweeper fails, and tries again every second", "error", err)
			} else {
				log.Info("the sweeper works again")
			}
		}
	}
}

func sweepOnce(ctx context.Context, svc *message.Service, store *engine, log *slog.Logger, count bool) error {
	report, err := svc.Sweep(ctx, message.SweepOptions{Count: count})
	if report.Returned+report.Buried > 0 {
		log.Info("swept", "queues", report.Queues,
			"returned", report.Returned, "buried", report.Buried, "failed", report.Failed)
	}
	return errors.Join(err, report.Err, removeExpired(ctx, svc, store))
}

func removeExpired(ctx context.Context, svc *message.Service, store *engine) error {
	for {
		removed, err := store.expire(ctx, svc.Now(), removeStep)
		if err != nil || removed < removeStep {
			return err
		}
	}
}
