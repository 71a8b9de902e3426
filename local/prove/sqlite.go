package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redrivehq/redrive/local/prove/process"
)

// onSQLite is the one-process server as a program of its own, with faults of the
// program and of its disk.
type onSQLite struct {
	disk   *process.Disk
	server *process.Server
	random *rand.Rand
	plain  string // the folder that is the disk; empty for a disk that can be spoiled
	made   map[string]int
}

// diskSize is enough for a part of a campaign.
const diskSize = 256 << 20

// newOnSQLite starts a server. Where the machine lets nobody make disks, the
// faults are those of the program.
func newOnSQLite(ctx context.Context, binary string, random *rand.Rand) (*onSQLite, error) {
	s := &onSQLite{random: random, made: make(map[string]int)}
	var err error
	if s.disk, err = process.Small(ctx, diskSize); err != nil {
		if os.Geteuid() == 0 {
			return nil, err
		}
		if s.plain, err = os.MkdirTemp("", "redrive-prove-"); err != nil {
			return nil, err
		}
		s.disk = process.Plain(s.plain)
	}
	if s.server, err = process.Start(ctx, binary, s.disk); err != nil {
		return nil, errors.Join(err, s.remove()) //nolint:contextcheck // it is removed whatever becomes of ctx
	}
	return s, nil
}

func (s *onSQLite) urls() []string { return []string{s.server.URL} }

func (s *onSQLite) lossy() bool { return false } // it is one write to its store, in one process

func (s *onSQLite) skew() time.Duration { return 5 * time.Millisecond } // one clock, in whole milliseconds

func (s *onSQLite) faults() (made, deaths map[string]int) { return s.made, nil }

func (s *onSQLite) spoil(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(200+s.random.IntN(1_500)) * time.Millisecond):
		}
		// A fault that has begun is ended, whatever becomes of ctx.
		if err := s.fault(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("%w\nthe server's last words:\n%s", err, s.server.Log())
		}
	}
}

// fault makes one, and ends it.
func (s *onSQLite) fault(ctx context.Context) error {
	restart := func() error { return s.server.Restart(ctx) }
	switch n := s.random.IntN(20); {
	case n < 2:
		return s.steps("stopped for longer than a lease", s.server.Pause, s.wait(3_200, 4_000), s.server.Resume)
	case n < 6 && s.plain == "":
		return s.steps("disk full", s.disk.Fill, s.wait(200, 1_500), s.disk.Free)
	case n < 9 && s.plain == "":
		return s.steps("file system read-only", s.disk.ReadOnly, s.wait(100, 1_000), s.server.Kill, s.disk.Writable, restart)
	}
	return s.steps("killed", s.server.Kill, restart)
}

// steps makes a fault of that kind.
func (s *onSQLite) steps(kind string, steps ...func() error) error {
	s.made[kind]++
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

// wait is a step that takes so many milliseconds.
func (s *onSQLite) wait(least, most int) func() error {
	return func() error {
		time.Sleep(time.Duration(least+s.random.IntN(most-least)) * time.Millisecond)
		return nil
	}
}

func (s *onSQLite) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(s.server.Stop(ctx), s.remove()) //nolint:contextcheck // it is removed whatever becomes of ctx
}

func (s *onSQLite) remove() error {
	err := s.disk.Close()
	if s.plain != "" {
		err = errors.Join(err, os.RemoveAll(s.plain))
	}
	return err
}
