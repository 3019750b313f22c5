package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A put is acknowledged long before the checkpoint that holds it, and a program
// that is at work in the tree may write over the file in between, or remove it.
// So each put's entry in the trash bears the mark uncaptured until a look at the
// tree for a checkpoint has met what was put. What it does not meet, and is not in
// the trash as something that was displaced or removed by hand, becomes a
// checkpoint of its own, before the one of what the program left there.

// put is one that no checkpoint has met yet.
type put struct {
	id   string // of its entry in the trash
	path string
	size int64
	at   int64 // Unix milliseconds
	Entry
}

const uncapturedMark = "uncaptured"

// loadPuts finds the puts of which an engine before this one saw no capture.
func (e *Engine) loadPuts() error {
	entries, err := os.ReadDir(e.trash())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, en := range entries { // sorted by time
		marked, err := exists(e.trash(en.Name(), uncapturedMark))
		if err != nil {
			return err
		}
		if !marked {
			continue
		}
		m, err := e.entry(en.Name())
		var no unix.Errno
		if errors.As(err, &no) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err != nil || !m.New.exists() || validPath(string(m.Path), false) != nil {
			continue // it never became durable, or is damaged: then nobody can say what was put
		}
		m.ID = en.Name()
		e.puts = append(e.puts, putOf(m))
	}
	return nil
}

func putOf(m trashMeta) put {
	return put{id: m.ID, path: string(m.Path), size: m.Size, at: m.At, Entry: m.New}
}

// captured takes the mark from a put. It is not synced: one that is met again is
// found in the history.
func (e *Engine) captured(id string) error { return removeIfThere(e.trash(id, uncapturedMark)) }

// putsKept says that everything that was put is held now, and returns the
// checkpoints that were made for it and nobody has heard of.
func (e *Engine) putsKept() []Commit {
	for _, p := range e.puts {
		if err := e.captured(p.id); err != nil {
			e.opts.Logger.Warn("a put that a checkpoint holds is looked for once more at the next start", "entry", p.id, "error", err)
		}
	}
	made := e.keptPuts
	e.puts, e.keptPuts = nil, nil
	return made
}

// captureWithPuts looks at the live tree, and keeps what was put and is not met
// there. After that HEAD is another one, and it looks again.
func (e *Engine) captureWithPuts(ctx context.Context, note Note, flush func() error) (*capture, error) {
	cap, err := e.capture(ctx, true)
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
	return e.capture(ctx, true)
}

// missed returns the puts whose content a capture did not meet and nothing else
// holds, in the order in which they were made.
func (e *Engine) missed(ctx context.Context, cap *capture) ([]put, error) {
	if len(e.puts) == 0 {
		return nil, nil
	}
	met := make(map[Entry]bool, len(cap.changes))
	for _, c := range cap.changes {
		met[c.to.holds()] = true
	}
	var out []put
	for _, p := range e.puts {
		if met[p.holds()] || cap.at(e, p.path).holds() == p.holds() || e.tracked.at(p.path).holds() == p.holds() {
			continue
		}
		held, err := e.heldElsewhere(ctx, p)
		if err != nil {
			return nil, err
		}
		if !held {
			out = append(out, p)
		}
	}
	return out, nil
}

// at is what a capture found at a path.
func (cap *capture) at(e *Engine, p string) Entry {
	if t, ok := cap.tracked[p]; ok {
		return t.Entry
	}
	if slices.Contains(cap.gone, p) {
		return none
	}
	return e.tracked.at(p).Entry
}

// heldElsewhere reports whether a put's content is in the trash or the history, or
// need not be held because it went where nothing is.
func (e *Engine) heldElsewhere(ctx context.Context, p put) (bool, error) {
	if ignored, err := e.isIgnored(p.path); err != nil || ignored {
		return ignored, err
	}
	if held, err := e.inTrash(p); err != nil || held {
		return held, err
	}
	if e.head == "" {
		return false, nil
	}
	// It may have been met before, by an engine whose word of it was lost.
	since := time.UnixMilli(p.at).Add(-time.Minute).UTC().Format(time.RFC3339)
	out, err := e.git(ctx, nil, "log", "-1", "--format=%H", "--no-renames", "--since="+since, "--find-object="+p.ID, e.head, "--")
	return len(out) > 0, err
}

// isIgnored reports whether no checkpoint takes a path because it is ignored.
func (e *Engine) isIgnored(p string) (bool, error) {
	l := e.left.Load()
	if e.tracked.at(p).exists() || l == nil {
		return false, nil
	}
	in, err := e.placeOf(parentDir(p), l)
	if isGone(err) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, nil // its folder is gone, and nobody can say any more
	}
	return err == nil && in.unkept(p, false, l) != "", err
}

// inTrash reports whether a later entry of the trash holds a put's content.
func (e *Engine) inTrash(p put) (bool, error) {
	entries, err := os.ReadDir(e.trash())
	if err != nil {
		return false, err
	}
	for _, en := range slices.Backward(entries) {
		if en.Name() <= p.id {
			break // sorted by time
		}
		content := e.trash(en.Name(), "content")
		if st, err := lstatAt(unix.AT_FDCWD, content); err != nil || !st.isRegular() || st.Size != p.size {
			if err := ignoreUnreachable(err); err != nil {
				return false, err
			}
			continue
		}
		was, _, err := e.entryAt(unix.AT_FDCWD, content, p.Entry)
		if err != nil {
			return false, err
		}
		if was.holds() == p.holds() {
			return true, nil
		}
	}
	return false, nil
}

// keepPuts makes checkpoints of HEAD with what was put: as few as hold each
// content that was put to a path in an order of its own.
func (e *Engine) keepPuts(ctx context.Context, puts []put, note Note, flush func() error) error {
	for len(puts) > 0 {
		group := &capture{tracked: map[string]tracked{}}
		n := 0
		for n < len(puts) && group.takes(puts[n].path) {
			group.tracked[puts[n].path] = tracked{Entry: puts[n].Entry}
			n++
		}
		if err := e.keepGroup(ctx, group, puts[:n], note, flush); err != nil {
			return err
		}
		puts = puts[n:]
	}
	return nil
}

// takes reports whether a path fits with those that a capture has already.
func (cap *capture) takes(p string) bool {
	for q := range cap.tracked {
		if isUnder(p, q) || isUnder(q, p) {
			return false
		}
	}
	return true
}

func (e *Engine) keepGroup(ctx context.Context, group *capture, puts []put, note Note, flush func() error) (err error) {
	// What was put is a file: no file is around it, and nothing beneath it.
	for _, p := range puts {
		for dir := parentDir(p.path); dir != "."; dir = parentDir(dir) {
			if e.tracked.at(dir).exists() {
				group.gone = append(group.gone, dir)
			}
		}
		if f := e.tracked.folder(p.path); f != nil {
			f.each(p.path, func(q string, _ *leaf) bool { group.gone = append(group.gone, q); return true })
		}
	}
	undo := e.tracked.take(group)
	defer func() {
		if err != nil {
			undo()
		}
	}()
	tree, err := e.writeIndex(ctx)
	if err != nil {
		return err
	}
	kept := Note{Kind: "auto", Message: putsMessage(puts), Seq: note.Seq, Run: note.Run, Task: note.Task, Files: len(puts), NotIn: e.notInNow()}
	at := puts[len(puts)-1].at
	if e.head == "" {
		kept.Kind = "initial"
	} else {
		head, err := e.commitAt(ctx, e.head)
		if err != nil {
			return err
		}
		at = max(at, head.At, head.Time*1000)
	}
	c, err := e.makeCommitAt(ctx, tree, e.head, kept, at)
	if err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	e.crash("puts.written")
	if err := e.advance(c); err != nil {
		return err
	}
	e.keptPuts = append(e.keptPuts, c)
	return nil
}

// maxPutsNamed is how many paths a checkpoint of puts names.
const maxPutsNamed = 20

func putsMessage(puts []put) string {
	if len(puts) == 1 {
		return shownPath(Path(puts[0].path)) + " as it was put, before a program changed or removed it"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d files as they were put, before a program changed or removed them\n\n", len(puts))
	for i, p := range puts {
		if i == maxPutsNamed {
			fmt.Fprintf(&b, "and %d more\n", len(puts)-i)
			break
		}
		b.WriteString(shownPath(Path(p.path)) + "\n")
	}
	return b.String()
}
