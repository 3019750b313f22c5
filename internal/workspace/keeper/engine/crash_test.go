package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestMain also serves as the engine process that crash tests kill.
func TestMain(m *testing.M) {
	if spec := os.Getenv("KEEPER_CHILD"); spec != "" {
		if err := child(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv("KEEPER_PICTURE"); dir != "" {
		if err := printPicture(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if mode := os.Getenv("KEEPER_SETTLE"); mode != "" {
		if err := settleChild(mode, os.Getenv("KEEPER_SETTLE_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Each check makes repositories, so there are 25 of them by default, and more with
	// -rapid.checks.
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		if err := f.Value.Set("25"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// childSpec says what the child does, and at the n-th pass of which point it is killed.
type childSpec struct {
	Root, Snapshots, Uppers string
	Point                   string
	Nth                     int32
	Do                      string
	Base, Task, To          string
	Large                   int64         // Limits.FileBytes
	Pad                     int           // the size in bytes of what is put
	Faster                  string        // a file that a program moves over what is put, a moment before
	Boot                    string        // the boot in which it runs, if it is another one
	Ahead                   time.Duration // how far its clock is before the file system's
}

func child(raw string) error {
	var s childSpec
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return err
	}
	ctx := context.Background()
	var seen atomic.Int32
	var boot func() (string, error)
	if s.Boot != "" {
		boot = func() (string, error) { return s.Boot, nil }
	}
	e, err := engine.Open(ctx, engine.Options{Boot: boot, Now: func() time.Time { return time.Now().Add(s.Ahead) }, Root: s.Root, Snapshots: s.Snapshots, Uppers: s.Uppers, Limits: wire.Limits{FileBytes: s.Large}, Crash: func(point string) {
		if point == "trash.intended" && s.Faster != "" {
			_ = os.Rename(filepath.Join(s.Root, s.Faster), filepath.Join(s.Root, s.To)) // whoever reads the file sees whether it worked
		}
		if point == s.Point && seen.Add(1) == s.Nth {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}})
	if err != nil {
		return err
	}
	switch s.Do {
	case "checkpoint":
		_, err = e.Checkpoint(ctx, wire.CheckpointRequest{Note: wire.Note{Kind: "manual", Message: "by the child"}})
	case "restore":
		_, err = e.Restore(ctx, wire.RestoreRequest{ID: "r", To: s.To})
	case "publish":
		_, err = e.Prepare(ctx, wire.PrepareRequest{ID: "p", Base: s.Base, Tree: s.Task, Note: wire.Note{Message: "the task"}})
		if err == nil {
			err = e.Begin(ctx, "p")
		}
		if err == nil {
			_, err = e.Apply(ctx, "p")
		}
	case "push":
		err = pushAll(ctx, e, s.Base, s.Task, s.To)
	case "snapshot":
		_, err = e.Snapshot(ctx, s.To)
	case "write":
		_, err = e.Write(ctx, wire.WriteRequest{Path: wire.Path(s.To), User: "somebody"}, strings.NewReader("second\n"))
	case "puts":
		for i, p := range strings.Split(s.To, "\n") {
			if from, to, program := strings.Cut(p, " > "); program { // it has another file, or none, take the place of the put file
				if err := replaceFile(filepath.Join(s.Root, from), filepath.Join(s.Root, to), from == ""); err != nil {
					return err
				}
				continue
			}
			if _, err := e.Write(ctx, wire.WriteRequest{Path: wire.Path(p)}, strings.NewReader(fmt.Sprintf("put %d", i)+noise(byte(i), s.Pad))); err != nil {
				return err
			}
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "acts":
		for i, act := range strings.Split(s.To, "\n") {
			if err := doAct(ctx, e, s.Root, strings.Fields(act), fmt.Sprintf("put %d", i)); err != nil {
				return err
			}
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "write-large":
		_, err = e.Write(ctx, wire.WriteRequest{Path: wire.Path(s.To), User: "somebody"}, strings.NewReader(noise(9, 6<<20)))
	case "remove":
		_, err = e.Remove(ctx, wire.RemoveRequest{Path: wire.Path(s.To)})
	case "move":
		_, err = e.Move(ctx, wire.MoveRequest{From: wire.Path(s.Base), To: wire.Path(s.To), User: "somebody"})
	case "untrash":
		_, err = e.Untrash(ctx, wire.UntrashRequest{ID: s.Base, User: "somebody"})
	case "import":
		var archive io.Reader
		if archive, err = smallArchive("file", "imported\n"); err == nil {
			_, err = e.Import(ctx, wire.ImportRequest{Path: wire.Path(s.To), Origin: "/home/me/it", Remote: "https://example.org/it", User: "somebody"}, archive)
		}
	}
	return errors.Join(err, e.Close())
}

// doAct puts, removes or moves a file, or does what may come between.
func doAct(ctx context.Context, e *engine.Engine, root string, act []string, text string) (err error) {
	switch act[0] {
	case "settle":
		return e.Settle(ctx)
	case "tell":
		var ids []string
		operations, err := e.UnloggedOperations(ctx)
		for _, o := range operations {
			ids = append(ids, o.ID)
		}
		return errors.Join(err, e.OperationsLogged(ctx, ids))
	}
	switch p := wire.Path(act[1]); act[0] {
	case "program": // makes an empty file
		err = errors.Join(os.MkdirAll(filepath.Join(root, path.Dir(act[1])), 0o755), os.WriteFile(filepath.Join(root, act[1]), nil, 0o644))
	case "empty":
		_, err = e.Write(ctx, wire.WriteRequest{Path: p}, strings.NewReader(""))
	case "back":
		var trash wire.TrashReply
		if trash, err = e.Trash(ctx, wire.TrashRequest{}); err == nil {
			_, err = e.Untrash(ctx, wire.UntrashRequest{ID: trash.Items[0].ID})
		}
	case "put":
		_, err = e.Write(ctx, wire.WriteRequest{Path: p}, strings.NewReader(text))
	case "remove":
		_, err = e.Remove(ctx, wire.RemoveRequest{Path: p})
	case "remove-if":
		var is wire.FileInfo
		if is, err = e.Stat(ctx, string(p)); err == nil {
			_, err = e.Remove(ctx, wire.RemoveRequest{Path: p, If: is.ID})
		}
	case "move":
		_, err = e.Move(ctx, wire.MoveRequest{From: p, To: wire.Path(act[2])})
	}
	return err
}

// replaceFile has a file take another's place, which stays beside it as it was.
func replaceFile(from, to string, gone bool) error {
	if err := os.Link(to, to+".old"); err != nil || gone {
		return errors.Join(err, os.Remove(to))
	}
	return os.Rename(from, to)
}

func runChild(t *testing.T, s childSpec) (killed bool) {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "KEEPER_CHILD="+string(raw))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	return false
}

// TestKilledAtEveryPoint kills the engine at each named point of each change, lets the user edit,
// and recovers. The tree must then be wholly as asked, with the user's edits, or, when the kill
// came before the decision, wholly as it was. With CHOIR_DEATHS=all, which make chaos sets, the
// engine is also killed at later passes of the points that a change reaches several times.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"publish":    {"checkpoint.captured", "commit.written", "journal.synced", "commit.done", "publish.merged", "publish.started", "apply.staging", "apply.exchanged", "apply.moved", "apply.step", "apply.placed", "apply.done"},
		"restore":    {"checkpoint.captured", "commit.written", "journal.synced", "commit.done", "restore.safe", "publish.started", "apply.staging", "apply.exchanged", "apply.moved", "apply.step", "apply.placed", "apply.done"},
		"checkpoint": {"checkpoint.captured", "commit.written", "journal.synced", "commit.done"},
		"snapshot":   {"snapshot.built"},
	}
	for do, points := range cases {
		for _, point := range points {
			for _, nth := range []int32{1, 2, 3} {
				more := nth > 2 || strings.HasPrefix(point, "commit.")
				if nth > 1 && (!several(point) || more && os.Getenv("CHOIR_DEATHS") != "all") {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", do, point, nth), func(t *testing.T) { killAt(t, do, point, nth) })
			}
		}
	}
}

// several reports whether a change reaches a point several times.
func several(point string) bool {
	return strings.HasPrefix(point, "apply.") || strings.HasPrefix(point, "commit.")
}

func killAt(t *testing.T, do, point string, nth int32) {
	c := open(t)
	for i := range 6 {
		c.write(fmt.Sprintf("workspace/f%d", i), fmt.Sprintf("old %d\n", i))
	}
	c.write("workspace/repo/.git/HEAD", "ref: refs/heads/main\n")
	c.write("workspace/repo/.git/objects/aa/bb", "object\n")
	k := c.begin("t1")
	k.write("workspace/f0", "new 0\n")
	k.write("workspace/f1", "new 1\n")
	k.write("workspace/added/x", "x\n")
	k.write("workspace/repo/.git/HEAD", "ref: refs/heads/task\n")
	k.whiteout("workspace/f2")
	k.whiteout("workspace/f3")
	tree := k.tree()
	c.write("workspace/f5", "the user's\n")
	before := picture(t, c.opts.Root)
	after := picture(t, c.opts.Root)
	after["workspace/f0"], after["workspace/f1"], after["workspace/added"], after["workspace/added/x"], after["workspace/repo/.git/HEAD"] = "file new 0\n", "file new 1\n", "dir", "file x\n", "file ref: refs/heads/task\n"
	delete(after, "workspace/f2")
	delete(after, "workspace/f3")
	spec := childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: point, Nth: nth, Do: do, Base: k.base, Task: tree.Commit, To: k.base}
	if do == "restore" {
		spec.To = tree.Commit
		after["workspace/f5"] = "file old 5\n"
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c.Engine = nil
	if !runChild(t, spec) && nth == 1 {
		t.Fatalf("the child did not pass %s", point)
	}
	// The user continues at once.
	c.write("workspace/f4", "written after the crash\n")
	before["workspace/f4"], after["workspace/f4"] = "file written after the crash\n", "file written after the crash\n"
	c.reopen()
	if _, err := c.Unlogged(t.Context()); err != nil {
		t.Fatal(err)
	}
	pending, err := c.Status(t.Context())
	if err != nil || len(pending.Pending) > 0 {
		t.Fatalf("pending %v, %v", pending.Pending, err)
	}
	got := picture(t, c.opts.Root)
	decided := strings.HasPrefix(point, "apply.") || point == "publish.started" || got["workspace/f0"] == "file new 0\n"
	switch {
	case do == "checkpoint" || do == "snapshot" || !decided:
		samePicture(t, got, before)
	default:
		samePicture(t, got, after)
	}
	c.checkpoint("after the crash")
	stockGit(t, c.opts.Root, "fsck", "--connectivity-only")
	st, err := c.Status(t.Context())
	if err != nil || len(st.Changes) > 0 {
		t.Errorf("status = %+v, %v", st, err)
	}
	// Asking for it again completes what had not been decided.
	if do == "publish" {
		if _, err := c.publish(wire.PrepareRequest{ID: "p", Base: k.base, Tree: tree.Commit, Note: wire.Note{Message: "the task"}}); err != nil {
			t.Fatal(err)
		}
		samePicture(t, picture(t, c.opts.Root), after)
	}
	if do == "snapshot" {
		s, err := c.Snapshot(t.Context(), k.base)
		if err != nil {
			t.Fatal(err)
		}
		got := c.merged(s.Layers)
		if got["workspace/f5"] != "file old 5\n" || got["workspace/repo/.git/HEAD"] != "file ref: refs/heads/main\n" {
			t.Errorf("snapshot = %v", got)
		}
	}
}
