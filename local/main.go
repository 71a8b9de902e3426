// Local runs all of Redrive in one process: every route, the sweeper, and an
// embedded store. It knows nothing but how to start and stop it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redrivehq/redrive/local/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(server.Main(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}
