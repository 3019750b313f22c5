package history

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/shown"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// span is what changed from one checkpoint to another; to is "" for the live tree.
type span struct{ from, to string }

func spanOf(k state.Checkpoint) span { return span{cmp.Or(k.Parent, emptyTree), k.Commit} }

// share is what of some checkpoints' changes an act made, for a checkpoint has whatever
// differs, whoever changed it.
type share struct {
	some      bool     // it changed something
	others    []string // paths that only others changed
	documents []string // files of documents that it changed
}

// command returns the act of a user's command: the commits of the checkpoints between its
// start and its end, or the checkpoint behind that in what earlier versions appended. It is
// none if they only contain what others did meanwhile. It is an error if what it did is not
// in checkpoints of its own, because one could not be made: going further back would undo
// something older.
func (l *undoSearch) command(ctx context.Context, e state.Event, p *contract.CommandFinished) (a act, found bool, err error) {
	a.What = view.UndoneCommand
	starts, err := l.history.options.State.Events(ctx, state.EventFilter{Subject: e.Subject, Types: []string{"command.started"}, Limit: 1})
	if err != nil {
		return a, false, err
	}
	w := work{history: l.history, since: e.Sequence, until: e.Sequence}
	if len(starts) > 0 {
		w.since, w.cause = starts[0].Sequence, starts[0].ID
		var started contract.CommandStarted
		if err := json.Unmarshal(starts[0].Data, &started); err == nil {
			a.Title = started.Line()
		}
	}
	if p.NoCheckpoint != "" {
		return a, false, fault.New(opUndo, fault.Conflict, "`choir checkpoints` lists what you can go back to: choir restore ID, or choir restore ID --path PATH.",
			fmt.Errorf("the last thing that was done, %s, can't be undone by itself: %s", a.told(), p.NoCheckpoint))
	}
	if behind := l.after; behind != "" && p.Checkpoint == "" {
		after, err := l.history.options.State.Checkpoint(ctx, behind)
		if err != nil {
			return a, false, err
		}
		w.until = after.Sequence
	}
	l.named[p.Checkpoint], l.after = true, ""
	rows, err := w.checkpoints(ctx)
	if err != nil {
		return a, false, err
	}
	var spans []span
	for _, k := range rows {
		a.commits, spans = append(a.commits, wire.Reverted{Commit: k.Commit}), append(spans, spanOf(k))
	}
	a.share, err = w.share(ctx, spans)
	return a, err == nil && a.share.some, err
}

// changedSince says whether a command that has not ended has changed files.
func (h *History) changedSince(ctx context.Context, started state.Event) (bool, error) {
	newest, err := h.options.State.Checkpoints(ctx, 0, 1)
	if err != nil || len(newest) == 0 {
		return false, err
	}
	w := work{history: h, since: started.Sequence, until: h.options.State.Last(), cause: started.ID}
	rows, err := w.checkpoints(ctx)
	if err != nil {
		return false, err
	}
	spans := []span{{from: newest[0].Commit}}
	for _, k := range rows {
		spans = append(spans, spanOf(k))
	}
	did, err := w.share(ctx, spans)
	return did.some, err
}

// work is what was done from the start of a command to its end.
type work struct {
	history      *History
	since, until uint64 // sequences
	cause        string // id of the event of its start
}

// checkpoints lists those that contain what a command did, newest first: whatever the
// reason for one that was made meanwhile, it has what the command had done by then. What a
// run, a push or a restore published was committed by itself.
func (w work) checkpoints(ctx context.Context) (list []state.Checkpoint, err error) {
	rows, err := w.history.options.State.Checkpoints(ctx, w.until+1, state.MaxPage)
	for _, k := range rows {
		if k.Sequence < w.since {
			break
		}
		if k.Files > 0 && k.Kind != contract.CheckpointTask && k.Kind != contract.CheckpointPush && k.Kind != contract.CheckpointRestore {
			list = append(list, k)
		}
	}
	return list, err
}

// others is what people did by themselves while a command ran, as the log tells it.
type others struct {
	contents map[string]map[contract.BlobRef]bool // by path, what files became; "" if they went
	folders  []string                             // what came with all that is in it
}

// maxOthers limits how many such events are read; beyond, everything counts as the
// command's.
const maxOthers = 5_000

// others reads what others did; false means that it was too much.
func (w work) others(ctx context.Context) (o others, ok bool, err error) {
	o.contents = map[string]map[contract.BlobRef]bool{}
	became := func(p wire.Path, ref contract.BlobRef) {
		if o.contents[string(p)] == nil {
			o.contents[string(p)] = map[contract.BlobRef]bool{}
		}
		o.contents[string(p)][ref] = true
	}
	for read, after := 0, w.since; read < maxOthers; {
		events, err := w.history.options.State.Events(ctx, state.EventFilter{After: after, Types: []string{"file.written", "file.removed", "repository.added"}, Limit: 200})
		if err != nil {
			return o, false, err
		}
		for _, e := range events {
			if after = e.Sequence; after > w.until {
				return o, true, nil
			}
			if len(e.Data) == 0 || e.Error != "" || !e.Kind().Client() {
				continue
			}
			data, err := contract.DecodeData(e.Type, e.Data)
			if err != nil {
				return o, false, err
			}
			switch p := data.(type) {
			case *contract.RepositoryAdded:
				o.folders = append(o.folders, p.Path)
			case *contract.FileRemoved:
				became(shown.Path(p.Path, p.Raw), "")
			case *contract.FileWritten:
				if at := shown.Path(p.Path, p.Raw); p.Operation == contract.FilePut {
					became(at, p.SHA256)
				} else {
					o.folders = append(o.folders, string(at))
				}
			}
		}
		if read += len(events); len(events) == 0 {
			return o, true, nil
		}
	}
	return o, false, nil
}

// share says what of the changes in spans the command made. If there are too many to be
// listed, or others did too much, everything is the command's.
func (w work) share(ctx context.Context, spans []span) (s share, err error) {
	if len(spans) == 0 {
		return s, nil
	}
	o, ok, err := w.others(ctx)
	if err != nil {
		return s, err
	}
	own, theirs := map[string]bool{}, map[string]bool{} // paths
	for _, sp := range spans {
		d, err := w.history.tree.Diff(ctx, wire.DiffRequest{From: sp.from, To: sp.to, MaxBytes: -1})
		if err != nil {
			return s, err
		}
		s.some = s.some || d.More > 0 || !ok
		for _, ch := range shown.WithRepositories(d) {
			p := strings.TrimRight(string(ch.Path), "/")
			if own[p] {
				continue
			}
			isTheirs, err := w.isTheirs(ctx, o, sp, p)
			if err != nil {
				return s, err
			}
			if isTheirs {
				theirs[p] = true
				continue
			}
			own[p] = true
			if mirror.Mirrors(p) {
				s.documents = append(s.documents, p) // whether or not there is a document of that name
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(theirs)) {
		if !own[p] {
			s.others = append(s.others, p)
		}
	}
	s.some = s.some || len(own) > 0
	return s, nil
}

// isTheirs says whether what changed at a path in a span is what others did.
func (w work) isTheirs(ctx context.Context, o others, sp span, p string) (bool, error) {
	if len(o.folders) > 0 && slices.ContainsFunc(o.folders, func(f string) bool { return wire.IsUnder(p, f) }) {
		return true, nil
	}
	known := o.contents[p]
	if known == nil && !mirror.Mirrors(p) {
		for f, became := range o.contents { // a folder that went with all that was in it
			if became[""] && wire.IsUnder(p, f) {
				ref, err := w.content(ctx, sp.to, p)
				return ref == "", err
			}
		}
		return false, nil
	}
	ref, err := w.content(ctx, sp.to, p)
	if err != nil || known[ref] || ref == "" || !mirror.Mirrors(p) {
		return known[ref], err
	}
	return w.isMirrored(ctx, sp, p, ref)
}

// isMirrored says whether a file has the text of a revision that the command has no part
// in: one that was written to the file, and not made of what the file had.
func (w work) isMirrored(ctx context.Context, sp span, p string, ref contract.BlobRef) (bool, error) {
	st := w.history.options.State
	id, err := st.DocumentAt(ctx, p)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	now, err := st.RevisionOf(ctx, id, ref)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	was := 0
	if before, err := w.content(ctx, sp.from, p); err != nil {
		return false, err
	} else if was, err = st.RevisionOf(ctx, id, before); err != nil && !fault.Is(err, fault.NotFound) {
		return false, err
	}
	for after := was; after < now; {
		list, err := st.Revisions(ctx, id, after, state.MaxPage)
		if err != nil || len(list) == 0 {
			return false, err
		}
		for _, r := range list {
			if after = r.Revision; after > now {
				break
			}
			if w.made(r) {
				return false, nil
			}
		}
	}
	return was < now, nil
}

// made says whether a revision was made of what the command wrote to the file: either its
// end said so, or the file was found to differ while it ran.
func (w work) made(r state.Revision) bool {
	return r.Cause != "" && r.Cause == w.cause ||
		r.Role == document.Nobody.Kind && r.Author == document.By(document.Nobody).Name && r.Seq > w.since
}

// content is the hash of a file in a commit or, for "", the live tree; "" if there is none.
func (w work) content(ctx context.Context, commit, p string) (ref contract.BlobRef, err error) {
	if commit == emptyTree {
		return "", nil
	}
	c, err := w.history.tree.Read(ctx, commit, p, 0, 0)
	if fault.Is(err, fault.NotFound) {
		return "", nil
	} else if fault.Is(err, fault.Invalid) {
		return "not a file", nil
	} else if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, c); err != nil {
		return "", err
	}
	return contract.NewBlobRef([sha256.Size]byte(sum.Sum(nil))), nil
}

// documentsIn lists the files of documents, and those that could be, that changed in spans.
func (h *History) documentsIn(ctx context.Context, spans []span) (paths []string, err error) {
	for _, sp := range spans {
		d, err := h.tree.Diff(ctx, wire.DiffRequest{From: sp.from, To: sp.to, Paths: []wire.Path{"artifacts"}, MaxBytes: -1})
		if err != nil {
			return nil, err
		}
		for _, ch := range d.Changes {
			if p := string(ch.Path); mirror.Mirrors(p) {
				paths = append(paths, p)
			}
		}
	}
	return paths, nil
}
