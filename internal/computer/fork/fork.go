// Package fork makes the beginning of a new computer from a checkpoint of another: the
// files of the checkpoint, and the ids and titles of the living documents among them.
// Nothing else is copied: no log, no history, no trash, nothing that no checkpoint holds.
// The beginning is a directory that gets the new computer's name once all of it is on disk;
// the first events of the new log are made from a file in it.
package fork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/newfile"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
)

// originFile records, in a computer's directory, what it was forked from. It is removed
// once the documents are made.
const (
	originFile = "forked.json"
	maxOrigin  = 64 << 20
)

// Origin is what a computer was forked from.
type Origin struct {
	From       contract.CID `json:"from"`
	Checkpoint string       `json:"checkpoint"` // a commit of that one's history
	Name       string       `json:"name"`       // of the new one
	Documents  []Document   `json:"documents"`
}

// Document is a living document whose file is among those of the checkpoint.
type Document struct {
	ID    string `json:"id"` // in the new computer
	Title string `json:"title"`
	Path  string `json:"path"`
}

// Read reads what a computer was forked from; nil if it was not forked, or its beginning is
// complete.
func Read(dir string) (*Origin, error) {
	f, err := os.Open(filepath.Join(dir, originFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.Wrap("fork.Read", err)
	}
	defer f.Close() // only read from
	var o Origin
	if err := json.NewDecoder(io.LimitReader(f, maxOrigin)).Decode(&o); err != nil {
		return nil, fault.New("fork.Read", fault.Damaged, "Remove the computer and fork it again.", fmt.Errorf("%s can't be read: %w", originFile, err))
	}
	return &o, nil
}

// Source is the computer that is forked; it is awake.
type Source struct {
	CID       contract.CID
	Log       *ledger.Log
	State     *state.Store
	Workspace *workspace.Workspace
	Boxes     *boxes.Boxes
	// Now makes a checkpoint of the computer's current state.
	Now func(ctx context.Context, by contract.Actor, message string) (view.Checkpointed, error)
	// Snapshot checks a commit out, in layers, until release is called.
	Snapshot func(ctx context.Context, commit string) (layers []sandbox.Volume, release func(), err error)
	// Driver makes the new computer's files.
	Driver sandbox.Driver
	// Free returns the free space of the disk.
	Free   func() (datadir.Room, error)
	Logger *slog.Logger
}

// Take makes the beginning of a new computer, cid, in dir, which must exist and be empty.
// All of it is on disk when it returns; the driver makes the files. checkpoint may be
// abbreviated; if it is empty, a checkpoint is made first.
func (s Source) Take(ctx context.Context, by contract.Actor, cid contract.CID, dir, name, checkpoint string) error {
	const op = "fork.Take"
	if checkpoint == "" {
		now, err := s.Now(ctx, by, "Before a fork")
		if err != nil {
			return fault.Wrap(op, err)
		}
		checkpoint = now.ID
	}
	crash.At("fork.checkpointed")
	k, err := s.checkpoint(ctx, checkpoint)
	if err != nil {
		return fault.Wrap(op, err)
	}
	o := Origin{From: s.CID, Checkpoint: k.Commit, Name: name}
	if o.Documents, err = s.documents(ctx, k); err != nil {
		return fault.Wrap(op, err)
	}
	if err := s.tree(ctx, k.Commit, sandbox.ComputerSpec{CID: cid, Dir: dir}); err != nil {
		return fault.Wrap(op, err)
	}
	b, err := json.Marshal(o)
	if err != nil {
		return fault.Wrap(op, err)
	}
	if err := os.WriteFile(filepath.Join(dir, originFile), b, 0o600); err != nil {
		return fault.Wrap(op, err)
	}
	crash.At("fork.written")
	err = newfile.Sync(dir)
	crash.At("fork.laid")
	return fault.Wrap(op, err)
}

func (s Source) checkpoint(ctx context.Context, id string) (state.Checkpoint, error) {
	if err := s.State.CaughtUp(ctx, s.Log); err != nil {
		return state.Checkpoint{}, err
	}
	return s.State.Checkpoint(ctx, id)
}

// documents are those whose file is in a checkpoint, with the title that they had then.
func (s Source) documents(ctx context.Context, k state.Checkpoint) ([]Document, error) {
	var out []Document
	for after := ""; ; { // in the order of their paths, which do not change: one that is revised meanwhile is not skipped
		rows, err := s.State.DocumentPaths(ctx, after)
		if err != nil || len(rows) == 0 {
			return out, err
		}
		for _, d := range rows {
			after = d.Path
			was, err := s.State.RevisionAt(ctx, d.Document, k.Sequence)
			if fault.Is(err, fault.NotFound) {
				continue // it was made later, or its file was not there
			}
			if err != nil {
				return nil, err
			}
			id, err := s.Workspace.ObjectID(ctx, k.Commit, was.Path)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return nil, err
			}
			if err == nil && id != "" {
				out = append(out, Document{ID: contract.NewID(), Title: was.Title, Path: was.Path})
			}
		}
	}
}

// tree has the driver make the live files of a new computer from a checkpoint.
func (s Source) tree(ctx context.Context, commit string, spec sandbox.ComputerSpec) (err error) {
	on, err := s.Driver.Open(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	v, tree := on.Volumes(), sandbox.Output("fork")
	if err := v.Make(ctx, tree); err != nil {
		return err
	}
	if err := s.files(ctx, commit, v, tree); err != nil {
		return err
	}
	crash.At("fork.unpacked")
	for _, at := range []string{"workspace", "artifacts"} { // folders that every computer has
		err := v.Make(ctx, tree.At(at))
		if err != nil && !errors.Is(err, syscall.ENOTDIR) && !fault.Is(err, fault.Denied) { // the checkpoint has something else there
			return err
		}
	}
	return v.Keep(ctx, tree, sandbox.Live(""))
}

// files unpacks a checkpoint's files. They are read in a box, for the host reads no tree,
// and written where no box has been.
func (s Source) files(ctx context.Context, commit string, to sandbox.Volumes, tree sandbox.Volume) (err error) {
	room, err := s.Free()
	if err != nil {
		return err
	}
	layers, release, err := s.Snapshot(ctx, commit)
	if err != nil {
		return err
	}
	defer release()
	box, err := s.Boxes.Open(ctx, sandbox.BoxSpec{
		ID: "fork-" + contract.NewID(), Kind: contract.BoxScratch, Root: "/checkpoint", Limits: s.Boxes.Limits(),
		Mounts: []sandbox.Mount{{Target: "/checkpoint", Mode: sandbox.Overlay, Lower: layers}},
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := box.Kill(); err != nil {
			s.Logger.Error("could not end a scratch box", "box", box.ID(), "error", err)
		}
	}()
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		exit, err := boxes.Client(box).Exec(ctx, guest.ExecRequest{Argv: []string{"tar", "--hard-dereference", "-cf", "-", "-C", "/checkpoint", "."}}, guest.Streams{Stdout: pw, Stderr: io.Discard})
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("tar ended with code %d", exit.Code)
		}
		pw.CloseWithError(err)
		sent <- err
	}()
	files := &whileRoom{from: pr, free: s.Free}
	err = to.Unpack(ctx, tree, files, room.Bytes-datadir.SpaceLow)
	if files.err != nil {
		err = files.err // otherwise it is in what the archive's reader says
	}
	pr.CloseWithError(errors.New("no longer read"))
	if of := <-sent; err == nil {
		err = of // otherwise the error only says that the reader has stopped, or is in what was read
	}
	return err
}

// Documents makes the documents of a forked computer and then removes its origin file: from
// then on its log has them. If it is repeated, each document is made once.
func Documents(ctx context.Context, dir string, w *workspace.Workspace, documents *document.Documents) error {
	o, err := Read(dir)
	if err != nil || o == nil {
		return err
	}
	for _, d := range o.Documents {
		if _, err := documents.Get(ctx, d.ID); err == nil {
			continue
		} else if !fault.Is(err, fault.NotFound) {
			return fault.Wrap("fork.Documents", err)
		}
		body, err := words(ctx, w, d.Path)
		if err != nil {
			return fault.Wrap("fork.Documents", err)
		}
		if body == nil {
			continue
		}
		if _, err := documents.Create(ctx, d.ID, d.Title, d.Path, string(body), document.Author{Name: "fork", By: contract.System()}); err != nil {
			return fault.Wrap("fork.Documents", err)
		}
		crash.At("fork.document")
	}
	crash.At("fork.documented")
	return fault.Wrap("fork.Documents", os.Remove(filepath.Join(dir, originFile)))
}

// words is the text of a document's file; nil if no document can have it. In the computer
// that was forked, document and file were brought together before; here the file alone has
// what the checkpoint held.
func words(ctx context.Context, w *workspace.Workspace, path string) ([]byte, error) {
	file, err := w.Stat(ctx, path)
	if fault.Is(err, fault.NotFound) || err == nil && (file.Kind != "file" || file.Size > document.MaxBody) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	body, err := w.ReadAll(ctx, "", path, document.MaxBody+1)
	if err != nil || !document.IsText(body) {
		return nil, err
	}
	return append([]byte{}, body...), nil
}
