package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

func wantDollars(t *testing.T, of string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s costs %.6f dollars, want %.6f", of, got, want)
	}
}

func TestRedrive(t *testing.T) {
	t.Parallel()
	small := redrive(Payload{Happy: Units{Writes: 8, Reads: 0.5}, Failure: Units{Writes: 7, Reads: 1.5}})
	for failing, want := range map[float64]float64{
		0: 8*0.625 + 0.5*0.125 + 3*1.22,
		// One attempt of ten fails: one failure for nine successes.
		0.1: 8.7225 + (7*0.625+1.5*0.125+2*1.22)/9,
		// Every other one: a failure for each success.
		0.5: 8.7225 + 7.0025,
	} {
		wantDollars(t, fmt.Sprintf("a message of which %v fail", failing), small.at(failing).dollars(), want)
	}
	wantDollars(t, "the share of DynamoDB", small.at(0).database(), 5.0625)
}

func TestSQS(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		bytes   int
		batched bool
		failing float64
		want    float64 // requests
	}{
		{100, false, 0, 3},
		{64 * kb, false, 0, 3},
		{64*kb + 1, false, 0, 5}, // sent and received as two
		{256 * kb, false, 0, 9},
		{1 * kb, false, 0.5, 5},
		{256 * kb, false, 0.5, 14},
		{1 * kb, true, 0, 0.3},
		{10 * kb, true, 0, 0.5},     // 100 KB are two requests
		{256 * kb, true, 0, 8.25},   // four fit into a batch of 1 MiB: 16 + 16 + 1
		{256 * kb, true, 0.5, 12.5}, // and 16 + 1
	} {
		name := fmt.Sprintf("%d bytes, batched %v, of which %v fail", tt.bytes, tt.batched, tt.failing)
		wantDollars(t, name, sqs(tt.bytes, tt.batched).at(tt.failing).dollars(), tt.want*0.40)
	}
}

func TestTheRuleForDynamoMQGivesItsCounts(t *testing.T) {
	t.Parallel()
	for _, c := range dynamoMQCounts() {
		if got, want := dynamoMQ(c.bytes), (life{c.happy, c.failure}); got != want {
			t.Errorf("with %d bytes the rule gives %v, counted were %v", c.bytes, got, want)
		}
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	c := Counts{Poll: Units{Reads: 0.5}, Look: Units{Reads: 0.5}}
	const month = 2.628 // million seconds
	wantDollars(t, "a worker that polls each second", idle(c, 1, 1), (0.5*0.125+0.1*0.125+1.22)*month)
	wantDollars(t, "one that polls every ten seconds", idle(c, 1, 0.1), (0.05*0.125+0.05*0.125+0.122)*month)
	wantDollars(t, "three of them", idle(c, 3, 0.1), 3*idle(c, 1, 0.1))
	wantDollars(t, "a worker that waits on SQS", idleSQS(1), 0.40/20*month)
	wantDollars(t, "a worker of DynamoMQ", idleDynamoMQ(2, 1), 2*0.5*0.125*month)
}

// Two documents show the price of the same message.
func TestThePricesAreThoseOfCapacity(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/capacity.md")
	if err != nil {
		t.Fatal(err)
	}
	p := counts().Orders[1]
	u := redrive(p).at(0)
	want := fmt.Sprintf("| up to 1 KB | %v | %d | %v | %v | %.2f | %.2f | **%.2f** |\n",
		u.calls, p.Happy.Requests, u.writes, u.reads, u.database(), u.calls*callPrice, u.dollars())
	if p.Bytes != kb || !strings.Contains(string(text), want) {
		t.Errorf("docs/capacity.md does not have the row\n%s", want)
	}
}

func TestTheDocumentShowsTheCosts(t *testing.T) {
	t.Parallel()
	d, err := openDocument("../../docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range costTables(counts()) {
		if _, old, _, ok := d.place(table.name); !ok || old != table.String() {
			t.Errorf("%s shows of %q\n%s\nwant, by make model,\n%s", d.path, table.name, old, table)
		}
	}
}
