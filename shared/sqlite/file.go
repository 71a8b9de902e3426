package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// prepareFile makes sure that the file and its folder exist, readable by their
// owner only: payloads are nobody else's business. It returns the file's real
// path, so that two names of one file share its lock.
func prepareFile(path string) (resolved string, err error) {
	if path == "" {
		return "", errors.New("the path is empty; choose a file")
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return "", fmt.Errorf("cannot make the folder: %w; make its parent writable, or choose another file", err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", errors.New("it is no file that can hold messages; choose another")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", fmt.Errorf("cannot write the file: %w; make it and its folder writable, or choose another file", err)
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// hideIndex does for the index of the log what SQLite does for the log itself.
func hideIndex(path string) error {
	err := os.Chmod(path+"-shm", 0o600)
	if errors.Is(err, fs.ErrNotExist) { // not every platform has one
		return nil
	}
	return err
}

// makeDir makes the folder and its parents, and flushes each into its own
// parent: a power cut must not take away the folder of what was acknowledged.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// lockFile takes a lock that ends with the process, however it ends.
func lockFile(path string) (*flock.Flock, error) {
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot lock %s.lock: %w; make the folder writable, or choose another file", path, err)
	case !ok:
		return nil, errors.New("another process uses it; stop that process, or choose another file")
	}
	return lock, nil
}
