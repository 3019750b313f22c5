package e2e_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// unreadable leaves a data directory whose computer was killed during a run, and lost the blob of a
// turn that was too long for the log. Its file workspace/kept was first "one", then "two".
func unreadable(t *testing.T) (data string, env []string) {
	t.Helper()
	s := modelserver.New(modelserver.Script{Turns: join(
		turnsOf("director", "", delegate(object{"kind": "agent", "goal": "Write it down", "tools": []any{"bash"}, "verify": object{"profile": "none"}})),
		turnsOf("associate", "Write it down", bash("true # "+strings.Repeat("long ", 20<<10)), modelserver.Turn{Hold: "for ever"}),
	)}).Start()
	t.Cleanup(s.Close)
	data, env = filepath.Join(t.TempDir(), "data"), modelEnv(s, modelserver.Anthropic, newKey())
	in := choirtest.Start(t, choirtest.Options{Data: data, Env: env})
	put(t, in, "workspace/kept", "one")
	in.Must(t, "checkpoint", "-m", "one")
	put(t, in, "workspace/kept", "two")
	in.Must(t, "checkpoint", "-m", "two")
	before := blobs(t, data)
	submit(t, in, "Have it written down")
	choirtest.Eventually(t, time.Minute, "the long turn is stored", func() bool {
		return len(blobs(t, data)) > len(before) && strings.Contains(in.Must(t, "events", "--json"), `"dataref"`)
	})
	in.Kill()
	for b := range blobs(t, data) {
		if !before[b] {
			if err := os.Remove(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	return data, env
}

func blobs(t *testing.T, data string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(data, "blobs"), func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out[p] = true
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

// TestALostBlobOfAnOpenRunEndsThatRun shows that if a part of a run that was under way is lost,
// only that run is affected: the computer is awake, and the run has ended and says what can't be
// read any more.
func TestALostBlobOfAnOpenRunEndsThatRun(t *testing.T) {
	t.Parallel()
	data, env := unreadable(t)
	in := choirtest.Start(t, choirtest.Options{Data: data, Env: env})
	var runs []view.Run
	choirtest.Eventually(t, time.Minute, "the run ends", func() bool {
		in.JSON(t, &runs, "runs")
		return len(runs) == 1 && runs[0].Status.Ended()
	})
	if runs[0].Status != contract.RunFailed || !strings.Contains(runs[0].Summary, "(turn.recorded)") || !strings.Contains(runs[0].Summary, "can't be read any more") {
		t.Errorf("it is %s: %s", runs[0].Status, runs[0].Summary)
	}
	if got := in.Must(t, "exec", "--", "cat", "workspace/kept"); got != "two" {
		t.Errorf("the file holds %q", got)
	}
}

// lockKeeper holds the lock of the computer's files, as another process does that has them open.
func lockKeeper(t *testing.T, data string) (release func()) {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(data, "computers", "*", "keeper.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("%v, %v", locks, err)
	}
	lock, err := os.OpenFile(locks[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { lock.Close() }) // closing the file releases the lock
	t.Cleanup(release)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	return release
}

// failed starts choir up on a computer that does not wake.
func failed(t *testing.T, data, why string, env ...string) (*choirtest.Instance, view.Computer) {
	t.Helper()
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	c := in.Standing(t)
	if c.State != view.StateFailed || c.Trouble == nil || !strings.Contains(c.Trouble.Reason, why) || !strings.Contains(fmt.Sprint(c.Trouble.Actions), "rewind") {
		t.Fatalf("it is %s: %+v; want that it does not wake because of %q", c.State, c.Trouble, why)
	}
	return in, c
}

// TestAComputerThatDoesNotWakeIsRepaired shows that a computer that does not wake says why. Its
// archive contains what it has, even while its files are in use. Its checkpoints are listed, and a
// restore of one can be tried dry and then done, which wakes it, and can be undone. A computer that
// fails because of what a task left wakes without that.
func TestAComputerThatDoesNotWakeIsRepaired(t *testing.T) {
	t.Parallel()
	s := modelserver.New(modelserver.Script{Turns: turnsOf("director", "", modelserver.Turn{Hold: "for ever"})}).Start()
	t.Cleanup(s.Close)
	data, env := filepath.Join(t.TempDir(), "data"), append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_RUNTIME_WAKE_TRIES=0")
	in := choirtest.Start(t, choirtest.Options{Data: data, Env: env})
	put(t, in, "workspace/kept", "one")
	in.Must(t, "checkpoint", "-m", "one")
	put(t, in, "workspace/kept", "two")
	in.Must(t, "checkpoint", "-m", "two")
	in.Stop(t)

	release := lockKeeper(t, data)
	in, c := failed(t, data, "keeper", env...)
	if c.Trouble.Next != nil || c.Trouble.Tries != 0 {
		t.Errorf("it is tried again: %+v", c.Trouble)
	}
	if r, err := in.Run(t.Context(), "wake"); err != nil || r.Code != 1 || !strings.Contains(r.Stdout, "why") || !strings.Contains(r.Stdout, "choir export") {
		t.Errorf("choir wake: %v, exit %d: %s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	if r, err := in.Run(t.Context(), "wake", "--json"); err != nil || !strings.Contains(r.Stdout, `"trouble"`) || strings.Contains(r.Stdout, "0001-") {
		t.Errorf("what is not known is no date: %v, %s", err, r.Stdout)
	}
	archive := filepath.Join(t.TempDir(), "away.tar")
	in.Must(t, "export", archive)
	if files := untar(t, archive); files["files/workspace/kept"] != "two" || !strings.Contains(files["events.jsonl"], `"computer.created"`) || files["files/.git/HEAD"] == "" {
		t.Errorf("the archive has %d files", len(files))
	}
	if r, _ := in.Run(t.Context(), "export", archive); r.Code == 0 || !strings.Contains(r.Stderr, "Choose another name") {
		t.Errorf("an archive was written over another, or nobody says what to do: %+v", r)
	}
	var told struct {
		Path string
		Size int64
	}
	in.JSON(t, &told, "export", archive+"2")
	if st, err := os.Stat(told.Path); err != nil || st.Size() != told.Size {
		t.Errorf("export --json says %+v: %v", told, err)
	}
	kept := filepath.Join(data, "computers", string(c.ID), "workspace", "workspace", "kept")
	holds := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(kept); err != nil || string(b) != want {
			t.Fatalf("the file holds %q (%v); want %q", b, err, want)
		}
	}
	one := ""
	var list []view.Checkpoint
	in.JSON(t, &list, "checkpoints") // from the state and the log, which no other process has open
	for _, k := range list {
		if k.Message == "one" {
			one = k.ID
		}
	}
	if one == "" {
		t.Fatalf("the checkpoints are %+v", list)
	}
	if r, _ := in.Run(t.Context(), "restore", one); r.Code == 0 || !strings.Contains(r.Stderr, "can't be opened either") {
		t.Errorf("files that another process has went back: exit %d, %s", r.Code, r.Stderr)
	}
	holds("two")
	release()
	var plan, done view.Restored
	in.JSON(t, &plan, "restore", one, "--dry-run")
	if len(plan.Changes) != 1 || plan.Changes[0].Path != "workspace/kept" || !plan.DryRun {
		t.Errorf("going back would change %+v", plan.Changes)
	}
	holds("two")
	if c := in.Standing(t); c.State != view.StateFailed {
		t.Errorf("looking woke it: it is %s", c.State)
	}
	in.JSON(t, &done, "restore", one)
	holds("one")
	if done.Safety == "" || done.Checkpoint == "" {
		t.Errorf("what was there is not kept: %+v", done)
	}
	var woken view.Computer
	in.JSON(t, &woken, "wake")
	if woken.Trouble != nil {
		t.Fatalf("it does not wake: %+v", woken.Trouble)
	}
	in.Must(t, "undo")
	holds("two")

	submit(t, in, "Think about it")
	choirtest.Eventually(t, time.Minute, "the run is under way", func() bool { return len(s.Requests()) > 0 })
	in.Kill()
	stuck := filepath.Join(data, "computers", string(c.ID), "boxes", "stuck", ".run", "lock")
	if err := os.MkdirAll(stuck, 0o700); err != nil { // a directory in the place of a file
		t.Fatal(err)
	}
	in, _ = failed(t, data, "stuck", env...)
	in.JSON(t, &woken, "wake", "--without-tasks")
	if woken.Trouble != nil {
		t.Fatalf("it does not wake: %+v", woken.Trouble)
	}
	var runs []view.Run
	choirtest.Eventually(t, time.Minute, "its run was given up", func() bool {
		in.JSON(t, &runs, "runs")
		return len(runs) == 1 && runs[0].Status == contract.RunCancelled
	})
	if aside, _ := filepath.Glob(filepath.Join(data, "computers", "*", "boxes.aside-*")); len(aside) != 1 {
		t.Errorf("what tasks left is in %v", aside)
	}
	in.Must(t, "exec", "--", "cat", "workspace/kept")
	in.Must(t, "rebuild", "--check")
}

func untar(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(b)
	}
}

// TestAComputerIsTriedAgainByItself: the cause may pass; here another process has the files and
// releases them. The computer is then awake, without anybody's action.
func TestAComputerIsTriedAgainByItself(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	choirtest.Start(t, choirtest.Options{Data: data}).Stop(t)
	release := lockKeeper(t, data)
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	c := in.Standing(t)
	if c.State != view.StateFailed || c.Trouble.Next == nil || c.Trouble.Tries != 1 {
		t.Fatalf("it is %s: %+v", c.State, c.Trouble)
	}
	release()
	choirtest.Eventually(t, time.Minute, "it wakes by itself", func() bool { return in.Standing(t).State == view.StateAwake })
	in.Must(t, "exec", "--", "true")
}
