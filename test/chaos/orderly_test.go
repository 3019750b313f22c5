package chaos_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/test/choirtest"
)

// await follows the log until a run's nth event of a type.
func (w *world) await(ctx context.Context, run, eventType string, nth int) {
	w.t.Helper()
	for e, err := range w.c.Events(ctx, client.EventsOptions{Follow: true, Types: []string{eventType}}) {
		if err != nil {
			w.t.Fatalf("waiting for %s: %v", eventType, err)
		}
		if e.Run == run {
			nth--
		}
		if nth == 0 {
			return
		}
	}
	w.t.Fatalf("no %s came", eventType)
}

// TestStopAndGoOn stops choir in the middle of a task, first as systemd does and then with kill -9.
// In both cases the run continues under the same attempt after the restart, and its end is reported
// only once.
func TestStopAndGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, end := range []struct {
		name string
		by   func()
		left int
	}{
		{"SIGTERM", func() { w.in.Stop(t) }, stopped},
		{"SIGKILL", func() { w.in.Kill() }, crashed},
	} {
		if err := w.put(ctx, "workspace/u/before.txt", end.name); err != nil {
			t.Fatal(err)
		}
		path := "workspace/p/endless" + w.next() + ".txt"
		p := &prompt{text: "work without end on " + path, fails: true}
		w.tree.is(path, gone)
		if err := w.prompt(ctx, p); err != nil {
			t.Fatal(err)
		}
		w.await(ctx, p.run, "tool.called", 2) // the second call never ends
		end.by()
		note, err := os.ReadFile(w.gitDir() + "/choir/open")
		if said := strings.HasPrefix(string(note), "closed "); err != nil || said != (end.name == "SIGTERM") {
			t.Errorf("after %s the keeper's note is %q, %v", end.name, note, err)
		}
		if err := w.tidy(end.left); err != nil {
			t.Errorf("after %s: %v", end.name, err)
		}
		w.restart()
		w.verify("a task under way, "+end.name, true)
		h, err := readHistory(ctx, w.c)
		if err != nil {
			t.Fatal(err)
		}
		var attempts []any
		starts := 0
		for i, e := range h.events {
			if e.Run != p.run {
				continue
			}
			switch e.Type {
			case "task.started":
				starts++
				attempts = append(attempts, h.data[i]["attempt"])
			case "tool.called":
				if h.data[i]["attempt"] != float64(1) {
					t.Errorf("after %s a call was made in attempt %v", end.name, h.data[i]["attempt"])
				}
			}
		}
		if starts != 2 || attempts[0] != attempts[1] {
			t.Errorf("after %s the task was started as attempts %v; want attempt 1 twice", end.name, attempts)
		}
		histogram.add("task under way: "+end.name, "run "+p.outcome)
	}
	w.end()
	if _, err := os.Stat(w.data + "/runtime.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after an orderly end the data directory still names a running choir: %v", err)
	}
}

// TestOneOwner starts a second control plane on the same data directory, while the first lives and
// right after it was killed.
func TestOneOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := w.soon()
	defer cancel()
	_, err := choirtest.TryStart(t, w.options())
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second choir said %v; want a refusal that says it is in use", err)
	}
	if err := w.put(ctx, "workspace/u/a.txt", "after the refusal"); err != nil {
		t.Fatalf("the first one suffered: %v", err)
	}
	w.in.Kill()
	began := time.Now()
	w.restart()
	w.verify("restarted at once after a kill", true)
	h, err := readHistory(ctx, w.c)
	if err != nil {
		t.Fatal(err)
	}
	epochs := map[uint64]bool{}
	for _, e := range h.events {
		epochs[uint64(e.Epoch)] = true
	}
	if len(epochs) != 2 {
		t.Errorf("two owners wrote under the epochs %v", epochs)
	}
	t.Logf("it was up and verified %v after the kill", time.Since(began).Round(time.Millisecond))
	w.end()
}
