package engine_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"choir.dev/choiros/test/choirtest"
)

// smallDisk holds the mount options of a disk of a few megabytes.
const smallDisk = "size=16m,nr_inodes=20000"

// filesTo leaves room for this many more files, and returns a function that makes room again.
func filesTo(t testing.TB, files int) (free func()) {
	t.Helper()
	resize := func(n uint64) {
		t.Helper()
		if err := unix.Mount("", os.TempDir(), "", unix.MS_REMOUNT, fmt.Sprintf("nr_inodes=%d", n)); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &st); err != nil {
		t.Fatal(err)
	}
	resize(st.Files - st.Ffree + uint64(files))
	return func() { t.Helper(); resize(20_000) }
}

// TestWhatAFullDiskKeepsFromBeingWrittenIsSaidSo has the disk fill up at each page that a change
// writes and at each file that it creates. Whatever the engine or git could not write, the answer
// must be that the disk is full. Once there is room the change must succeed, and nothing may be
// damaged.
func TestWhatAFullDiskKeepsFromBeingWrittenIsSaidSo(t *testing.T) {
	if choirtest.SmallDisk(t, smallDisk) == "" {
		return
	}
	c := open(t)
	ctx := t.Context()
	c.write("workspace/a", "one\n")
	first := c.checkpoint("one").Commit.Commit
	for n := range 28 {
		left, what, fill := n/2, "pages", choirtest.FillDisk
		if n%2 == 1 {
			what, fill = "files", filesTo
		}
		name := fmt.Sprintf("workspace/d%d", n)
		id := fmt.Sprintf("change-%d", n)
		var prepared string
		for _, change := range []struct {
			what string
			set  func()
			do   func() error
		}{
			{"checkpoint", func() { c.write("workspace/a", name) }, func() error {
				_, err := c.Checkpoint(ctx, wire.CheckpointRequest{Note: wire.Note{Kind: "manual"}})
				return err
			}},
			{"checkpoint of many", func() {
				for i := range 50 {
					c.write(fmt.Sprintf("%s/%d", name, i), fmt.Sprintf("%s %d", name, i))
				}
			}, func() error {
				_, err := c.Checkpoint(ctx, wire.CheckpointRequest{Note: wire.Note{Kind: "manual"}})
				return err
			}},
			{"restore", func() { c.write("workspace/b", name) }, func() error {
				_, err := c.Restore(ctx, wire.RestoreRequest{ID: id, To: first})
				return err
			}},
			{"undo", nil, func() error {
				_, err := c.Restore(ctx, wire.RestoreRequest{ID: "undo-" + id, Undo: true})
				return err
			}},
			{"mark", nil, func() error { return c.MarkLogged(ctx, c.Head()) }},
			{"prepare", nil, func() error {
				r, err := c.Prepare(ctx, wire.PrepareRequest{ID: "task-" + id, Base: c.Head(), Tree: first, Note: wire.Note{Message: name}})
				prepared = r.Commit
				return err
			}},
			{"maintain", nil, func() error { return c.Maintain(ctx) }},
			{"drop", nil, func() error { return c.Drop(ctx, "task-"+id) }},
		} {
			if change.set != nil {
				change.set()
			}
			free := fill(t, left)
			err := change.do()
			if err != nil && (fault.CodeOf(err) != fault.DiskFull || fault.HintOf(err) != fault.FreeSpace) {
				t.Errorf("%s with %d %s: %s: %v", change.what, left, what, fault.CodeOf(err), err)
			}
			free()
			if err == nil {
				continue
			}
			if err := change.do(); err != nil {
				t.Errorf("%s with room, after %d %s: %v", change.what, left, what, err)
			}
		}
		if prepared == "" {
			t.Error("nothing was prepared")
		}
		for _, glob := range []string{"objects/tmp_*", "objects/pack/tmp_*", "choir/tmp-*", "refs/choir/*/*.lock"} {
			stay, err := filepath.Glob(c.path(".git/" + glob))
			if err != nil || len(stay) > 0 {
				t.Errorf("with %d %s: %s stay: %v", left, what, strings.Join(stay, ", "), err)
			}
		}
	}
	c.reopen()
}

// TestWhatCantBeLookedUpIsNotMissing shows that when git fails at a damaged checkpoint, the answer
// is not that there is no such checkpoint.
func TestWhatCantBeLookedUpIsNotMissing(t *testing.T) {
	c := open(t)
	c.torn = true
	c.write("workspace/a", "one\n")
	id := c.checkpoint("one").Commit.Commit
	c.write("workspace/a", "two\n")
	c.checkpoint("two")
	name := c.path(".git/objects/" + id[:2] + "/" + id[2:])
	if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte("damaged"), 0o444)); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func(id string) error{
		"restore": func(id string) error {
			_, err := c.Restore(t.Context(), wire.RestoreRequest{ID: "back", To: id})
			return err
		},
		"snapshot": func(id string) error { _, err := c.Snapshot(t.Context(), id); return err },
		"diff":     func(id string) error { _, err := c.Diff(t.Context(), wire.DiffRequest{From: id}); return err },
		"mark":     func(id string) error { return c.MarkLogged(t.Context(), id) },
		"object": func(id string) error {
			_, err := c.Object(t.Context(), wire.ObjectRequest{Commit: id, Path: "workspace/a"})
			return err
		},
	} {
		if err := do(id); err == nil || fault.Is(err, fault.NotFound) {
			t.Errorf("%s of a damaged checkpoint: %v", what, err)
		}
		if err := do(strings.Repeat("1", 40)); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s of a checkpoint that never was: %v", what, err)
		}
	}
}

// TestAGitThatEndsWithoutAWordOnAFullDisk shows that when git ends on a full disk without an error
// message, the full disk is reported and not the pipe to git that broke because of it.
func TestAGitThatEndsWithoutAWordOnAFullDisk(t *testing.T) {
	if choirtest.SmallDisk(t, smallDisk) == "" {
		return
	}
	mute := filepath.Join(t.TempDir(), "git")
	writeFile(t, mute, "#!/bin/sh\n[ \"$1\" != index-pack ] || exit 1\nexec git \"$@\"\n")
	if err := os.Chmod(mute, 0o755); err != nil {
		t.Fatal(err)
	}
	c := open(t, func(o *engine.Options) { o.Git = mute })
	for i := range 60 {
		noise := make([]byte, 8<<10)
		if _, err := rand.Read(noise); err != nil {
			t.Fatal(err)
		}
		c.write(fmt.Sprintf("workspace/%d", i), string(noise))
	}
	defer choirtest.FillDisk(t, 0)()
	_, err := c.Checkpoint(t.Context(), wire.CheckpointRequest{})
	if fault.CodeOf(err) != fault.DiskFull || fault.HintOf(err) != fault.FreeSpace {
		t.Errorf("%s: %v", fault.CodeOf(err), err)
	}
}
