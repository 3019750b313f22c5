package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"choir.dev/choiros/internal/chromium"
)

const (
	// pressClaim is true once it has pressed the button of the claim page.
	pressClaim = `(() => { const go = document.getElementById('go'), name = document.getElementById('name');
		if (document.readyState !== 'complete' || !go || !name || go.disabled || document.getElementById('fresh').hidden) return false;
		name.value = 'Bench'; go.click(); return true })()`
	// isPainted is true once the console was told that the desktop has painted.
	isPainted = `!!document.querySelector('iframe[data-role=shown][data-mode]')`
)

// painted has a browser wait that runs already, starts the binary on a new data
// directory, opens its link and presses the button at once.
func painted(ctx context.Context, e *env) (_ []Result, err error) {
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
		if i == 0 && !e.Tiny { // Chromium is still busy with its own start
			ours, healthy = nil, nil
		}
	}
	return []Result{{ID: "painted", What: "choir up to painted desktop", Ours: &Quantity{ours.p50().Seconds(), "s"}, P99: &Quantity{ours.p(0.99).Seconds(), "s"}, Target: atMost(ofOurs, 2, "s"),
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
