// Package emulator runs the functions as Lambda does: each in a process of its
// own, which AWS's Runtime Interface Emulator hands one event at a time.
//
// It knows Lambda, and nothing of Redrive.
package emulator

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/events"
)

// Help says how the emulator is had.
const Help = "no aws-lambda-rie on the PATH: GOBIN=<a folder on it> go install " +
	"github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie@v0.0.0-20261030222936-bef5c4ba774d"

// Find returns the path of the emulator, or an error that says how it is had.
func Find() (string, error) {
	path, err := exec.LookPath("aws-lambda-rie")
	if err != nil {
		return "", errors.New(Help)
	}
	return filepath.Abs(path)
}

// Build compiles the programs of the packages, as the Makefile does for AWS, but
// for this machine: each becomes a file in the folder, named like its package's.
// It runs in the folder dir of a module.
func Build(ctx context.Context, dir, folder string, packages ...string) error {
	args := append([]string{
		"build", "-trimpath", "-buildvcs=false", "-tags", "lambda.norpc", "-ldflags", "-s -w -buildid=",
		"-o", folder + string(filepath.Separator),
	}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the caller's own packages
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", strings.Join(packages, " "), err, out)
	}
	return nil
}

// Config says what to run.
type Config struct {
	Emulator string   // its path, see Find
	Program  string   // the path of the function's
	Env      []string // all that the function finds in its environment, but for what Lambda sets
}

// Function is a function that runs. It takes one event at a time: whoever comes
// meanwhile waits.
type Function struct {
	url  string
	cmd  *exec.Cmd
	out  journal // what the function writes, and the emulator's frame around it
	log  journal // the emulator's own log
	turn chan struct{}

	ended chan struct{} // closed when the emulator has ended
}

const (
	startTries = 5 // another program may take a free port before the emulator does
	startTime  = 30 * time.Second
	stopTime   = 10 * time.Second
)

// Start starts the emulator. The function itself is started by the first event.
func Start(ctx context.Context, cfg Config) (f *Function, err error) {
	for range startTries {
		if f, err = start(ctx, cfg); !errors.Is(err, errEnded) {
			return f, err
		}
	}
	return nil, err
}

var errEnded = errors.New("the emulator has ended")

func start(ctx context.Context, cfg Config) (*Function, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	runtime, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	f := &Function{
		url:   "http://" + address + "/2015-03-31/functions/function/invocations",
		turn:  make(chan struct{}, 1),
		ended: make(chan struct{}),
	}
	f.cmd = exec.Command(cfg.Emulator, //nolint:gosec,noctx // the caller's own programs, and Stop ends them
		"--runtime-interface-emulator-address", address, "--runtime-api-address", runtime, cfg.Program)
	f.cmd.Env, f.cmd.Dir = cfg.Env, filepath.Dir(cfg.Program)
	f.cmd.Stdout, f.cmd.Stderr = &f.out, &f.log
	f.cmd.WaitDelay = stopTime // a function that outlives it holds its output open
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(f.ended)
		_ = f.cmd.Wait() // how it ended is in its log
	}()
	for _, address := range []string{address, runtime} { // it takes them in no order
		if err := f.await(ctx, address); err != nil {
			return nil, errors.Join(err, f.Stop())
		}
	}
	return f, nil
}

// await waits until the emulator listens.
func (f *Function) await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		listens := dial(ctx, address)
		select {
		case <-f.ended:
			return fmt.Errorf("%w: %s", errEnded, f.log.text())
		case <-ctx.Done():
			return fmt.Errorf("the emulator does not listen at %s: %w", address, ctx.Err())
		default:
		}
		if listens {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// Invoke hands the function an event and returns its answer. All that the
// function wrote until then is in Output. An error is what Lambda would report as
// an error of the function.
func (f *Function) Invoke(ctx context.Context, event []byte) ([]byte, error) {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-f.turn }()
	before := len(f.out.text())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(event))
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	req.Header.Set("X-Amzn-RequestId", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it has been read
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the function gives no answer: %s %s", resp.Status, answer)
	}
	if err := f.out.await(ctx, before, "END RequestId: "+id); err != nil {
		return nil, err
	}
	var failed struct {
		Message *string `json:"errorMessage"`
		Type    string  `json:"errorType"`
	}
	switch err := json.Unmarshal(answer, &failed); {
	case err != nil: // as where its time ran out
		return nil, fmt.Errorf("the function gives no answer: %s", answer)
	case failed.Message != nil:
		return nil, fmt.Errorf("the function fails: %s: %s", failed.Type, *failed.Message)
	}
	return answer, nil
}

// Handle hands the function an event of API Gateway's HTTP API.
func (f *Function) Handle(
	ctx context.Context, event events.APIGatewayV2HTTPRequest,
) (resp events.APIGatewayV2HTTPResponse, err error) {
	text, err := json.Marshal(event)
	if err != nil {
		return resp, err
	}
	answer, err := f.Invoke(ctx, text)
	if err == nil {
		err = json.Unmarshal(answer, &resp)
	}
	return resp, err
}

// Output returns the lines that the function has written so far, without those
// of the emulator.
func (f *Function) Output() []string {
	var lines []string
	for line := range strings.Lines(f.out.text()) {
		frame := false
		for _, word := range []string{"START RequestId: ", "END RequestId: ", "REPORT RequestId: "} {
			frame = frame || strings.HasPrefix(line, word)
		}
		if !frame {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// Log returns what the emulator has logged so far.
func (f *Function) Log() string { return f.log.text() }

// Inits returns how long each start of the function took, from that of the
// process until it asked for an event, as the emulator tells it.
func (f *Function) Inits() []time.Duration {
	var inits []time.Duration
	for line := range strings.Lines(f.log.text()) {
		_, text, found := strings.Cut(line, "INIT REPORT(durationMs: ")
		if !found {
			continue
		}
		text, _, _ = strings.Cut(text, ")")
		if millis, err := strconv.ParseFloat(text, 64); err == nil {
			inits = append(inits, time.Duration(millis*float64(time.Millisecond)))
		}
	}
	return inits
}

// Stop ends the emulator and with it the function.
func (f *Function) Stop() error {
	_ = f.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	select {
	case <-f.ended:
		return nil
	case <-time.After(stopTime):
	}
	pid, err := f.PID()
	if err == nil {
		if function, err := os.FindProcess(pid); err == nil {
			_ = function.Kill() // fails if it has ended
		}
	}
	_ = f.cmd.Process.Kill() // fails if it has ended
	<-f.ended
	return fmt.Errorf("the emulator of %s had to be killed", f.cmd.Args[len(f.cmd.Args)-1])
}

// PID returns the identifier of the function's process. It is found on Linux
// only, and while there is one.
func (f *Function) PID() (int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", f.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list) //nolint:gosec // of the kernel
		if err != nil {
			continue // the thread has ended
		}
		if first, _, found := strings.Cut(string(text), " "); found {
			return strconv.Atoi(first)
		}
	}
	return 0, errors.New("the function does not run")
}

// Peak returns the most memory that the function's process has taken so far, in
// bytes. It is known on Linux only.
func (f *Function) Peak() (int64, error) {
	pid, err := f.PID()
	if err != nil {
		return 0, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	var kibibytes int64
	if _, err := fmt.Sscanf(text, "%d kB", &kibibytes); err != nil {
		return 0, fmt.Errorf("/proc/%d/status: %w", pid, err)
	}
	return kibibytes << 10, nil
}

// journal keeps what is written to it.
type journal struct {
	mu      sync.Mutex
	written bytes.Buffer
	more    chan struct{} // closed at the next write; nil if nobody waits
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.more != nil {
		close(j.more)
		j.more = nil
	}
	return j.written.Write(p)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.written.String()
}

// await waits until the text has been written, behind what was there before.
func (j *journal) await(ctx context.Context, before int, text string) error {
	for {
		j.mu.Lock()
		found := bytes.Contains(j.written.Bytes()[before:], []byte(text))
		if j.more == nil {
			j.more = make(chan struct{})
		}
		more := j.more
		j.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q: %w", text, ctx.Err())
		}
	}
}
