package engine

import (
	"context"
	"io"
	"iter"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/find"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/heal"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/pushed"
	"choir.dev/choiros/internal/workspace/keeper/scrub"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// The packages that keep the history whole are used here, together with the engine's lock
// and what it knows.

// openCare prepares what heals the history and reads it for damage.
func (e *Engine) openCare() {
	e.heal = heal.New(heal.Options{Store: e.store, Root: e.opts.Root, Snapshots: e.opts.Snapshots, Trash: e.store.Work("trash"), Newest: e.replaceTree, Logger: e.opts.Logger})
	e.scrubs = scrub.New(scrub.Options{Store: e.store, Heal: e.heal, Head: e.Head, Asides: func() ([]wire.Aside, error) { return e.moves.SetAsides() }, Logger: e.opts.Logger})
}

// Scrub does a part of a pass over everything that the history reaches.
func (e *Engine) Scrub(ctx context.Context, req wire.ScrubRequest) (wire.ScrubReply, error) {
	return e.scrubs.Scrub(ctx, req)
}

// replaceTree writes a tree of the newest checkpoint again, from what is known of its
// content.
func (e *Engine) replaceTree(id string) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.store.ReplaceTree(e.scanner.Index.Entries(), id)
}

// Collect removes the chunks that nothing needs.
func (e *Engine) Collect(ctx context.Context) (wire.CollectReply, error) {
	return e.collects.Collect(ctx)
}

// alone runs what must not run during a change, if the history can be read.
func (e *Engine) alone(f func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.whole(); err != nil {
		return err
	}
	return f()
}

// Find looks for contents in the live files, the trash and the history, in that
// order.
func (e *Engine) Find(ctx context.Context, req wire.FindRequest) (wire.FindReply, error) {
	return e.finder().Find(ctx, req)
}

// Found opens what Find found. Its content may have changed: the caller compares it.
func (e *Engine) Found(ctx context.Context, at wire.Found) (func(io.Writer) error, error) {
	const op = "keeper.Found"
	asked := string(at.Path)
	switch {
	case at.Object != "":
	case at.Trash != "":
		if err := publish.CheckPlanID(at.Trash); err != nil {
			return nil, fault.Wrap(op, err)
		}
		asked = at.Trash
	default:
		if err := badPath(asked, false); err != nil {
			return nil, fault.Wrap(op, err)
		}
	}
	give, err := e.finder().Open(ctx, at)
	return give, fileError(op, asked, err)
}

func (e *Engine) finder() *find.Finder {
	return find.New(find.Options{Store: e.store, Root: e.scanner.Root, Trash: e.store.Work("trash"), Live: e.wholeFiles})
}

// wholeFiles are the captured files that are not kept as chunks; manifests of the others
// are in the history.
func (e *Engine) wholeFiles() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	paths := make([]string, 0, e.scanner.Index.Count)
	for p, t := range e.scanner.Index.All() {
		if t.IsRegular() && !t.Chunked {
			paths = append(paths, p)
		}
	}
	return paths
}

// stepsAllThere makes sure that the contents which the steps of a plan need can be read,
// before anything moves.
func (e *Engine) stepsAllThere(ctx context.Context, steps []publish.Step) error {
	for _, s := range steps {
		if err := e.heal.There(ctx, s.To, s.Path); err != nil {
			return err
		}
	}
	return nil
}

// captured are the entries of the newest checkpoint.
func (e *Engine) captured() iter.Seq2[string, gitstore.Entry] {
	return func(yield func(string, gitstore.Entry) bool) {
		for p, t := range e.scanner.Index.All() {
			if !yield(p, t.Entry) {
				return
			}
		}
	}
}

// Watches is how many inotify watches the engine has.
func (e *Engine) Watches() int { return e.scanner.Watches() }

// Pushes takes what is pushed into the history.
func (e *Engine) Pushes() *pushed.Receiver { return e.pushes }
