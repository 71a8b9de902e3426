package dynamo

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Usage is what calls have cost.
type Usage struct {
	Requests   int     // answered ones: those that the SDK repeated count once
	WriteUnits float64 // write request units, of table and index
	ReadUnits  float64
	// LostWrites are those whose condition did not hold. DynamoDB reports no
	// capacity for them and bills one unit a KB, which is in WriteUnits.
	LostWrites int
	// Left are the shards that a claim left to other claimers.
	Left int
	// Spread is the widest choice that a claim had to make; zero if there was none.
	Spread float64
}

// Meter adds up what the calls under a context cost.
type Meter struct {
	mu    sync.Mutex
	usage Usage
}

// Usage returns the sum so far.
func (m *Meter) Usage() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage
}

type meterKey struct{}

// WithMeter returns a context whose calls are metered.
func WithMeter(ctx context.Context) (context.Context, *Meter) {
	m := new(Meter)
	return context.WithValue(ctx, meterKey{}, m), m
}

// UsageOf returns what the calls under the context have cost so far; zero without
// a meter.
func UsageOf(ctx context.Context) Usage {
	if m := metered(ctx); m != nil {
		return m.Usage()
	}
	return Usage{}
}

// metered returns the context's meter; nil without one.
func metered(ctx context.Context) *Meter {
	m, _ := ctx.Value(meterKey{}).(*Meter)
	return m
}

// add changes the usage; without a meter it does nothing.
func (m *Meter) add(change func(*Usage)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.usage)
}

// consumed counts one request.
func consumed(ctx context.Context, write bool, capacity []types.ConsumedCapacity) {
	metered(ctx).add(func(u *Usage) {
		u.Requests++
		for _, c := range capacity {
			if c.CapacityUnits == nil {
				continue
			}
			if write {
				u.WriteUnits += *c.CapacityUnits
			} else {
				u.ReadUnits += *c.CapacityUnits
			}
		}
	})
}

const unitBytes = 1024 // of an item, for one write unit

// lostWrite counts a write whose condition did not hold on the item found.
func lostWrite(ctx context.Context, found map[string]types.AttributeValue) {
	metered(ctx).add(func(u *Usage) {
		u.Requests++
		u.LostWrites++
		u.WriteUnits += float64(max((itemSize(found)+unitBytes-1)/unitBytes, 1))
	})
}
