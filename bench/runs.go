package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/bench/instant"
	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// runsAtOnce has one computer do 100 runs at once on two processors, and measures for how long one of them did not get on, and what
// one more takes in memory while it waits for its model, and while it is parked.
func runsAtOnce(ctx context.Context, e *env) (_ []report.Result, err error) {
	n, each := e.size(100, 4), e.size(20, 3)
	model, err := instant.New(each)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	e.config = instantly(model) + fmt.Sprintf("[loops]\nruns = %d\ntasks = %d\npark_s = 1\n", n+1, n+1)
	w, err := e.openWorld(ctx, 0, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.look(ctx, 0); err != nil { // what is made once
		return nil, err
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	before, err := w.memory()
	if err != nil {
		return nil, err
	}
	asked, release := len(model.Arrivals()[instant.Asks(0)]), model.Hold()
	var runs errgroup.Group
	for i := range n {
		runs.Go(func() error { return w.look(ctx, i+1) })
	}
	defer func() {
		release()
		err = errors.Join(err, runs.Wait())
	}()
	if err := model.Asked(ctx, asked+n); err != nil {
		return nil, fmt.Errorf("not all of %d runs came to ask their model: %w", n, err)
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	waiting, err := w.memory()
	if err != nil {
		return nil, err
	}
	at := time.Now()
	release()
	if err := runs.Wait(); err != nil {
		return nil, err
	}
	waits, median := waitsOf(model.Arrivals(), n, at)
	parked, err := w.parkRuns(ctx, e, n)
	if err != nil {
		return nil, err
	}
	more, err := w.parkRuns(ctx, e, n)
	if err != nil {
		return nil, err
	}
	kB := func(later, sooner int64) *report.Quantity {
		return &report.Quantity{Value: float64(later-sooner) / float64(n) / 1000, Unit: "kB"}
	}
	return []report.Result{
		{ID: "runs-at-once", What: fmt.Sprintf("%d runs at once in one computer, on two processors: the longest that one did not get on", n), Ours: millis(waits), Target: report.AtMost(report.OfOurs, 1000, "ms"),
			Note: fmt.Sprintf("From one request of a run to its next, while all went on; %d turns each, each a command in the run's own box. The median was %s. The model answers at once, in this process, which is not kept to two processors.", each, millis(median))},
		{ID: "run-idle", What: "memory of a run that has waited for its person for long, in the control plane and below", Ours: kB(more.plane+more.below, parked.plane+parked.below), Target: report.AtMost(report.OfOurs, 200, "kB"),
			Note: fmt.Sprintf("%d runs that asked their user something and were parked, above the same control plane with as many before; what is left of each is in the log.", n)},
		{ID: "run-waiting", What: "memory of a run that waits for its model, in the control plane", Ours: kB(waiting.plane, before.plane),
			Note: fmt.Sprintf("Resident set of its one process with %d such runs, above that without. The processes of the run's box, without which it could not go on at once, have %s more, each page counted once.", n, kB(waiting.below, before.below))},
	}, nil
}

// look has the n-th run look on, until it has ended.
func (w *world) look(ctx context.Context, n int) error {
	acted, err := w.api.Prompt(ctx, view.Prompt{ID: contract.NewID(), Text: instant.Asks(n), Route: contract.RouteDirect})
	if err != nil {
		return err
	}
	run, err := w.api.Wait(ctx, acted.Run)
	if err == nil && run.Status != contract.RunDone {
		err = fmt.Errorf("run %d is %s: %s", n, run.Status, report.OneLine(run.Summary))
	}
	return err
}

// spare is how many processes of boxes a computer has at most that are kept ready.
const spare = 4

// parkRuns has n runs ask their user something, and waits until nothing of them is left in boxes.
func (w *world) parkRuns(ctx context.Context, e *env, n int) (m memories, err error) {
	before, err := w.memory()
	if err != nil {
		return m, err
	}
	var asking errgroup.Group
	for range n {
		asking.Go(func() error {
			acted, err := w.api.Prompt(ctx, view.Prompt{ID: contract.NewID(), Text: "Ask me.", Route: contract.RoutePlan, Model: instant.Asking})
			if err != nil {
				return err
			}
			run, err := w.api.Wait(ctx, acted.Run)
			if err == nil && run.Status != contract.RunWaiting {
				err = fmt.Errorf("it asked nothing and is %s: %s", run.Status, report.OneLine(run.Summary))
			}
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return m, err
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if m, err = w.memory(); err != nil {
			return m, err
		}
		if m.processes <= before.processes+spare {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return m, fmt.Errorf("runs that asked something keep boxes: there are %d processes where %d were: %w", m.processes, before.processes, ctx.Err())
		}
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return m, err
	}
	return w.memory()
}

// waitsOf are the longest and the median time between two requests of a run, from an instant at which all of n waited for an
// answer until the first one had made all its requests.
func waitsOf(arrivals map[string][]time.Time, n int, from time.Time) (longest, median time.Duration) {
	var until time.Time
	for i := range n {
		own := arrivals[instant.Asks(i+1)]
		if last := own[len(own)-1]; until.IsZero() || last.Before(until) {
			until = last
		}
	}
	var all times
	for i := range n {
		at := from
		for _, next := range arrivals[instant.Asks(i+1)][1:] {
			all = append(all, next.Sub(at))
			if at = next; next.After(until) {
				break
			}
		}
	}
	return all.p(1), all.p50()
}
