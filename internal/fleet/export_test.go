package fleet

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestAttack43_NothingKeepsTheRestOutOfAnArchive shows that things that a box left and that can't
// be archived (unreadable, a pipe, too deep, changing meanwhile) are named in the archive, and that
// everything else is in it.
func TestAttack43_NothingKeepsTheRestOutOfAnArchive(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		dir := t.TempDir()
		put := func(name, content string) string {
			t.Helper()
			file := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
				t.Fatal(err)
			}
			return file
		}
		closed := put("a-closed", "secret")
		inClosed := filepath.Dir(put("b-folder/in", "secret"))
		long := strings.Repeat("x", 200_000)
		shrinks, kept := put("c-shrinks", long), put("z/kept", "kept")
		if err := errors.Join(os.Chmod(closed, 0), os.Chmod(inClosed, 0), unix.Mkfifo(filepath.Join(dir, "d-pipe"), 0o644), os.Symlink("/etc/passwd", filepath.Join(dir, "e-link"))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Chmod(inClosed, 0o755); err != nil {
				t.Error(err)
			}
		})
		deep(t, dir, 30)
		// The file is truncated as soon as its beginning is in the archive.
		var b bytes.Buffer
		out := tar.NewWriter(writes(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte("xxxx")) {
				if err := os.Truncate(shrinks, 10); err != nil {
					return 0, err
				}
			}
			return b.Write(p)
		}))
		if err := exportFiles(t.Context(), dir, nil, out); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		files := unpacked(t, &b)
		left := files["left-out.txt"]
		if files["files/z/kept"] != "kept" || files["files/e-link"] != "/etc/passwd" {
			t.Errorf("%s and the link are %q and %q", kept, files["files/z/kept"], files["files/e-link"])
		}
		if len(files["files/c-shrinks"]) != len(long) || !strings.Contains(left, `"c-shrinks": it became shorter`) {
			t.Errorf("%d bytes of what shrank; said is %q", len(files["files/c-shrinks"]), left)
		}
		if !strings.Contains(left, "its path is longer") {
			t.Errorf("of the chain is said %q", left)
		}
		if os.Geteuid() != 0 && (!strings.Contains(left, `"a-closed": permission denied`) || !strings.Contains(left, `"b-folder": permission denied`)) {
			t.Errorf("of what is closed is said %q", left)
		}
	})
}

// unpacked reads an archive: the contents of its files and the targets of its links, by name.
func unpacked(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content) + h.Linkname
	}
}

// TestAnArchiveHasWhatWakingPutsInItsPlace: after a power cut the keeper puts what was
// acknowledged in its place when the computer wakes. The archive of a computer that is asleep or
// waking has it there, and that of one that does not wake says where else to look.
func TestAnArchiveHasWhatWakingPutsInItsPlace(t *testing.T) {
	s := newSleeper(t)
	cid, other := s.made("one"), s.made("another")
	open := s.Fleet.wake
	s.Fleet.wake = func(ctx context.Context, cid contract.CID, w computer.WakeOptions) (*computer.Computer, error) {
		c, err := open(ctx, cid, w)
		if err != nil {
			return nil, err
		}
		return c, os.WriteFile(s.Dir.Computer(cid, "workspace", "a"), []byte("newer"), 0o600)
	}
	for _, cid := range []contract.CID{cid, other} {
		if err := errors.Join(os.MkdirAll(s.Dir.Computer(cid, "workspace"), 0o700), os.WriteFile(s.Dir.Computer(cid, "workspace", "a"), []byte("older"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	export := func(cid contract.CID) map[string]string {
		t.Helper()
		var b bytes.Buffer
		if err := s.Export(t.Context(), cid, &b); err != nil {
			t.Fatal(err)
		}
		return unpacked(t, &b)
	}
	if got := export(cid); got["files/a"] != "newer" || got["left-out.txt"] != "" || !strings.Contains(got["events.jsonl"], "computer.created") {
		t.Errorf("the archive of one that was asleep: %q", got)
	}
	s.fails.Store(&other)
	if got := export(other); got["files/a"] != "older" || !strings.Contains(got["left-out.txt"], keepersJournal) || !strings.Contains(got["left-out.txt"], "the tree is odd") || !strings.Contains(got["events.jsonl"], "computer.created") {
		t.Errorf("the archive of one that does not wake: %q", got)
	}
	if err := s.Export(t.Context(), contract.NewCID(), io.Discard); !fault.Is(err, fault.NotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

// TestAFileThatIsReplacedIsInTheArchive: a file that is put again and again while the archive is
// made is in it, as one of its versions.
func TestAFileThatIsReplacedIsInTheArchive(t *testing.T) {
	dir := t.TempDir()
	file, next := filepath.Join(dir, "a"), filepath.Join(t.TempDir(), "next")
	put := func() error {
		return errors.Join(os.WriteFile(next, []byte("a version"), 0o600), os.Rename(next, file))
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	over, stop := context.WithCancel(t.Context())
	var puts sync.WaitGroup
	puts.Go(func() {
		for over.Err() == nil {
			if err := put(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer puts.Wait()
	defer stop()
	for n := range 2000 {
		var b bytes.Buffer
		out := tar.NewWriter(&b)
		if err := errors.Join(exportFiles(t.Context(), dir, nil, out), out.Close()); err != nil {
			t.Fatal(err)
		}
		if got := unpacked(t, &b); got["files/a"] != "a version" || got["left-out.txt"] != "" {
			t.Fatalf("archive %d holds %q", n, got)
		}
	}
}

// deep makes a chain of folders with names so long that their path exceeds the kernel's limit.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := "y" + strings.Repeat("-", 199)
	for range levels {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err = errors.Join(err, unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
}

type writes func(p []byte) (int, error)

func (w writes) Write(p []byte) (int, error) { return w(p) }

// TestAnArchiveHasTheHistoryThatItNames shows that what is committed while the history is archived
// does not make its branch name a commit that the archive lacks.
func TestAnArchiveHasTheHistoryThatItNames(t *testing.T) {
	dir := t.TempDir()
	git := func(at string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", at, "-c", "user.name=n", "-c", "user.email=n@example.org"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git(dir, "init", "-q", "-b", "main")
	git(dir, "commit", "-q", "--allow-empty", "-m", "first")
	first, committed := git(dir, "rev-parse", "main"), false
	var b bytes.Buffer
	out := tar.NewWriter(writes(func(p []byte) (int, error) {
		if !committed && bytes.Contains(p, []byte("files/.git/objects/pack")) { // all others were read
			committed = true
			git(dir, "commit", "-q", "--allow-empty", "-m", "second")
		}
		return b.Write(p)
	}))
	if err := errors.Join(exportFiles(t.Context(), dir, nil, out), out.Close()); err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, &b)
	if got := strings.TrimSpace(files["files/.git/refs/heads/main"]); !committed || got != first {
		t.Errorf("the archive's branch is at %q; the commit %s is in the archive", got, first)
	}
	if files["files/.git/HEAD"] != "ref: refs/heads/main\n" {
		t.Errorf("the archive's HEAD is %q", files["files/.git/HEAD"])
	}
}
