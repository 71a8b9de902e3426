//go:build unix

package process

import (
	"os"
	"syscall"
)

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// killed reports whether a process was ended by a signal that it cannot notice.
func killed(p *os.ProcessState) bool {
	status, ok := p.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}
