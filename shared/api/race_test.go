package api_test

import (
	"sync"
	"testing"
)

// A PUT answers with the queue that it wrote, whatever happens to it then: of
// all routes of a queue it is the one that knows no 404.
func TestPutQueueIsNeverNotFound(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var both sync.WaitGroup
	both.Go(func() {
		for range 200 {
			if a := f.do(t, "PUT", "/queues/raced", `{"max_retries":7}`); a.status != 200 && a.status != 201 {
				t.Errorf("PUT = %d %s", a.status, a.body)
			}
		}
	})
	both.Go(func() {
		for range 200 {
			if a := f.do(t, "DELETE", "/queues/raced", ""); a.status != 204 && a.status != 404 {
				t.Errorf("DELETE = %d %s", a.status, a.body)
			}
		}
	})
	both.Wait()
}
