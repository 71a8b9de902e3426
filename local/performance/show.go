package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/redrivehq/redrive/local/chart"

	"github.com/redrivehq/redrive/local/tables"
)

func rate(r result) float64 { return r.rate }

func (b *bench) clientsTable() string {
	var cells []cell
	var names []string
	for _, n := range clients() {
		cells, names = append(cells, cell{clients: n, payload: standard}), append(names, tables.Count(n))
	}
	return b.ratesTable("clients", names, cells)
}

func (b *bench) payloadTable() string {
	var cells []cell
	var names []string
	for _, n := range payloads() {
		cells, names = append(cells, cell{clients: many, payload: n}), append(names, tables.Size(n))
	}
	return b.ratesTable("payload", names, cells)
}

// ratesTable has a row for each cell, and rate and latency for each store.
func (b *bench) ratesTable(varied string, names []string, cells []cell) string {
	table := [][]string{{varied}}
	for _, s := range b.stores {
		table[0] = append(table[0], s.name+", messages/s", "p50, ms", "p99, ms")
	}
	for i, c := range cells {
		row := []string{names[i]}
		for _, s := range b.stores {
			c.store = s.name
			for _, of := range []func(result) float64{
				rate, func(r result) float64 { return r.p50 }, func(r result) float64 { return r.p99 },
			} {
				row = append(row, b.shown(c, of))
			}
		}
		table = append(table, row)
	}
	return tables.Headed(table)
}

func (b *bench) waitingTable() string {
	table := [][]string{{"waiting"}}
	for _, s := range b.stores {
		for _, n := range inFront() {
			table[0] = append(table[0], s.name+", "+clientsAtWork(n)+", messages/s")
		}
		table[0] = append(table[0], "memory, MiB")
	}
	for _, waiting := range b.waiting {
		row := []string{tables.Count(waiting)}
		for _, s := range b.stores {
			var c cell
			for _, n := range inFront() {
				c = cell{s.name, n, standard, waiting}
				row = append(row, b.shown(c, rate))
			}
			row = append(row, b.shown(c, func(r result) float64 { return r.memory }))
		}
		table = append(table, row)
	}
	return tables.Headed(table)
}

func (b *bench) costsTable() string {
	table := [][]string{{"payload"}}
	for _, s := range b.stores {
		table[0] = append(table[0], s.name+", server, s")
		if b.countsEngine(s) {
			table[0] = append(table[0], "engine, s")
		}
		table[0] = append(table[0], "memory at rest, MiB", "at most, MiB", "added per 1,000 messages, MiB")
	}
	for _, n := range payloads() {
		row := []string{tables.Size(n)}
		for _, s := range b.stores {
			c := cell{store: s.name, clients: many, payload: n}
			row = append(row, b.shown(c, func(r result) float64 { return r.processor }))
			if b.countsEngine(s) {
				row = append(row, b.shown(c, func(r result) float64 { return r.engine }))
			}
			row = append(row, b.shown(c, func(r result) float64 { return r.rest }),
				b.shown(c, func(r result) float64 { return r.most }),
				b.shown(c, func(r result) float64 { return (r.memory - r.rest) / r.messages * 1_000 }))
		}
		table = append(table, row)
	}
	return tables.Headed(table)
}

// countsEngine reports whether a process besides the server works for the store,
// and it is known which.
func (b *bench) countsEngine(s store) bool { return s.name == dynamoDB && b.enginePID != 0 }

func (b *bench) clientsPicture() chart.Chart {
	return chart.Chart{
		Title:  "Messages a second, by clients",
		X:      chart.Axis{Label: "clients", Log: true},
		Y:      chart.Axis{Label: "messages a second", Log: true},
		Series: b.lines(clients(), func(n int) cell { return cell{clients: n, payload: standard} }),
	}
}

func (b *bench) payloadPicture() chart.Chart {
	return chart.Chart{
		Title:  fmt.Sprintf("Messages a second, by payload, with %d clients", many),
		X:      chart.Axis{Label: "payload (bytes)", Log: true},
		Y:      chart.Axis{Label: "messages a second", Log: true},
		Series: b.lines(payloads(), func(n int) cell { return cell{clients: many, payload: n} }),
	}
}

func (b *bench) waitingPicture() chart.Chart {
	c := chart.Chart{
		Title: "Messages a second, by how many others wait",
		X:     chart.Axis{Label: "messages waiting", Log: true},
		Y:     chart.Axis{Label: "messages a second", Log: true},
	}
	for _, n := range slices.Backward(inFront()) {
		lines := b.lines(b.waiting, func(waiting int) cell { return cell{clients: n, payload: standard, waiting: waiting} })
		for i := range lines {
			lines[i].Name += ", " + clientsAtWork(n)
		}
		c.Series = append(c.Series, lines...)
	}
	return c
}

// lines has one for each store: its rate at each of the values.
func (b *bench) lines(values []int, at func(int) cell) []chart.Series {
	var all []chart.Series
	for _, s := range b.stores {
		line := chart.Series{Name: s.name}
		for _, v := range values {
			c := at(v)
			c.store = s.name
			if b.results[c] != nil {
				line.Points = append(line.Points, [2]float64{float64(v), b.median(c, rate)})
			}
		}
		all = append(all, line)
	}
	return all
}

func clientsAtWork(n int) string {
	if n == 1 {
		return "1 client"
	}
	return tables.Count(n) + " clients"
}

// shown is the median of a cell, or a dash if it was not measured.
func (b *bench) shown(c cell, of func(result) float64) string {
	if b.results[c] == nil {
		return "–"
	}
	return number(b.median(c, of))
}

// number writes two digits, which is what turns have in common, at best.
func number(v float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 2, 64), 64) // it is a number
	if rounded >= 1_000 {
		return tables.Count(int(rounded))
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
