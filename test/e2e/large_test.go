package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// sums returns the SHA-256 of every file of a tree, reading each in pieces.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		out[rel] = hex.EncodeToString(h.Sum(nil))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// random writes n bytes that can't be compressed.
func random(t *testing.T, name string, seed byte, n int64) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{seed}), n)
	if cerr := f.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
}

// TestLargeFilesComeBack brings a large file, and a repository with a large pack, into a computer:
// after a command changed them, a restore, and its undo, each file is byte for byte what it should
// be. CHOIR_LARGE_MB is the file's size in MiB, 128 by default; the pack has three tenths of that,
// and at least 104 MiB.
func TestLargeFilesComeBack(t *testing.T) {
	t.Parallel()
	size := int64(128)
	if s := os.Getenv("CHOIR_LARGE_MB"); s != "" {
		var err error
		if size, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	in := choirtest.Start(t, choirtest.Options{Data: filepath.Join(t.TempDir(), "data")}) // the files are too large for memory
	began := time.Now()
	took := func(what string) {
		t.Helper()
		t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	dir := filepath.Join(t.TempDir(), "project")
	repo := filepath.Join(dir, "repo")
	if err := os.MkdirAll(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	random(t, filepath.Join(dir, "big.bin"), 1, size<<20)
	random(t, filepath.Join(repo, "asset"), 2, max(size*3/10, 104)<<20)
	for _, args := range [][]string{{"init", "-q"}, {"add", "asset"}, {"-c", "user.name=n", "-c", "user.email=e@example.invalid", "commit", "-qm", "asset"}, {"repack", "-adq"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = repo
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	if err := os.Remove(filepath.Join(repo, "asset")); err != nil { // only the pack contains it
		t.Fatal(err)
	}
	want := sums(t, dir)
	took("made")
	in.Must(t, "add", dir)
	took("add")
	root := workspaceOf(t, in)
	live := filepath.Join(root, "workspace", "project")
	same := func(when string, want map[string]string) {
		t.Helper()
		got := sums(t, live)
		for p, w := range want {
			if got[p] != w {
				t.Errorf("%s: %s is %.12s, it was %.12s", when, p, got[p], w)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: there are %d files, there were %d", when, len(got), len(want))
		}
	}
	same("added", want)
	began = time.Now()
	var first struct {
		ID string `json:"id"`
	}
	in.JSON(t, &first, "checkpoint", "-m", "as it came")
	took("checkpoint")
	stored := chunksOf(t, in)
	if stored < int(size/8) {
		t.Errorf("%d chunks of a file of %d MiB", stored, size)
	}
	in.Must(t, "exec", "--", "sh", "-ec", `cd workspace/project
		head -c 5000000 big.bin >new; echo "some bytes put in" >>new; tail -c +5000001 big.bin >>new; mv new big.bin
		rm -r repo; echo text >repo`)
	took("exec")
	in.Must(t, "checkpoint", "-m", "changed")
	took("checkpoint of the change")
	if more := chunksOf(t, in) - stored; more < 1 || more > 4 {
		t.Errorf("%d new chunks for some bytes put in; there were %d", more, stored)
	}
	changed := sums(t, live)
	if changed["big.bin"] == want["big.bin"] || len(changed) != 2 {
		t.Fatalf("nothing changed: %v", changed)
	}
	began = time.Now()
	in.Must(t, "restore", first.ID)
	took("restore")
	same("restored", want)
	began = time.Now()
	in.Must(t, "undo")
	took("undo")
	same("undone", changed)
	began = time.Now()
	in.Must(t, "restore", first.ID)
	took("restore again")
	same("restored again", want)
	began = time.Now()
	if p := prompt(t, in, "run `printf more >>workspace/project/big.bin`"); p.Status != "done" {
		t.Errorf("a task that changes it: %+v", p)
	}
	took("task")
	random(t, filepath.Join(dir, "big.bin"), 1, size<<20)
	more, err := os.OpenFile(filepath.Join(dir, "big.bin"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := more.WriteString("more"); err != nil || more.Close() != nil {
		t.Fatal(err)
	}
	same("changed by a task", sums(t, dir))
	began = time.Now()
	in.Must(t, "restore", first.ID)
	took("restore after the task")
	same("restored after the task", want)
	cmd := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "fsck", "--strict", "--no-dangling", "--no-progress")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("git fsck: %v\n%s", err, out)
	}
	// Other machines do not get the contents of the large files.
	remote := filepath.Join(t.TempDir(), "remote.git")
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", "--bare", remote).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	push := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "push", "-q", remote, "main")
	push.Dir = root
	if out, err := push.CombinedOutput(); err == nil || !strings.Contains(string(out), "this push is refused") || !strings.Contains(string(out), "workspace/project/big.bin") {
		t.Errorf("git push: %v\n%s", err, out)
	}
	// However large the file is, only a few chunks of it are in memory at once.
	if most := keeperMemory(t, in); most == 0 || most > 300 {
		t.Errorf("the keeper held up to %d MiB", most)
	} else {
		t.Logf("the keeper held up to %d MiB", most)
	}
}

// TestTheLargestFileIsASetting shows that a larger file is left out of checkpoints, which the
// command that wrote it reports, and that it can't be put.
func TestTheLargestFileIsASetting(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{Env: []string{"CHOIR_STORAGE_LARGE_FILE_MB=1", "CHOIR_STORAGE_ADD_MB=3"}})
	dir := filepath.Join(t.TempDir(), "project")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	random(t, filepath.Join(dir, "fits"), 1, 1<<20)
	random(t, filepath.Join(dir, "over"), 2, 1<<20+1)
	var added struct {
		Unkept unkept `json:"unkept"`
	}
	in.JSON(t, &added, "add", dir)
	if got := strings.Join(added.Unkept.lines(), "; "); got != "workspace/project/over has 1048577 bytes; at most 1048576 are captured" {
		t.Errorf("add says %q", got)
	}
	res, err := in.Run(t.Context(), "files", "put", filepath.Join(dir, "over"), "workspace/put")
	if err != nil || res.Code == 0 || !strings.Contains(res.Stderr, "storage.large_file_mb") {
		t.Errorf("put: %v, exit %d: %s", err, res.Code, res.Stderr)
	}
	if res, err := in.Run(t.Context(), "files", "put", filepath.Join(dir, "fits"), "workspace/put"); err != nil || res.Code != 0 {
		t.Errorf("put: %v, exit %d: %s", err, res.Code, res.Stderr)
	}
	// Something larger than may be added at once is not imported at all, and the sender gets the
	// reason although it was still sending.
	random(t, filepath.Join(dir, "more"), 3, 20<<20)
	res, err = in.Run(t.Context(), "add", dir, "--name", "heap")
	if err != nil || res.Code == 0 || strings.Count(res.Stderr, "\n") != 1 || !strings.Contains(res.Stderr, "more than 3 MiB") || !strings.Contains(res.Stderr, "storage.add_mb") {
		t.Errorf("add: %v, exit %d: %s", err, res.Code, res.Stderr)
	}
	if _, err := os.Lstat(filepath.Join(workspaceOf(t, in), "workspace/heap")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was too much is in the workspace: %v", err)
	}
	// It counts that the host refuses the sender; the keeper removes what it had unpacked when it
	// learns of that.
	choirtest.Eventually(t, 30*time.Second, "the keeper has removed what it unpacked", func() bool {
		found, err := filepath.Glob(filepath.Join(workspaceOf(t, in), ".git/choir/tmp-import-*"))
		return err == nil && len(found) == 0
	})
}

// workspaceOf returns the directory of the only computer's files.
func workspaceOf(t *testing.T, in *choirtest.Instance) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(in.Data, "computers", "*", "workspace"))
	if err != nil || len(found) != 1 {
		t.Fatalf("workspaces: %v, %v", found, err)
	}
	return found[0]
}

// chunksOf returns the number of stored chunks.
func chunksOf(t *testing.T, in *choirtest.Instance) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(workspaceOf(t, in), ".git/choir/chunks/??/*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// keeperMemory returns the most memory that a process of the instance's keeper has held at once, in
// MiB.
func keeperMemory(t *testing.T, in *choirtest.Instance) int {
	t.Helper()
	most := 0
	for _, p := range descendants(t, in.PID) {
		if p.guest() != contract.BoxKeeper {
			continue
		}
		status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "status")) // it may have ended
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				if n, err := strconv.Atoi(strings.Fields(rest)[0]); err == nil {
					most = max(most, n>>10)
				}
			}
		}
	}
	return most
}
