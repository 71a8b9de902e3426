// Package sam_test tells the stories to the functions as SAM runs them on a
// laptop: built by `sam build`, in containers, behind the emulation of API
// Gateway that comes with SAM.
package sam_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/redrivehq/redrive/local/server"
	"github.com/redrivehq/redrive/local/stories"
	"github.com/redrivehq/redrive/shared/api"
	"github.com/redrivehq/redrive/shared/dynamo"
)

const (
	root  = "../.." // of the repository
	table = "redrive"
	// sweepEvery is shorter than the schedule of a deployed stack, so that no story
	// waits for a minute.
	sweepEvery = 2 * time.Second
	// within bounds every wait for a program.
	within = 2 * time.Minute
)

func TestStories(t *testing.T) {
	t.Parallel()
	const setUp = "it takes a minute or more, SAM, and Docker on Linux. As root: .ci/install ~/.cache/redrive-ci && " +
		"export PATH=~/.cache/redrive-ci/bin:$PATH; dockerd & sleep 5; .ci/sam-image && make sam-test"
	if os.Getenv("REDRIVE_REQUIRE_SAM") != "1" {
		t.Skip(setUp)
	}
	for _, tool := range []string{"docker", "dynoxide", "sam"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: %s", err, setUp)
		}
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "arm64"}[runtime.GOARCH]
	command(t, "docker", "image", "inspect", "public.ecr.aws/lambda/provided:al2023-"+arch) // of .ci/sam-image

	docker := newNetwork(t)
	engine := startEngine(t, docker)
	if err := dynamo.CreateTable(t.Context(), dynamo.NewLocalClient(engine), table); err != nil {
		t.Fatal(err)
	}
	env := writeEnvironment(t, engine)

	t.Log("sam build")
	command(t, "make", "sam-build", "ARCHITECTURE="+arch)
	flags := []string{
		"--skip-pull-image", "--docker-network", docker.name, "--env-vars", env, "--warm-containers", "LAZY",
		"--parameter-overrides", "Architecture=" + arch,
	}
	url := startSAM(t, "start-api", flags...)
	invoker := startSAM(t, "start-lambda", flags...)

	sweeping := sweep(t, invoker)
	t.Log("stories")
	stories.Run(t, url, stories.Options{Within: within, Do: newClient(t, invoker).send})
	if n := sweeping(); n == 0 {
		t.Error("no sweep has ended")
	} else {
		t.Log(n, "sweeps")
	}
}

// network is one of Docker's.
type network struct {
	name    string
	gateway string // the address of this machine in it
}

// newNetwork makes a network for the containers of this test, and removes both in
// the end.
func newNetwork(t *testing.T) network {
	t.Helper()
	name := "redrive-sam-" + strings.ToLower(rand.Text()[:8])
	command(t, "docker", "network", "create", name)
	t.Cleanup(func() {
		// SAM removes its containers, unless it had to be killed.
		if left := strings.Fields(command(t, "docker", "ps", "-aq", "--filter", "network="+name)); len(left) > 0 {
			t.Errorf("SAM has left %d containers", len(left))
			command(t, "docker", append([]string{"rm", "-f"}, left...)...)
		}
		command(t, "docker", "network", "rm", name)
	})
	gateway := command(t, "docker", "network", "inspect", name, "--format", "{{(index .IPAM.Config 0).Gateway}}")
	return network{name, gateway}
}

// startEngine returns the URL of an engine that containers reach.
func startEngine(t *testing.T, n network) string {
	t.Helper()
	port := freePort(t, n.gateway)
	start(t, net.JoinHostPort(n.gateway, port), "dynoxide", "--host", n.gateway, "--port", port, "--log", "quiet")
	return "http://" + net.JoinHostPort(n.gateway, port)
}

// writeEnvironment writes local/env.json anew with the address of the engine.
func writeEnvironment(t *testing.T, engine string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "local/env.json"))
	if err != nil {
		t.Fatal(err)
	}
	var env struct{ Parameters map[string]string }
	if err := json.Unmarshal(text, &env); err != nil {
		t.Fatal(err)
	}
	if env.Parameters["REDRIVE_TABLE"] != table {
		t.Fatalf("local/env.json names the table %q, want %q", env.Parameters["REDRIVE_TABLE"], table)
	}
	env.Parameters["AWS_ENDPOINT_URL_DYNAMODB"] = engine
	if text, err = json.Marshal(env); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "env.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startSAM runs a server of SAM's and returns its URL.
func startSAM(t *testing.T, what string, flags ...string) string {
	t.Helper()
	port := freePort(t, "127.0.0.1")
	t.Log("sam local", what)
	start(t, "127.0.0.1:"+port, "sam", append([]string{"local", what, "--port", port}, flags...)...)
	return "http://127.0.0.1:" + port
}

// sweep invokes the sweeper again and again, as the schedule does in a deployed
// stack, until the function it returns is called, which says how often it has.
func sweep(t *testing.T, invoker string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan int)
	go func() {
		n := 0
		defer func() { swept <- n }()
		for {
			if _, err := invoke(ctx, invoker, "SweepFunction", struct{}{}); err != nil && ctx.Err() == nil {
				t.Errorf("sweep: %v", err)
			} else if err == nil {
				n++
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(sweepEvery):
			}
		}
	}()
	return func() int {
		cancel()
		return <-swept
	}
}

// invoke calls the function with the event and returns its answer.
func invoke(ctx context.Context, invoker, function string, event any) ([]byte, error) {
	text, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	url := invoker + "/2015-03-31/functions/" + function + "/invocations"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || bytes.Contains(answer, []byte(`"errorMessage"`))) {
		err = fmt.Errorf("%s: %s: %s", function, resp.Status, answer)
	}
	return answer, err
}

// client speaks to SAM's emulation of API Gateway.
type client struct {
	http.Client
	standIn string // where ours listens
}

// newClient returns one with a stand-in before the functions that the invoker
// runs.
func newClient(t *testing.T, invoker string) *client {
	t.Helper()
	standIn := httptest.NewServer(server.NewGateway(func(name string) api.Handler {
		id := strings.ToUpper(name[:1]) + name[1:] + "Function"
		return func(
			ctx context.Context, event events.APIGatewayV2HTTPRequest,
		) (resp events.APIGatewayV2HTTPResponse, err error) {
			answer, err := invoke(ctx, invoker, id, event)
			if err == nil {
				err = json.Unmarshal(answer, &resp)
			}
			return resp, err
		}
	}, slog.New(slog.DiscardHandler)))
	t.Cleanup(standIn.Close)
	c := &client{standIn: standIn.Listener.Addr().String()}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// send sends a request to SAM's gateway. Two kinds it does not carry as API
// Gateway does: it fails on a body that is not UTF-8, and passes over an empty
// segment of a path. These go to the functions in their containers too, but
// through our stand-in.
func (c *client) send(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	if path := req.URL.Path; !utf8.Valid(body) || path != "/" && strings.Contains(path+"/", "//") {
		req.URL.Host = c.standIn
	}
	return c.Do(req)
}

// environment is this process's, with keys that no account knows.
func environment() []string {
	return append(os.Environ(), "SAM_CLI_TELEMETRY=0", "AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local", "AWS_SESSION_TOKEN=")
}

// command runs a program to its end and returns what it printed.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = root, environment()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, &stdout, &stderr)
	}
	return strings.TrimSpace(stdout.String())
}

// start runs a program until the end of the test, and waits until it listens at
// the address.
func start(t *testing.T, address, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = root, environment(), log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(within):
			cmd.Process.Kill()
			t.Errorf("%s does not end", name)
		}
		if t.Failed() {
			t.Logf("the last words of %s:\n%s", cmd, tail(log.Name()))
		}
		log.Close()
	})
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s: %v", cmd, err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen at %s", cmd, address)
		}
	}
}

// tail returns the end of a file.
func tail(path string) string {
	const most = 8 << 10
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

func freePort(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(errors.New("no TCP address"))
	}
	return strconv.Itoa(addr.Port)
}
