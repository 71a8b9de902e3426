package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"time"

	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/virtual"
)

// fleet is workers that claim from a queue.
type fleet struct {
	shards  int
	workers int
	// own gives each worker an instance of the claim function for itself, which knows
	// least. Else a claim meets the instance that became free last, as on Lambda,
	// where there are as many as there are claims at the same time.
	own     bool
	work    time.Duration // on a message
	poll    time.Duration // between two empty answers
	rate    float64       // messages that arrive a second
	backlog int           // waiting at the beginning
	last    time.Duration
	lag     time.Duration // of the index
	seed    byte
}

// claimed is what a fleet has done.
type claimed struct {
	sent, won, left int // messages; left: still pending
	queries         int
	reads           float64 // read units
	lost            int     // writes
	waited          time.Duration
}

func (c claimed) each(n float64) float64 { return n / float64(max(c.won, 1)) }

// run lets the store's own claim, message.Service on dynamo.Store, play against a
// table in virtual time. The store draws from crypto/rand, which therefore has a
// seed for as long as this runs: one fleet at a time.
func (f fleet) run() (claimed, error) {
	secure := rand.Reader
	defer func() { rand.Reader = secure }()
	rand.Reader = mathrand.NewChaCha8([32]byte{f.seed})

	p := &play{fleet: f, database: newDatabase(virtual.New(uint64(f.seed)), f.lag)}
	p.end = p.Now.Add(f.last)
	p.Begin(func(sleep func(time.Duration)) { p.note(p.produce(sleep)) })
	for range f.workers {
		p.Begin(func(sleep func(time.Duration)) {
			// Until the backlog is shown by the index, and not all at once.
			sleep(f.lag + p.Between(time.Millisecond, time.Millisecond+max(f.poll, f.work)))
			p.note(p.consume(sleep))
		})
	}
	p.Run()
	p.claimed.queries, p.left = p.database.queries, p.countPending()
	return p.claimed, p.failed
}

// play is a fleet at work.
type play struct {
	fleet
	*database
	claimed
	free   []*instance
	end    time.Time
	failed error
}

// note ends the play if there is an error.
func (p *play) note(err error) {
	if err != nil && p.failed == nil {
		p.failed, p.end = err, p.Now
	}
}

const queueName = "emails"

// instance is the program as a function runs it, for one caller at a time.
type instance struct {
	*message.Service
	client *client
}

func (p *play) newInstance() *instance {
	now := func() time.Time { return p.Now }
	c := &client{database: p.database}
	store := dynamo.New(dynamo.Options{
		Client: c, Table: "model", Where: "in virtual time", Now: now, Log: slog.New(slog.DiscardHandler),
	})
	return &instance{&message.Service{
		Store: store, Queues: store, Sweeps: store, Now: now,
		Random: func(b []byte) { _, _ = rand.Read(b) }, // never fails: see its documentation
	}, c}
}

// take returns an instance that nobody uses.
func (p *play) take() *instance {
	last := len(p.free) - 1
	if last < 0 {
		return p.newInstance()
	}
	i := p.free[last]
	p.free = p.free[:last]
	return i
}

// produce makes the queue and its messages. It waits for no request.
func (p *play) produce(sleep func(time.Duration)) error {
	ctx, svc := context.Background(), p.newInstance()
	set := message.DefaultSettings()
	set.Shards = &p.shards
	if _, _, err := svc.Queues.PutQueue(ctx, message.Queue{Name: queueName, Settings: set}); err != nil {
		return err
	}
	send := func() error {
		p.sent++
		_, _, err := svc.Enqueue(ctx, queueName, message.Draft{Payload: "{}"})
		return err
	}
	for range p.backlog {
		if err := send(); err != nil {
			return err
		}
	}
	for p.rate > 0 {
		sleep(time.Duration(-math.Log(1-p.Random.Float64()) / p.rate * float64(time.Second)))
		if p.Now.After(p.end) {
			break
		}
		if err := send(); err != nil {
			return err
		}
	}
	return nil
}

// consume claims and works.
func (p *play) consume(sleep func(time.Duration)) error {
	own := p.newInstance()
	for p.Now.Before(p.end) {
		i := own
		if !p.own {
			i = p.take()
		}
		i.client.sleep = sleep
		ctx, meter := dynamo.WithMeter(context.Background())
		got, err := i.Claim(ctx, queueName, message.ClaimOptions{})
		if err != nil {
			return err
		}
		if !p.own {
			p.free = append(p.free, i)
		}
		p.count(got, meter.Usage())
		if len(got) > 0 {
			sleep(p.work)
		} else {
			sleep(p.poll)
		}
	}
	return nil
}

func (p *play) count(got []message.Message, u dynamo.Usage) {
	p.reads += u.ReadUnits
	p.lost += u.LostWrites
	for _, m := range got {
		p.won++
		p.waited += m.ClaimedAt.Sub(m.CreatedAt)
	}
}
