package emulator

import (
	"context"
	"net"
	"sync"
)

// taken are the addresses that this process has given out: the emulator takes its
// own a moment later, and until then others must not have it.
var taken sync.Map //nolint:gochecknoglobals // ports are the machine's

// freeAddress returns an address of this machine at which nobody listens.
func freeAddress(ctx context.Context) (string, error) {
	for {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		address := l.Addr().String()
		if err := l.Close(); err != nil {
			return "", err
		}
		if _, before := taken.LoadOrStore(address, true); !before {
			return address, nil
		}
	}
}

// dial reports whether somebody listens at the address.
func dial(ctx context.Context, address string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}
