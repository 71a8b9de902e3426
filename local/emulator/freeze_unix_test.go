//go:build unix

package emulator_test

import (
	"os"
	"syscall"
)

// freeze stops a process, as Lambda does between two events.
func freeze(p *os.Process) { p.Signal(syscall.SIGSTOP) }

func thaw(p *os.Process) { p.Signal(syscall.SIGCONT) }
