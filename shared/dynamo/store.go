// Package dynamo keeps messages and queues in one DynamoDB table with one index.
// It is the store of the deployed stack.
//
// What becomes of a message it asks [message.Decide], on the message as read, and
// writes under the condition that the message is still that one. Claims, and
// successes under a receipt, write without reading first. The SDK repeats a write
// whose answer was lost, so that a write may find that it was made before: what
// the condition found comes back with its failure, and is decided on.
//
// An index entry is only a hint: the index lags behind the table. Which entry a
// claim tries, so that many claimers seldom try the same, is decided in
// choice.go.
//
// The package knows the table and AWS's SDK. It knows no rule of the queue, no
// HTTP route and no environment.
package dynamo

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/redrivehq/redrive/shared/message"
)

// Client is what a Store asks of DynamoDB; a *dynamodb.Client is one.
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchGetItem(
		context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options),
	) (*dynamodb.BatchGetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
}

// Options of a Store. All but Where are required.
type Options struct {
	Client Client // see NewClient
	Table  string // see CreateTable
	Where  string // the table is, as errors tell it: "in eu-central-1"
	// Now tells the time, for what is remembered between calls. A message's times
	// come with the call.
	Now func() time.Time
	// Log hears of what must not happen, as a payload that is missing.
	Log *slog.Logger
}

// Store implements message.Store, message.QueueStore and message.SweepStore. It
// is safe for concurrent use. All that it remembers may be lost at any time.
type Store struct {
	Options

	mu     sync.Mutex
	queues map[string]known     // settings as last read
	marks  map[string]time.Time // when this instance marked the queue as in use
	shards map[place]*shard     // what claims have learnt
}

var (
	_ message.Store      = (*Store)(nil)
	_ message.QueueStore = (*Store)(nil)
	_ message.SweepStore = (*Store)(nil)
)

// New returns a Store on an existing table.
func New(o Options) *Store {
	return &Store{
		Options: o,
		queues:  make(map[string]known),
		marks:   make(map[string]time.Time),
		shards:  make(map[place]*shard),
	}
}

// rememberedMost bounds each memory; past it, it is begun anew.
const rememberedMost = 10_000

// remember puts a value into a memory, under the lock of the store.
func remember[K comparable, V any](s *Store, memory map[K]V, key K, value V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep(memory, key, value)
}

// keep puts a value into a memory whose lock is held.
func keep[K comparable, V any](memory map[K]V, key K, value V) {
	if _, known := memory[key]; !known && len(memory) >= rememberedMost {
		clear(memory)
	}
	memory[key] = value
}

// forgetEntry makes claims of this instance look where a message was put: under a
// key it may look like one that was tried a moment ago.
func (s *Store) forgetEntry(r row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh := s.shards[place{r.Queue, r.shard}]; sh != nil {
		sh.nothing = time.Time{}
		sh.free([]entry{{messagePK(r.Queue, r.ID), sortKey(r.Due, r.ID)}})
	}
}

// atOnce bounds what one call asks DynamoDB for at the same time.
const atOnce = 16

// sideBySide does n things, and returns the first error when all are done. A
// panic becomes an error: in a goroutine of its own it would end the program.
func sideBySide(n int, do func(i int) error) error {
	if n == 1 {
		return do(0)
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
				}
			}()
			return do(i)
		})
	}
	return group.Wait()
}

// random returns a number in [0, 1).
func random() float64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: see its documentation
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}
