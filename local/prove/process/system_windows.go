package process

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

func startApart(*exec.Cmd) error { return errors.ErrUnsupported }

func endWithParent(*exec.Cmd) {}

func pause(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }

// killed cannot be told from an exit code of 1.
func killed(*os.ProcessState) bool { return true }

func usage(int) (cpu time.Duration, memory int64, err error) { return 0, 0, errors.ErrUnsupported }
