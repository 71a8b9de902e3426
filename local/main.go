// Local runs all of Redrive in one process: every route, the sweeper, and an
// embedded store; with the argument bench, it loads one that runs. It knows
// nothing but how to start and stop them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redrivehq/redrive/local/load"
	"github.com/redrivehq/redrive/local/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "bench" {
		os.Exit(load.Main(ctx, args[1:], os.Getenv, os.Stdout, os.Stderr))
	}
	if len(args) > 0 && (args[0] == "-h" || strings.TrimLeft(args[0], "-") == "help") {
		fmt.Fprintln(os.Stderr, "`go run ./local bench -help` tells how to load and measure a server.")
	}
	os.Exit(server.Main(ctx, args, os.Getenv, os.Stdout, os.Stderr))
}
