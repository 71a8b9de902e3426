package main

import (
	"fmt"
	"slices"

	"github.com/redrivehq/redrive/local/chart"

	"github.com/redrivehq/redrive/local/tables"
)

// costs writes what messages and idle workers cost.
func costs(d *document) error {
	for _, t := range costTables(counts()) {
		if err := d.replace(t); err != nil {
			return err
		}
	}
	return d.draw("payload", payloadChart(counts()))
}

func costTables(c Counts) []*table {
	return []*table{payloads(c), retries(c), waiting(), polls(c)}
}

// theirs writes the dollars of a million messages in DynamoMQ; marked, if they are
// not counted.
func theirs(bytes int, failing float64) string {
	text := money(dynamoMQ(bytes).at(failing).dollars())
	if slices.ContainsFunc(dynamoMQCounts(), func(c counted) bool { return c.bytes == bytes }) {
		return text
	}
	return "~ " + text
}

func payloads(c Counts) *table {
	t := newTable("payloads", "payload", "WRU", "RRU", "DynamoDB", "Redrive, JSON", "Redrive, base64", "SQS", "SQS by ten",
		"DynamoMQ")
	for i, p := range c.Orders {
		own := redrive(p).at(0)
		t.add(tables.Size(p.Bytes), fmt.Sprint(own.writes), fmt.Sprint(own.reads), money(own.database()),
			"**"+money(own.dollars())+"**", money(redrive(c.Noise[i]).at(0).dollars()),
			money(sqs(p.Bytes, false).at(0).dollars()), money(sqs(p.Bytes, true).at(0).dollars()), theirs(p.Bytes, 0))
	}
	return t
}

// retryRates are shares of attempts that fail.
func retryRates() []float64 { return []float64{0, 0.1, 0.5} }

func retries(c Counts) *table {
	head := []string{"payload"}
	for _, name := range []string{"Redrive", "SQS", "DynamoMQ"} {
		for _, failing := range retryRates() {
			head = append(head, fmt.Sprintf("%s, %.0f %%", name, 100*failing))
		}
	}
	t := newTable("retries", head...)
	for _, p := range c.Orders {
		row := []string{tables.Size(p.Bytes)}
		for _, failing := range retryRates() {
			row = append(row, "**"+money(redrive(p).at(failing).dollars())+"**")
		}
		for _, failing := range retryRates() {
			row = append(row, money(sqs(p.Bytes, false).at(failing).dollars()))
		}
		for _, failing := range retryRates() {
			row = append(row, theirs(p.Bytes, failing))
		}
		t.add(row...)
	}
	return t
}

// waiting shows what DynamoMQ reads where messages wait: at least one receive a
// message.
func waiting() *table {
	t := newTable("waiting", "payload", "RRU of a receive", "DynamoMQ, at least")
	for _, c := range dynamoMQCounts() {
		least := usage{writes: c.happy.writes, reads: c.receive}
		t.add(tables.Size(c.bytes), fmt.Sprint(c.receive), money(least.dollars()))
	}
	return t
}

func polls(c Counts) *table {
	t := newTable("polls", "workers", "polls a second, each", "Redrive", "SQS, waiting 20 s", "DynamoMQ, at least")
	for _, of := range []struct {
		workers int
		polls   float64
	}{{1, 0.2}, {1, 1}, {1, 10}, {10, 1}, {100, 1}, {100, 10}} {
		t.add(tables.Count(of.workers), fmt.Sprint(of.polls), "**"+money(idle(c, of.workers, of.polls))+"**",
			money(idleSQS(of.workers)), money(idleDynamoMQ(of.workers, of.polls)))
	}
	return t
}

func payloadChart(c Counts) chart.Chart {
	line := func(name string, dashed bool, dollars func(i, bytes int) float64) chart.Series {
		s := chart.Series{Name: name, Dashed: dashed}
		for i, p := range c.Orders {
			s.Points = append(s.Points, [2]float64{float64(p.Bytes) / kb, dollars(i, p.Bytes)})
		}
		return s
	}
	return chart.Chart{
		Title: "A million messages, none of which fails",
		X:     chart.Axis{Label: "payload (KB)", Log: true},
		Y:     chart.Axis{Label: "dollars", Log: true},
		Series: []chart.Series{
			line("Redrive, JSON", false, func(i, _ int) float64 { return redrive(c.Orders[i]).at(0).dollars() }),
			line("Redrive, base64", false, func(i, _ int) float64 { return redrive(c.Noise[i]).at(0).dollars() }),
			line("DynamoMQ", true, func(_, bytes int) float64 { return dynamoMQ(bytes).at(0).dollars() }),
			line("SQS", false, func(_, bytes int) float64 { return sqs(bytes, false).at(0).dollars() }),
			line("SQS by ten", false, func(_, bytes int) float64 { return sqs(bytes, true).at(0).dollars() }),
		},
	}
}
