package files

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/computer/shown"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Options are the parts that the files of one computer use.
type Options struct {
	Log       *ledger.Log
	Workspace *workspace.Workspace
	Mirror    *mirror.Mirror
	Boxes     *boxes.Boxes // where repositories are cloned
	// Changed tells the desktop that the tree has changed.
	Changed func()
	Reserve *datadir.Reserve
	AddMB   int // the largest repository that is cloned
	// Free returns the free space of the disk.
	Free   func() (datadir.Room, error)
	Logger *slog.Logger
}

// Files handles the files of one computer whose workspace is open.
type Files struct{ options Options }

// New makes a Files.
func New(o Options) *Files { return &Files{o} }

// ListFiles lists a folder, or the one entry of a file.
func (f *Files) ListFiles(ctx context.Context, p, after string, limit int) ([]view.File, error) {
	dir := p
	if dir == "" {
		dir = "."
	} else {
		info, err := f.options.Workspace.QuickStat(ctx, p)
		if err != nil {
			return nil, err
		}
		if info.Kind != "dir" {
			return []view.File{shown.File(info)}, nil
		}
	}
	if dir == "artifacts" || strings.HasPrefix(dir, "artifacts/") {
		f.options.Mirror.Settle(ctx, document.By(document.Nobody), false)
	}
	files, _, err := f.options.Workspace.Files(ctx, dir, after, limit)
	if err != nil {
		return nil, err
	}
	var out []view.File
	for _, f := range files {
		out = append(out, shown.File(f))
	}
	return out, nil
}

// OpenFile implements control.Streams.
func (f *Files) OpenFile(ctx context.Context, p string) (io.ReadCloser, view.File, error) {
	f.options.Mirror.Freshen(ctx, p)
	content, err := f.options.Workspace.OpenFile(ctx, p, 0)
	if err != nil {
		return nil, view.File{}, err
	}
	file := shown.File(wire.FileInfo{Path: wire.Path(p), Kind: "file", Size: content.Size, Exec: content.Exec, Time: content.Time})
	file.Version, file.State = content.ID, content.State
	return content, file, nil
}

// ReadFile implements control.Streams.
func (f *Files) ReadFile(ctx context.Context, file view.File, offset int64) (io.ReadCloser, error) {
	content, err := f.options.Workspace.OpenFile(ctx, file.ID, offset)
	if err != nil {
		return nil, err
	}
	if content.State != file.State {
		return nil, errors.Join(fault.New("files.ReadFile", fault.Conflict, "Ask for it again.", errors.New("the file changed while it was read")), content.Close())
	}
	return content, nil
}

// PutFile implements control.Streams.
func (f *Files) PutFile(ctx context.Context, by contract.Actor, put view.Put, content io.Reader) (view.File, error) {
	if err := f.options.Reserve.Check("files.PutFile"); err != nil {
		return view.File{}, err
	}
	content = f.options.Reserve.Taking("files.PutFile", content)
	p := put.Path
	opts := workspace.WriteOptions{If: put.If, By: by}
	if put.Mode != "" {
		exec := put.Mode == view.ModeExecutable
		opts.Exec = &exec
	}
	var written wire.Written
	write := func(mirror.Held) (paths []string, _ document.Author, err error) {
		written, err = f.options.Workspace.Write(ctx, p, content, opts)
		return []string{p}, document.By(by), err
	}
	var err error
	if mirror.Mirrors(p) {
		err = f.options.Mirror.WithChanges(ctx, false, write)
	} else {
		_, _, err = write(mirror.Held{})
	}
	if err != nil {
		return view.File{}, err
	}
	f.options.Changed()
	out := shown.File(written.FileInfo)
	out.Version = written.ID
	return out, nil
}

// RemoveFile answers rpc.FilesRemove. It goes to the trash, if it is what the caller
// wants to remove.
func (f *Files) RemoveFile(ctx context.Context, by contract.Actor, p string, recursive bool, only string) error {
	info, err := f.options.Workspace.QuickStat(ctx, p)
	if err != nil {
		return err
	}
	if info.Kind == "dir" && !recursive {
		return fault.New("files.RemoveFile", fault.Invalid, "Add -r to remove a folder and everything in it.", errors.New(p+" is a folder"))
	}
	if strings.HasPrefix(p+"/", "artifacts/") {
		f.options.Mirror.Settle(ctx, document.By(document.Nobody), true) // so that the removed file has what the document says
	}
	_, err = f.options.Workspace.Remove(ctx, p, only, by)
	f.options.Changed()
	return err
}

// MoveFile answers rpc.FilesMove.
func (f *Files) MoveFile(ctx context.Context, by contract.Actor, from, to string) (view.File, error) {
	return f.place(ctx, by, []string{from, to}, func() (string, error) {
		return to, f.options.Workspace.Move(ctx, from, to, by)
	})
}

// PutBack answers rpc.TrashPutBack.
func (f *Files) PutBack(ctx context.Context, by contract.Actor, id, to string) (view.File, error) {
	return f.place(ctx, by, []string{"artifacts"}, func() (string, error) {
		d, err := f.options.Workspace.Untrash(ctx, id, to, by)
		return string(d.Path), err
	})
}

// place makes something appear where nothing was. If documents may be among it, or among
// what it displaces, they are settled before and made revisions of afterwards.
func (f *Files) place(ctx context.Context, by contract.Actor, where []string, do func() (string, error)) (view.File, error) {
	if err := f.options.Reserve.Check("files.place"); err != nil {
		return view.File{}, err
	}
	var at string
	var err error
	if slices.ContainsFunc(where, func(p string) bool { return strings.HasPrefix(p+"/", "artifacts/") }) {
		err = f.options.Mirror.WithChanges(ctx, true, func(held mirror.Held) ([]string, document.Author, error) {
			var ferr error
			at, ferr = do()
			return []string{at}, document.By(by), ferr
		})
		f.options.Mirror.Settle(ctx, document.By(by), true)
	} else {
		at, err = do()
	}
	if err != nil {
		return view.File{}, err
	}
	f.options.Changed()
	info, err := f.options.Workspace.QuickStat(ctx, at)
	return shown.File(info), err
}

// Trash answers rpc.TrashList.
func (f *Files) Trash(ctx context.Context, before string, limit int) ([]view.Trashed, bool, error) {
	r, err := f.options.Workspace.Trash(ctx, before, limit)
	if err != nil {
		return nil, false, err
	}
	out := make([]view.Trashed, len(r.Items))
	for i, t := range r.Items {
		kind := shown.File(wire.FileInfo{Kind: t.Kind}).Kind
		out[i] = view.Trashed{ID: t.ID, Path: t.Path.Shown(), Time: time.Unix(t.Time, 0).UTC(), By: t.Op, User: t.User, Kind: kind, Size: t.Size}
	}
	return out, r.More, nil
}

// AddTar implements control.Streams.
func (f *Files) AddTar(ctx context.Context, by contract.Actor, name, origin string, tar io.Reader) (view.Added, error) {
	if err := f.options.Reserve.Check("files.AddTar"); err != nil {
		return view.Added{}, err
	}
	im, err := f.options.Workspace.Add(ctx, workspace.AddRequest{Name: name, Origin: origin, By: by}, f.options.Reserve.Taking("files.AddTar", tar))
	if err != nil {
		return view.Added{}, err
	}
	return view.Added{ID: im.Path.Shown(), Origin: origin, Commit: im.Commit, Files: im.Files, Bytes: im.Bytes,
		Skipped: im.Skipped, Unkept: shown.Unkept(im.LeftOut), Sequence: f.options.Log.Last()}, nil
}

// repositoryName takes a folder's name from a repository's URL.
func repositoryName(u *url.URL) string {
	return strings.TrimSuffix(path.Base(strings.TrimSuffix(u.Path, "/")), ".git")
}

// Bind binds the methods.
func (f *Files) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.DocumentRevise, func(ctx context.Context, who rpc.Caller, in rpc.ReviseRequest) (view.Revised, error) {
		return f.Revise(ctx, who.Actor, in.Document, in.Body)
	})
	rpc.Bind(t, rpc.FilesList, func(ctx context.Context, _ rpc.Caller, in rpc.FilesRequest) (rpc.List[view.File], error) {
		after := ""
		if in.After != "" {
			after = path.Base(in.After)
		}
		files, err := f.ListFiles(ctx, in.Path, after, in.Limit)
		return rpc.Listed(files, len(files) >= in.Limit, err)
	})
	rpc.Bind(t, rpc.FilesRemove, func(ctx context.Context, who rpc.Caller, in rpc.RemoveRequest) (rpc.None, error) {
		only, err := in.Condition()
		if err != nil {
			return rpc.None{}, err
		}
		return rpc.Done(f.RemoveFile(ctx, who.Actor, in.Path, in.Recursive, only))
	})
	rpc.Bind(t, rpc.FilesMove, func(ctx context.Context, who rpc.Caller, in rpc.MoveRequest) (view.File, error) {
		return f.MoveFile(ctx, who.Actor, in.Body.From, in.Body.To)
	})
	rpc.Bind(t, rpc.FilesAddURL, func(ctx context.Context, who rpc.Caller, in rpc.AddRequest) (view.Added, error) {
		return f.AddURL(ctx, who.Actor, in.Body)
	})
	rpc.Bind(t, rpc.TrashList, func(ctx context.Context, _ rpc.Caller, in rpc.TrashRequest) (rpc.List[view.Trashed], error) {
		return rpc.Listed(f.Trash(ctx, in.Before, in.Limit))
	})
	rpc.Bind(t, rpc.TrashPutBack, func(ctx context.Context, who rpc.Caller, in rpc.PutBackRequest) (view.File, error) {
		return f.PutBack(ctx, who.Actor, in.Entry, in.Body.To)
	})
}
