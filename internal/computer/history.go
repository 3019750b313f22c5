package computer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/shown"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/shell"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

const maxDiff = 512 << 10

// Checkpoints answers rpc.CheckpointList.
func (c *Computer) Checkpoints(ctx context.Context, before uint64, limit int) ([]view.Checkpoint, bool, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return nil, false, err
	}
	return c.ListCheckpoints(ctx, before, limit)
}

// Checkpoint answers rpc.CheckpointCreate.
func (c *Computer) Checkpoint(ctx context.Context, _ contract.Actor, message string) (view.Checkpointed, error) {
	c.mirror.Settle(ctx, document.By(document.Nobody), true)
	k, err := c.workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointManual, Message: message})
	if err != nil {
		return view.Checkpointed{}, err
	}
	seq, err := c.checkpointSeq(ctx, k.Commit)
	return view.Checkpointed{ID: k.Commit, Sequence: seq, Created: k.Created, Unkept: shown.Unkept(k.LeftOut)}, err
}

func (c *Computer) checkpointSeq(ctx context.Context, commit string) (uint64, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return 0, err
	}
	row, err := c.state.Checkpoint(ctx, commit)
	return row.Seq, err
}

// checkpointAround makes the checkpoint before or after a command. On a disk too
// full for it the command goes on without: what fills the disk could not be
// removed otherwise. Then unmade says that there is none. What the log lives on
// meanwhile is not spent on a checkpoint that would take much of it.
func (c *Computer) checkpointAround(ctx context.Context, kind contract.CheckpointKind, message string) (k workspace.Checkpoint, unmade string, err error) {
	full := func() bool { return fault.Is(err, fault.DiskFull) || fault.NoSpace(err) }
	do := func() {
		k, err = c.workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: kind, Message: contract.Clip(message, 200)})
	}
	if do(); !full() {
		return k, "", err
	}
	if c.machine.Reserve.Full(ctx) {
		if st, serr := c.workspace.Status(ctx); serr == nil && st.Bytes <= c.machine.Reserve.Share() {
			do()
		}
	}
	if full() {
		return workspace.Checkpoint{}, fmt.Sprintf("no checkpoint could be made %s it: the disk is full", kind), nil
	}
	return k, "", err
}

// Diff answers rpc.CheckpointDiff.
func (c *Computer) Diff(ctx context.Context, r view.DiffRequest) (view.Diff, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return view.Diff{}, err
	}
	req := wire.DiffRequest{A: r.From, B: r.To, MaxBytes: maxDiff}
	if r.Path != "" {
		req.Paths = []wire.Path{wire.Path(r.Path)}
	}
	if r.To != "" {
		to, err := c.state.Checkpoint(ctx, r.To)
		if err != nil {
			return view.Diff{}, err
		}
		req.B = to.ID
		if r.From == "" {
			req.A = to.Parent
		}
	}
	if req.A != "" {
		from, err := c.state.Checkpoint(ctx, req.A)
		if err != nil {
			return view.Diff{}, err
		}
		req.A = from.ID
	} else if req.B != "" {
		req.A = emptyTree // the initial checkpoint has no parent
	}
	d, err := c.workspace.Diff(ctx, req)
	return view.Diff{From: req.A, To: req.B, Changes: shown.Changes(shown.WithRepositories(d)), Diff: d.Diff, Truncated: d.Truncated || d.More > 0}, err
}

// emptyTree is git's id of the tree that holds nothing.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// Restore answers rpc.CheckpointRestore.
func (c *Computer) Restore(ctx context.Context, r view.RestoreRequest) (view.Restored, error) {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return view.Restored{}, err
	}
	switch {
	case r.Undo:
		return c.undo(ctx, r)
	case r.Run != "":
		return c.undoRun(ctx, r)
	case r.To == "" || view.ValidRevision("to", r.To) != nil:
		return c.bringBack(ctx, r)
	}
	to, err := c.state.Checkpoint(ctx, r.To)
	if err != nil {
		return view.Restored{}, err
	}
	if r.Unasked && !r.DryRun {
		if err := c.shell.MayGoBackUnasked(ctx, to.ID); err != nil {
			return view.Restored{}, err
		}
	}
	return c.goBack(ctx, c.workspace.Restore, workspace.RestoreRequest{To: to.ID, Paths: r.Paths, DryRun: r.DryRun, By: r.By})
}

// goBack restores, and has the desktop know.
func (c *Computer) goBack(ctx context.Context, do restoring, req workspace.RestoreRequest) (view.Restored, error) {
	done, err := c.restore(ctx, do, req)
	if err != nil {
		return view.Restored{}, err
	}
	out := view.Restored{
		To: done.To, DryRun: req.DryRun, Changes: shown.Changes(shown.WithRepositories(done.DiffReply)), Truncated: done.More > 0,
		Kept: shown.Kept(done.Conflicts), Unkept: shown.Unkept(done.LeftOut), Safety: done.Safety, Checkpoint: done.Checkpoint,
	}
	if req.DryRun {
		return out, nil
	}
	if shell.Touches(shown.Paths(done.Changes)) && len(done.Changes) > 0 {
		c.shell.WentBack()
	}
	c.shell.Changed()
	if done.Checkpoint != "" {
		out.Sequence, err = c.checkpointSeq(ctx, done.Checkpoint)
	}
	return out, err
}

// restoring is a restore of the workspace's.
type restoring func(context.Context, workspace.RestoreRequest) (workspace.Restored, error)

// restore brings files back, and the documents that they are of: what a file
// holds then becomes a revision by who restored. When no path is named, the
// files of documents stay as they are.
func (c *Computer) restore(ctx context.Context, do restoring, req workspace.RestoreRequest) (done workspace.Restored, err error) {
	if req.DryRun {
		req.Keep, err = c.mirror.Files(ctx)
		if err != nil {
			return done, err
		}
		return do(ctx, req)
	}
	err = c.mirror.Around(ctx, true, func(held mirror.Held) ([]string, document.Author, error) {
		by := document.By(req.By)
		if req.Keep, err = held.Files(ctx); err != nil {
			return nil, by, err
		}
		done, err = do(ctx, req)
		if done.Checkpoint != "" {
			by.Cause = workspace.RestoredID(c.cid, done.Checkpoint)
		}
		return shown.Paths(done.Changes), by, err
	})
	return done, err
}

// ListFiles implements control.Computer.
func (c *Computer) ListFiles(ctx context.Context, p, after string, limit int) ([]view.File, error) {
	dir := p
	if dir == "" {
		dir = "."
	} else {
		info, err := c.workspace.Look(ctx, p)
		if err != nil {
			return nil, err
		}
		if info.Kind != "dir" {
			return []view.File{shown.File(info)}, nil
		}
	}
	if dir == "artifacts" || strings.HasPrefix(dir, "artifacts/") {
		c.mirror.Settle(ctx, document.By(document.Nobody), false)
	}
	files, _, err := c.workspace.Files(ctx, dir, after, limit)
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
func (c *Computer) OpenFile(ctx context.Context, p string) (io.ReadCloser, view.File, error) {
	c.mirror.Freshen(ctx, p)
	for tries := 0; ; tries++ {
		info, err := c.workspace.Look(ctx, p)
		if err != nil {
			return nil, view.File{}, err
		}
		if info.Kind != "file" {
			return nil, view.File{}, fault.New("computer.OpenFile", fault.Invalid, "List it instead.", fmt.Errorf("%s is a %s", p, info.Kind))
		}
		content, err := c.workspace.Read(ctx, "", p, 0, 0)
		if err != nil {
			return nil, view.File{}, err
		}
		file := shown.File(info)
		if content.Size == info.Size && content.Time == info.Time {
			file.Version = info.ID
			return content, file, nil
		}
		if tries == 2 { // it is written all the time, and what is read of it has no name
			file.Size = content.Size
			return content, file, nil
		}
		if err := content.Close(); err != nil {
			return nil, view.File{}, err
		}
	}
}

// ReadFile implements control.Streams.
func (c *Computer) ReadFile(ctx context.Context, f view.File, offset int64) (io.ReadCloser, error) {
	content, err := c.workspace.Read(ctx, "", f.ID, offset, 0)
	if err != nil {
		return nil, err
	}
	if content.Size != f.Size || !time.UnixMilli(content.Time).Equal(f.Modified) {
		return nil, errors.Join(fault.New("computer.ReadFile", fault.Conflict, "Ask for it again.", errors.New("the file changed while it was read")), content.Close())
	}
	return content, nil
}

// PutFile implements control.Streams.
func (c *Computer) PutFile(ctx context.Context, by contract.Actor, put view.Put, content io.Reader) (view.File, error) {
	if err := c.machine.Reserve.Check("computer.PutFile"); err != nil {
		return view.File{}, err
	}
	p := put.Path
	opts := workspace.WriteOptions{If: put.If, By: by}
	if put.Mode != "" {
		exec := put.Mode == view.ModeExecutable
		opts.Exec = &exec
	}
	var written wire.Written
	write := func(mirror.Held) (paths []string, _ document.Author, err error) {
		written, err = c.workspace.Write(ctx, p, content, opts)
		return []string{p}, document.By(by), err
	}
	var err error
	if mirror.Mirrors(p) {
		err = c.mirror.Around(ctx, false, write)
	} else {
		_, _, err = write(mirror.Held{})
	}
	if err != nil {
		return view.File{}, err
	}
	c.shell.Changed()
	out := shown.File(written.FileInfo)
	out.Version = written.ID
	return out, nil
}

// RemoveFile answers rpc.FilesRemove. It goes to the trash.
func (c *Computer) RemoveFile(ctx context.Context, by contract.Actor, p string, recursive bool) error {
	info, err := c.workspace.Look(ctx, p)
	if err != nil {
		return err
	}
	if info.Kind == "dir" && !recursive {
		return fault.New("computer.RemoveFile", fault.Invalid, "Add -r to remove a folder and everything in it.", errors.New(p+" is a folder"))
	}
	if strings.HasPrefix(p+"/", "artifacts/") {
		c.mirror.Settle(ctx, document.By(document.Nobody), true) // what is removed then is what the document holds
	}
	_, err = c.workspace.Remove(ctx, p, by)
	c.shell.Changed()
	return err
}

// MoveFile answers rpc.FilesMove.
func (c *Computer) MoveFile(ctx context.Context, by contract.Actor, from, to string) (view.File, error) {
	return c.place(ctx, by, []string{from, to}, func() (string, error) {
		return to, c.workspace.Move(ctx, from, to, by)
	})
}

// PutBack answers rpc.TrashPutBack.
func (c *Computer) PutBack(ctx context.Context, by contract.Actor, id, to string) (view.File, error) {
	return c.place(ctx, by, []string{"artifacts"}, func() (string, error) {
		d, err := c.workspace.Untrash(ctx, id, to, by)
		return string(d.Path), err
	})
}

// place has something appear where nothing was. Where documents may be among it,
// or among what it leaves, they are settled before and taken in after.
func (c *Computer) place(ctx context.Context, by contract.Actor, where []string, f func() (string, error)) (view.File, error) {
	if err := c.machine.Reserve.Check("computer.place"); err != nil {
		return view.File{}, err
	}
	var at string
	var err error
	if slices.ContainsFunc(where, func(p string) bool { return strings.HasPrefix(p+"/", "artifacts/") }) {
		err = c.mirror.Around(ctx, true, func(held mirror.Held) ([]string, document.Author, error) {
			var ferr error
			at, ferr = f()
			return []string{at}, document.By(by), ferr
		})
		c.mirror.Settle(ctx, document.By(by), true)
	} else {
		at, err = f()
	}
	if err != nil {
		return view.File{}, err
	}
	c.shell.Changed()
	info, err := c.workspace.Look(ctx, at)
	return shown.File(info), err
}

// Trash answers rpc.TrashList.
func (c *Computer) Trash(ctx context.Context, before string, limit int) ([]view.Trashed, bool, error) {
	r, err := c.workspace.Trash(ctx, before, limit)
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
func (c *Computer) AddTar(ctx context.Context, by contract.Actor, name, origin string, tar io.Reader) (view.Added, error) {
	if err := c.machine.Reserve.Check("computer.AddTar"); err != nil {
		return view.Added{}, err
	}
	im, err := c.workspace.Add(ctx, workspace.AddRequest{Name: name, Origin: origin, By: by}, tar)
	if err != nil {
		return view.Added{}, err
	}
	return view.Added{ID: im.Path.Shown(), Origin: origin, Commit: im.Commit, Files: im.Files, Bytes: im.Bytes, Skipped: im.Skipped, Unkept: shown.Unkept(im.LeftOut), Sequence: c.log.Last()}, nil
}

// repositoryName takes a folder's name from a repository's URL.
func repositoryName(u *url.URL) string {
	return strings.TrimSuffix(path.Base(strings.TrimSuffix(u.Path, "/")), ".git")
}
