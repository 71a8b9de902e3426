package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startApart starts a program that has its mounts to itself.
func startApart(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd.Start()
}

// endWithParent has the kernel kill the program when this one has ended.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// pause returns when each thread of the program, which is a child of this one,
// stands still. One that the kernel writes for does so when that is done.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// tick is the kernel's unit of processor time towards programs, on every
// processor that Go knows.
const tick = time.Second / 100

// usage reads /proc/PID/stat, proc_pid_stat(5). Behind the name of the program,
// which may hold anything, the third field comes first.
func usage(pid int) (cpu time.Duration, memory int64, err error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(name) //nolint:gosec // of the kernel
	if err != nil {
		return 0, 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const user, system, resident = 14 - 3, 15 - 3, 24 - 3
	if len(fields) <= resident {
		return 0, 0, fmt.Errorf("%s: %q", name, text)
	}
	values := make(map[int]int64, 3)
	for _, i := range []int{user, system, resident} {
		if values[i], err = strconv.ParseInt(string(fields[i]), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	return time.Duration(values[user]+values[system]) * tick, values[resident] * int64(os.Getpagesize()), nil
}
