package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Disk is where a server keeps its file.
type Disk struct {
	dir    string // the folder, as this process finds it
	within string // and as the server does
	image  string // what a small disk is made of; empty on any other
	keeper *exec.Cmd
	hold   io.Closer // until then the keeper lives
}

// Plain is a folder of the machine's own disk, which is there. It can be neither
// filled up nor turned read-only.
func Plain(dir string) *Disk { return &Disk{dir: dir, within: dir} }

// Small makes a disk of so many bytes, at least 8 MiB, with a file system of its
// own. That needs Linux, root, loop devices and the usual tools for ext4.
//
// Only the server and the disk's keeper see it: it is mounted in their own
// namespace. However this process ends, the kernel ends theirs, unmounts the
// disk and gives the loop device back.
func Small(ctx context.Context, size int64) (d *Disk, err error) {
	folder, err := os.MkdirTemp("", "redrive-disk-")
	if err != nil {
		return nil, err
	}
	d = &Disk{within: filepath.Join(folder, "disk"), image: filepath.Join(folder, "image")}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("a small disk: %w", err), os.RemoveAll(folder))
		}
	}()
	if err := errors.Join(os.Mkdir(d.within, 0o700), os.WriteFile(d.image, nil, 0o600)); err != nil {
		return nil, err
	}
	if err := os.Truncate(d.image, size); err != nil {
		return nil, err
	}
	// Blocks as large as SQLite's pages, and none that only root may fill. No journal:
	// when Linux gives one up, an fdatasync that is under way may succeed though what
	// it was for is lost (seen with 6.18), and the server would be blamed for that.
	mkfs := []string{"-q", "-b", strconv.Itoa(page), "-m", "0", "-O", "^has_journal", d.image}
	if err := run(exec.CommandContext(ctx, "mkfs.ext4", mkfs...)); err != nil { //nolint:gosec // a file of ours
		return nil, err
	}
	d.keeper = exec.Command("cat") //nolint:noctx // Close ends it
	if d.hold, err = d.keeper.StdinPipe(); err != nil {
		return nil, err
	}
	if err := startApart(d.keeper); err != nil {
		return nil, err
	}
	d.dir = filepath.Join("/proc", strconv.Itoa(d.keeper.Process.Pid), "root", d.within)
	if err := d.mount(ctx); err != nil {
		return nil, errors.Join(err, d.end())
	}
	return d, nil
}

// page is the least that is written at a time, in bytes.
const page = 4096

// Dir is the folder in which this process finds the server's files.
func (d *Disk) Dir() string { return d.dir }

// Fill takes all the room there is, to the last page. What the server wrote
// before it may write over.
func (d *Disk) Fill() error {
	if d.image == "" {
		return errPlain
	}
	// The last pages are too few for a file that is long: it would need one of them
	// to find its others.
	for n := 0; ; n++ {
		added, err := fill(filepath.Join(d.dir, ballast+strconv.Itoa(n)))
		if err != nil || added == 0 {
			return err
		}
	}
}

const ballast = "ballast-" // begins the names of the files that fill the disk

// fill makes the file longer until not one page more can be written, and returns
// by how many bytes.
func fill(name string) (added int, err error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // on a disk of ours
	if err != nil {
		return 0, err
	}
	for size := 1 << 20; size >= page && err == nil; {
		var n int
		n, err = file.Write(make([]byte, size))
		added += n
		if errors.Is(err, syscall.ENOSPC) {
			size, err = size/2, nil
		}
	}
	return added, errors.Join(err, file.Sync(), file.Close())
}

// Free gives back what Fill took.
func (d *Disk) Free() error {
	if d.image == "" {
		return errPlain
	}
	names, err := filepath.Glob(filepath.Join(d.dir, ballast+"*"))
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// ReadOnly makes the kernel give the file system up, as it does after an I/O
// error: whatever writes fails from now on, in files that are open as well. What
// was flushed stays. From this there is no way back but Writable.
func (d *Disk) ReadOnly() error {
	if d.image == "" {
		return errPlain
	}
	return run(d.command(context.Background(), "mount", "-o", "remount,abort", d.within))
}

// Writable does what an administrator does after ReadOnly: it unmounts the file
// system, has it repaired, and mounts it anew. The server must be dead.
func (d *Disk) Writable() error {
	if d.image == "" {
		return errPlain
	}
	ctx := context.Background()
	if err := run(d.command(ctx, "umount", d.within)); err != nil {
		return err
	}
	err := run(exec.CommandContext(ctx, "fsck.ext4", "-f", "-y", d.image)) //nolint:gosec // a file of ours
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != repaired) {
		return err
	}
	return d.mount(ctx)
}

// repaired is how fsck ends when it has found faults and left none.
const repaired = 1

var errPlain = fmt.Errorf("a plain folder, no small disk: %w", errors.ErrUnsupported)

// Close unmounts a small disk and removes it. The server must be dead. Nothing is
// left to do for a second call.
func (d *Disk) Close() error {
	if d.image == "" {
		return nil
	}
	err := errors.Join(run(d.command(context.Background(), "umount", d.within)), d.end())
	folder := filepath.Dir(d.image)
	d.image = ""
	return errors.Join(err, os.RemoveAll(folder))
}

// end ends the keeper, and with it and the server what is mounted.
func (d *Disk) end() error { return errors.Join(d.hold.Close(), d.keeper.Wait()) }

func (d *Disk) mount(ctx context.Context) error {
	return run(d.command(ctx, "mount", "-o", "loop", d.image, d.within))
}

// command is one that sees the disk.
func (d *Disk) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if d.image != "" {
		args = append([]string{"--target", strconv.Itoa(d.keeper.Process.Pid), "--mount", "--", name}, args...)
		name = "nsenter" // it becomes the program, under the same process ID
	}
	return exec.CommandContext(ctx, name, args...) //nolint:gosec // the server, and tools for file systems
}

// run runs a command that says why it fails.
func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, bytes.TrimSpace(out))
	}
	return nil
}
