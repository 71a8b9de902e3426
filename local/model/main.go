// Model computes what Redrive costs beside SQS and DynamoMQ, and how many messages
// a second the index of its table carries. Counts are measured (counts.json),
// prices are those of the public list (prices.go), the index and its claimers are
// simulated. It writes the tables and pictures of docs/cost.md, from the root of
// the repository, the same ones each time.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
}

func run() error {
	d, err := openDocument("docs/cost.md")
	if err != nil {
		return err
	}
	for _, part := range []func(*document) error{costs, carried, newIndex, claimCosts} {
		if err := part(d); err != nil {
			return err
		}
	}
	return d.save()
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "… "+format+"\n", args...)
}
