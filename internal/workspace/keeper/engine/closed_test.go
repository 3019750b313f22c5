package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// ordinaryUID is a user who owns nothing else. Permissions do not stop root, and in its box the
// keeper has no capabilities.
const ordinaryUID = 64205

// ordinary runs a test again as an ordinary user with few descriptors, and reports whether this is
// that run.
func ordinary(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		var lim unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			t.Fatal(err)
		}
		was := lim.Cur
		lim.Cur = 200
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			lim.Cur = was
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
				t.Error(err)
			}
		})
		return true
	}
	dir, err := os.MkdirTemp("", "keeper-ordinary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("rm", "-rf", dir).CombinedOutput(); err != nil {
			t.Errorf("rm: %v %s", err, out)
		}
	})
	program := filepath.Join(dir, "test")
	if err := errors.Join(copyFile(os.Args[0], program), os.Chmod(program, 0o755), os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "tmp"), 0o755), os.Chown(filepath.Join(dir, "tmp"), ordinaryUID, ordinaryUID)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = filepath.Join(dir, "tmp")
	cmd.Env = []string{"TMPDIR=" + cmd.Dir, "HOME=" + cmd.Dir, "CHOIR_DEEP=" + os.Getenv("CHOIR_DEEP"), "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
	return false
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// openClosed opens an engine on a tree that the testing package can't remove by itself.
func openClosed(t *testing.T, change ...func(*engine.Options)) *computer {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { // this runs after the check at the end
		d, err := hostfs.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"live", "uppers", "snapshots"} {
			err = errors.Join(err, d.RemoveAll(context.Background(), name))
		}
		if err := errors.Join(err, d.Close()); err != nil {
			t.Error(err)
		}
	})
	return open(t, append(change, func(o *engine.Options) {
		o.Root, o.Snapshots, o.Uppers = filepath.Join(dir, "live"), filepath.Join(dir, "snapshots"), filepath.Join(dir, "uppers")
		for _, d := range []string{o.Root, o.Snapshots, o.Uppers} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	})...)
}

func chmod(t *testing.T, mode os.FileMode, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.Chmod(n, mode); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClosedFoldersAreConflicts shows that a folder that its permissions close is a conflict. It
// once stopped every later checkpoint when a task edited a file in it.
func TestClosedFoldersAreConflicts(t *testing.T) {
	if !ordinary(t) {
		return
	}
	c := openClosed(t)
	for _, dir := range []string{"readonly", "closed", "listed", "open"} {
		c.write("workspace/"+dir+"/edit", "one\n")
		c.write("workspace/"+dir+"/gone", "one\n")
	}
	c.write("workspace/secret", "one\n")
	first := c.checkpoint("first")
	k := c.begin("t1")
	for _, dir := range []string{"readonly", "closed", "listed", "open"} {
		k.write("workspace/"+dir+"/edit", "two\n")
		k.write("workspace/"+dir+"/new/file", "two\n")
		k.whiteout("workspace/" + dir + "/gone")
	}
	k.write("workspace/secret", "two\n")
	tree := k.tree()
	chmod(t, 0o555, c.path("workspace/readonly"))
	chmod(t, 0, c.path("workspace/closed"), c.path("workspace/secret"))
	chmod(t, 0o444, c.path("workspace/listed"))
	r, err := c.publish(wire.PrepareRequest{ID: "p", Base: k.base, Tree: tree.Commit})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, conflict := range r.Conflicts {
		told[string(conflict.Path)] = strings.Contains(conflict.Reason, "permissions")
	}
	for _, p := range []string{"readonly/edit", "readonly/gone", "readonly/new/file", "closed/edit", "closed/gone", "listed/edit"} {
		if !told["workspace/"+p] {
			t.Errorf("%s is not told as a conflict: %v", p, r.Conflicts)
		}
	}
	if c.read("workspace/open/edit")+c.read("workspace/open/new/file") != "two\ntwo\n" || c.read("workspace/readonly/edit") != "one\n" {
		t.Error("what is open was not published, or what is closed was")
	}
	// Everything else still works.
	for n := range 2 {
		if _, err := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/put"}, strings.NewReader(fmt.Sprint(n))); err != nil {
			t.Fatal(err)
		}
		c.checkpoint("later")
	}
	if _, err := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/readonly/put"}, strings.NewReader("x")); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("a put into a closed folder: %v", err)
	}
	if _, err := c.Restore(t.Context(), wire.RestoreRequest{ID: "dry", To: first.Commit.Commit, DryRun: true}); err != nil {
		t.Error(err)
	}
	c.restore(wire.RestoreRequest{ID: "r", To: first.Commit.Commit})
	if c.read("workspace/open/edit") != "one\n" {
		t.Error("nothing was restored")
	}
	c.reopen()
	c.checkpoint("after a start")
	st, err := c.Status(t.Context())
	if err != nil || len(st.Pending) > 0 {
		t.Errorf("pending %v, %v", st.Pending, err)
	}
	// A closed folder goes to the trash and comes back as it was.
	removed, err := c.Remove(t.Context(), wire.RemoveRequest{Path: "workspace/readonly"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Untrash(t.Context(), wire.UntrashRequest{ID: removed.ID}); err != nil {
		t.Fatal(err)
	}
	if s, err := os.Stat(c.path("workspace/readonly")); err != nil || s.Mode().Perm() != 0o555 {
		t.Errorf("it came back as %v, %v", s.Mode(), err)
	}
}

// TestWhatATaskClosedIsLeftOut shows that folders that a task closed in its own tree are left out.
func TestWhatATaskClosedIsLeftOut(t *testing.T) {
	if !ordinary(t) {
		return
	}
	c := openClosed(t)
	c.write("workspace/a", "a\n")
	k := c.begin("t1")
	k.write("workspace/closed/x", "x\n")
	k.write("workspace/listed/x", "x\n")
	k.write("workspace/file", "x\n")
	k.write("workspace/open/x", "x\n")
	chmod(t, 0, k.path("workspace/closed"), k.path("workspace/file"))
	chmod(t, 0o444, k.path("workspace/listed"))
	r := k.tree()
	if len(r.Left) != 3 || len(r.Changes) == 0 {
		t.Errorf("left %v of %v", r.Left, r.Changes)
	}
	if _, err := c.publish(wire.PrepareRequest{ID: "p", Base: k.base, Tree: r.Commit}); err != nil {
		t.Fatal(err)
	}
	if c.read("workspace/open/x") != "x\n" {
		t.Error("what is open was not published")
	}
}

// chain makes n folders, each within the one before.
func chain(t *testing.T, dir, name string, n int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < n && err == nil; i++ {
		if err = unix.Mkdirat(fd, name, 0o755); err == nil {
			var next int
			next, err = unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			err = errors.Join(err, unix.Close(fd))
			fd = next
		}
	}
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
}

// TestDeepAndLongTrees makes folders nested deeper than any path can be long (CHOIR_DEEP says how
// deep), names as long as they can be, and folders with very many files, for an engine with 200
// descriptors. No scan, checkpoint, publish, restore or removal may fail as a whole.
func TestDeepAndLongTrees(t *testing.T) {
	if !ordinary(t) {
		return
	}
	now := time.Now()
	c := openClosed(t, func(o *engine.Options) {
		o.Now = func() time.Time { return now }
		o.Limits.Files = 5000
	})
	c.write("workspace/a", "one\n")
	deepest := strings.Repeat("d/", 250) + "file"
	long := strings.Repeat(strings.Repeat("n", 255)+"/", 12) + strings.Repeat("n", 255)
	k := c.begin("t1")
	k.write(deepest, "the task's\n")
	k.write(long, "the task's\n")
	if err := os.MkdirAll(k.path("deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	levels := 3000 // no path can be as deep
	if s := os.Getenv("CHOIR_DEEP"); s != "" {
		var err error
		if levels, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	chain(t, k.path("deep"), "d", levels)
	tree := k.tree()
	if len(tree.Left) != 1 || !strings.Contains(tree.Left[0].Reason, "too long") {
		t.Errorf("left of the task's: %.300v", tree.Left)
	}
	for _, dir := range []string{"deep", "many"} {
		if err := os.Mkdir(c.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	chain(t, c.path("deep"), "e", levels)
	for i := range 6000 {
		f, err := os.Create(c.path(fmt.Sprintf("many/%d", i)))
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.publish(wire.PrepareRequest{ID: "p", Base: k.base, Tree: tree.Commit}); err != nil {
		t.Fatal(err)
	}
	if c.read(deepest)+c.read(long) != "the task's\nthe task's\n" {
		t.Error("what is deep, or long, was not published")
	}
	r := c.checkpoint("all of it")
	left := map[string]bool{}
	for _, s := range r.Left {
		left[strings.TrimRight(string(s.Path)[:4], "/")] = true
	}
	if len(r.Left) != 2 || !left["deep"] || !left["many"] {
		t.Errorf("left: %.300v", r.Left)
	}
	if _, err := c.Snapshot(t.Context(), r.Commit.Commit); err != nil {
		t.Fatal(err)
	}
	first, err := c.List(t.Context(), wire.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	c.restore(wire.RestoreRequest{ID: "r", To: first[len(first)-1].Commit})
	if _, err := os.Lstat(c.path(deepest)); err == nil {
		t.Error("what is deep is still there after a restore")
	}
	c.restore(wire.RestoreRequest{ID: "u", Undo: true})
	if c.read(deepest)+c.read(long) != "the task's\nthe task's\n" {
		t.Error("what is deep, or long, did not come back")
	}
	if err := c.ReleaseSnapshots(t.Context(), nil); err != nil {
		t.Error(err)
	}
	removed, err := c.Remove(t.Context(), wire.RemoveRequest{Path: "deep"})
	if err != nil {
		t.Fatal(err)
	}
	c.reopen()
	now = now.Add(8 * 24 * time.Hour)
	if _, err := c.Remove(t.Context(), wire.RemoveRequest{Path: "workspace/a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(c.path(".git/choir/trash/" + removed.ID)); err == nil {
		t.Error("what is deep stays in the trash for ever")
	}
}
