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
)

const (
	probeFirstEvery = 100 * time.Millisecond // how often a dev server is asked that has not shown its page yet
	probeEvery      = 5 * time.Second        // and afterwards, at most
	probeTimeout    = 5 * time.Second        // for one answer
	// busyTimes is how many times as long as a new program of Node takes to start
	// beside it a dev server may be silent: on a machine that has no time for the
	// one it has none for the other. A quiet machine starts one in 50 ms.
	busyTimes = 50
)

// probeResult is what came of one request to a dev server.
type probeResult struct {
	heard bool  // it answered something itself
	page  bool  // and it was its page
	err   error // it has been silent for too long: a *silentServer
}

// silentServer is a dev server that runs and answers nothing.
type silentServer struct {
	still   bool          // its box stands still
	shown   bool          // it had shown its page
	since   time.Time     // it was heard last, or started
	silence time.Duration // so long, in time in which choir ran
}

func (e *silentServer) Error() string {
	if e.still {
		return fmt.Sprintf("the desktop's box stands still: its programs were stopped or get no time, and its dev server has not answered for %s, so it is replaced. Your files are safe, and the kept desktop is shown meanwhile", e.silence.Round(time.Second))
	}
	return fmt.Sprintf("the dev server has not answered for %s", e.silence.Round(time.Second))
}

// prober asks a dev server again and again whether it answers, with a request
// that nothing but the dev server can answer.
type prober struct {
	client   *guest.Client
	patience time.Duration // so long it may be silent before it shows its page
	quick    time.Duration // and afterwards
}

// run hands on what came of it until ctx ends or the server is given up.
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

// ask reports whether the dev server itself answers, and with its page.
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
	// The guest says so when nothing answers on that port.
	return resp.StatusCode != http.StatusServiceUnavailable, err == nil && resp.StatusCode == http.StatusOK
}

// judge looks why a dev server is silent, with a new program beside it; nil: it
// is asked again.
func (p *prober) judge(ctx context.Context, silent *silentServer) error {
	within, cancel := awake.WithTimeout(ctx, p.quick)
	defer cancel()
	said := &lastBytes{max: 64}
	began := awake.Now()
	_, err := p.client.Exec(within, guest.ExecRequest{Argv: []string{"node", "-e", comparisonScript}, Dir: "/"}, guest.Streams{Stdout: said})
	beside := comparison{took: awake.Now() - began, ended: err == nil, late: within.Err() != nil, stopped: strings.Contains(said.String(), "stopped")}
	if ctx.Err() != nil || !beside.condemns(silent) {
		return nil
	}
	return silent
}

// besideScript says whether a program of the box it runs in is stopped.
const comparisonScript = `
const fs = require('node:fs')
for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
  try {
    const stat = fs.readFileSync('/proc/' + pid + '/stat', 'latin1')
    if (/^[Tt] /.test(stat.slice(stat.lastIndexOf(')') + 2))) console.log('stopped')
  } catch {} // it has ended
}`

// comparison is how a program fared that was started in the box of a silent dev server only to
// compare: if it is slow too, or stopped, the machine or the box is at fault and not the source.
type comparison struct {
	took    time.Duration
	ended   bool // it ran to its end
	late    bool // not in time
	stopped bool // it found a program that is stopped
}

// condemns reports whether the dev server is to be replaced. It is waited for on
// a machine that is busy, where the new program is slow as well; and it is not
// its source's doing when nothing in the box runs, or its programs were stopped.
func (b comparison) condemns(silent *silentServer) bool {
	silent.still = b.late || b.stopped
	return silent.still || !b.ended || silent.silence >= busyTimes*b.took
}
