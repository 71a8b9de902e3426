package load

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Verb is what a client asks for.
type Verb int

// The verbs, and Round for all that a message needs.
const (
	Enqueue Verb = iota
	Claim
	Succeed
	Fail
	Round
	verbs
)

// String implements fmt.Stringer.
func (v Verb) String() string {
	return [verbs]string{"enqueue", "claim", "succeed", "fail", "round"}[v]
}

// NoAnswer stands for the status of a request that none came for: whether it was
// done is not known.
const NoAnswer = 0

// Latency is how long something took.
type Latency struct{ P50, P99, P999, Max time.Duration }

// Tally is what became of the requests of one verb.
type Tally struct {
	Count   int64         // of those that were done; claims that found a message
	Latency               // theirs
	Errors  map[int]int64 // how many of the others by status, or NoAnswer
}

// Window is a part of the time, and the rounds that ended in it.
type Window struct {
	End     time.Duration // since the beginning
	Count   int64
	Latency       // of the rounds
	Errors  int64 // of all verbs
}

// Report is what was measured. Enqueued is the sum of Succeeded, Dead and Left,
// unless answers were lost.
type Report struct {
	Took                            time.Duration // until the last round ended
	Tallies                         [verbs]Tally
	Windows                         []Window
	Enqueued, Succeeded, Dead, Left int64 // messages
	Drained                         int64 // those of Succeeded that did so after the measurement
	Empty                           int64 // claims that found no message
	NotStarted                      int64 // messages of an open loop that no client was free for
}

// Rate is how often a verb was done in a second.
func (r *Report) Rate(verb Verb) float64 {
	return float64(r.Tallies[verb].Count) / r.Took.Seconds()
}

// recorder takes notes for all clients.
type recorder struct {
	mu          sync.Mutex
	began       time.Time
	tallies     [verbs]tally
	empty, dead int64
	window      *hdrhistogram.Histogram // of rounds
	errors      int64                   // in the window
	windows     []Window
}

type tally struct {
	latency *hdrhistogram.Histogram
	errors  map[int]int64
}

// newHistogram counts microseconds up to an hour to three digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Hour.Microseconds(), 3)
}

func newRecorder() *recorder {
	r := &recorder{began: time.Now(), window: newHistogram()}
	for v := range r.tallies {
		r.tallies[v] = tally{newHistogram(), make(map[int]int64)}
	}
	return r
}

// answered notes an answer and returns whether it says that the verb was done.
func (r *recorder) answered(verb Verb, status int, took time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case status < http.StatusOK || status >= http.StatusMultipleChoices:
		r.tallies[verb].errors[status]++
		r.errors++
		return false
	case status == http.StatusNoContent:
		r.empty++
		return true
	}
	us := min(took.Microseconds(), time.Hour.Microseconds())
	_ = r.tallies[verb].latency.RecordValue(us) // it is in the range
	if verb == Round {
		_ = r.window.RecordValue(us)
	}
	return true
}

// buried notes that a failure was a message's last.
func (r *recorder) buried() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead++
}

// watch ends a window every so often, and a last one when it is told to stop.
func (r *recorder) watch(every time.Duration, each func(Window)) (stop func()) {
	ended := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				r.endWindow()
				return
			case <-ticker.C:
			}
			if w := r.endWindow(); each != nil {
				each(w)
			}
		}
	})
	return func() {
		close(ended)
		watcher.Wait()
	}
}

func (r *recorder) endWindow() Window {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := Window{
		End: time.Since(r.began), Count: r.window.TotalCount(), Latency: latency(r.window), Errors: r.errors,
	}
	r.window.Reset()
	r.errors = 0
	r.windows = append(r.windows, w)
	return w
}

func (r *recorder) report() *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := &Report{Took: time.Since(r.began), Windows: r.windows, Empty: r.empty, Dead: r.dead}
	for v, t := range r.tallies {
		report.Tallies[v] = Tally{t.latency.TotalCount(), latency(t.latency), maps.Clone(t.errors)}
	}
	report.Enqueued, report.Succeeded = report.Tallies[Enqueue].Count, report.Tallies[Succeed].Count
	return report
}

func latency(h *hdrhistogram.Histogram) Latency {
	at := func(percent float64) time.Duration {
		return time.Duration(h.ValueAtPercentile(percent)) * time.Microsecond
	}
	return Latency{at(50), at(99), at(99.9), time.Duration(h.Max()) * time.Microsecond}
}
