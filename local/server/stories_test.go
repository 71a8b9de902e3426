package server_test

import (
	"path/filepath"
	"testing"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/local/stories"
	"github.com/redrivehq/redrive/shared/sqlite"
)

func TestStories(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, data string }{
		{"in memory", sqlite.InMemory},
		{"in a file", filepath.Join(t.TempDir(), "folder", "redrive.db")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			stories.Run(t, start(t, server.Config{Data: tt.data}), stories.Options{})
		})
	}
}
