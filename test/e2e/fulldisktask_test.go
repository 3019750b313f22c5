package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestATaskEndsAfterAFullDisk fills the disk before a task's call is made, until its end can't be recorded. Once there is
// room the run ends by itself, and its task has a result; and neither the result nor what any model was told names a
// path of the host.
func TestATaskEndsAfterAFullDisk(t *testing.T) {
	t.Parallel()
	dir := onSmallDisk(t, "320m")
	if dir == "" {
		return
	}
	held := tool("bash", object{"command": "seq 1 20000"})
	held.Hold = "full"
	s := modelserver.New(modelserver.Script{Turns: join(
		director(delegate(object{"kind": "agent", "goal": "count", "tools": []any{"bash"}, "verify": object{"profile": "none"}}), again(report("failed", "Not counted."))),
		worker(held, again(finish("ok", "Counted."))))}).Start()
	t.Cleanup(s.Close)
	opts := choirtest.Options{Data: filepath.Join(dir, "data"), Env: append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_STORAGE_RESERVE_MB=0")}
	f := &fullDisk{T: t, dir: dir, opts: opts, in: choirtest.Start(t, opts)}
	run := submit(t, f.in, "count")
	choirtest.Eventually(t, time.Minute, "the call is to be made", func() bool { return s.Held("full") })
	f.top()
	s.Release("full")
	choirtest.Eventually(t, 2*time.Minute, "the task's end can't be recorded", func() bool {
		f.top() // what ends meanwhile gives some of it back
		return strings.Contains(f.in.Logs(), "a task's result could not be recorded; it is tried again")
	})
	for ; f.fill > 0; f.fill-- {
		if err := os.Remove(filepath.Join(f.dir, fmt.Sprint("ballast", f.fill))); err != nil {
			t.Fatal(err)
		}
	}
	r := ended(t, f.in, run)
	if len(r.Tasks) != 1 || r.Tasks[0].Result == nil {
		t.Fatalf("the run has ended and its task has no result: %+v", r)
	}
	said := r.Summary + r.Error + r.Tasks[0].Result.Summary
	for _, q := range s.Requests() {
		said += q.Text
	}
	if at := strings.Index(said, dir); at >= 0 {
		t.Errorf("it is told %q", said[max(0, at-200):min(len(said), at+200)])
	}
	usable(t, f.in)
}
