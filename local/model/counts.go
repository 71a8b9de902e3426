package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"time"
)

// Counts are what the store asks of DynamoDB. They are measured: TestCounts
// writes them, and fails when they change.
type Counts struct {
	Orders []Payload `json:"orders"` // JSON, which zstd makes small
	Noise  []Payload `json:"noise"`  // base64 of random bytes, which the store keeps as it is
	Poll   Units     `json:"poll"`   // a claim of nothing, of one shard
	Look   Units     `json:"look"`   // what it adds when it looks at the leases
}

// Payload is what a message with a payload of so many bytes costs.
type Payload struct {
	Bytes   int   `json:"bytes"`
	Happy   Units `json:"happy"`   // from enqueue by claim to success
	Failure Units `json:"failure"` // what each failed attempt adds: a claim and its answer
}

// Units are what DynamoDB bills.
type Units struct {
	Requests int     `json:"requests"`
	Writes   float64 `json:"writes"` // write request units
	Reads    float64 `json:"reads"`  // read request units
}

func (u Units) minus(other Units) Units {
	return Units{u.Requests - other.Requests, u.Writes - other.Writes, u.Reads - other.Reads}
}

const kb = 1024

// lookEvery is how often the empty claims of an instance look at the leases.
const lookEvery = 5 * time.Second

//go:embed counts.json
var measured []byte

func counts() Counts {
	var c Counts
	if err := json.Unmarshal(measured, &c); err != nil {
		panic(fmt.Sprintf("counts.json: %v", err)) // it is part of the program
	}
	return c
}
