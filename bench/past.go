package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

// pastSizes are the lengths of the logs that are asked, in events.
var pastSizes = []int{1_000, 100_000}

// rare is a type of which a long log has only a few events.
const (
	rare     = "computer.renamed"
	rareMany = 5
)

// past asks logs of different lengths for the five events of one type, and starts a control
// plane on them.
func past(ctx context.Context, e *env) ([]report.Result, error) {
	sizes := pastSizes
	if e.Tiny {
		sizes = []int{20, 50}
	}
	var out []report.Result
	for i, events := range sizes {
		r, err := e.askPast(ctx, filepath.Join(e.dir, fmt.Sprint("past", i)), events)
		if err != nil {
			return out, fmt.Errorf("%d events: %w", events, err)
		}
		if i == len(sizes)-1 {
			out = append(out, r...)
		}
	}
	return out, nil
}

func (e *env) askPast(ctx context.Context, dir string, events int) (_ []report.Result, err error) {
	data := filepath.Join(dir, "data")
	if err := e.shareModules(data); err != nil {
		return nil, err
	}
	w, err := e.openWorldOn(ctx, data)
	if err != nil {
		return nil, err
	}
	info, err := w.api.Info(ctx)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	if err := lengthen(ctx, data, info.ID, events); err != nil {
		return nil, fmt.Errorf("make the log longer: %w", err)
	}
	// The first start projects the new events; the second one is like any other.
	for range 2 {
		if w, err = e.openWorldOn(ctx, data); err != nil {
			return nil, err
		}
		e.plot(curveEvents, "choir up", events, w.healthy)
		if err := w.Close(); err != nil {
			return nil, err
		}
	}
	if w, err = e.openWorldOn(ctx, data); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	r, s, err := w.measure(ctx, act{ID: "past-type", What: fmt.Sprintf("events --type for %d of %d", rareMany, events), Tries: 20, Least: 1, Target: report.AtMost(report.OfOurs, 50, "ms"),
		Note: "The call that the verb makes, to its last event.",
		Do: func(ctx context.Context, _ int) error {
			n := 0
			for _, err := range w.api.Events(ctx, client.EventsOptions{Types: []string{rare}}) {
				if err != nil {
					return err
				}
				n++
			}
			if n != rareMany {
				return fmt.Errorf("%d events of %d came", n, rareMany)
			}
			return nil
		}})
	if err != nil {
		return nil, err
	}
	e.plot(curveEvents, "events --type", events, s.p50())
	return []report.Result{r}, nil
}

// lengthen appends events to a computer's log as a desktop does all day, through the appender,
// while nobody else has the log open.
func lengthen(ctx context.Context, data string, cid contract.CID, events int) (err error) {
	b, err := bus.Open(ctx, bus.Options{Dir: filepath.Join(data, "nats"), KeysDir: filepath.Join(data, "keys")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	blobs, err := disk.Open(filepath.Join(data, "blobs"), blob.Quota{})
	if err != nil {
		return err
	}
	at := filepath.Join(data, "computers", string(cid))
	st, err := state.Open(ctx, filepath.Join(at, "state.sqlite"), state.WithBlobs(blobs))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	log, err := ledger.Open(ctx, b.JetStream(), ledger.Options{CID: cid, Blobs: blobs, Index: st, Health: b.Health, Head: filepath.Join(at, "log.head")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := st.Recover(ctx, log); err != nil {
		return err
	}
	const batch = 100
	var drafts []contract.Draft
	for i := range events {
		d := contract.Draft{Actor: contract.Person(""), Type: "window.moved", Data: &contract.WindowMoved{Window: "w", Frame: contract.Frame{X: i % 1000, W: 100, H: 100}, State: contract.WindowNormal}}
		switch {
		case i == 0:
			d.Type, d.Data = "window.opened", &contract.WindowOpened{Window: "w", App: "a", State: contract.WindowNormal}
		case i%(events/rareMany) == 1:
			d.Type, d.Data = rare, &contract.ComputerRenamed{Name: fmt.Sprint("Name ", i)}
		}
		if drafts = append(drafts, d); len(drafts) == batch || i == events-1 {
			if _, err := log.Append(ctx, drafts...); err != nil {
				return err
			}
			drafts = drafts[:0]
		}
	}
	return nil
}
