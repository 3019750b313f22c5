package computer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/api"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
)

const (
	vitePort = 5173
	// viteLinger is how long the dev server goes on after the last look.
	viteLinger = 2 * time.Minute
	viteRetry  = 5 * time.Second
)

// live runs Vite in its box while somebody looks at the desktop.
type live struct {
	open   func(ctx context.Context) (sandbox.Box, error) // the desktop's box
	check  func(ctx context.Context) string               // what is wrong with the files that the dev server starts from
	deaf   func(ctx context.Context) string               // what to do about watchers of files that can't be had; "" when they can
	logger *slog.Logger

	looked chan struct{} // wakes run when looks goes from 0 to 1

	mu     sync.Mutex
	looks  int
	idle   time.Time // when looks fell to 0
	client *guest.Client
	since  time.Time // when client was set
	reason string    // why there is no live page
	fault  string    // what is wrong with the source while there is one
}

func newLive(open func(context.Context) (sandbox.Box, error), check, deaf func(context.Context) string, logger *slog.Logger) *live {
	return &live{open: open, check: check, deaf: deaf, logger: logger, looked: make(chan struct{}, 1), idle: time.Now()}
}

func (l *live) look() (release func()) {
	l.mu.Lock()
	l.looks++
	l.mu.Unlock()
	select {
	case l.looked <- struct{}{}:
	default:
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.looks--; l.looks == 0 {
			l.idle = time.Now()
		}
	})
}

// unwatched says for how long nobody has looked.
func (l *live) unwatched() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looks > 0 {
		return 0
	}
	return time.Since(l.idle)
}

// status says what is served, since when, and why it is not the live page.
func (l *live) status() (mode api.DesktopMode, since time.Time, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.client != nil:
		return api.ModeLive, l.since, l.fault
	case l.looks > 0 && l.reason == "":
		return api.ModeStarting, time.Time{}, ""
	}
	return api.ModeBuild, time.Time{}, l.reason
}

func (l *live) transport() (http.RoundTripper, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		return nil, fault.New("computer.Live", fault.Unavailable, "The kept build is served until the live page is ready.", nil)
	}
	return l.client.Forward(vitePort), nil
}

func (l *live) set(client *guest.Client, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client, l.since, l.reason, l.fault = client, time.Now(), reason, ""
}

// run owns the dev server until ctx ends.
func (l *live) run(ctx context.Context) {
	var last string // what was logged; it is tried again every few seconds
	for ctx.Err() == nil {
		if l.unwatched() > 0 {
			select {
			case <-ctx.Done():
				return
			case <-l.looked:
			}
			continue
		}
		err := l.serve(ctx)
		if err == nil || ctx.Err() != nil {
			l.set(nil, "")
			continue
		}
		reason := l.check(ctx)
		if reason == "" {
			reason = fault.Text(err)
		}
		if hint := fault.HintOf(err); hint != "" {
			reason += ". " + hint
		}
		l.set(nil, reason)
		if reason != last {
			l.logger.Warn("the desktop's dev server ended", "error", reason)
		}
		last = reason
		select {
		case <-ctx.Done():
		case <-time.After(viteRetry):
			l.set(nil, "")
		}
	}
}

// serve runs one box with one dev server until nobody looks (nil), ctx ends, or
// it fails.
func (l *live) serve(ctx context.Context) error {
	box, err := l.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := box.Kill(); err != nil {
			l.logger.Warn("could not end the desktop's box", "error", err)
		}
	}()
	env := map[string]string{"CHOIR_VITE_CACHE": "/tmp/vite", "NODE_ENV": "development"}
	if hint := l.deaf(ctx); hint != "" {
		// Without this the dev server would run and notice no change.
		env["CHOKIDAR_USEPOLLING"], env["CHOKIDAR_INTERVAL"] = "1", "300"
		l.logger.Warn("no file watchers are left, so the desktop's dev server polls its files", "do", hint)
	}
	ctx, cancel := context.WithCancel(ctx)
	client := guest.NewClient(box.Tether().Transport())
	out := &lastBytes{max: 4 << 10}
	ended := make(chan error, 1)
	go func() {
		exit, err := client.Exec(ctx, guest.ExecRequest{
			Argv: []string{"node", "node_modules/vite/bin/vite.js", "--configLoader", "runner", "--port", fmt.Sprint(vitePort), "--strictPort"},
			Dir:  "/computer/choiros",
			Env:  env,
		}, guest.Streams{Stdout: out, Stderr: out})
		if err == nil {
			err = fmt.Errorf("the dev server ended with code %d: %s", exit.Code, sourceFault(out.String()))
		}
		ended <- err
	}()
	defer func() { cancel(); <-ended }()

	probe := time.NewTicker(100 * time.Millisecond)
	defer probe.Stop()
	started := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			ended <- err
			return err
		case <-box.Done():
			return box.Err()
		case <-probe.C:
		}
		if mode, _, _ := l.status(); mode != api.ModeLive {
			switch answers(ctx, client) {
			case true:
				l.set(client, "")
				probe.Reset(time.Second)
			case false:
				if time.Since(started) > time.Minute {
					return fault.New("computer.desktop", fault.Timeout, "", fmt.Errorf("the dev server did not answer within a minute: %s", out))
				}
			}
		}
		l.note(ctx, out)
		if l.unwatched() > viteLinger {
			return nil
		}
	}
}

// note keeps what is wrong with the source although the page is served: files
// that the next start would fail on, and a restart that did.
func (l *live) note(ctx context.Context, out *lastBytes) {
	said := l.check(ctx)
	if text := out.String(); said == "" {
		if i := strings.LastIndex(text, "restarting server"); i >= 0 && strings.Contains(text[i:], "server restart failed") {
			said = restartFault(text[i:])
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = said
}

func answers(ctx context.Context, client *guest.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://desk.localhost/", nil)
	if err != nil {
		return false
	}
	resp, err := client.Forward(vitePort).RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode == http.StatusOK
}

// openDesktop opens the desktop's box: live choiros/ read-only, the shell's
// dependencies read-only, no network.
func (c *Computer) openDesktop(ctx context.Context) (sandbox.Box, error) {
	if err := InBoxes("node", "Install Node.js 20.19 or newer; until then the kept build of the desktop is served."); err != nil {
		return nil, err
	}
	tree, err := c.modules(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.ensureModulesDir(ctx); err != nil {
		return nil, err
	}
	return c.box(ctx, sandbox.BoxSpec{
		ID: "desktop", Kind: contract.BoxDesktop, Root: "/computer/choiros",
		Mounts: []sandbox.Mount{
			{Source: c.path("workspace", "choiros"), Target: "/computer/choiros", Mode: sandbox.ReadOnly},
			{Source: tree, Target: "/computer/choiros/node_modules", Mode: sandbox.ReadOnly},
		},
		Limits: c.limits(),
	})
}

// InBoxes fails with fault.Missing and the hint when boxes don't have a program:
// they see the host's /usr.
func InBoxes(program, hint string) error {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if st, err := os.Stat(filepath.Join(dir, program)); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return nil
		}
	}
	return fault.New("", fault.Missing, hint, fmt.Errorf("%s is not installed", program))
}

// noWatches says what to do about watchers of files when none are left.
func (c *Computer) noWatches(ctx context.Context) string {
	for _, f := range c.host.Driver.Doctor(ctx) {
		if f.ID == sandbox.NoWatches {
			return f.Hint
		}
	}
	return ""
}

// ensureModulesDir makes the mount point for the shell's dependencies, which
// git ignores and a restore may leave out.
func (c *Computer) ensureModulesDir(ctx context.Context) error {
	return c.workspace.Mkdir(ctx, shellModulesPath)
}

// Look implements control.Desktop.
func (c *Computer) Look(context.Context) (release func()) { return c.live.look() }

// Live implements control.Desktop.
func (c *Computer) Live(context.Context) (http.RoundTripper, error) { return c.live.transport() }

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	mu  sync.Mutex
	b   []byte
	max int
}

func (w *lastBytes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b = append(w.b, p...)
	if n := len(w.b) - w.max; n > 0 {
		w.b = append(w.b[:0], w.b[n:]...)
	}
	return len(p), nil
}

func (w *lastBytes) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.b)
}
