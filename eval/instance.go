package eval

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"choir.dev/choiros/bench"
	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
)

const (
	startLimit = 90 * time.Second
	stopLimit  = 30 * time.Second
)

// free says that what plays cassettes costs nothing. Models that bill are not asked at all.
const free = `[[models]]
name = "anthropic/*"
context = 200000
max_output = 32000
price_in = 0
price_out = 0
`

// roomy raises the bounds on what one client may store, and leaves the others as they are.
var roomy = []string{"CHOIR_BUDGET_SESSION_EVENTS=1000000", "CHOIR_BUDGET_SESSION_MB=4096", "CHOIR_BUDGET_COMPUTER_EVENTS=1000000",
	"CHOIR_BUDGET_COMPUTER_MB=4096", "CHOIR_BUDGET_DAY_EVENTS=10000000", "CHOIR_BUDGET_DAY_MB=65536"}

// planned is set where cassettes are played or written: they hold the turns of a Director.
const planned = "CHOIR_LOOPS_DIRECT_WORDS=0"

// instance is a control plane of the suite's own, on a data directory that goes with it.
type instance struct {
	URL   string `json:"url"`
	Token string `json:"token"`

	dir    string
	cmd    *exec.Cmd
	done   chan struct{}
	logs   *tail
	player *cassette.Player // nil when a model is asked
	server *http.Server
	served sync.WaitGroup
}

// tail keeps the end of what was written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b = append(t.b, p...); len(t.b) > 16<<10 {
		t.b = t.b[len(t.b)-16<<10:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}

// start starts the binary. With cassettes it has no configuration but what is needed to play them;
// else the caller's, so that the model that is asked is configured.
func start(ctx context.Context, o Options) (_ *instance, err error) {
	const op = "eval.start"
	in := &instance{done: make(chan struct{}), logs: &tail{}}
	if in.dir, err = os.MkdirTemp(o.Scratch, "choir-eval-"); err != nil {
		return nil, fault.New(op, fault.Invalid, "Choose another place with --scratch.", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	data := filepath.Join(in.dir, "data")
	if err := bench.ShareModules(data, o.Modules); err != nil {
		return nil, err
	}
	args := []string{"up", "--data", data, "--listen", "127.0.0.1:0", "--no-open", "--json"}
	env := append(inherited(o.Cassette != ""), roomy...)
	if o.Cassette != "" || o.Record != "" {
		env = append(env, planned)
	}
	if o.Cassette != "" {
		if args, env, err = in.play(args, env); err != nil {
			return nil, err
		}
	}
	in.cmd = exec.Command(o.Binary, args...)
	in.cmd.Env, in.cmd.Stderr = env, in.logs
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C reaches it through Close only
	out, err := in.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := in.cmd.Start(); err != nil {
		in.cmd = nil
		return nil, err
	}
	return in, in.up(ctx, out)
}

// up waits for the line that says where the control plane is.
func (in *instance) up(ctx context.Context, out io.Reader) error {
	line := make(chan []byte, 1)
	go func() { // ends with the process, which Close waits for
		r := bufio.NewReader(out)
		b, _ := r.ReadBytes('\n') // without a line there is nothing to decode
		line <- b
		_, _ = io.Copy(io.Discard, r)
		_ = in.cmd.Wait() // how it ended is in what it said
		close(in.done)
	}()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case b := <-line:
		if err := json.Unmarshal(b, in); err != nil || in.Token == "" {
			return fault.New("eval.start", fault.Unreachable, "Look at what it said.", fmt.Errorf("choir up did not come up: %s", in.logs))
		}
		return nil
	case <-limit.C:
		return fault.New("eval.start", fault.Timeout, "Look at what it said.", fmt.Errorf("choir up was not healthy after %s: %s", startLimit, in.logs))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// play serves cassettes, and configures the control plane to ask them.
func (in *instance) play(args, env []string) ([]string, []string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	in.player = cassette.NewPlayer()
	in.server = &http.Server{Handler: in.player, ReadHeaderTimeout: time.Minute}
	in.served.Go(func() { _ = in.server.Serve(ln) }) // ends in Close
	prices, config := filepath.Join(in.dir, "models.toml"), filepath.Join(in.dir, "config.toml")
	if err := errors.Join(os.WriteFile(prices, []byte(free), 0o600), os.WriteFile(config, nil, 0o600)); err != nil {
		return nil, nil, err
	}
	return append(args, "--config", config), append(env, "ANTHROPIC_BASE_URL=http://"+ln.Addr().String(), "ANTHROPIC_API_KEY=plays-a-cassette",
		"CHOIR_MODEL=anthropic/"+cassette.Prefix+"none", "CHOIR_MODELS_CATALOGUE="+prices, "CHOIR_BUDGET_DAY_COST_USD=0"), nil
}

// inherited is the environment that the control plane gets: the caller's without what names another
// instance, and for cassettes without keys and settings.
func inherited(plain bool) []string {
	var out []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "CHOIR_URL", "CHOIR_TOKEN", "CHOIR_SERVER_DATA", "CHOIR_DATA":
			continue
		case "PATH", "HOME", "LANG", "TMPDIR", "GOPATH", "GOMODCACHE", "GOCACHE":
		default:
			if plain {
				continue
			}
		}
		out = append(out, kv)
	}
	return out
}

func (in *instance) client() (*client.Client, error) { return client.New(in.URL, in.Token, "") }

// Close ends the control plane and removes its data.
func (in *instance) Close() error {
	var err error
	if in.cmd != nil {
		_ = in.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-in.done:
		case <-time.After(stopLimit):
			err = errors.Join(fmt.Errorf("choir up did not end within %s", stopLimit), in.cmd.Process.Kill())
			<-in.done
		}
	}
	if in.server != nil {
		err = errors.Join(err, in.server.Close())
		in.served.Wait()
	}
	return errors.Join(err, os.RemoveAll(in.dir))
}
