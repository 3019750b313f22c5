package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

const rehearsed = "The model answers at once: it is the rehearsal, which is built in. One task writes a small file; nothing is to be verified."

// prompts measures a prompt until it is acknowledged, and until its run has ended. Each run
// has ended before the next begins.
func prompts(ctx context.Context, e *env) (_ []report.Result, err error) {
	w, err := e.openWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.prompt(ctx); err != nil {
		return nil, err
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	var acted view.Acted
	acknowledged, _, err := w.measure(ctx, act{ID: "prompt", What: "prompt acknowledged", Tries: 25, Least: 8, Target: report.AtMost(report.OfAdded, 2, "ms"),
		Note:    "The run that follows is cancelled and over before the next; what of it began before the answer came counts as a sync of it.",
		RawWhat: "one write and fsync on this disk", Raw: func(context.Context, int) error { return w.sync.sync() },
		Do: func(ctx context.Context, _ int) (err error) {
			acted, err = w.api.Prompt(ctx, view.Prompt{ID: contract.NewID(), Text: "Say hello."})
			return err
		},
		Between: func(ctx context.Context, _ int) error {
			if _, err := w.api.Command(ctx, acted.Run, contract.CommandCancel); err != nil && !fault.Is(err, fault.NotFound) {
				return err // it may have ended by now
			}
			_, err := w.api.Wait(ctx, acted.Run)
			return err
		}})
	if err != nil {
		return nil, err
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	whole, sample, err := w.measure(ctx, act{ID: "prompt-whole", What: "whole prompt, instant model, small tree", Tries: 30, Least: 8,
		Target: report.AtMost(report.OfOurs, 100, "ms"), Note: rehearsed, Do: func(ctx context.Context, _ int) error { return w.prompt(ctx) }})
	if err != nil {
		return nil, err
	}
	return []report.Result{acknowledged, whole, processorOf(w, sample)}, nil
}

// processorOf is the row of the processor time that a sample's tries took.
func processorOf(w *world, s sample) report.Result {
	r := report.Result{ID: "prompt-processor", What: "processor time of one prompt, all processes", Target: report.AtMost(report.OfOurs, 80, "ms"),
		Note: "User and system time of choir and of everything it started, boxes that have ended included, as the kernel counts it (a task clock that children inherit); the mean of the prompts above."}
	if mean, _ := s.each(1); mean != nil {
		r.Ours = millis(*mean)
	} else {
		r.NotMeasured = fmt.Sprint(w.meter.why)
	}
	return r
}

// firstPrompt measures the first prompt of a new computer on a new machine, where the
// desktop's dependencies are not installed.
func firstPrompt(ctx context.Context, e *env) (_ []report.Result, err error) {
	data := filepath.Join(e.dir, "data")
	if e.Tiny {
		if err := e.shareModules(data); err != nil {
			return nil, err
		}
	}
	w, err := e.openWorldOn(ctx, data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	var first, later times
	if err := first.timed(func() error { return w.prompt(ctx) }); err != nil {
		return nil, err
	}
	for range e.rounds(8, 4, actLimit) {
		if err := later.timed(func() error { return w.prompt(ctx) }); err != nil {
			return nil, err
		}
	}
	return []report.Result{{ID: "prompt-first", What: "first prompt of a new computer, against later ones", Ours: first.ms(), Raw: later.ms(), RawWhat: "the prompts after it",
		Ratio: over(first.p50(), later.p50()), Target: report.AtMost(report.OfRatio, 2, "×"),
		Note: "On a new data directory, right after it is healthy: the desktop's dependencies are not there yet and come from the network. One try."}}, nil
}

// concurrentPrompts submits prompts at once and compares the time with the processor time
// that they need, divided by the processors.
func concurrentPrompts(ctx context.Context, e *env) (_ []report.Result, err error) {
	w, err := e.openWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.prompt(ctx); err != nil {
		return nil, err
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	n := e.size(16, 2)
	var alone, together sample
	for range e.rounds(8, 4, actLimit) {
		if err := alone.try(w.meter, func() error { return w.prompt(ctx) }); err != nil {
			return nil, err
		}
	}
	for range e.rounds(3, 1, actLimit) {
		w.file += n // each prompt writes a file of another name
		err := together.try(w.meter, func() error {
			var g errgroup.Group
			for i := range n {
				g.Go(func() error { return w.promptTo(ctx, w.file-i) })
			}
			return g.Wait()
		})
		if err != nil {
			return nil, err
		}
	}
	r := report.Result{ID: "crowd", What: fmt.Sprintf("%d prompts at once, against their processor time", n), Target: report.AtMost(report.OfRatio, 1.25, "×")}
	one, _ := alone.each(1)
	if one == nil {
		r.NotMeasured = fmt.Sprint(w.meter.why)
		return []report.Result{r}, nil
	}
	least := *one * time.Duration(n) / time.Duration(runtime.NumCPU())
	r = together.tell(r)
	each, syncs := together.each(n)
	r.Fsyncs = syncs
	r.Raw, r.Ratio = millis(least), over(together.p50(), least)
	r.RawWhat = fmt.Sprintf("%d × the processor time of a prompt alone (%s) ÷ %d processors", n, millis(*one), runtime.NumCPU())
	r.Note = fmt.Sprintf("Until the last of them has ended; fsyncs are for each. Each took %s of the processor among the others.", millis(*each))
	return []report.Result{r}, nil
}
