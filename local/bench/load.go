package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrivehq/redrive/local/load"
	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/setup"
)

const (
	text50      = "An order was placed, paid for, packed and shipped."
	payload     = text50 + text50 + text50 + text50 + text50 + text50 + text50 + text50 + text50 + text50 // 500 bytes
	enqueueBody = `{"payload":"` + payload + `"}`
	queueName   = "bench"
)

// work has so many clients do the total between them, and returns the rate in
// operations a second.
func work(clients, total int, do func(i int) error) (float64, error) {
	var (
		next   atomic.Int64
		all    sync.WaitGroup
		errs   = make([]error, clients)
		began  = time.Now()
		number = int64(total)
	)
	for c := range clients {
		all.Go(func() {
			for i := next.Add(1); i <= number && errs[c] == nil; i = next.Add(1) {
				errs[c] = do(int(i - 1))
			}
		})
	}
	all.Wait()
	return float64(total) / time.Since(began).Seconds(), errors.Join(errs...)
}

// operations are what is measured, each for the message of that number.
type operations struct{ enqueue, claim, succeed func(i int) error }

// requests in a round.
const requests = 3

// round is all of them, one after the other.
func (o operations) round(i int) error {
	if err := o.enqueue(i); err != nil {
		return err
	}
	if err := o.claim(i); err != nil {
		return err
	}
	return o.succeed(i)
}

// throughHTTP are the operations as a client asks for them.
func throughHTTP(address string, total int) operations {
	const path = "/queues/" + queueName + "/"
	c := newClient(address)
	held := make([]string, total) // path and receipt, for succeed
	return operations{
		enqueue: func(int) error {
			_, err := c.post(path+"messages", enqueueBody)
			return err
		},
		claim: func(i int) error {
			answer, err := c.post(path+"claim", "")
			for err == nil && len(answer) == 0 { // on DynamoDB now and then, where many claim at once
				answer, err = c.post(path+"claim", "")
			}
			held[i] = path + "messages/" + load.Member(answer, "id") + "/succeed\n" + load.Member(answer, "receipt")
			return err
		},
		succeed: func(i int) error {
			path, receipt, _ := strings.Cut(held[i], "\n")
			_, err := c.post(path, `{"receipt":"`+receipt+`"}`)
			return err
		},
	}
}

// onStore are the operations on the store directly.
func onStore(ctx context.Context, store setup.Store, total int) operations {
	svc := setup.NewService(store)
	held := make([]message.Message, total)
	return operations{
		enqueue: func(int) error {
			_, _, err := svc.Enqueue(ctx, queueName, message.Draft{Payload: payload})
			return err
		},
		claim: func(i int) error {
			claimed, err := svc.Claim(ctx, queueName, message.ClaimOptions{})
			for err == nil && len(claimed) == 0 { // as above
				claimed, err = svc.Claim(ctx, queueName, message.ClaimOptions{})
			}
			if err == nil {
				held[i] = claimed[0]
			}
			return err
		},
		succeed: func(i int) error {
			_, err := svc.Succeed(ctx, queueName, held[i].ID, &held[i].Receipt)
			return err
		},
	}
}

// phases measures each operation by itself, and notes its rate.
func phases(clients, total int, ops operations, note func(operation string, rate float64)) error {
	for _, phase := range []struct {
		name string
		do   func(i int) error
	}{{"enqueue", ops.enqueue}, {"claim", ops.claim}, {"succeed", ops.succeed}, {"round", ops.round}} {
		rate, err := work(clients, total, phase.do)
		if err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		note(phase.name, rate)
	}
	return nil
}
