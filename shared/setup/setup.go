// Package setup wires a program: it is the only one that reads the environment,
// makes AWS clients, and starts Lambda functions. All of it happens once, before
// the first event.
//
// It knows every package below it, and no rule of the queue, no route, and no
// expression of DynamoDB.
package setup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/dynamo"
	"github.com/redrivehq/redrive/shared/message"
)

// Variables of the environment that a function reads itself; the SDK reads its
// own.
const (
	// Table names the table. Required.
	Table = "REDRIVE_TABLE"
	// Endpoint is where DynamoDB is, if it is not where the region says. Empty
	// counts as unset.
	Endpoint = "AWS_ENDPOINT_URL_DYNAMODB"
	// samLocal is set to true by `sam local`.
	samLocal = "AWS_SAM_LOCAL"
)

// reserve is what a function keeps of its time to answer that it ran out.
const reserve = time.Second

// HTTP runs the function of that name, which answers events of the HTTP API. It
// does not return.
func HTTP(name string) {
	log := logger()
	start((&api.API{Service: NewService(mustOpen(log)), Log: log}).Function(name))
}

// Fallback runs the function for what no route matches. It touches no table, and
// needs no variable. It does not return.
func Fallback() {
	log := logger()
	start((&api.API{Service: NewService(nil), Log: log}).Function(api.Fallback))
}

func start(handle api.Handler) {
	lambda.Start(func(
		ctx context.Context, event events.APIGatewayV2HTTPRequest,
	) (events.APIGatewayV2HTTPResponse, error) {
		ctx, cancel := invocation(ctx)
		defer cancel()
		return handle(ctx, event)
	})
}

// invocation returns the context of one: metered, and over a moment before the
// function's own time is.
func invocation(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, _ = dynamo.WithMeter(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, deadline.Add(-reserve))
	}
	return context.WithCancel(ctx)
}

// mustOpen returns the store on the table that the environment names, or ends the
// program with a sentence that says what is wrong with it.
func mustOpen(log *slog.Logger) *dynamo.Store {
	store, err := open(context.Background(), os.Getenv, log)
	if err != nil {
		log.Error("cannot start", "error", err)
		os.Exit(1)
	}
	return store
}

// isTableName reports what DynamoDB allows ("Naming rules and data types").
func isTableName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	return len(name) >= 3 && len(name) <= 255 && strings.Trim(name, letters) == ""
}

// CheckEndpoint returns an error if the value of that name is not where an engine
// can be.
func CheckEndpoint(name, value string) error {
	if u, err := url.Parse(value); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%s is %q, want a URL such as http://127.0.0.1:8000", name, value)
	}
	return nil
}

// open checks the environment, every variable of it before it says what is wrong.
func open(ctx context.Context, getenv func(string) string, log *slog.Logger) (*dynamo.Store, error) {
	table, endpoint := getenv(Table), getenv(Endpoint)
	var errs []error
	switch {
	case table == "":
		errs = append(errs, errors.New(Table+" is not set: it names the DynamoDB table"))
	case !isTableName(table):
		errs = append(errs, fmt.Errorf("%s is %q, which cannot be the name of a DynamoDB table", Table, table))
	}
	if endpoint == "" && getenv(samLocal) == "true" {
		errs = append(errs, errors.New(Endpoint+" is not set: under `sam local` it must say where the DynamoDB engine is,"+
			" or the functions would use the real one; see local/env.json"))
	}
	if endpoint != "" {
		errs = append(errs, CheckEndpoint(Endpoint, endpoint))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.LoggerFunc(
		func(class logging.Classification, format string, v ...any) {
			log.Warn("AWS SDK", "class", string(class), "text", fmt.Sprintf(format, v...))
		})))
	if err != nil {
		return nil, err
	}
	where := "in " + cfg.Region
	if endpoint != "" {
		where += " at " + endpoint + ", which is " + Endpoint
	}
	if getenv(samLocal) == "true" {
		where += " (inside a container, localhost is the container itself; see local/env.json)"
	}
	return dynamo.New(dynamo.Options{
		Client: dynamo.NewClient(cfg), Table: table, Where: where, Now: time.Now, Log: log,
	}), nil
}

// Store is all that an engine keeps.
type Store interface {
	message.Store
	message.QueueStore
	message.SweepStore
}

// NewService puts the rules on the store, with the machine's clock and
// randomness.
func NewService(store Store) *message.Service {
	return &message.Service{
		Store: store, Queues: store, Sweeps: store, Now: time.Now,
		Random: func(b []byte) { _, _ = rand.Read(b) }, // never fails: see its documentation
	}
}
