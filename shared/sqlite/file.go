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
// owner only: payloads are nobody else's business.
func prepareFile(path string) error {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("cannot make the folder: %w; make its parent writable, or choose another file", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the path is the operator's choice
	if err != nil {
		return fmt.Errorf("cannot write the file: %w; make it and its folder writable, or choose another file", err)
	}
	return f.Close()
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
	d, err := os.Open(parent) //nolint:gosec // as above
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
