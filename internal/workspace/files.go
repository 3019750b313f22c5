package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Files lists a directory of the live tree: the entries after a name as it is shown ("":
// from the beginning), at most limit (0: as many as the keeper gives at once); more counts
// those beyond.
func (w *Workspace) Files(ctx context.Context, dir, after string, limit int) (files []wire.FileInfo, more int, err error) {
	var reply wire.FilesReply
	err = w.opts.Keeper.Call(ctx, "files", wire.FilesRequest{Path: wire.Path(dir), After: after, Limit: limit}, &reply)
	return reply.Files, reply.More, fault.Wrap("workspace.Files", err)
}

// Stat describes one path of the live tree.
func (w *Workspace) Stat(ctx context.Context, p string) (wire.FileInfo, error) {
	var fi wire.FileInfo
	err := w.opts.Keeper.Call(ctx, "stat", wire.StatRequest{Path: wire.Path(p)}, &fi)
	return fi, fault.Wrap("workspace.Stat", err)
}

// QuickStat is Stat without the id of a large file's content, which may take as long to compute
// as reading the file.
func (w *Workspace) QuickStat(ctx context.Context, p string) (wire.FileInfo, error) {
	var fi wire.FileInfo
	err := w.opts.Keeper.Call(ctx, "stat", wire.StatRequest{Path: wire.Path(p), Quick: true}, &fi)
	return fi, fault.Wrap("workspace.QuickStat", err)
}

// Content is a file's bytes as a stream; Size is that of the whole file.
type Content struct {
	io.ReadCloser
	Size int64
	Time int64 // of the live tree's file: modification, Unix milliseconds
	Exec bool
	// Set by OpenFile: ID identifies the content that is read ("" for a file that is being
	// written to), and State the state in which the file was opened.
	ID, State string
}

// Read streams a file, or a range of it (limit 0: to the end), of the live tree
// or of a checkpoint when commit is set. The caller closes it.
func (w *Workspace) Read(ctx context.Context, commit, p string, offset, limit int64) (*Content, error) {
	c, err := w.read(ctx, wire.ReadRequest{Path: wire.Path(p), Commit: commit, Offset: offset, Limit: limit})
	return c, fault.Wrap("workspace.Read", err)
}

// maxReads is how many files of the live tree are streamed at once. Each has a request of the
// keeper's under way for as long as its reader takes, and everything else needs requests, too.
const maxReads = 64

// OpenFile streams a file of the live tree itself, from an offset on. Either the content
// that its ID identifies is read, or reading fails. The caller closes it. It waits while
// maxReads files are open.
func (w *Workspace) OpenFile(ctx context.Context, p string, offset int64) (*Content, error) {
	const op = "workspace.OpenFile"
	select {
	case w.reads <- struct{}{}:
	case <-ctx.Done():
		return nil, fault.Wrap(op, ctx.Err())
	}
	c, err := w.read(ctx, wire.ReadRequest{Path: wire.Path(p), Offset: offset, Named: true})
	if err != nil {
		<-w.reads
		return nil, fault.Wrap(op, err)
	}
	c.ReadCloser = &opened{c.ReadCloser, sync.OnceFunc(func() { <-w.reads })}
	return c, nil
}

// opened is a file whose place another may take once it is closed.
type opened struct {
	io.ReadCloser
	leave func()
}

func (o *opened) Close() error {
	defer o.leave()
	return o.ReadCloser.Close()
}

func (w *Workspace) read(ctx context.Context, req wire.ReadRequest) (*Content, error) {
	resp, err := w.opts.Keeper.Stream(ctx, "read", req, nil)
	if err != nil {
		return nil, err
	}
	c, err := contentOf(resp, req)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the keeper's answer about a file: %w", err), resp.Body.Close())
	}
	return c, nil
}

func contentOf(resp *http.Response, req wire.ReadRequest) (*Content, error) {
	h := resp.Header
	c := &Content{ReadCloser: resp.Body, Exec: h.Get("X-Choir-Mode") == string(wire.ModeExec), ID: h.Get(wire.IDHeader), State: h.Get(wire.StateHeader)}
	var err error
	if c.Size, err = strconv.ParseInt(h.Get("X-Choir-Size"), 10, 64); err != nil {
		return nil, err
	}
	if req.Commit == "" {
		if c.Time, err = strconv.ParseInt(h.Get("X-Choir-Time"), 10, 64); err != nil {
			return nil, err
		}
	}
	if req.Named && (!wire.IsID(c.State) || c.ID != "" && !wire.IsID(c.ID)) || c.Size < 0 {
		return nil, errors.New("it names what it read by no id")
	}
	return c, nil
}

// ReadAll is Read of at most max bytes from the beginning.
func (w *Workspace) ReadAll(ctx context.Context, commit, p string, max int) ([]byte, error) {
	content, err := w.Read(ctx, commit, p, 0, int64(max))
	if err != nil {
		return nil, err
	}
	defer content.Close()
	b, err := io.ReadAll(io.LimitReader(content, int64(max)))
	return b, fault.Wrap("workspace.ReadAll", err)
}

// WriteOptions say how a file is written. Exec is whether it is executable; nil: like the
// file that it replaces. If is the id that must be there, of a content or of the state in
// which a file was opened ("none": nothing may be there, "any": something has to), so that
// nobody's newer edit is overwritten.
type WriteOptions struct {
	Exec *bool
	If   string
	By   contract.Actor
}

// Write replaces a file, all or nothing; what was there goes to the trash.
func (w *Workspace) Write(ctx context.Context, p string, content io.Reader, o WriteOptions) (_ wire.Written, err error) {
	const op = "workspace.Write"
	put, err := w.receive(ctx, content)
	if err != nil {
		return wire.Written{}, fault.Wrap(op, err)
	}
	defer put.end(&err)
	resp, err := w.opts.Keeper.Stream(ctx, "write", wire.WriteRequest{Path: wire.Path(p), Exec: o.Exec, If: o.If, Actor: string(o.By.Name()), User: o.By.Account()}, put)
	if err != nil {
		return wire.Written{}, fault.Wrap(op, err)
	}
	defer resp.Body.Close()
	if !put.taken() {
		return wire.Written{}, fault.New(op, fault.Internal, "", errors.New("the keeper answered before it had the file"))
	}
	var out wire.Written
	if err := wire.Decode(resp.Body, &out); err != nil {
		return wire.Written{}, fault.Wrap(op, err)
	}
	crash.At("workspace.file.written")
	return out, fault.Wrap(op, w.tellOf(ctx, wire.Operation{
		ID: out.Op, Op: "write", Path: wire.Path(p), At: out.At, Size: out.Size, SHA256: out.SHA256, Actor: string(o.By.Name()), User: o.By.Account(), Named: out.Named,
	}))
}

// Follow gives a file the content that the log says, if git's id of its current content is
// expected ("none": there is no file). The log has both contents, and the caller writes the
// file again after a power cut. So after one the file is either new or old; there is no
// event, and what was displaced goes to the trash only if it was something else.
func (w *Workspace) Follow(ctx context.Context, p string, content io.Reader, expected string) (out wire.Written, err error) {
	const op = "workspace.Follow"
	release, err := w.take(ctx)
	if err != nil {
		return out, fault.Wrap(op, err)
	}
	defer release(&err)
	resp, err := w.opts.Keeper.Stream(ctx, "write", wire.WriteRequest{Path: wire.Path(p), If: expected, Held: true}, content)
	if err != nil {
		return out, fault.Wrap(op, err)
	}
	defer resp.Body.Close()
	return out, fault.Wrap(op, wire.Decode(resp.Body, &out))
}

// Sync makes a file and its name durable; a missing file needs nothing.
func (w *Workspace) Sync(ctx context.Context, p string) error {
	return fault.Wrap("workspace.Sync", w.opts.Keeper.Call(ctx, "sync", wire.PathRequest{Path: wire.Path(p)}, nil))
}

// handOf is the actor that the keeper records for an operation. The keeper's files may be
// of a version without actors, or wrong: then it is a person, and a known one only if that
// can be read.
func handOf(eventType, name, user string) contract.Actor {
	info, _ := contract.Lookup(eventType)
	if a, err := contract.ActorName(name).Actor(user); err == nil && info.SaidBy(a.Kind) {
		return a
	}
	if a := contract.Person(user); a.Validate() == nil {
		return a
	}
	return contract.Person("")
}

// tell appends the events of operations that took effect, and tells the keeper so. An
// operation's event depends only on the operation, so that appending it again after a crash
// is recognised.
func (w *Workspace) tell(ctx context.Context, operations ...wire.Operation) error {
	ctx = context.WithoutCancel(ctx) // the operation is done
	for some := range slices.Chunk(operations, maxTold) {
		ids, err := w.appendOperations(ctx, some...)
		if err != nil {
			return err
		}
		if err := w.opts.Keeper.Call(ctx, "operations-logged", wire.IDsRequest{IDs: ids}, nil); err != nil {
			return err
		}
	}
	return nil
}

// tellOf is tell of a put, whose caller does not wait until the keeper heard of it: what is
// not said before a crash is told again, which is recognised.
func (w *Workspace) tellOf(ctx context.Context, o wire.Operation) error {
	ids, err := w.appendOperations(context.WithoutCancel(ctx), o)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.said = append(w.said, ids...)
	w.mu.Unlock()
	select {
	case w.saying <- struct{}{}:
	default:
	}
	return nil
}

const (
	maxTold  = 100                   // operations that are told together
	tellTime = 50 * time.Millisecond // how long others are waited for, to be said with them
)

// appendOperations appends the events of operations, and returns whose they are.
func (w *Workspace) appendOperations(ctx context.Context, operations ...wire.Operation) ([]string, error) {
	var drafts []contract.Draft
	ids := make([]string, len(operations))
	for i, o := range operations {
		ids[i] = o.ID
		drafts = append(drafts, w.operationDrafts(o)...)
	}
	if len(drafts) > 0 {
		if _, err := w.opts.Log.AppendEach(ctx, drafts...); err != nil {
			return nil, err
		}
	}
	crash.At("workspace.file.logged")
	return ids, nil
}

// confirmLogged says to the keeper, a moment later and for many at once, which operations the log
// has. When it can't, the next who changes something looks what the log has not been told.
func (w *Workspace) confirmLogged(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.saying:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(tellTime):
		}
		if err := supervise.Safely(func() error { return w.tellKeeperLogged(ctx) }); err == nil {
			continue
		} else if stack := supervise.Stack(err); stack != "" {
			w.opts.Logger.ErrorContext(ctx, "telling the keeper what is logged failed", "computer", w.opts.CID, "error", err, "stack", stack)
		}
		release, err := w.wait(ctx)
		if err != nil {
			return
		}
		w.behind = true
		release()
	}
}

// tellKeeperLogged says to the keeper what it has not been told yet.
func (w *Workspace) tellKeeperLogged(ctx context.Context) error {
	w.mu.Lock()
	said := w.said
	w.said = nil
	w.mu.Unlock()
	for some := range slices.Chunk(said, maxTold) {
		if err := w.opts.Keeper.Call(ctx, "operations-logged", wire.IDsRequest{IDs: some}, nil); err != nil {
			if ctx.Err() != nil { // the shutdown says it
				w.mu.Lock()
				w.said = append(said, w.said...)
				w.mu.Unlock()
			}
			return err
		}
	}
	return nil
}

// operationDrafts are the events of an operation, whatever the file's name is.
func (w *Workspace) operationDrafts(d wire.Operation) []contract.Draft {
	if d.ID == "" {
		return nil
	}
	var out []contract.Draft
	add := func(eventType string, at wire.Path, data contract.Payload) {
		if data.Validate() == nil {
			out = append(out, w.operationDraft(d, eventType, string(at), data))
		}
	}
	shown, raw := contract.FilePath(string(d.Path))
	written := contract.FileWritten{Path: shown, Raw: raw, Size: max(0, d.Size)}
	if ref := contract.BlobRef("sha256:" + d.SHA256); ref.Validate() == nil {
		written.SHA256 = ref
	}
	removed := contract.FileRemoved{Path: shown, Raw: raw}
	if d.Named {
		switch d.Op {
		case "remove":
			removed.Trash = d.ID
		case "write":
			written.Operation, written.Trash = contract.FilePut, d.ID
		case "move":
			written.Operation = contract.FileMoved
			written.From, _ = contract.FilePath(string(d.From))
		case "untrash":
			written.Operation = contract.FileBack
		}
	}
	switch d.Op {
	case "remove":
		add("file.removed", d.Path, removed)
	case "move":
		from, fromRaw := contract.FilePath(string(d.From))
		add("file.removed", d.From, contract.FileRemoved{Path: from, Raw: fromRaw})
		add("file.written", d.Path, written)
	case "write", "untrash":
		add("file.written", d.Path, written)
	case "import":
		if im := d.Import; im != nil {
			add("repository.added", d.Path, contract.RepositoryAdded{
				Path: shown, Origin: im.Origin, Remote: im.Remote, Commit: im.Commit,
				Files: max(0, im.Files), Bytes: max(0, im.Bytes), Skipped: max(0, im.Skipped),
			})
		}
	}
	return out
}

func (w *Workspace) operationDraft(d wire.Operation, eventType, p string, data contract.Payload) contract.Draft {
	return contract.Draft{
		ID:    contract.DeriveID(string(w.opts.CID)+"\x00"+d.ID, eventType),
		Actor: handOf(eventType, d.Actor, d.User), Subject: contract.FileSubject(p), Time: time.UnixMilli(d.At).UTC(), Type: eventType, Data: data,
	}
}

// Mkdir makes a directory and its parents.
func (w *Workspace) Mkdir(ctx context.Context, p string) (err error) {
	const op = "workspace.Mkdir"
	release, err := w.take(ctx)
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer release(&err)
	return fault.Wrap(op, w.opts.Keeper.Call(ctx, "mkdir", wire.PathRequest{Path: wire.Path(p)}, nil))
}

// Move renames a path; the new name must be free.
func (w *Workspace) Move(ctx context.Context, from, to string, by contract.Actor) (err error) {
	const op = "workspace.Move"
	release, err := w.take(ctx)
	if err != nil {
		return fault.Wrap(op, err)
	}
	defer release(&err)
	var d wire.Operation
	if err := w.opts.Keeper.Call(ctx, "move", wire.MoveRequest{From: wire.Path(from), To: wire.Path(to), Actor: string(by.Name()), User: by.Account()}, &d); err != nil {
		return fault.Wrap(op, err)
	}
	crash.At("workspace.file.written")
	return fault.Wrap(op, w.tell(ctx, d))
}

// Remove moves a path to the trash, from where Untrash brings it back. only, unless it is
// empty, is what must be there, as If in WriteOptions.
func (w *Workspace) Remove(ctx context.Context, p, only string, by contract.Actor) (_ wire.Trashed, err error) {
	const op = "workspace.Remove"
	release, err := w.take(ctx)
	if err != nil {
		return wire.Trashed{}, fault.Wrap(op, err)
	}
	defer release(&err)
	var r wire.Removed
	if err := w.opts.Keeper.Call(ctx, "remove", wire.RemoveRequest{Path: wire.Path(p), If: only, Actor: string(by.Name()), User: by.Account()}, &r); err != nil {
		return r.Trashed, fault.Wrap(op, err)
	}
	return r.Trashed, fault.Wrap(op, w.tell(ctx, wire.Operation{ID: r.ID, Op: "remove", Path: wire.Path(p), At: r.At, Actor: string(by.Name()), User: by.Account(), Named: r.Named}))
}

// Trash lists what was removed or overwritten in the last week, newest first.
func (w *Workspace) Trash(ctx context.Context, before string, limit int) (wire.TrashReply, error) {
	var r wire.TrashReply
	err := w.opts.Keeper.Call(ctx, "trash", wire.TrashRequest{Before: before, Limit: limit}, &r)
	return r, fault.Wrap("workspace.Trash", err)
}

// Untrash puts something back that Remove or Write moved to the trash: where it
// was, or to another place. Nothing may be there.
func (w *Workspace) Untrash(ctx context.Context, id, to string, by contract.Actor) (_ wire.Operation, err error) {
	const op = "workspace.Untrash"
	release, err := w.take(ctx)
	if err != nil {
		return wire.Operation{}, fault.Wrap(op, err)
	}
	defer release(&err)
	var d wire.Operation
	if err := w.opts.Keeper.Call(ctx, "untrash", wire.UntrashRequest{ID: id, To: wire.Path(to), Actor: string(by.Name()), User: by.Account()}, &d); err != nil {
		return d, fault.Wrap(op, err)
	}
	crash.At("workspace.file.written")
	return d, fault.Wrap(op, w.tell(ctx, d))
}

// UndoOperation undoes a put, a removal, a move, a return from the trash or an addition, by
// an operation of its own, and returns what that changes.
func (w *Workspace) UndoOperation(ctx context.Context, req wire.UndoRequest, by contract.Actor) (_ []wire.Change, err error) {
	const op = "workspace.UndoDeed"
	release, err := w.take(ctx)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	defer release(&err)
	req.Actor, req.User = string(by.Name()), by.Account()
	var r wire.UndoReply
	if err := w.opts.Keeper.Call(ctx, "undo", req, &r); err != nil || req.DryRun {
		return r.Changes, fault.Wrap(op, err)
	}
	crash.At("workspace.file.written")
	return r.Changes, fault.Wrap(op, w.tell(ctx, r.Operation))
}

// AddRequest says what choir add brings in. Origin is shown, without
// credentials; Remote is a URL to fetch from, recorded by the host.
type AddRequest struct {
	Name   string // directory under workspace/
	Origin string
	Remote string
	By     contract.Actor
}

// Add unpacks a tar stream into workspace/{name}. A repository in it is kept whole and
// becomes a nested repository; nothing of it is run. The answer lists what was added and is
// in no checkpoint.
func (w *Workspace) Add(ctx context.Context, req AddRequest, tar io.Reader) (_ wire.Imported, err error) {
	const op = "workspace.Add"
	p := "workspace/" + req.Name
	if err := contract.ValidPath("name", p); err != nil || path.Base(p) != req.Name || strings.HasPrefix(req.Name, ".") {
		return wire.Imported{}, fault.New(op, fault.Invalid, "Choose a plain name, such as the repository's.", err)
	}
	if err := (contract.RepositoryAdded{Path: p, Origin: req.Origin, Remote: req.Remote}).Validate(); err != nil {
		return wire.Imported{}, fault.New(op, fault.Invalid, "Say where it comes from in fewer words.", err)
	}
	release, err := w.take(ctx)
	if err != nil {
		return wire.Imported{}, fault.Wrap(op, err)
	}
	defer release(&err)
	resp, err := w.opts.Keeper.Stream(ctx, "import", wire.ImportRequest{
		Path: wire.Path(p), Origin: req.Origin, Remote: req.Remote, Actor: string(req.By.Name()), User: req.By.Account(),
	}, tar)
	if err != nil {
		return wire.Imported{}, fault.Wrap(op, err)
	}
	defer resp.Body.Close()
	var d wire.Operation
	if err := wire.Decode(resp.Body, &d); err != nil {
		return wire.Imported{}, fault.Wrap(op, err)
	}
	if d.Import == nil {
		return wire.Imported{}, fault.New(op, fault.Internal, "", errors.New("the keeper does not say what it imported"))
	}
	crash.At("workspace.file.written")
	if err := w.tell(ctx, d); err != nil {
		return *d.Import, fault.Wrap(op, err)
	}
	im := *d.Import
	c, err := w.checkpoint(ctx, CheckpointRequest{Kind: contract.CheckpointAfter, Message: "Add " + req.Name, Under: p, By: req.By})
	notBrought := im.LeftOut
	im.LeftOut = c.LeftOut.Under(p)
	im.LeftOut.Add(notBrought)
	return im, fault.Wrap(op, err)
}
