package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/publish"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A put is acknowledged long before the checkpoint that contains it, and a program in the
// tree may overwrite or remove the file in between. So each put's entry in the trash is
// marked as uncaptured until a capture for a checkpoint has found what was put. Content
// that the capture does not find, and that is not in the trash as displaced or removed by a
// person, gets a checkpoint of its own, before the one with what the program left there.

// put is a put that no checkpoint is known to contain.
type put struct {
	id   string // of its entry in the trash
	path string
	size int64
	at   int64 // Unix milliseconds
	gitstore.Entry
}

// loadPuts finds the puts that an engine before this one did not see captured.
func (e *Engine) loadPuts() error {
	entries, err := os.ReadDir(e.moves.Trash())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, en := range entries { // sorted by time
		marked, err := disk.Exists(e.moves.Trash(en.Name(), publish.UncapturedMark))
		if err != nil {
			return err
		}
		if !marked {
			continue
		}
		m, err := e.moves.Entry(en.Name())
		var no unix.Errno
		if errors.As(err, &no) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err != nil || !m.New.Exists() || wire.CheckPath(string(m.Path), false) != nil {
			continue // it never became durable, or is damaged: then nobody can say what was put
		}
		m.ID = en.Name()
		e.puts = append(e.puts, putOf(m))
	}
	return nil
}

func putOf(m publish.TrashEntry) put {
	return put{id: m.ID, path: string(m.Path), size: m.Size, at: m.At, Entry: m.New}
}

// putsKept records that everything that was put is in a checkpoint, and returns the
// checkpoints that were made for that and not reported yet.
func (e *Engine) putsKept() []wire.Commit {
	for _, p := range e.puts {
		if err := e.moves.Captured(p.id); err != nil {
			e.opts.Logger.Warn("a put that a checkpoint holds is looked for once more at the next start", "entry", p.id, "error", err)
		}
	}
	made := e.keptPuts
	e.puts, e.keptPuts = nil, nil
	return made
}

// captureWithPuts captures the live tree, and makes checkpoints of puts that are not found
// there. As HEAD has moved after that, it captures again.
func (e *Engine) captureWithPuts(ctx context.Context, note wire.Note, flush func() error) (*scan.Capture, error) {
	cap, err := e.scanner.Capture(ctx, true)
	if err != nil {
		return nil, err
	}
	missed, err := e.missed(ctx, cap)
	if err != nil || len(missed) == 0 {
		return cap, err
	}
	if err := e.keepPuts(ctx, missed, note, flush); err != nil {
		return nil, err
	}
	return e.scanner.Capture(ctx, true)
}

// missed returns the puts whose content a capture did not find and nothing else holds, in
// the order in which they were made. As there may be many, the places that can hold them
// are read once for all of them.
func (e *Engine) missed(ctx context.Context, cap *scan.Capture) ([]put, error) {
	if len(e.puts) == 0 {
		return nil, nil
	}
	met := make(map[gitstore.Entry]bool, len(cap.Changes))
	for _, c := range cap.Changes {
		met[c.To.Holds()] = true
	}
	gone := make(map[string]bool, len(cap.Gone))
	for _, p := range cap.Gone {
		gone[p] = true
	}
	var out []put
	for _, p := range e.puts {
		was := e.scanner.Index.At(p.path).Entry
		found := was
		if t, ok := cap.Tracked[p.path]; ok {
			found = t.Entry
		} else if gone[p.path] {
			found = gitstore.None
		}
		if met[p.Holds()] || found.Holds() == p.Holds() || was.Holds() == p.Holds() {
			continue
		}
		ignored, err := e.isIgnored(p.path)
		if err != nil {
			return nil, err
		}
		if !ignored { // otherwise its path is not captured at all
			out = append(out, p)
		}
	}
	for _, without := range []func(context.Context, []put) ([]put, error){e.notInTrash, e.notInHistory} {
		var err error
		if out, err = without(ctx, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// notInTrash returns the puts whose content no later entry of the trash holds unchangeably.
func (e *Engine) notInTrash(_ context.Context, puts []put) ([]put, error) {
	if len(puts) == 0 {
		return nil, nil
	}
	first := puts[0].id
	likely := map[int64][]gitstore.Entry{}
	sought := map[gitstore.Entry]bool{}
	for _, p := range puts {
		first = min(first, p.id)
		if !sought[p.Holds()] {
			sought[p.Holds()] = true
			likely[p.size] = append(likely[p.size], p.Entry)
		}
	}
	entries, err := os.ReadDir(e.moves.Trash())
	if err != nil {
		return nil, err
	}
	last := map[gitstore.Entry]string{} // the last entry that holds it
	for _, en := range entries {        // sorted by time
		if en.Name() <= first {
			continue
		}
		content := e.moves.Trash(en.Name(), "content")
		st, err := disk.Lstat(unix.AT_FDCWD, content)
		if err != nil || !st.IsRegular() || likely[st.Size] == nil {
			if err := disk.IgnoreUnreachable(err); err != nil {
				return nil, err
			}
			continue
		}
		if reached, err := stillReached(content); err != nil {
			return nil, err
		} else if reached {
			continue // a program can still change its content
		}
		was, _, err := e.store.EntryAt(unix.AT_FDCWD, content, likely[st.Size]...)
		if err != nil {
			return nil, err
		}
		last[was.Holds()] = en.Name()
	}
	return slices.DeleteFunc(puts, func(p put) bool { return last[p.Holds()] > p.id }), nil
}

// stillReached reports whether a program can write to a file in the trash: it has the file
// open, if only for reading, as /proc opens it anew, or has another hard link to it.
func stillReached(name string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return false, disk.IgnoreUnreachable(err)
	}
	quiet, err := publish.NoOther(name, unix.F_WRLCK)
	return !quiet || st.Nlink > 1, err
}

// maxObjectsAsked is how many objects git is asked about at once.
const maxObjectsAsked = 1000

// notInHistory returns the puts that no checkpoint contains: an engine whose record of it
// was lost may have captured one.
func (e *Engine) notInHistory(ctx context.Context, puts []put) ([]put, error) {
	if e.moves.Head == "" {
		return puts, nil
	}
	last := map[string]int64{} // when the newest commit with the object was made, in Unix seconds
	for some := range slices.Chunk(puts, maxObjectsAsked) {
		first := slices.MinFunc(some, func(a, b put) int { return cmp.Compare(a.at, b.at) })
		args := []string{"log", "--first-parent", "--raw", "--no-abbrev", "--format=%ct", "--no-renames", "--since=" + first.since().UTC().Format(time.RFC3339)}
		for _, p := range some {
			args = append(args, "--find-object="+p.ID)
		}
		out, err := e.store.Git(ctx, nil, append(args, e.moves.Head, "--")...)
		if err != nil {
			return nil, err
		}
		var at int64
		for line := range strings.Lines(string(out)) {
			if t, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64); err == nil {
				at = t
			} else if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(line, ":") {
				last[f[2]], last[f[3]] = max(last[f[2]], at), max(last[f[3]], at)
			}
		}
	}
	return slices.DeleteFunc(puts, func(p put) bool { t, ok := last[p.ID]; return ok && t >= p.since().Unix() }), nil
}

// since is the time from which on a commit can contain a put.
func (p put) since() time.Time { return time.UnixMilli(p.at).Add(-time.Minute) }

// isIgnored reports whether no checkpoint captures a path because it is ignored.
func (e *Engine) isIgnored(p string) (bool, error) {
	l := e.scanner.Unkept.Load()
	if e.scanner.Index.At(p).Exists() || l == nil {
		return false, nil
	}
	in, err := e.scanner.PlaceOf(wire.ParentDir(p), l)
	if disk.IsGone(err) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, nil // its folder is gone, so it can't be known any more
	}
	return err == nil && in.Unkept(p, false, l) != "", err
}

// keepPuts makes checkpoints of HEAD with what was put: as few as are needed to contain, in
// order, each content that was put to a path.
func (e *Engine) keepPuts(ctx context.Context, puts []put, note wire.Note, flush func() error) error {
	for len(puts) > 0 {
		group := &scan.Capture{Tracked: map[string]scan.Tracked{}}
		folders := map[string]bool{}
		n := 0
		for n < len(puts) && group.Takes(folders, puts[n].path) {
			group.Tracked[puts[n].path] = scan.Tracked{Entry: puts[n].Entry}
			n++
		}
		if err := e.keepGroup(ctx, group, puts[:n], note, flush); err != nil {
			return err
		}
		puts = puts[n:]
	}
	return nil
}

func (e *Engine) keepGroup(ctx context.Context, group *scan.Capture, puts []put, note wire.Note, flush func() error) (err error) {
	// A put is a file, so no file can be a folder above it, and nothing can be beneath it.
	for _, p := range puts {
		for dir := wire.ParentDir(p.path); dir != "."; dir = wire.ParentDir(dir) {
			if e.scanner.Index.At(dir).Exists() {
				group.Gone = append(group.Gone, dir)
			}
		}
		if f := e.scanner.Index.Folder(p.path); f != nil {
			f.Each(p.path, func(q string, _ *scan.Leaf) bool { group.Gone = append(group.Gone, q); return true })
		}
	}
	undo := e.scanner.Index.Take(group)
	defer func() {
		if err != nil {
			undo()
		}
	}()
	tree, err := e.scanner.Index.Write(ctx, e.store)
	if err != nil {
		return err
	}
	kept := wire.Note{Kind: "auto", Message: putsMessage(puts), Seq: note.Seq, Run: note.Run, Task: note.Task, Files: len(puts), NotIn: e.scanner.NotInNow()}
	at := puts[len(puts)-1].at
	if e.moves.Head == "" {
		kept.Kind = "initial"
	} else {
		head, err := e.store.Commit(ctx, e.moves.Head)
		if err != nil {
			return err
		}
		at = max(at, head.At, head.Time*1000)
	}
	c, err := e.store.MakeCommit(ctx, tree, e.moves.Head, kept, at)
	if err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	e.crash("puts.written")
	if err := e.moves.Advance(c); err != nil {
		return err
	}
	e.keptPuts = append(e.keptPuts, c)
	return nil
}

// maxPutsNamed is how many paths the message of such a checkpoint names.
const maxPutsNamed = 20

func putsMessage(puts []put) string {
	if len(puts) == 1 {
		return scan.ShownPath(wire.Path(puts[0].path)) + " as it was put, before a program changed or removed it"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d files as they were put, before a program changed or removed them\n\n", len(puts))
	for i, p := range puts {
		if i == maxPutsNamed {
			fmt.Fprintf(&b, "and %d more\n", len(puts)-i)
			break
		}
		b.WriteString(scan.ShownPath(wire.Path(p.path)) + "\n")
	}
	return b.String()
}
