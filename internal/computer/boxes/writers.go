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

// writers knows whether a program of somebody else's can write to the live tree,
// so that the keeper need not look at all of it when none could. What a box
// mounts decides it, and every box of a computer is opened through one function
// (Boxes.Open), so none is forgotten. In doubt there is a writer.
type writers struct {
	mu      sync.Mutex
	name    string          // drawn anew with each waking
	time    int             // changes whenever a writer begins, rests, works again or ends
	open    map[string]bool // boxes by their ids, of which something may be left; false: one that rests
	unnamed int             // those that have the id of another one
	unlike  bool            // one of them, since there were none, sees the live tree otherwise than as it is
}

// writesLive reports whether a box may write to the live tree by itself. The
// keeper does, and writes down what it does.
func writesLive(spec sandbox.BoxSpec) bool {
	return spec.Kind != contract.BoxKeeper && slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool {
		return m.Upper.Kind == sandbox.VolumeLive || m.Source.Kind == sandbox.VolumeLive && m.Mode != sandbox.ReadOnly
	})
}

// showsLive reports whether all that a box can write to of the live tree is mounted as it
// is, so that the kernel tells whoever watches the tree of it. It does not through an overlay.
func showsLive(spec sandbox.BoxSpec) bool {
	return !slices.ContainsFunc(spec.Mounts, func(m sandbox.Mount) bool {
		return m.Upper.Kind == sandbox.VolumeLive || m.Source.Kind == sandbox.VolumeLive && m.Mode != sandbox.ReadOnly && m.Mode != sandbox.ReadWrite
	})
}

// begin says that a box is about to be opened, and returns what is to be called
// when nothing of it is left. Where that is never known it counts as open.
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
	if taken { // whoever speaks of it may mean the other one: neither rests
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

// rest says that nothing runs in a box that could write, until work is called.
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

// still names the time since the last writer ended. While there is one it is wire.Beside,
// or "" where the keeper's watches could not tell what it writes.
func (w *writers) still() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unnamed > 0 || slices.Contains(slices.Collect(maps.Values(w.open)), true) {
		if w.unlike {
			return ""
		}
		return wire.Beside
	}
	if w.name == "" {
		w.name = contract.NewID()
	}
	return w.name + "-" + strconv.Itoa(w.time)
}
