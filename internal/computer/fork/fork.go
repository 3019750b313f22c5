// Package fork makes the beginning of a new computer from a checkpoint of another: its
// files as they were, and the names of the living documents that are among them. Nothing
// else goes along: no log, no history, no trash, nothing that no checkpoint holds.
// The beginning is a directory that gets the new computer's name once all of it is on
// disk; what the new log says first is read from a file in it.
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

// originFile says, in a computer's directory, what it was forked of. It goes once the
// documents are made.
const (
	originFile = "forked.json"
	maxOrigin  = 64 << 20
)

// Origin is what a computer was forked of.
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

// Read reads what the computer of a directory was forked of; nil: it was not, or its
// beginning is over.
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

// Source is the computer that is forked, awake.
type Source struct {
	CID       contract.CID
	Log       *ledger.Log
	State     *state.Store
	Workspace *workspace.Workspace
	Boxes     *boxes.Boxes
	// Now makes a checkpoint of the computer as it is.
	Now func(ctx context.Context, by contract.Actor, message string) (view.Checkpointed, error)
	// Snapshot checks a commit out, in layers, until release is called.
	Snapshot func(ctx context.Context, commit string) (layers []sandbox.Volume, release func(), err error)
	// Driver keeps the new computer's files.
	Driver sandbox.Driver
	// Free says how much room the disk has.
	Free   func() (datadir.Room, error)
	Logger *slog.Logger
}

// Take lays the beginning of a new computer, cid, out at dir, which must be there and empty:
// all of it is on disk when it returns, its files by the driver. checkpoint may be short;
// without one it is taken from what is there now.
func (s Source) Take(ctx context.Context, by contract.Actor, cid contract.CID, dir, name, checkpoint string) error {
	const op = "fork.Take"
	if checkpoint == "" {
		now, err := s.Now(ctx, by, "Before a fork")
		if err != nil {
			return fault.Wrap(op, err)
		}
		checkpoint = now.ID
	}
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
	return fault.Wrap(op, newfile.Sync(dir))
}

func (s Source) checkpoint(ctx context.Context, id string) (state.Checkpoint, error) {
	if err := s.State.CaughtUp(ctx, s.Log); err != nil {
		return state.Checkpoint{}, err
	}
	return s.State.Checkpoint(ctx, id)
}

// documents are those whose file is among those of a checkpoint, with the title that
// they had.
func (s Source) documents(ctx context.Context, k state.Checkpoint) ([]Document, error) {
	var out []Document
	for after := ""; ; { // by their paths, which stay: one that is revised meanwhile is not passed over
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

// tree has the driver make the live files of a new computer, which are those of a
// checkpoint.
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
	for _, at := range []string{"workspace", "artifacts"} { // what every computer has
		err := v.Make(ctx, tree.At(at))
		if err != nil && !errors.Is(err, syscall.ENOTDIR) && !fault.Is(err, fault.Denied) { // the checkpoint has no folder there
			return err
		}
	}
	return v.Keep(ctx, tree, sandbox.Live(""))
}

// files unpacks a checkpoint's files. They are read in a box, for the host looks into no
// tree, and written where no box has been.
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
	err = to.Unpack(ctx, tree, pr, room.Bytes-datadir.SpaceLow)
	pr.CloseWithError(errors.New("no longer read"))
	if of := <-sent; err == nil {
		err = of // else it is that nobody reads any more, or is in what was read
	}
	return err
}

// Documents makes the documents of a computer that was forked, and forgets what it was
// forked of: from then on its log says so. Made twice, each is there once.
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
	}
	return fault.Wrap("fork.Documents", os.Remove(filepath.Join(dir, originFile)))
}

// words is what the file of a document says; nil: it is none that a document can have.
// In the source that kept the two apart, and here the file alone is what the checkpoint
// held.
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
