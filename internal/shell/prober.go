package shell

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/tail"
)

const (
	probeFirstEvery = 100 * time.Millisecond // how often a dev server is probed that has not served its page yet
	probeEvery      = 5 * time.Second        // and afterwards, at most
	probeTimeout    = 5 * time.Second        // for one answer
	// busyTimes is for how many times the start-up time of a new Node program in the same
	// box a dev server may be silent: a machine that has no time for the one has none for
	// the other. A quiet machine starts one in 50 ms.
	busyTimes = 50
)

// probeResult is the outcome of one request to a dev server.
type probeResult struct {
	heard bool  // the dev server itself answered
	page  bool  // the answer was its page
	err   error // set when it has been silent for too long: a *silentServer
}

// silentServer is the error of a dev server that runs and answers nothing.
type silentServer struct {
	still   bool          // whether its whole box stands still
	shown   bool          // whether it had served its page
	since   time.Time     // when it last answered, or started
	silence time.Duration // for how long it was silent, in time in which choir ran
}

func (e *silentServer) Error() string {
	if e.still {
		return fmt.Sprintf("the desktop's box stands still: its programs were stopped or get no time, and its dev server has not answered for %s, so it is replaced. Your files are safe, and the kept desktop is shown meanwhile", e.silence.Round(time.Second))
	}
	return fmt.Sprintf("the dev server has not answered for %s", e.silence.Round(time.Second))
}

// prober asks a dev server again and again whether it answers, with a request that only the
// dev server itself can answer.
type prober struct {
	client   *guest.Client
	patience time.Duration // for how long it may be silent before it has served its page
	quick    time.Duration // and afterwards
}

// run sends results until ctx ends or the server is given up.
func (p *prober) run(ctx context.Context, results chan<- probeResult) {
	defer awake.Hold()()
	last, since, every, shown, patience := awake.Now(), time.Now(), probeFirstEvery, false, p.patience
	for awake.Pause(ctx, every) {
		var b probeResult
		b.heard, b.page = p.ask(ctx)
		if b.page {
			every, shown, patience = min(probeEvery, p.quick/4), true, p.quick
		}
		if b.heard {
			last, since = awake.Now(), time.Now()
		} else if silent := awake.Now() - last; silent >= patience {
			b.err = p.judge(ctx, &silentServer{shown: shown, since: since, silence: silent})
		}
		select {
		case results <- b:
		case <-ctx.Done():
			return
		}
		if b.err != nil {
			return
		}
	}
}

// ask reports whether the dev server itself answers, and whether with its page.
func (p *prober) ask(ctx context.Context) (heard, page bool) {
	ctx, cancel := awake.WithTimeout(ctx, min(probeTimeout, p.quick/2))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://desk.localhost/", nil)
	if err != nil {
		return false, false
	}
	resp, err := p.client.Forward(vitePort).RoundTrip(req)
	if err != nil {
		return false, false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	// The guest answers this when nothing listens on that port.
	return resp.StatusCode != http.StatusServiceUnavailable, err == nil && resp.StatusCode == http.StatusOK
}

// judge finds out why a dev server is silent, by running a new program beside it; nil: the
// server is probed again.
func (p *prober) judge(ctx context.Context, silent *silentServer) error {
	within, cancel := awake.WithTimeout(ctx, p.quick)
	defer cancel()
	said := &tail.Writer{Max: 64}
	began := awake.Now()
	_, err := p.client.Exec(within, guest.ExecRequest{Argv: []string{"node", "-e", comparisonScript}, Dir: "/"}, guest.Streams{Stdout: said})
	beside := comparison{took: awake.Now() - began, ended: err == nil, late: within.Err() != nil, stopped: strings.Contains(said.String(), "stopped")}
	if ctx.Err() != nil || !beside.faultsServer(silent) {
		return nil
	}
	return silent
}

// comparisonScript reports whether a program in its box is stopped by a signal.
const comparisonScript = `
const fs = require('node:fs')
for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
  try {
    const stat = fs.readFileSync('/proc/' + pid + '/stat', 'latin1')
    if (/^[Tt] /.test(stat.slice(stat.lastIndexOf(')') + 2))) console.log('stopped')
  } catch {} // it has ended
}`

// comparison is the outcome of a program that was started in the box of a silent dev server
// only to compare: if it is slow or stopped too, the machine or the box is at fault and not
// the source.
type comparison struct {
	took    time.Duration
	ended   bool // it ended
	late    bool // it did not end in time
	stopped bool // it found a program that is stopped
}

// faultsServer reports whether the dev server is to be replaced. On a busy machine, where the
// new program is slow as well, it is waited for; and its source is not at fault when
// nothing in the box runs, or its programs were stopped.
func (b comparison) faultsServer(silent *silentServer) bool {
	silent.still = b.late || b.stopped
	return silent.still || !b.ended || silent.silence >= busyTimes*b.took
}
