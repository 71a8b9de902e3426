// Table creates the DynamoDB table in an engine on this machine, for `sam local`.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/redrivehq/redrive/shared/dynamo"
)

func main() {
	endpoint := flag.String("endpoint", "http://127.0.0.1:8000", "where the engine listens, a `URL`")
	table := flag.String("table", "redrive", "its `name`")
	flag.Parse()
	if err := dynamo.CreateTable(context.Background(), dynamo.NewLocalClient(*endpoint), *table); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}
