package shell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/tail"
	"choir.dev/choiros/internal/view"
)

const (
	vitePort = 5173
	// viteLinger is how long the dev server runs after the last viewer has gone.
	viteLinger = 2 * time.Minute
	// viteRetry is the pause before a dev server that failed is started again; it is doubled
	// with each failure, up to viteRest, while the shell's source does not change. After
	// viteLimit of them it is not started any more until it has, or somebody looks anew.
	viteRetry = 2 * time.Second
	viteRest  = time.Minute
	viteLimit = 5
	// viteWatch is how often the source is checked.
	viteWatch = time.Second
	// viteAgain is how long a dev server that hangs may start before another source is tried.
	viteAgain = 5 * time.Second
	// vitePatience is the factor by which the patience with a dev server is extended that
	// was silent from the start: the disk may be slow.
	vitePatience = 4
)

// server runs Vite in its box while somebody looks at the desktop.
type server struct {
	shell   *Shell
	silence time.Duration // for how long it may be silent
	logger  *slog.Logger

	viewerCame chan struct{} // wakes run and mended when the number of viewers rises from 0 to 1
	before     []sourceFile  // the source that the last dev server began with; run's and mended's own
	hung       int           // how many in a row never answered; run's own

	mu      sync.Mutex
	box     sandbox.Box
	viewers int
	idle    time.Time // when the number of viewers fell to 0
	client  *guest.Client
	since   time.Time // when client was set
	reason  string    // why there is no live page, or was none at the last try
	again   bool      // it is being tried again
	fault   string    // what is wrong with the source now
}

func newServer(s *Shell) *server {
	return &server{shell: s, silence: s.opts.Silence, logger: s.logger, viewerCame: make(chan struct{}, 1), idle: time.Now()}
}

func (l *server) addViewer() (release func()) {
	l.mu.Lock()
	l.viewers++
	first := l.viewers == 1
	l.mu.Unlock()
	if first {
		select {
		case l.viewerCame <- struct{}{}:
		default:
		}
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.viewers--; l.viewers == 0 {
			l.idle = time.Now()
		}
	})
}

// unwatched returns for how long nobody has looked.
func (l *server) unwatched() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.viewers > 0 {
		return 0
	}
	return time.Since(l.idle)
}

// status returns what is served, since when, and why it is not the live page or what is
// wrong with the page's source.
func (l *server) status() (mode view.DesktopMode, since time.Time, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := l.fault
	if said == "" {
		said = l.reason
	}
	switch {
	case l.client != nil:
		return view.ModeLive, l.since, said
	case l.viewers > 0 && (l.again || l.reason == ""):
		return view.ModeStarting, time.Time{}, said
	}
	return view.ModeBuild, time.Time{}, l.reason
}

func (l *server) transport() (http.RoundTripper, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		return nil, fault.New("shell.Live", fault.Unavailable, "The kept build is served until the live page is ready.", nil)
	}
	return l.client.Forward(vitePort), nil
}

func (l *server) set(client *guest.Client, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client, l.since, l.reason, l.fault, l.again = client, time.Now(), reason, "", false
}

// retry says that the live page is being tried again; the old reason is shown until there
// is a page.
func (l *server) retry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client, l.again = nil, true
}

// errMended ends a dev server that hangs when the shell's source has changed: it would not
// notice the change.
var errMended = errors.New("the source has changed")

// part is the dev server as a part of its computer, which goes on without: the kept build of
// the desktop is served.
func (l *server) part() supervise.Part {
	return supervise.Part{
		Name: "dev server", Run: l.run, Optional: true, Limit: viteLimit, Backoff: viteRetry, Most: viteRest,
		Passes: func(err error) bool { return errors.As(err, new(*unstarted)) }, Mended: l.mended, GaveUp: l.gaveUp, Waits: l.waits, PID: l.pid,
	}
}

// unstarted is the failure of a dev server that is not its own: it could not be started, or
// its source is wrong.
type unstarted struct{ reason string }

func (e *unstarted) Error() string { return e.reason }

func (l *server) waits() string {
	if l.unwatched() > 0 {
		return "for somebody to look at the desktop"
	}
	return ""
}

func (l *server) pid() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.box == nil {
		return 0
	}
	return l.box.PID()
}

// run owns the dev server until ctx ends or it fails.
func (l *server) run(ctx context.Context) error {
	defer l.hold(nil)
	for ctx.Err() == nil {
		if l.unwatched() > 0 {
			l.set(nil, "")
			select {
			case <-ctx.Done():
				return nil
			case <-l.viewerCame:
			}
			continue
		}
		select {
		case <-l.viewerCame: // it is started for them now
		default:
		}
		l.retry()
		l.before = l.shell.source(ctx)
		err := l.serve(ctx, l.silence*time.Duration(min(1+l.hung, vitePatience)), l.before)
		l.hold(nil)
		if err == nil || ctx.Err() != nil {
			l.set(nil, "")
			continue
		}
		if errors.Is(err, errMended) {
			continue
		}
		var silent *silentServer
		if errors.As(err, &silent) && !silent.shown {
			l.hung++
		} else {
			l.hung = 0
		}
		reason := l.explain(ctx, err)
		l.set(nil, reason)
		if errors.As(err, new(*unstarted)) || l.shell.BrokenSource(ctx) != "" {
			return &unstarted{reason}
		}
		return errors.New(reason)
	}
	return nil
}

// mended waits until the source is another one than the last dev server began with, or
// somebody looks anew.
func (l *server) mended(ctx context.Context) {
	for awake.Pause(ctx, viteWatch) {
		select {
		case <-l.viewerCame:
			return
		default:
		}
		if l.unwatched() == 0 && anotherSource(l.before, l.shell.source(ctx)) {
			return
		}
	}
}

// gaveUp says what starts it again.
func (l *server) gaveUp(error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reason += " It failed too often and is not started again until the shell's source changes, somebody opens the desktop anew, or choir wake is run."
}

// hold keeps the box of the dev server that runs.
func (l *server) hold(box sandbox.Box) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.box = box
}

// explain says, for a person, why a dev server ended.
func (l *server) explain(ctx context.Context, err error) string {
	var silent *silentServer
	var ended *endedServer
	reason := l.shell.BrokenSource(ctx)
	switch {
	case reason != "":
	case errors.As(err, &silent) && !silent.still:
		return hangWords(hangsSilent, lastChanged(l.shell.source(ctx), silent.since.Add(probeEvery+time.Second)))
	case errors.As(err, &ended) && ended.said == "":
		how := fmt.Sprintf("The dev server ended by itself, with code %d and without a word.", ended.code)
		return hangWords(how, lastChanged(l.shell.source(ctx), ended.began.Add(time.Second)))
	default:
		return withHint(err)
	}
	return reason
}

func withHint(err error) string {
	reason := fault.Text(err)
	if hint := fault.HintOf(err); hint != "" {
		reason += ". " + hint
	}
	return reason
}

// serve runs one box with one dev server until nobody looks (nil), ctx ends, or it fails.
// patience is how long it may be silent, before is the source that it starts from.
func (l *server) serve(ctx context.Context, patience time.Duration, before []sourceFile) error {
	box, err := l.shell.openBox(ctx)
	if err != nil {
		return &unstarted{withHint(err)}
	}
	l.hold(box)
	defer func() {
		if err := box.Kill(); err != nil {
			l.logger.Warn("could not end the desktop's box", "error", err)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	s := &serving{client: guest.NewClient(box.Tether().Transport()), out: tail.Writer{Max: 4 << 10}, before: before}
	var wg sync.WaitGroup
	ended, results := make(chan error, 2), make(chan probeResult)
	wg.Go(func() { ended <- supervise.Safely(func() error { return l.vite(ctx, s) }) })
	wg.Go(func() {
		err := supervise.Safely(func() error {
			(&prober{client: s.client, patience: patience, quick: l.silence}).run(ctx, results)
			return nil
		})
		if err != nil {
			ended <- err
		}
	})
	defer func() { cancel(); wg.Wait() }()
	defer awake.Hold()()

	watch := time.NewTicker(viteWatch)
	defer watch.Stop()
	s.began = awake.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-box.Done():
			return box.Err()
		case b := <-results:
			if err := l.probed(s, b); err != nil {
				select {
				case <-box.Done():
					return box.Err() // the box's end is the cause
				default:
					return err
				}
			}
			continue
		case <-watch.C:
		}
		if err := l.note(ctx, s); err != nil {
			return err
		}
		if l.unwatched() > viteLinger {
			return nil
		}
	}
}

// serving is the dev server of one box.
type serving struct {
	client *guest.Client
	out    tail.Writer
	before []sourceFile  // the source that it started from, or that it hangs with
	began  time.Duration // package awake's clock at its start
	shown  bool          // it has shown its page
	anew   time.Duration // package awake's clock when it began to restart itself; 0: it is not restarting
}

// vite runs the dev server in its box until it ends.
func (l *server) vite(ctx context.Context, s *serving) error {
	env := map[string]string{"CHOIR_VITE_CACHE": "/tmp/vite", "NODE_ENV": "development"}
	if hint := l.shell.opts.NoWatches(ctx); hint != "" {
		// Without this the dev server would run and notice no change, as there are no
		// inotify watches.
		env["CHOKIDAR_USEPOLLING"], env["CHOKIDAR_INTERVAL"] = "1", "300"
		l.logger.Warn("no file watchers are left, so the desktop's dev server polls its files", "do", hint)
	}
	began := time.Now()
	exit, err := s.client.Exec(ctx, guest.ExecRequest{
		Argv: []string{"node", "node_modules/vite/bin/vite.js", "--configLoader", "runner", "--port", fmt.Sprint(vitePort), "--strictPort"},
		Dir:  "/computer/choiros",
		Env:  env,
	}, guest.Streams{Stdout: &s.out, Stderr: &s.out})
	if err == nil {
		err = &endedServer{code: exit.Code, said: sourceFault(s.out.String()), began: began}
	}
	return err
}

// endedServer is the error of a dev server whose program has ended.
type endedServer struct {
	code  int
	said  string // empty if it said nothing, as Node does when it only waits for something that never comes
	began time.Time
}

func (e *endedServer) Error() string {
	return fmt.Sprintf("the dev server ended with code %d: %s", e.code, e.said)
}

// probed handles the result of one request to the dev server.
func (l *server) probed(s *serving, b probeResult) error {
	switch {
	case b.err != nil:
		return b.err
	case b.page && !s.shown:
		s.shown = true
		l.set(s.client, "")
	case !s.shown && awake.Now()-s.began > time.Minute:
		return fault.New("shell.server", fault.Timeout, "", fmt.Errorf("the dev server did not show its page within a minute: %s", sourceFault(s.out.String())))
	}
	return nil
}

// note records what is wrong with the source although a page is or will be served: files
// that the next start would fail on, and a restart that failed or does not end. It returns
// errMended when the source has changed since the server began to hang.
func (l *server) note(ctx context.Context, s *serving) error {
	said, text := l.shell.BrokenSource(ctx), s.out.String()
	if i := strings.LastIndex(text, "restarting server"); i < 0 || strings.Contains(text[i:], "server restarted") {
		s.anew = 0
	} else if strings.Contains(text[i:], "server restart failed") {
		s.anew = 0
		if said == "" {
			said = restartFault(text[i:])
		}
	} else if s.anew == 0 {
		// Until the restart ends, Vite notices nothing else, not even a repaired
		// configuration.
		s.anew, s.before = awake.Now(), l.shell.source(ctx)
	}
	stuck := s.anew != 0 && awake.Now()-s.anew > l.silence
	if stuck && said == "" {
		said = hangWords(hangsAnew, lastChanged(s.before, time.Now()))
	}
	l.mu.Lock()
	l.fault = said
	again := l.again
	l.mu.Unlock()
	silent := again && !s.shown && awake.Now()-s.began > viteAgain
	if (stuck || silent) && anotherSource(s.before, l.shell.source(ctx)) {
		return errMended
	}
	return nil
}
