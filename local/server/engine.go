package server

import (
	"context"
	"fmt"
	"time"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/setup"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// engine is what keeps the messages, and how it is looked after.
type engine struct {
	setup.Store
	name  string
	check func(context.Context) error // whether it can store a message
	// expire removes up to so many messages past their retention, and returns how
	// many there were. DynamoDB's TTL does that itself.
	expire func(ctx context.Context, now time.Time, limit int) (int, error)
	close  func() error
}

func embedded(store *sqlite.Store) *engine {
	return &engine{store, "sqlite", store.Check, store.RemoveExpired, store.Close}
}

func openEngine(ctx context.Context, cfg Config) (*engine, error) {
	if cfg.DynamoDB == "" {
		store, err := sqlite.Open(cfg.Data)
		if err != nil {
			return nil, err
		}
		return embedded(store), nil
	}
	if err := setup.CheckEndpoint("-dynamodb", cfg.DynamoDB); err != nil {
		return nil, err
	}
	client := dynamo.NewLocalClient(cfg.DynamoDB)
	if err := dynamo.CreateTable(ctx, client, cfg.Table); err != nil {
		return nil, fmt.Errorf("the DynamoDB engine at %s cannot be used (`make dynamodb-local` starts one): %w",
			cfg.DynamoDB, err)
	}
	store := dynamo.New(dynamo.Options{
		Client: client, Table: cfg.Table, Where: "at " + cfg.DynamoDB, Now: time.Now, Log: cfg.Log,
	})
	return &engine{
		Store: store, name: "dynamodb", close: func() error { return nil },
		check: func(ctx context.Context) error {
			_, err := store.Round(ctx)
			return err
		},
		expire: func(context.Context, time.Time, int) (int, error) { return 0, nil },
	}, nil
}
