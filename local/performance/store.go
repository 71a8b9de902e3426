package main

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/redrivehq/redrive/local/prove/process"
	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/setup"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// store is a kind of store, as the tables name it.
type store struct {
	name     string
	most     int // messages that wait in it; filling it with more would take too long
	newPlace func(ctx context.Context) (*place, error)
}

// place is where a server keeps its messages: a file, or a table.
type place struct {
	disk *process.Disk
	args []string // of the server
	// open is for filling it, while no server is there.
	open   func() (s setup.Store, closeStore func() error, err error)
	remove func() error
}

func onSQLite(dir string) store {
	return store{"SQLite", 1_000_000, func(context.Context) (*place, error) {
		folder, err := os.MkdirTemp(dir, "sqlite-")
		if err != nil {
			return nil, err
		}
		return &place{
			disk: process.Plain(folder),
			open: func() (setup.Store, func() error, error) {
				s, err := sqlite.Open(filepath.Join(folder, "redrive.db")) // as the server is told to name it
				if err != nil {
					return nil, nil, err
				}
				return s, s.Close, nil
			},
			remove: func() error { return os.RemoveAll(folder) },
		}, nil
	}}
}

// dynamoDB is the name of the store whose work an engine does.
const dynamoDB = "DynamoDB"

func onDynamoDB(dir, engine string) store {
	return store{dynamoDB, 100_000, func(ctx context.Context) (*place, error) {
		client, table := dynamo.NewLocalClient(engine), "performance-"+rand.Text()
		if err := dynamo.CreateTable(ctx, client, table); err != nil {
			return nil, err
		}
		return &place{
			disk: process.Plain(dir), // where it puts nothing
			args: []string{"-dynamodb", engine, "-table", table},
			open: func() (setup.Store, func() error, error) {
				s := dynamo.New(dynamo.Options{
					Client: client, Table: table, Where: "at " + engine, Now: time.Now, Log: slog.Default(),
				})
				return s, func() error { return nil }, nil
			},
			remove: func() error {
				_, err := client.DeleteTable(context.WithoutCancel(ctx), &dynamodb.DeleteTableInput{TableName: &table})
				return err
			},
		}, nil
	}}
}

// fillers enqueue at once: SQLite's writer takes many writes together.
const fillers = 128

// fill has so many messages more wait in the place.
func (p *place) fill(ctx context.Context, more, payload int) (err error) {
	s, closeStore, err := p.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	var (
		svc        = setup.NewService(s)
		body       = text(payload)
		group, sub = errgroup.WithContext(ctx)
		begun      atomic.Int64
	)
	for range fillers {
		group.Go(func() error {
			for begun.Add(1) <= int64(more) {
				if _, _, err := svc.Enqueue(sub, queue, message.Draft{Payload: body}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// text is a payload like those of package load, that compression makes little
// smaller.
func text(length int) string {
	random := make([]byte, length)
	_, _ = rand.Read(random) // never fails
	return base32.StdEncoding.EncodeToString(random)[:length]
}
