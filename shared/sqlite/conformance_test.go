package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/redrivehq/redrive/shared/sqlite"
	"github.com/redrivehq/redrive/shared/storetest"
)

func TestConformanceInMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, _ func() time.Time) storetest.Harness {
		t.Helper()
		return harness(t, sqlite.InMemory)
	})
}

func TestConformanceOfFile(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, _ func() time.Time) storetest.Harness {
		t.Helper()
		return harness(t, filepath.Join(t.TempDir(), "redrive.db"))
	})
}

func harness(t *testing.T, path string) storetest.Harness {
	t.Helper()
	store, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return storetest.Harness{Store: store}
}
