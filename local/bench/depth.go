package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redrivehq/redrive/shared/message"
	"github.com/redrivehq/redrive/shared/setup"
	"github.com/redrivehq/redrive/shared/sqlite"
)

// backlog is a store in which so many messages wait.
type backlog struct {
	depth int
	store *sqlite.Store
	svc   *message.Service
	took  time.Duration // the shortest mean time of a claim
}

const turns, claims = 9, 200

// claimDepth measures a lone claimer in front of backlogs of different length.
// They are measured in turns, so that what else the machine does meets all of
// them alike.
func claimDepth(ctx context.Context, dir, waiting string) error {
	var backlogs []*backlog
	for text := range strings.SplitSeq(waiting, ",") {
		depth, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		b, err := fill(ctx, filepath.Join(dir, text+".db"), depth)
		if err != nil {
			return err
		}
		defer b.store.Close() //nolint:errcheck // a temporary file
		backlogs = append(backlogs, b)
	}
	for range turns {
		for _, b := range backlogs {
			if err := b.measure(ctx); err != nil {
				return err
			}
		}
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "\nwaiting\tone claim\tratio\t")
	for _, b := range backlogs {
		fmt.Fprintf(out, "%d\t%v\t%.2f\t\n", b.depth, b.took, float64(b.took)/float64(backlogs[0].took))
	}
	return out.Flush()
}

// fill makes a backlog, which stays as long while it is measured.
func fill(ctx context.Context, file string, depth int) (*backlog, error) {
	progress("filling a store with %d messages", depth)
	store, err := sqlite.Open(file)
	if err != nil {
		return nil, err
	}
	b := &backlog{depth: depth, store: store, svc: setup.NewService(store)}
	_, err = work(64, depth+turns*claims, func(int) error {
		_, _, err := b.svc.Enqueue(ctx, "bench", message.Draft{Payload: payload})
		return err
	})
	return b, err
}

func (b *backlog) measure(ctx context.Context) error {
	began := time.Now()
	for range claims {
		if _, err := b.svc.Claim(ctx, "bench", message.ClaimOptions{}); err != nil {
			return err
		}
	}
	if took := time.Since(began) / claims; b.took == 0 || took < b.took {
		b.took = took
	}
	return nil
}
