package boxes

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// writers knows whether a program other than ours can write to the live tree, so that the
// keeper need not scan all of it when none could. A box's mounts decide it, and every box
// of a computer is opened by Boxes.Open, so none is forgotten. If it is unknown, there is a
// writer.
type writers struct {
	mu      sync.Mutex
	name    string          // drawn again with each waking
	time    int             // changes whenever a writer begins, rests, works again or ends
	open    map[string]bool // boxes of which something may be left, by id; false while one rests
	unnamed int             // those with the id of another one
	unlike  bool            // since there last were none, one of them sees the live tree otherwise than directly
}

// writesLive reports whether a box may write to the live tree itself. The keeper's does
// too, but records what it does.
func writesLive(spec sandbox.BoxSpec) bool {
	return spec.Kind != contract.BoxKeeper && slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool {
		return m.Upper.Kind == sandbox.VolumeLive || m.Source.Kind == sandbox.VolumeLive && m.Mode != sandbox.ReadOnly
	})
}

// showsLive reports whether all of the live tree that a box can write to is mounted
// directly, so that the kernel notifies watchers of the tree. It does not through an
// overlay.
func showsLive(spec sandbox.BoxSpec) bool {
	return !slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool {
		return m.Upper.Kind == sandbox.VolumeLive || m.Source.Kind == sandbox.VolumeLive && m.Mode != sandbox.ReadOnly && m.Mode != sandbox.ReadWrite
	})
}

// begin says that a box is about to be opened, and returns a function to be called when
// nothing of it is left. As long as that is not called, the box counts as open.
func (w *writers) begin(spec sandbox.BoxSpec) (ended func()) {
	if !writesLive(spec) {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time++
	w.unlike = w.unlike || !showsLive(spec)
	if w.open == nil {
		w.open = map[string]bool{}
	}
	_, taken := w.open[spec.ID]
	if taken { // its id may mean either box, so neither counts as resting
		w.unnamed++
	} else {
		w.open[spec.ID] = true
	}
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.time++
		if taken {
			w.unnamed--
		} else {
			delete(w.open, spec.ID)
		}
		w.unlike = w.unlike && len(w.open)+w.unnamed > 0
	})
}

// rest says that nothing that could write runs in a box, until work is called.
func (w *writers) rest(id string) { w.set(id, false) }

// work says that something is about to run again in a box that rests.
func (w *writers) work(id string) { w.set(id, true) }

func (w *writers) set(id string, works bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time++
	if _, ok := w.open[id]; ok {
		w.open[id] = works
	}
}

// still identifies the period since the last writer ended. While there is a writer it is
// wire.WritersWatched, or "" if the keeper's watches could not notice what it writes.
func (w *writers) still() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unnamed > 0 || slices.Contains(slices.Collect(maps.Values(w.open)), true) {
		if w.unlike {
			return ""
		}
		return wire.WritersWatched
	}
	if w.name == "" {
		w.name = contract.NewID()
	}
	return w.name + "-" + strconv.Itoa(w.time)
}
