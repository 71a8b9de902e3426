// Package server is Redrive as one process: the handlers of package api behind a
// stand-in for API Gateway, the sweeper beside them, and the embedded store
// below. The runner in local/ and the command line start it.
//
// It knows what API Gateway, EventBridge and IAM do in a deployed stack, and
// does the same on a laptop. It knows no rule of the queue.
package server

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/redrivehq/redrive/shared/setup"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// Config says how to run the server.
type Config struct {
	Addr string // host:port; port 0 takes a free one
	Data string // the store's file, or sqlite.InMemory
	// DynamoDB, if it is not empty, is the URL of an engine that keeps the messages
	// instead, in a table of the name Table, which is created.
	DynamoDB, Table string
	Log             *slog.Logger
	// Token, if it is not empty, must come with every request. Without one the
	// server listens on loopback addresses only.
	Token string
	// Ready is called once with the base URL, when requests are answered.
	Ready func(url string)
}

// Main is the program: it reads the arguments, runs the server until ctx ends,
// and returns the exit code: 0 after a clean stop, 1 if it could not start or
// go on, 2 for arguments that it does not know.
func Main(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	cfg := Config{
		Token: getenv("REDRIVE_TOKEN"),
		Ready: func(url string) { fmt.Fprintln(stdout, "Redrive listens on", url) },
	}
	flags := flag.NewFlagSet("redrive", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.Addr, "addr", "127.0.0.1:3000", "listen on this `host:port`; port 0 takes a free one")
	flags.StringVar(&cfg.Data, "data", ".redrive/redrive.db", "keep messages in this `file`, or in "+sqlite.InMemory)
	flags.StringVar(&cfg.DynamoDB, "dynamodb", "", "keep messages in the DynamoDB engine at this `URL` instead")
	flags.StringVar(&cfg.Table, "table", "redrive", "the `name` of its table, which is created")
	format := flags.String("log", "text", "write logs to standard error as `text|json`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	switch *format {
	case "text":
		cfg.Log = slog.New(slog.NewTextHandler(stderr, nil))
	case "json":
		cfg.Log = slog.New(slog.NewJSONHandler(stderr, nil))
	}
	if cfg.Log == nil {
		fmt.Fprintf(stderr, "redrive: -log is text or json, not %q\n", *format)
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "redrive: unknown argument %q; see -help\n", flags.Arg(0))
		return 2
	}
	if err := Run(ctx, cfg); err != nil {
		fmt.Fprintln(stderr, "redrive:", err)
		return 1
	}
	return 0
}

// stopWithin bounds how long requests may take to finish after the end of ctx.
// That is longer than a function may run; a client that still sends or reads
// then is cut off.
const stopWithin = requestTime + time.Second

// gcPercent is what GOGC is set to, unless the environment does. The live heap is
// a few megabytes: at Go's 100 the collector would run seventy times a second
// under load, to save memory that nobody misses. Past softMemory, in bytes, it
// runs as often as it must: bodies of many megabytes may come in at once.
const (
	gcPercent  = 400
	softMemory = 256 << 20
)

// Run serves until ctx ends. Then it takes no new requests, lets those under way
// finish, and closes the store. Errors are written for the person who started
// it.
func Run(ctx context.Context, cfg Config) error {
	if err := checkExposure(cfg); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(gcPercent)
		debug.SetMemoryLimit(softMemory)
	}
	listener, err := listen(ctx, cfg.Addr)
	if err != nil {
		return err
	}
	store, err := openEngine(ctx, cfg)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	svc := setup.NewService(store)
	sweeping, stopSweeping := context.WithCancel(context.WithoutCancel(ctx))
	var sweeper sync.WaitGroup
	sweeper.Go(func() { sweep(sweeping, svc, store, cfg.Log) })
	err = serve(ctx, cfg, listener, newGateway(svc, cfg.Log), store)
	stopSweeping()
	sweeper.Wait()
	return errors.Join(err, store.close())
}

// serve answers requests until ctx ends.
func serve(ctx context.Context, cfg Config, listener net.Listener, gateway http.Handler, store *engine) error {
	health := health(store)
	srv := &http.Server{
		Handler: identify(guard(cfg, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// No http.ServeMux: it redirects paths that it takes for untidy.
			if (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.URL.Path == "/health" {
				health.ServeHTTP(w, r)
				return
			}
			gateway.ServeHTTP(w, r)
		}))),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: requestTime, WriteTimeout: 3 * requestTime,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		cfg.Log.Info("stopping: requests under way finish, no new ones are taken")
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		err := srv.Shutdown(within)
		if errors.Is(err, context.DeadlineExceeded) {
			cfg.Log.Warn("clients that were still sending or reading are cut off")
			err = srv.Close()
		}
		stopped <- err
	})
	defer stop()
	if cfg.Ready != nil {
		cfg.Ready("http://" + listener.Addr().String())
	}
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return <-stopped
}

// listen opens the port.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("another program listens on %s already; stop it, or choose another port with -addr", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; choose another with -addr", addr, err)
	}
	return listener, nil
}

// health says which store and version answer, and 503 if the store does not.
func health(store *engine) http.Handler {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that has closed its sending side ends the request's context, and may
		// still read.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), requestTime)
		defer cancel()
		status, code := "ok", http.StatusOK
		if err := store.check(ctx); err != nil {
			status, code = "unavailable", http.StatusServiceUnavailable
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, "{\"status\":%q,\"store\":%q,\"version\":%q}\n", status, store.name, version)
	})
}
