package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"choir.dev/choiros/bench/procfs"
	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// sleepers is how many computers sleep.
const sleepers = 100

// asleep makes computers, waits until they sleep, restarts, so that none of them was ever awake in
// the measured process, and wakes them one by one.
func asleep(ctx context.Context, e *env) (_ []report.Result, err error) {
	e.config = "\n[runtime]\nsleep_s = 1\n"
	few, err := e.withSleepers(ctx, filepath.Join(e.dir, "few"), 2, nil)
	if err != nil {
		return nil, err
	}
	many := e.size(sleepers, 3)
	var woken sample
	var awake int
	rest, err := e.withSleepers(ctx, filepath.Join(e.dir, "many"), many, func(w *world, all []view.Computer) error {
		for _, c := range all[:min(len(all), e.size(30, 2))] {
			api := w.api.Computer(c.ID)
			if err := woken.try(w.meter, func() error { _, err := api.Files(ctx, "workspace"); return err }); err != nil {
				return err
			}
			info, err := api.Info(ctx)
			if err != nil {
				return err
			}
			if info.State == view.StateAwake {
				awake++
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if awake == 0 {
		return nil, errors.New("no computer woke")
	}
	each := max(float64(rest-few)/float64(many-2)/1e6, 0.001)
	return []report.Result{
		{ID: "asleep-memory", What: fmt.Sprintf("memory of each of %d sleeping computers", many), Ours: &report.Quantity{Value: each, Unit: "MB"}, Target: report.AtMost(report.OfOurs, 1, "MB"),
			Note: "Resident set of the control plane that was started with them, above that of one with two, by how many more there are. The NATS server's streams are in it. None has a process."},
		woken.tell(report.Result{ID: "asleep-wake", What: "a request that wakes a computer", Target: report.AtMost(report.OfOurs, 300, "ms"),
			Note: "`GET …/files` of a computer with the files of a new one, until it is answered."}),
	}, nil
}

// withSleepers starts a control plane with so many computers, all asleep, and returns its
// memory when idle. Then it calls then.
func (e *env) withSleepers(ctx context.Context, data string, many int, then func(*world, []view.Computer) error) (rest int64, err error) {
	if err := e.shareModules(data); err != nil {
		return 0, err
	}
	w, err := e.openWorldOn(ctx, data)
	if err != nil {
		return 0, err
	}
	for i := 1; i < many && err == nil; i++ {
		_, err = w.api.Create(ctx, contract.NewCID(), fmt.Sprint("Sleeper ", i))
	}
	if err == nil {
		_, err = asleepAll(ctx, w.api, many)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return 0, err
	}
	if w, err = e.openWorldOn(ctx, data); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	all, err := asleepAll(ctx, w.api, many)
	if err != nil {
		return 0, err
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return 0, err
	}
	if rest, err = procfs.Resident(w.PID); err != nil || then == nil {
		return rest, err
	}
	return rest, then(w, all)
}

// asleepAll waits until so many computers exist and sleep.
func asleepAll(ctx context.Context, api *client.Client, many int) ([]view.Computer, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); ; {
		all, err := api.Computers(ctx)
		if err != nil {
			return nil, err
		}
		up := slices.ContainsFunc(all, func(c view.Computer) bool { return c.State != view.StateAsleep })
		switch {
		case len(all) == many && !up:
			return all, nil
		case time.Now().After(limit):
			return nil, fmt.Errorf("of %d computers not all were asleep within a minute", len(all))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
