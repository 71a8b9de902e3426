//go:build unix && !linux

package process

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

func startApart(*exec.Cmd) error { return errors.ErrUnsupported }

func endWithParent(*exec.Cmd) {}

func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func usage(int) (cpu time.Duration, memory int64, err error) { return 0, 0, errors.ErrUnsupported }
