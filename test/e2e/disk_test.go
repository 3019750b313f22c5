package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/test/choirtest"
)

// onSmallDisk is inOwnMounts with a tmpfs of this size, whose path it returns.
func onSmallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := inOwnMounts(t, false)
	if dir != "" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
			t.Fatalf("mount a tmpfs (this test needs one): %v", err)
		}
	}
	return dir
}

// fillDisk writes until the disk is full.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// eventIDs returns the ids and types of the events in the log.
func eventIDs(t *testing.T, in *choirtest.Instance) (ids, types []string) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(in.Must(t, "events")))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct{ ID, Type string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		ids, types = append(ids, e.ID), append(types, e.Type)
	}
	return ids, types
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := onSmallDisk(t, "288m")
	if dir == "" {
		return
	}
	data := filepath.Join(dir, "data")
	opts := choirtest.Options{Data: data, Env: []string{"CHOIR_STORAGE_RESERVE_MB=32"}}
	in := choirtest.Start(t, opts)
	put(t, in, "workspace/keep.txt", "kept")
	in.Must(t, "checkpoint", "-m", "before")
	held := func() bool {
		st, err := os.Stat(filepath.Join(data, "reserve"))
		return err == nil && st.Size() == 32<<20
	}
	if !held() {
		t.Fatal("the log has no reserve")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()

	// A command that fills the disk is ended, or its write fails.
	r, err := in.Run(ctx, "exec", "--", "sh", "-c", "head -c 1G /dev/zero > workspace/big && echo all")
	if err != nil || r.Code == 0 || strings.Contains(r.Stdout, "all") {
		t.Fatalf("filling the disk: %v %+v", err, r)
	}
	if _, types := eventIDs(t, in); !slices.Contains(types, "command.finished") {
		t.Error("the log does not say that the command ended")
	}
	if got := in.Must(t, "files", "cat", "workspace/keep.txt"); got != "kept" {
		t.Errorf("the file is now %q", got)
	}
	in.Must(t, "exec", "--", "rm", "-f", "workspace/big")
	choirtest.Eventually(t, 30*time.Second, "the reserve is held after the command's file is gone", held)
	usable(t, in)

	// The same with more than a checkpoint has room for: the large file can be removed all the
	// same, with a notice that no checkpoint contains it.
	if r, err = in.Run(ctx, "exec", "--", "sh", "-c", "head -c 1G /dev/urandom > workspace/big && echo all"); err != nil || r.Code == 0 {
		t.Fatalf("filling the disk: %v %+v", err, r)
	}
	r, err = in.Run(ctx, "exec", "--", "rm", "-f", "workspace/big")
	if err != nil || r.Code != 0 || !strings.Contains(r.Stderr, "no checkpoint") {
		t.Errorf("emptying the disk: %v %+v; want it done, and that no checkpoint was made before", err, r)
	}
	choirtest.Eventually(t, 30*time.Second, "the reserve is held after the file is gone", held)
	usable(t, in)

	// Files are uploaded until nothing more fits: the error is one sentence, and no partial file is
	// left.
	big := bytes.Repeat([]byte("0123456789abcdef"), 2<<20)
	var stored []string
	for i := range 12 {
		name := "workspace/up-" + string(rune('a'+i))
		r, err = in.RunInput(ctx, big, "files", "put", "-", name)
		if err != nil {
			t.Fatal(err)
		}
		if r.Code != 0 {
			break
		}
		stored = append(stored, name)
	}
	if r.Code != 1 || len(strings.Split(strings.TrimSpace(r.Stderr), "\n")) != 1 || !strings.Contains(r.Stderr, "Free some space") {
		t.Errorf("an upload without space: %+v; want one sentence with what to do", r)
	}
	var files []struct {
		ID   string `json:"id"`
		Size int64  `json:"size"`
	}
	in.JSON(t, &files, "files", "ls", "workspace")
	for _, f := range files {
		if strings.Contains(f.ID, "up-") && (f.Size != int64(len(big)) || !slices.Contains(stored, f.ID)) {
			t.Errorf("a refused upload left %+v", f)
		}
	}
	for _, name := range stored {
		in.Must(t, "exec", "--", "rm", "-f", name)
	}

	// Another program fills the disk to the last byte: the log uses its reserve, and keeps what it
	// acknowledged there.
	fillDisk(t, filepath.Join(dir, "ballast"))
	var runs []string
	for i := 0; held() && i < 2000; i++ {
		var p struct{ Run string }
		in.JSON(t, &p, "prompt", "say something long enough to need space: "+strings.Repeat("x", 8000))
		if p.Run == "" {
			t.Fatal("a prompt was acknowledged without a run")
		}
		runs = append(runs, p.Run)
	}
	if held() {
		t.Fatal("the disk is full, and the reserve was never given back")
	}
	ids, _ := eventIDs(t, in)
	if len(runs) == 0 || len(ids) == 0 {
		t.Fatal("nothing was acknowledged on the full disk")
	}
	if r, err = in.RunInput(ctx, []byte("x"), "files", "put", "-", "workspace/no.txt"); err != nil || r.Code != 1 || !strings.Contains(r.Stderr, "full") {
		t.Errorf("an upload on a full disk: %v %+v; want a refusal", err, r)
	}
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	choirtest.Eventually(t, 60*time.Second, "the reserve is held again", held)
	choirtest.Eventually(t, 60*time.Second, "uploads are taken again", func() bool {
		r, err := in.RunInput(ctx, []byte("yes"), "files", "put", "-", "workspace/again.txt")
		return err == nil && r.Code == 0
	})
	usable(t, in)
	check := func(when string) {
		t.Helper()
		after, _ := eventIDs(t, in)
		for i, id := range ids {
			if i >= len(after) || after[i] != id {
				t.Fatalf("%s: event %d, acknowledged on the full disk, is gone", when, i+1)
			}
		}
		for _, run := range runs {
			var row struct{ ID string }
			in.JSON(t, &row, "runs", run)
			if row.ID != run {
				t.Errorf("%s: run %s is gone", when, run)
			}
		}
	}
	check("without a restart")
	in.Stop(t)
	in = choirtest.Start(t, opts)
	check("after a restart")
	usable(t, in)
	if got := in.Must(t, "files", "cat", "workspace/keep.txt"); got != "kept" {
		t.Errorf("the file is now %q", got)
	}
	if _, err := os.Stat(filepath.Join(data, "reserve")); errors.Is(err, fs.ErrNotExist) {
		t.Error("the reserve is not held after a restart")
	}
}

// TestUndoStopsAtWhatNoCheckpointWasMadeOf: undo says which command could not be kept on a
// full disk, and takes back neither something older nor what another command had done.
func TestUndoStopsAtWhatNoCheckpointWasMadeOf(t *testing.T) {
	t.Parallel()
	dir := onSmallDisk(t, "192m")
	if dir == "" {
		return
	}
	in := choirtest.Start(t, choirtest.Options{Data: filepath.Join(dir, "data"), Env: []string{"CHOIR_STORAGE_RESERVE_MB=16"}})
	put(t, in, "workspace/a", "one")
	put(t, in, "workspace/a", "two")
	stops := func(command string) {
		t.Helper()
		for _, args := range [][]string{{"undo", "--dry-run"}, {"undo"}} {
			r, err := in.Run(t.Context(), args...)
			if err != nil || r.Code == 0 || !strings.Contains(r.Stderr, command) || !strings.Contains(r.Stderr, "no checkpoint") {
				t.Errorf("%q: %v %+v; want a refusal that names %q", args, err, r, command)
			}
		}
		if got := in.Must(t, "files", "cat", "workspace/a"); got != "two" {
			t.Errorf("what was put before the command holds %q", got)
		}
	}
	fill := "echo made > workspace/b; head -c 1G /dev/urandom > workspace/big"
	if r, err := in.Run(t.Context(), "exec", "--", "sh", "-c", fill); err != nil || r.Code == 0 {
		t.Fatalf("filling the disk: %v %+v", err, r)
	}
	stops("echo made")
	// The checkpoint after this one contains what the one before had done.
	in.Must(t, "exec", "--", "rm", "workspace/big")
	stops("rm workspace/big")
	if got := in.Must(t, "files", "cat", "workspace/b"); got != "made\n" {
		t.Errorf("what the other command made holds %q", got)
	}
	// With room again there is a checkpoint for each, and undo goes on.
	in.Must(t, "exec", "--", "rm", "workspace/b")
	in.Must(t, "undo")
	if got := in.Must(t, "files", "cat", "workspace/b"); got != "made\n" {
		t.Errorf("what undo brings back holds %q", got)
	}
	in.Stop(t)
}
