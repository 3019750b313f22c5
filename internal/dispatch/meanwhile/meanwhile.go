package meanwhile

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/fault"
	story "choir.dev/choiros/internal/run"
)

// Bounds of what is known of one attempt.
const (
	maxFiles = 10_000 // files that others changed
	maxNamed = 20_000 // paths that its calls named
	page     = 500    // events that are read at once
	// askAtOnce is of how many files it is asked at once whether a checkpoint holds them.
	askAtOnce = 64
	tries     = 3 // how often a checkpoint is compared with the one before, before it is passed over
)

// MaxTold is how often the loop of one attempt is told.
const MaxTold = 50

// Tells reports whether an event of this type may say that live files changed.
func Tells(eventType string) bool {
	switch eventType {
	case "file.written", "file.removed", "document.revised", "checkpoint.created":
		return true
	}
	return false
}

// publishes is the type of the event that says whose work the commit is of which a checkpoint is made.
const publishes = "publish.started"

// Log is what is read of a computer's log.
type Log interface {
	Read(ctx context.Context, after uint64, limit int) ([]contract.Event, error)
	Payload(ctx context.Context, e contract.Event) (contract.Payload, error)
}

// Options configure a Watch.
type Options struct {
	Feed *Feed
	// Contains returns for each of commits which of paths are files in it, nil if it can't tell.
	Contains func(ctx context.Context, commits, paths, names []string) ([][]bool, error)
	Logger   *slog.Logger
	Task     string
	Attempt  int
	Base     string // the checkpoint that the attempt's tree is of
	After    uint64 // behind this sequence, at the latest, is what may have changed since Base
}

// Watch is what others have changed since the tree of an attempt was made. It is safe for concurrent use.
type Watch struct {
	Options

	mu     sync.Mutex
	at     uint64                           // the sequence up to which the log was read
	failed int                              // how often the event behind it could not be understood
	files  map[string]contract.OutdatedPath // the newest change of each file
	sums   map[string]contract.BlobRef      // the contents that events named
	since  map[string]bool                  // files of which an event of their own has come since the newest checkpoint
	held   map[string]bool                  // whether a checkpoint holds, or held, a file
	tasks  map[string]string                // who publishes the commits that are about to be checkpoints
	named  map[string]bool                  // what the attempt's calls have named
	taken  map[string]bool                  // the calls of which that is known
}

// New returns a Watch that has read nothing yet.
func New(o Options) *Watch {
	return &Watch{Options: o, at: o.After, files: map[string]contract.OutdatedPath{}, sums: map[string]contract.BlobRef{}, since: map[string]bool{}, held: map[string]bool{}, tasks: map[string]string{},
		named: map[string]bool{}, taken: map[string]bool{}}
}

// Notice has note record what the loop is to be told, if there is anything: what the log has up to a sequence, of the files that the
// task's calls have named. look shows the task as the log has it; between it and note nobody else notices anything.
func (w *Watch) Notice(ctx context.Context, upTo uint64, look func(func(*story.Task)), note func(contract.Outdated, int) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	look(w.take) // what it works with has room among what changed
	if err := w.read(ctx, upTo); err != nil {
		return fault.Wrap("meanwhile.Notice", err)
	}
	if len(w.files) == 0 {
		return nil
	}
	var p contract.Outdated
	var changed []contract.OutdatedPath
	var told int
	look(func(t *story.Task) {
		w.take(t)
		p.Attempt, changed, told = t.Now.Number, w.untold(t), len(t.Outdated)
	})
	if told >= MaxTold || p.Attempt != w.Attempt { // the next attempt has a tree of its own
		return nil
	}
	var err error
	if p.Files, err = w.visible(ctx, changed); err != nil || len(p.Files) == 0 {
		return fault.Wrap("meanwhile.Notice", err)
	}
	p.Last = told == MaxTold-1
	return fault.Wrap("meanwhile.Notice", note(p, told))
}

// untold lists the changes of files that the loop works with, and that it was not told of, oldest first.
func (w *Watch) untold(t *story.Task) (out []contract.OutdatedPath) {
	told := map[string]uint64{}
	for _, o := range t.Outdated {
		for _, f := range o.Files {
			told[f.Path] = f.Seq
		}
	}
	for p, f := range w.files {
		if held, known := w.held[p]; w.named[p] && f.Seq > told[p] && (held || !known) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b contract.OutdatedPath) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Path, b.Path))
	})
	return out
}

// visible leaves out of changes those of files that no checkpoint holds, such as what is ignored: a task's tree has none of them, and a
// box that names one learns nothing of it. It returns as many as may be told at once; the others are told the next time.
func (w *Watch) visible(ctx context.Context, changed []contract.OutdatedPath) (out []contract.OutdatedPath, err error) {
	for piece := range slices.Chunk(changed, askAtOnce) {
		var ask []string
		for _, f := range piece {
			if _, known := w.held[f.Path]; !known {
				ask = append(ask, f.Path)
			}
		}
		if err := w.ask(ctx, ask); err != nil {
			return nil, err
		}
		for _, f := range piece {
			if w.held[f.Path] {
				out = append(out, f)
			}
		}
		if len(out) >= contract.MaxOutdated {
			return out[:contract.MaxOutdated], nil
		}
	}
	return out, nil
}

// ask asks whether the checkpoint that the task's tree is of holds paths. One that is no plain file there has no answer, and leaves the
// others without one; then each is asked for by itself.
func (w *Watch) ask(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	has, err := w.Contains(ctx, []string{w.Base}, paths, nil)
	if err != nil {
		return err
	}
	told := len(has) == 1 && len(has[0]) == len(paths)
	if !told && len(paths) > 1 {
		for _, p := range paths {
			if err := w.ask(ctx, []string{p}); err != nil {
				return err
			}
		}
		return nil
	}
	for i, p := range paths {
		w.held[p] = told && has[0][i]
	}
	return nil
}

// read reads the log up to a sequence. What could not be understood is read again the next time.
func (w *Watch) read(ctx context.Context, upTo uint64) error {
	for w.at < upTo {
		events, err := w.Feed.Read(ctx, w.at, upTo, page)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
		for _, e := range events {
			if err := w.apply(ctx, e); err != nil {
				if w.failed++; w.failed < tries || ctx.Err() != nil {
					return err
				}
				w.Logger.Warn("a loop is not told what a checkpoint changed of the files that it works with", "task", w.Task, "event", e.Sequence, "error", err)
			}
			w.at, w.failed = e.Sequence, 0
		}
	}
	return nil
}

func (w *Watch) apply(ctx context.Context, e contract.Event) error {
	if !Tells(e.Type) && e.Type != publishes {
		return nil
	}
	p, err := w.Feed.Payload(ctx, e)
	if err != nil {
		if blob.Gone(err) || fault.Is(err, fault.Invalid) {
			return nil // a checkpoint that follows says it, too
		}
		return err
	}
	switch p := p.(type) {
	case *contract.PublishStarted:
		w.tasks[p.Commit] = e.Task
	case *contract.FileWritten:
		w.changed(e, p.Path, p.Raw, p.SHA256)
	case *contract.DocumentRevised:
		w.changed(e, p.Path, "", p.SHA256)
	case *contract.FileRemoved:
		w.changed(e, p.Path, p.Raw, "")
	case *contract.CheckpointCreated:
		return w.checkpoint(ctx, e, p)
	}
	return nil
}

// changed is that an event of its own says that a file changed. A file and the document that it shows are told once.
func (w *Watch) changed(e contract.Event, path, raw string, sum contract.BlobRef) {
	if e.Task == w.Task || raw != "" { // no call can name what is not UTF-8
		return
	}
	w.mark(path)
	if sum != "" && w.sums[path] == sum {
		return
	}
	w.set(contract.OutdatedPath{Path: path, By: e.By().Kind, Removed: e.Type == "file.removed", Seq: e.Sequence, Time: e.Time.UTC()}, sum)
}

// checkpoint is that there is a commit of the live tree. It may have what no other event told of.
func (w *Watch) checkpoint(ctx context.Context, e contract.Event, p *contract.CheckpointCreated) error {
	if p.Commit == w.Base {
		clear(w.files)
		clear(w.sums)
		clear(w.since)
		return nil
	}
	task, published := w.tasks[p.Commit]
	if (!published || task != w.Task) && p.Parent != "" && p.Files > 0 {
		changes, err := w.Feed.Changed(ctx, p.Parent, p.Commit)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if c.PathBase64 != "" {
				continue
			}
			w.hold(c.Path)
			if !w.since[c.Path] {
				w.set(contract.OutdatedPath{Path: c.Path, By: whose(e, p.Kind, task), Removed: c.Op == contract.ChangeDeleted, Seq: e.Sequence, Time: e.Time.UTC()}, "")
			}
		}
	}
	if published && task == w.Task {
		clear(w.sums) // what others write now is news, also where they write what they had written before
	}
	delete(w.tasks, p.Commit)
	clear(w.since)
	return nil
}

// whose is who made what a checkpoint has of its own. An automatic one, or one before something else, has what wrote to the tree without
// asking the computer.
func whose(e contract.Event, k contract.CheckpointKind, task string) contract.ActorKind {
	switch {
	case task != "":
		return contract.KindAssociate
	case k == contract.CheckpointRestore || k == contract.CheckpointAfter:
		return e.By().Kind
	}
	return ""
}

func (w *Watch) mark(path string) {
	if len(w.since) < maxFiles {
		w.since[path] = true
	}
}

func (w *Watch) hold(path string) {
	if _, known := w.held[path]; known || len(w.held) < maxNamed {
		w.held[path] = true
	}
}

func (w *Watch) set(f contract.OutdatedPath, sum contract.BlobRef) {
	if contract.ValidPath("path", f.Path) != nil {
		return
	}
	if _, known := w.files[f.Path]; !known && len(w.files) >= maxFiles && !w.room(f.Path) {
		return
	}
	w.files[f.Path], w.sums[f.Path] = f, sum
}

// room makes room for a file that the loop works with, in the place of one that it does not.
func (w *Watch) room(path string) bool {
	if !w.named[path] {
		return false
	}
	for p := range w.files {
		if !w.named[p] {
			delete(w.files, p)
			delete(w.sums, p)
			return true
		}
	}
	return false
}
