package server_test

import (
	"crypto/rand"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/local/stories"
	"github.com/redrivehq/redrive/shared/dynamo/dynamotest"
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
	t.Run("on DynamoDB", func(t *testing.T) {
		t.Parallel()
		cfg := server.Config{DynamoDB: dynamotest.Endpoint(t), Table: "stories-" + rand.Text()}
		url := start(t, cfg)
		_, health := request(t, http.MethodGet, url+"/health", "")
		if !strings.Contains(health, `"status":"ok","store":"dynamodb"`) {
			t.Errorf("GET /health = %s", health)
		}
		stories.Run(t, url, stories.Options{})
	})
}
