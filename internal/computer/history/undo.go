package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/shown"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// computersFiles is the name, for people, of what a push changes that is not into a
// repository in a folder.
const computersFiles = "the computer's files"

// act is something that was done, and how to undo it: by exactly one of a restore, an
// operation, commits and a revision.
type act struct {
	view.Undone
	operation wire.UndoRequest
	commits   []wire.Reverted // newest first
	share     share           // what of the commits it changed itself
	document  contract.DocumentRevised
	facts     []string // that are forgotten, or kept again
}

// undoable are the types of the events that report acts, and of those that report the
// checkpoints of what commands did.
var undoable = []string{
	"checkpoint.restored", "publish.finished", "command.finished", "file.written", "file.removed", "repository.added", "repository.pushed", "document.revised", "checkpoint.created",
	"memory.remembered", "memory.forgotten", "memory.restored",
}

// maxLooked limits how far back the last act is searched for, in events of those types.
const maxLooked = 20_000

const opUndo = "history.Undo"

// undo undoes the last act, whatever it was, and returns which it was.
func (h *History) undo(ctx context.Context, r view.RestoreRequest) (view.Restored, error) {
	a, err := h.lastAct(ctx)
	if err == nil || fault.Is(err, fault.NotFound) {
		err = cmp.Or(h.nothingAtWork(ctx, a.Sequence), h.noCommandAtWork(ctx, a.Sequence), err)
	}
	if err != nil {
		return view.Restored{}, err
	}
	if r.Act != 0 && a.Sequence != r.Act {
		return view.Restored{}, fault.New(opUndo, fault.Conflict, "Look at what an undo would undo now.", errors.New("something else was done since"))
	}
	out, err := h.undoAct(ctx, a, r)
	if err != nil {
		return view.Restored{}, fault.New(opUndo, fault.CodeOf(err), fault.HintOf(err), fmt.Errorf("%s can't be undone: %w", a.told(), err))
	}
	out.Undone = &a.Undone
	return out, nil
}

func (h *History) undoAct(ctx context.Context, a act, r view.RestoreRequest) (view.Restored, error) {
	switch {
	case a.What == view.UndoneRestore:
		return h.goBack(ctx, h.options.Workspace.Undo, workspace.RestoreRequest{DryRun: r.DryRun, By: r.By})
	case len(a.commits) > 0:
		return h.goBack(ctx, h.options.Workspace.Restore, workspace.RestoreRequest{
			Revert: a.commits, Except: a.share.others, Paths: r.Paths, DryRun: r.DryRun, By: r.By, Message: "Undo: " + contract.Clip(a.told(), 200),
		}, a.share.documents...)
	case a.What == view.UndoneRevision:
		return h.undoRevision(ctx, a.document, r)
	case len(a.facts) > 0:
		return h.undoFacts(ctx, a, r)
	}
	return h.undoOperation(ctx, a.operation, r)
}

// told describes an act in a few words.
func (a act) told() string {
	switch a.What {
	case view.UndoneRestore:
		return "the last restore"
	case view.UndoneRun:
		return fmt.Sprintf("the run “%s”", contract.Clip(a.Title, 60))
	case view.UndoneCommand:
		return fmt.Sprintf("the command “%s”", contract.Clip(a.Title, 60))
	case view.UndonePut:
		return "the put of " + a.Path
	case view.UndoneRemoval:
		return "the removal of " + a.Path
	case view.UndoneMove:
		return "the move to " + a.Path
	case view.UndoneBack:
		return "what brought " + a.Path + " back from the trash"
	case view.UndonePush:
		return "the push to " + cmp.Or(a.Path, a.Title)
	case view.UndoneAdd:
		return "the addition of " + a.Path
	case view.UndoneRemember:
		return fmt.Sprintf("keeping “%s”", contract.Clip(a.Title, 60))
	case view.UndoneForget:
		return fmt.Sprintf("forgetting “%s”", contract.Clip(a.Title, 60))
	}
	return fmt.Sprintf("the revision of “%s”", contract.Clip(a.Title, 60))
}

// lastAct goes back through the log to the newest act that changed files or documents, and
// skips those that changed nothing.
func (h *History) lastAct(ctx context.Context) (act, error) {
	l := undoSearch{history: h, idle: map[string]bool{}, named: map[string]bool{}}
	for looked, before := 0, uint64(0); looked < maxLooked; {
		events, err := h.options.State.Events(ctx, state.EventFilter{Newest: true, Before: before, Types: undoable, Limit: 200})
		if err != nil {
			return act{}, err
		}
		for _, e := range events {
			a, found, err := l.at(ctx, e)
			if err != nil || found {
				a.Sequence = e.Sequence
				return a, err
			}
			before = e.Sequence
		}
		if looked += len(events); len(events) == 0 {
			break
		}
	}
	return act{}, fault.New(opUndo, fault.NotFound, "`choir checkpoints` lists what you can restore, `choir files trash` what was removed.",
		errors.New("nothing was done yet that could be undone"))
}

// undoSearch is what was found on the way back through the log.
type undoSearch struct {
	history *History
	after   string          // the checkpoint after a command, whose end is further back, as earlier versions appended them
	named   map[string]bool // checkpoints that the end of a command names
	idle    map[string]bool // runs that changed nothing
}

// at returns the act that an event reports, if it is one that can be undone by itself.
func (l *undoSearch) at(ctx context.Context, e state.Event) (a act, found bool, err error) {
	if len(e.Data) == 0 && e.Type != "document.revised" || e.Error != "" {
		return a, false, nil
	}
	var data contract.Payload
	if len(e.Data) > 0 {
		if data, err = contract.DecodeData(e.Type, e.Data); err != nil {
			return a, false, err
		}
	}
	switch p := data.(type) {
	case *contract.CheckpointCreated:
		if p.Kind == contract.CheckpointAfter && !l.named[p.Commit] {
			l.after = p.Commit
		}
		return a, false, nil
	case *contract.CheckpointRestored:
		a.What = view.UndoneRestore
		return a, true, nil
	case *contract.RepositoryAdded:
		a.What, a.Path = view.UndoneAdd, p.Path
		a.operation = wire.UndoRequest{Op: "import", Path: wire.Path(p.Path)}
		return a, true, nil
	case *contract.RepositoryPushed:
		if a.What, a.Path = view.UndonePush, p.Path; p.Path == "" {
			a.Title = computersFiles
		}
		a.commits = []wire.Reverted{{Commit: p.Commit, Publish: p.Publish}}
		return a, true, nil
	case *contract.CommandFinished:
		return l.command(ctx, e, p)
	case *contract.PublishFinished:
		if e.Run == "" || l.idle[e.Run] {
			return a, false, nil
		}
		a, err = l.history.actOfRun(ctx, e.Run)
		l.idle[e.Run] = err == nil && len(a.commits) == 0
		return a, err == nil && len(a.commits) > 0, err
	}
	if !e.Kind().Client() {
		return a, false, nil
	}
	if p, ok := data.(*contract.DocumentRevised); ok || data == nil {
		// An edit that a command or a restore made belongs to that; what a person accepted
		// is an act of theirs.
		if e.Run != "" || l.after != "" {
			return a, false, nil
		}
		if e.Causation != "" {
			if _, err := l.history.options.State.Proposal(ctx, e.Subject, e.Causation); fault.Is(err, fault.NotFound) {
				return a, false, nil
			} else if err != nil {
				return a, false, err
			}
		}
		a.What = view.UndoneRevision
		a.document.Document = e.Subject
		if ok {
			a.document, a.Title = *p, p.Title
		}
		return a, true, nil
	}
	if facts, what := factsOf(e.ID, data); what != "" {
		first, err := l.history.options.State.Fact(ctx, facts[0])
		a.What, a.facts, a.Title = what, facts, first.Text
		return a, err == nil, err
	}
	return fileAct(data)
}

// fileAct returns the act on one file that an event reports.
func fileAct(data contract.Payload) (a act, found bool, err error) {
	switch p := data.(type) {
	case *contract.FileRemoved:
		a.What, a.Path = view.UndoneRemoval, p.Path
		a.operation = wire.UndoRequest{Op: "remove", ID: p.Trash, Path: shown.Path(p.Path, p.Raw)}
		found = p.Trash != ""
	case *contract.FileWritten:
		a.Path, found = p.Path, true
		a.operation = wire.UndoRequest{ID: p.Trash, Path: shown.Path(p.Path, p.Raw), From: wire.Path(p.From)}
		switch p.Operation {
		case contract.FilePut:
			a.What, a.operation.Op = view.UndonePut, "write"
		case contract.FileMoved:
			a.What, a.operation.Op = view.UndoneMove, "move"
		case contract.FileBack:
			a.What, a.operation.Op = view.UndoneBack, "untrash"
		default:
			found = false
		}
	}
	if !found {
		err = fault.New(opUndo, fault.Conflict, "`choir files trash` has what was removed or overwritten, `choir checkpoints` the rest.",
			fmt.Errorf("the last thing that was done, to %s, was noted by an earlier version without what would undo it", a.Path))
	}
	return a, found, err
}

// actOfRun returns what a run changed: the checkpoints of its publishes. It is an error if
// the run has not ended, for its changes are not complete.
func (h *History) actOfRun(ctx context.Context, run string) (act, error) {
	r, err := h.options.State.Run(ctx, run)
	if err != nil {
		return act{}, err
	}
	a := act{Undone: view.Undone{What: view.UndoneRun, Run: run, Title: r.Prompt}}
	made, err := h.options.State.Events(ctx, state.EventFilter{Newest: true, Run: run, Types: []string{"publish.finished"}, Limit: state.MaxPage})
	if err != nil {
		return a, err
	}
	inverted := map[string]bool{} // tasks whose edits were already reverted
	var spans []span
	for _, e := range made {
		var p contract.PublishFinished
		if err := json.Unmarshal(e.Data, &p); err != nil {
			return a, err
		}
		if inverted[e.Task] = inverted[e.Task] || p.Inverted; inverted[e.Task] {
			continue
		}
		k, err := h.options.State.Checkpoint(ctx, p.Commit)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return a, err
		}
		if err == nil && k.Run == run && k.Files > 0 { // a checkpoint that is not the run's was there before
			a.commits = append(a.commits, wire.Reverted{Commit: p.Commit, Publish: p.Publish})
			spans = append(spans, spanOf(k))
		}
	}
	if len(a.commits) > 0 && !r.Status.Ended() {
		return a, a.atWork(r.Status)
	}
	a.share.documents, err = h.documentsIn(ctx, spans)
	return a, err
}

// atWork refuses to undo a run that has not ended.
func (a act) atWork(status contract.RunStatus) error {
	if status == contract.RunWaiting {
		return fault.New(opUndo, fault.Conflict, "See what it asks with choir runs "+a.Run+" and answer it, or cancel it: choir run cancel "+a.Run,
			fmt.Errorf("%s waits for an answer, and what it changes can't be undone before it ends", a.told()))
	}
	return fault.New(opUndo, fault.Conflict, "Wait for it, or cancel it: choir run cancel "+a.Run,
		fmt.Errorf("%s is still at work, and what it changes can't be undone before it ends", a.told()))
}

// nothingAtWork returns an error if a run was requested after the last act and has not
// ended: that run is the last thing, although nothing of it is published yet.
func (h *History) nothingAtWork(ctx context.Context, after uint64) error {
	runs, err := h.options.State.Runs(ctx, state.RunFilter{Open: true, Limit: 1}) // the newest first
	if err != nil || len(runs) == 0 || runs[0].Seq < after {
		return err
	}
	return act{Undone: view.Undone{What: view.UndoneRun, Run: runs[0].ID, Title: runs[0].Prompt}}.atWork(runs[0].Status)
}

// noCommandAtWork returns an error if a command was started after the last act, has not
// ended and has changed something, such as a terminal in which somebody works: it is one
// act, and complete only when it ends.
func (h *History) noCommandAtWork(ctx context.Context, after uint64) error {
	begun, err := h.options.State.Events(ctx, state.EventFilter{Newest: true, Types: []string{"command.started"}, Limit: 200})
	if err != nil {
		return err
	}
	for _, e := range begun {
		if e.Sequence < after {
			return nil
		}
		ended, err := h.options.State.Events(ctx, state.EventFilter{Subject: e.Subject, Types: []string{"command.finished"}, Limit: 1})
		if err != nil {
			return err
		}
		if len(ended) > 0 {
			continue
		}
		if changed, err := h.changedSince(ctx, e); err != nil || !changed {
			return err
		}
		a := act{Undone: view.Undone{What: view.UndoneCommand}}
		var started contract.CommandStarted
		if err := json.Unmarshal(e.Data, &started); err == nil {
			a.Title = started.Line()
		}
		return fault.New(opUndo, fault.Conflict, "End it: what it did is undone as one thing then. `choir restore ID --path PATH` goes back to a checkpoint meanwhile.",
			fmt.Errorf("%s is still at work, and has changed files", a.told()))
	}
	return nil
}

// undoRun reverts what a run changed.
func (h *History) undoRun(ctx context.Context, r view.RestoreRequest) (view.Restored, error) {
	a, err := h.actOfRun(ctx, r.Run)
	if err != nil {
		return view.Restored{}, err
	}
	if len(a.commits) == 0 {
		return view.Restored{}, fault.New(opUndo, fault.NotFound, "Choose a checkpoint instead.", errors.New("the run has not changed anything"))
	}
	out, err := h.undoAct(ctx, a, r)
	out.Undone = &a.Undone
	return out, err
}

// undoOperation undoes what was done to one file or folder.
func (h *History) undoOperation(ctx context.Context, d wire.UndoRequest, r view.RestoreRequest) (view.Restored, error) {
	out := view.Restored{DryRun: r.DryRun, Kept: []view.Kept{}, Unkept: view.Unkept{Paths: []view.UnkeptPath{}}}
	d.DryRun = r.DryRun
	by := r.By // the removed file is exchanged with what is there, so neither needs space
	var changes []wire.Change
	do := func() (err error) {
		changes, err = h.options.Workspace.UndoOperation(ctx, d, by)
		return err
	}
	var err error
	if inArtifacts := strings.HasPrefix(string(d.Path)+"/", "artifacts/") || strings.HasPrefix(string(d.From), "artifacts/"); inArtifacts && !r.DryRun {
		err = h.options.Mirror.WithChanges(ctx, true, func(mirror.Held) ([]string, document.Author, error) {
			err := do()
			return shown.Paths(changes), document.By(r.By), err
		})
		h.options.Mirror.Settle(ctx, document.By(r.By), true)
	} else {
		err = do()
	}
	if err != nil {
		return out, err
	}
	out.Changes = shown.Changes(changes)
	if !r.DryRun {
		h.options.Shell.Changed()
		out.Sequence = h.options.Log.Last()
	}
	return out, nil
}

// undoRevision restores the text that a document had before a revision, and keeps what
// others have written since.
func (h *History) undoRevision(ctx context.Context, p contract.DocumentRevised, r view.RestoreRequest) (view.Restored, error) {
	out := view.Restored{DryRun: r.DryRun, Kept: []view.Kept{}, Unkept: view.Unkept{Paths: []view.UnkeptPath{}}}
	now, err := h.options.Documents.Get(ctx, p.Document)
	if err != nil {
		return out, err
	}
	undone := cmp.Or(p.Revision, now.Revision) // the newest, if the log does not say which
	if undone < 2 {
		return out, fault.New("", fault.Conflict, "Undo its run, or remove its file: choir files rm "+now.Path, fmt.Errorf("it made the document “%s”, before which there was none", contract.Clip(now.Title, 60)))
	}
	before, err := h.options.State.Revision(ctx, p.Document, undone-1)
	if err != nil {
		return out, err
	}
	out.Changes = []contract.Change{{Path: now.Path, Op: contract.ChangeModified, Added: -1, Removed: -1}}
	if r.DryRun {
		return out, nil
	}
	made, err := h.options.Mirror.Revise(ctx, p.Document, undone, before.Body, document.By(r.By))
	out.Sequence = made.Seq
	return out, err
}

// bringBack puts an entry of the trash in the place of what is now at its path; if no entry
// is named, the newest of the one path that is named.
func (h *History) bringBack(ctx context.Context, r view.RestoreRequest) (view.Restored, error) {
	d := wire.UndoRequest{Op: "back", ID: r.To}
	for before := ""; ; {
		list, err := h.options.Workspace.Trash(ctx, before, 0)
		if err != nil {
			return view.Restored{}, err
		}
		for _, t := range list.Items {
			before = t.ID
			if t.ID == r.To || r.To == "" && t.Path.Shown() == r.Paths[0] {
				d.ID, d.Path = t.ID, t.Path
				return h.undoOperation(ctx, d, r)
			}
		}
		if !list.More || len(list.Items) == 0 {
			return view.Restored{}, fault.New("history.Restore", fault.NotFound, "`choir files trash` and `choir checkpoints` list what there is; `choir restore ID --path PATH` goes back to a checkpoint.",
				errors.New("the trash has no such entry"))
		}
	}
}
