package dispatch_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/state"
)

// stateful are documents that are looked up in a state, as the real ones are.
type stateful struct {
	ports.Documents
	state *state.Store
	log   ports.Log
	once  sync.Once
	asked chan struct{}
}

func (d *stateful) StartRun(ctx context.Context, id, run, title, path string, says document.Sections) error {
	d.once.Do(func() { close(d.asked) })
	if err := d.state.CaughtUp(ctx, d.log); err != nil {
		return err
	}
	return d.Documents.StartRun(ctx, id, run, title, path, says)
}

// brokenRead is a log that can't be read, as behind a fault of the disk.
type brokenRead struct{ ports.Log }

func (brokenRead) Read(context.Context, uint64, int) ([]contract.Event, error) {
	return nil, errors.New("input/output error")
}

// TestARunOutlivesAProjectionThatStops: what stops the projection passes, and it is tried again; a run waits for that,
// and does not fail for good.
func TestARunOutlivesAProjectionThatStops(t *testing.T) {
	h := newHouse(t)
	st := must(state.Open(t.Context(), filepath.Join(h.dir, "state.sqlite"), state.WithBlobs(h.blobs), state.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))))
	t.Cleanup(func() { st.Close() })
	d := &stateful{state: st, asked: make(chan struct{})}
	h.tune = func(o *dispatch.Options) { d.Documents, d.log, o.Documents = o.Documents, o.Log, d }
	h.sleep()
	h.wake()
	must(h.log.Append(t.Context(), contract.Draft{Actor: contract.Person("u"), Type: "run.steered", Subject: "other", Run: contract.NewID(), Data: &contract.RunSteered{Text: "so that there is something to project"}}))
	if err := st.Project(t.Context(), brokenRead{h.log}); err == nil {
		t.Fatal("a log that can't be read was projected")
	}
	h.model.director = plan(agentTask)
	h.model.associate = steps(edit("c1"))
	run := h.submit("go")
	<-d.asked
	ctx, stop := context.WithCancel(t.Context())
	var projects sync.WaitGroup
	projects.Go(func() { _ = st.Project(ctx, h.log) })
	defer projects.Wait()
	defer stop()
	if rep := h.report(run); rep.Status != contract.RunDone {
		t.Errorf("%+v\n%s", rep, h.story())
	}
	h.quiet()
}
