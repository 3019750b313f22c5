package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"choir.dev/choiros/bench/procfs"
	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/tail"
)

// plane is a control plane started from the real binary.
type plane struct {
	URL      string `json:"url"`
	ClaimURL string `json:"claim_url"`
	Token    string `json:"token"`
	PID      int    `json:"pid"`

	began   time.Time
	healthy time.Duration // from the start of the process to its line
	cmd     *exec.Cmd
	meter   *meter // counts the process and every box
	done    chan struct{}
	logs    *tail.Writer
}

// roomy is the configuration of a control plane that is measured: it raises the bounds on
// what a client may store in a minute, which no row is about.
const roomy = `[budget]
session_events = 1000000
session_mb = 4096
computer_events = 1000000
computer_mb = 4096
day_events = 10000000
day_mb = 65536
day_cost_usd = 0
`

const (
	startLimit = 30 * time.Second
	stopLimit  = 15 * time.Second
)

// up starts the binary on a data directory, without the user's own configuration, and
// returns when it says that it is healthy.
// cpus are the processors that it may use; none: all.
func (e *env) up(ctx context.Context, data string, cpus ...int) (*plane, error) {
	if e.Binary == "" {
		return nil, missingError{"there is no choir binary to start"}
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(e.dir, "config.toml")
	if err := os.WriteFile(file, []byte(roomy+e.config), 0o600); err != nil {
		return nil, err
	}
	p := &plane{done: make(chan struct{}), logs: &tail.Writer{Max: 16 << 10}}
	p.cmd = exec.Command(e.Binary, "up", "--config", file, "--data", data, "--listen", "127.0.0.1:0", "--no-open", "--json")
	p.cmd.Env = plainEnviron()
	p.cmd.Stderr = p.logs
	// In a group of its own a Ctrl-C reaches it through Close only. When the bench is killed, the
	// thread that started it ends, which lives as long as it does otherwise (metered).
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.began = time.Now()
	if p.meter, err = metered(p.cmd.Start, p.done, cpus...); err != nil {
		return nil, err
	}
	line := make(chan []byte, 1)
	go func() { // ends with the process, which Close waits for
		r := bufio.NewReader(out)
		b, _ := r.ReadBytes('\n') // without a line there is nothing to decode
		p.healthy = time.Since(p.began)
		line <- b
		_, _ = io.Copy(io.Discard, r)
		_ = p.cmd.Wait() // how it ended is seen in ProcessState
		close(p.done)
	}()
	timeout := time.NewTimer(startLimit)
	defer timeout.Stop()
	select {
	case b := <-line:
		if err := json.Unmarshal(b, p); err != nil || p.Token == "" {
			return nil, errors.Join(fmt.Errorf("choir up did not come up: %s", report.OneLine(p.logs.String())), p.Close())
		}
		return p, nil
	case <-timeout.C:
		return nil, errors.Join(fmt.Errorf("choir up was not healthy after %s: %s", startLimit, report.OneLine(p.logs.String())), p.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), p.Close())
	}
}

// Close ends the control plane in an orderly way, else by force.
func (p *plane) Close() error {
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	select {
	case <-p.done:
	case <-time.After(stopLimit):
		err = errors.Join(err, fmt.Errorf("choir up did not end within %s", stopLimit), p.cmd.Process.Kill())
		<-p.done
	}
	return errors.Join(err, p.meter.Close())
}

func (p *plane) client() (*client.Client, error) { return client.New(p.URL, p.Token, "") }

// plainEnviron is the environment that a control plane needs: without keys of models and
// without settings.
func plainEnviron() []string {
	var out []string
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "PATH", "HOME", "LANG", "TMPDIR":
			out = append(out, kv)
		}
	}
	return out
}

// start measures the start of the whole product. It starts on each new data directory a
// second time, for the time on an existing one.
func start(ctx context.Context, e *env) ([]report.Result, error) {
	var fresh, awake, existing sample
	var why error
	for i := range e.rounds(8, 4, 10*time.Second) {
		data := filepath.Join(e.dir, fmt.Sprint("data", i))
		for _, s := range []*sample{&fresh, &existing} {
			w, err := e.openWorldOn(ctx, data)
			if err != nil {
				return nil, err
			}
			s.times = append(s.times, w.healthy)
			if used, ok := w.meter.read(); ok {
				s.used = append(s.used, used)
			}
			if s == &fresh {
				if err := w.awake(ctx); err != nil {
					return nil, errors.Join(err, w.Close())
				}
				awake.times = append(awake.times, time.Since(w.began))
				if used, ok := w.meter.read(); ok {
					awake.used = append(awake.used, used)
				}
			}
			why = w.meter.why
			if err := w.Close(); err != nil {
				return nil, err
			}
		}
	}
	syncs := report.Result{ID: "start-fsyncs", What: "fsyncs of choir up, new data directory", Target: report.AtMost(report.OfOurs, 20, "fsyncs"),
		Note: "fsync, fdatasync, syncfs and sync of all processes until the new computer has its first checkpoint."}
	if _, each := awake.each(1); each != nil {
		syncs.Ours = &report.Quantity{Value: *each, Unit: "fsyncs"}
	} else {
		syncs.NotMeasured = fmt.Sprint(why)
	}
	return []report.Result{
		fresh.tell(report.Result{ID: "start-new", What: "choir up to healthy, new data directory", Target: report.AtMost(report.OfOurs, 120, "ms"),
			Note: "From the start of the process to its line on standard output. The new computer is made meanwhile and after it."}),
		awake.tell(report.Result{ID: "start-awake", What: "choir up to the new computer's first checkpoint"}),
		syncs,
		existing.tell(report.Result{ID: "start", What: "choir up to healthy, existing data directory", Target: report.AtMost(report.OfOurs, 120, "ms")}),
	}, nil
}

// awake waits until a new computer has its first checkpoint.
func (w *world) awake(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.Now().Add(startLimit)
	for {
		list, _, err := w.api.Checkpoints(ctx, 0, 1)
		switch {
		case err == nil && len(list) > 0:
			return nil
		case time.Now().After(limit):
			return errors.Join(err, fmt.Errorf("the computer had no checkpoint within %s", startLimit))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// idle waits until a control plane's memory no longer changes.
func idle(ctx context.Context, e *env) (_ []report.Result, err error) {
	p, err := e.up(ctx, filepath.Join(e.dir, "data"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	const mb = 1e6
	need := e.size(12, 2)
	var last, rest int64
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	limit := time.Now().Add(20 * time.Second)
	note := fmt.Sprintf("Resident set of the one process that has everything embedded, once it has moved by less than 1 MB in %d s.", need/4)
	for still := 0; still < need; still++ {
		if rest, err = procfs.Resident(p.PID); err != nil {
			return nil, err
		}
		if d := rest - last; d > mb || d < -mb {
			last, still = rest, 0
		}
		if time.Now().After(limit) {
			note = "Resident set after 20 s, not yet at rest."
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	below, count, err := procfs.Family(p.PID, procfs.Resident)
	if err != nil {
		return nil, err
	}
	return []report.Result{{ID: "idle", What: "idle memory of the control plane", Ours: &report.Quantity{Value: float64(rest) / mb, Unit: "MB"}, Target: report.AtMost(report.OfOurs, 70, "MB"),
		Note: note + fmt.Sprintf(" The %d processes below it (bubblewrap, the keeper's guest) have %.1f MB more.", count, float64(below)/mb)}}, nil
}

// memories are what a control plane has, and what the processes below it have, and how many those are.
type memories struct {
	plane, below int64
	processes    int
}

func (p *plane) memory() (m memories, err error) {
	if m.plane, err = procfs.Resident(p.PID); err == nil {
		m.below, m.processes, err = procfs.Family(p.PID, procfs.Proportional)
	}
	return m, err
}

func binarySize(_ context.Context, e *env) ([]report.Result, error) {
	if e.Binary == "" {
		return nil, missingError{"there is no choir binary"}
	}
	info, err := os.Stat(e.Binary)
	if err != nil {
		return nil, err
	}
	return []report.Result{{ID: "binary", What: "size of the binary", Ours: &report.Quantity{Value: float64(info.Size()) / 1e6, Unit: "MB"}, Target: report.AtMost(report.OfOurs, 90, "MB"),
		Note: "With the guest, the desktop's build and its source in it."}}, nil
}
