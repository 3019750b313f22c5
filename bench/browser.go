package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/internal/chromium"
	"choir.dev/choiros/internal/view"
)

const (
	// pressClaim is true once it has pressed the button of the claim page.
	pressClaim = `(() => { const go = document.getElementById('go'), name = document.getElementById('name');
		if (document.readyState !== 'complete' || !go || !name || go.disabled || document.getElementById('fresh').hidden) return false;
		name.value = 'Bench'; go.click(); return true })()`
	// isLive is true once the desktop that is shown comes from the dev server.
	isLive = `!!document.querySelector('iframe[data-role=shown][data-mode=live]')`
	// isPainted is true once the console was told that the desktop has painted.
	isPainted = `!!document.querySelector('iframe[data-role=shown][data-mode]')`
)

// painted has a browser ready, starts the binary on a new data directory, opens its link
// and presses the button at once.
func painted(ctx context.Context, e *env) (_ []report.Result, err error) {
	b, err := chromium.Open(e.dir)
	if errors.Is(err, chromium.ErrMissing) {
		return nil, missingError{err.Error()}
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var ours, healthy times
	for i := range e.rounds(5, 3, 20*time.Second) {
		if err := e.paint(ctx, b, filepath.Join(e.dir, fmt.Sprint("data", i)), &ours, &healthy); err != nil {
			return nil, err
		}
		if i == 0 && !e.Tiny { // Chromium is still busy with its own start, so the first is dropped
			ours, healthy = nil, nil
		}
	}
	return []report.Result{{ID: "painted", What: "choir up to painted desktop", Ours: &report.Quantity{Value: ours.p50().Seconds(), Unit: "s"}, P99: &report.Quantity{Value: ours.p(0.99).Seconds(), Unit: "s"}, Target: report.AtMost(report.OfOurs, 2, "s"),
		Note: fmt.Sprintf("New data directory; a headless Chromium that runs already opens the link in a new profile, presses the button at once, and the console is told that the desktop has painted. Of it %s until healthy.", healthy.ms())}}, nil
}

func (e *env) paint(ctx context.Context, b *chromium.Browser, data string, ours, healthy *times) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if err := e.shareModules(data); err != nil {
		return err
	}
	leave, err := b.Page(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(ctx)) }()
	if err := errors.Join(b.Until(ctx, "true"), e.quiet(ctx, b.PID())); err != nil {
		return err
	}
	p, err := e.up(ctx, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := b.Call(ctx, "Page.navigate", map[string]any{"url": p.ClaimURL}, nil); err != nil {
		return err
	}
	if err := errors.Join(b.Until(ctx, pressClaim), b.Until(ctx, isPainted)); err != nil {
		return err
	}
	*ours, *healthy = append(*ours, time.Since(p.began)), append(*healthy, p.healthy)
	return nil
}

// shownStyle is a file of the desktop's that is changed while the desktop is shown.
const shownStyle = "choiros/src/shell/desktop.css"

// saved puts a style sheet of the desktop through the API, with a browser showing the
// desktop, and measures until the page has the style.
func saved(ctx context.Context, e *env) (_ report.Result, err error) {
	r := report.Result{ID: "save", What: "from saving a file to its update in the browser", Target: report.AtMost(report.OfOurs, 60, "ms"),
		Note: "A file put through the API, from the request until a headless Chromium that shows the desktop has the style that the file says, asked every millisecond."}
	b, err := chromium.Open(e.dir)
	if errors.Is(err, chromium.ErrMissing) {
		r.NotMeasured = err.Error()
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	data := filepath.Join(e.dir, "saved")
	if err := e.shareModules(data); err != nil {
		return r, err
	}
	w, err := e.openWorldOn(ctx, data)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	leave, err := b.Page(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, leave(ctx)) }()
	shown, err := showLive(ctx, b, w.ClaimURL)
	if err != nil {
		return r, err
	}
	body, _, err := w.api.Get(ctx, shownStyle)
	if err != nil {
		return r, err
	}
	text, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close(), e.quiet(ctx, w.PID)); err != nil {
		return r, err
	}
	update := func(ctx context.Context, i int) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		seen := make(chan error, 1)
		go func() {
			seen <- shown.evaluate(ctx, fmt.Sprintf(`new Promise((done) => { const look = () =>
				getComputedStyle(document.documentElement).getPropertyValue('--bench').trim() === '%d' ? done() : setTimeout(look, 1); look() })`, i))
		}()
		_, err := w.api.Put(ctx, view.Put{Path: shownStyle}, strings.NewReader(fmt.Sprintf("%s\n:root { --bench: %d; }\n", text, i)))
		if err != nil {
			cancel()
		}
		return cmp.Or(err, <-seen)
	}
	// A page that has only just been painted may not listen yet, so the first tries don't
	// count.
	for i := -1; ; i-- {
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := update(soon, i)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return r, err
		}
	}
	row, _, err := w.measure(ctx, act{ID: r.ID, What: r.What, Note: r.Note, Target: r.Target, Tries: e.size(40, 1), Least: e.size(15, 1), Do: update})
	return row, err
}

// shownDesktop is the desktop in a page's frame.
type shownDesktop struct {
	browser *chromium.Browser
	origin  string
}

// showLive opens a claim link and presses its button until the dev server's desktop
// is shown.
func showLive(ctx context.Context, b *chromium.Browser, claim string) (*shownDesktop, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := b.Call(ctx, "Page.navigate", map[string]any{"url": claim}, nil); err != nil {
		return nil, err
	}
	if err := errors.Join(b.Until(ctx, pressClaim), b.Until(ctx, isLive)); err != nil {
		return nil, err
	}
	d := &shownDesktop{browser: b}
	err := b.Evaluate(ctx, `document.querySelector('iframe[data-role=shown]').dataset.origin`, false, &d.origin)
	return d, err
}

// evaluate runs an expression in the desktop and waits for its promise; if the page is
// replaced meanwhile, in the new page.
func (d *shownDesktop) evaluate(ctx context.Context, expression string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		back, err := d.browser.Frame(ctx, d.origin+"/")
		if err == nil {
			err = d.browser.Evaluate(ctx, expression, false, nil)
			back()
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
