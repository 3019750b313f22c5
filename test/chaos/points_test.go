package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// scenario is something that a user does, with the crash points that it passes.
type scenario struct {
	name   string
	points []string
	do     func(ctx context.Context, w *world) error
}

// again are scenarios that are also killed at points that belong to other scenarios.
var again = []scenario{
	{"failing verification", []string{
		"dispatch.task.merged", "verify.ready", "verify.tool.done", "dispatch.task.verified", "keeper.apply.moved", "dispatch.task.inverted", "workspace.tree.kept", "dispatch.task.kept", "dispatch.task.finished",
	}, failVerification},
	{"removal of what a command made", []string{"keeper.trash.intended"}, func(ctx context.Context, w *world) error {
		path, err := commandMakes(ctx, w, "to go "+w.next())
		if err != nil {
			return err
		}
		return w.remove(ctx, path)
	}},
	{"move", []string{"keeper.trash.intended", "keeper.deed.done", "workspace.file.written"}, func(ctx context.Context, w *world) error {
		content := "to move " + w.next()
		path, err := commandMakes(ctx, w, content)
		if err != nil {
			return err
		}
		return w.move(ctx, path, "workspace/u/moved/"+w.next()+".txt", content+"\n")
	}},
	{"push of files", []string{"gitserve.taken", "keeper.publish.started", "keeper.apply.exchanged", "gitserve.published"}, pushOfFiles},
}

func failVerification(ctx context.Context, w *world) error {
	path := "choiros/src/ruin" + w.next() + ".ts"
	w.tree.is(path, gone)
	return w.run(ctx, &prompt{text: "ruin the shell in " + path, fails: true, unverified: true})
}

var scenarios = []scenario{
	{"put", []string{
		"ledger.sent", "ledger.acknowledged", "state.committing", "state.committed", "workspace.file.written", "workspace.file.logged", "keeper.ready",
	}, func(ctx context.Context, w *world) error {
		return w.put(ctx, "workspace/u/"+w.next()+".txt", "put "+w.next()+"\r\n\x00\xff")
	}},
	{"replacing put", []string{"keeper.trash.intended", "keeper.trash.exchanged"}, func(ctx context.Context, w *world) error {
		if err := w.put(ctx, "workspace/u/again.txt", "first "+w.next()); err != nil {
			return err
		}
		return w.put(ctx, "workspace/u/again.txt", "second "+w.next())
	}},
	{"large put", []string{"keeper.chunks.written", "keeper.chunks.synced", "keeper.chunks.named"}, func(ctx context.Context, w *world) error {
		const path = "workspace/u/large"
		if err := w.put(ctx, path, w.next()+strings.Repeat("0123456789abcdef", 101<<16)); err != nil {
			return err
		}
		if _, _, err := w.save(ctx, "with a large file"); err != nil {
			return err
		}
		return w.remove(ctx, path)
	}},
	{"removal", []string{"keeper.trash.moved"}, func(ctx context.Context, w *world) error {
		path := "workspace/u/" + w.next() + ".txt"
		if err := w.put(ctx, path, "to go "+w.next()); err != nil {
			return err
		}
		return w.remove(ctx, path)
	}},
	{"add", []string{"keeper.deed.meant", "keeper.deed.done"}, func(ctx context.Context, w *world) error {
		return w.add(ctx, "added"+w.next(), "brought "+w.next())
	}},
	{"push", []string{"gitserve.taken", "gitserve.published"}, func(ctx context.Context, w *world) error {
		return w.push(ctx, "pushed"+w.next(), "pushed "+w.next())
	}},
	{"received push", []string{"keeper.push.received", "keeper.push.renamed"}, pushOfFiles},
	{"checkpoint", []string{
		"keeper.checkpoint.captured", "keeper.commit.written", "keeper.journal.synced", "keeper.commit.done", "workspace.checkpoint.made", "keeper.puts.synced",
	}, func(ctx context.Context, w *world) error {
		if err := w.put(ctx, "workspace/u/kept.txt", "kept "+w.next()); err != nil {
			return err
		}
		_, _, err := w.save(ctx, "by the user")
		return err
	}},
	{"put that a program changes", []string{"keeper.puts.written"}, func(ctx context.Context, w *world) error {
		path := "workspace/u/changed" + w.next() + ".txt"
		if err := w.put(ctx, path, "put "+w.next()); err != nil {
			return err
		}
		content := "the program's " + w.next()
		w.tree.maybe(path, content)
		if err := os.WriteFile(filepath.Join(filepath.Dir(w.gitDir()), path), []byte(content), 0o644); err != nil {
			return err
		}
		w.tree.is(path, content)
		_, _, err := w.save(ctx, "after a program")
		return err
	}},
	{"restore", []string{
		"keeper.restore.safe", "keeper.publish.started", "keeper.apply.staging", "keeper.apply.exchanged", "keeper.apply.moved", "keeper.apply.step",
		"keeper.apply.placed", "keeper.apply.done", "workspace.restore.applied", "workspace.publish.recorded",
	}, restoreAndUndo},
	{"repair", []string{"keeper.repair.moved"}, damageNewest},
	{"command", []string{
		"terminal.ready", "terminal.command.started", "computer.command.started", "computer.command.kept", "computer.command.finished",
	}, func(ctx context.Context, w *world) error {
		return w.exec(ctx, "workspace/e/"+w.next()+".txt", w.next(), 7)
	}},
	{"settling", []string{"keeper.settling"}, func(ctx context.Context, w *world) error {
		return w.exec(ctx, "workspace/e/"+w.next()+".txt", w.next(), 0)
	}},
	{"prompt", []string{
		"dispatch.prompt.submitted", "dispatch.task.requested", "dispatch.task.prepared", "dispatch.task.started", "dispatch.tool.called", "dispatch.tool.done",
		"dispatch.tool.shown", "dispatch.task.merged", "dispatch.task.verified", "dispatch.task.published", "dispatch.task.finished", "dispatch.run.reported",
	}, func(ctx context.Context, w *world) error {
		return w.run(ctx, recolour("#"+w.next()+w.next()))
	}},
	{"publishing prompt", []string{
		"workspace.publish.prepared", "workspace.publish.begun", "workspace.publish.logged", "workspace.publish.applied", "workspace.overlay.dropped",
		"workspace.overlay.renamed",
	}, func(ctx context.Context, w *world) error {
		return w.run(ctx, recolour("#"+w.next()+w.next()))
	}},
	{"prompt in boxes", []string{
		"keeper.publish.merged", "keeper.snapshot.built",
		"director.ready", "director.turn.recorded", "director.tool.calling",
		"associate.ready", "associate.turn.recorded", "associate.tool.calling",
		"task.ready", "task.tool.done",
	}, func(ctx context.Context, w *world) error {
		return w.run(ctx, writeFile("workspace/p/"+w.next()+".txt", "written "+w.next()))
	}},
	// The names of a text that belongs to no project suffice to check it; a script is read in a
	// box.
	{"checked prompt", []string{"verify.ready", "verify.tool.done"}, func(ctx context.Context, w *world) error {
		return w.run(ctx, writeFile("workspace/p/"+w.next()+".sh", "true "+w.next()))
	}},
	{"failing prompt", []string{"dispatch.task.inverted", "workspace.tree.kept", "dispatch.task.kept"}, func(ctx context.Context, w *world) error {
		return w.run(ctx, &prompt{text: "spoil the theme with #" + w.next() + w.next(), fails: true})
	}},
	{"prompt whose work is looked at", []string{"dispatch.review.answered"}, func(ctx context.Context, w *world) error {
		p := writeFile("workspace/p/"+w.next()+".txt", "looked at "+w.next())
		p.review = true
		return w.look(ctx, p)
	}},
	{"prompt whose checks fail", []string{"dispatch.task.repairing"}, failVerification},
	{"long output", []string{"blob.synced", "blob.renamed"}, func(ctx context.Context, w *world) error {
		return w.run(ctx, &prompt{text: "run `seq 20000`"})
	}},
	{"desktop", []string{"desktop.ready", "desktop.command.started"}, lookAtDesktop},
}

// commandMakes has a command make a file, so that a change of it is the first that the keeper makes.
func commandMakes(ctx context.Context, w *world, content string) (string, error) {
	path := "workspace/e/" + w.next() + ".txt"
	return path, w.exec(ctx, path, content, 0)
}

func pushOfFiles(ctx context.Context, w *world) error {
	return w.pushFiles(ctx, "workspace/u/pushed"+w.next()+".txt", "pushed "+w.next())
}

func restoreAndUndo(ctx context.Context, w *world) error {
	if err := w.put(ctx, "workspace/u/back.txt", "first "+w.next()); err != nil {
		return err
	}
	if err := w.put(ctx, "workspace/u/removed"+w.next()+".txt", "stays"); err != nil {
		return err
	}
	id, was, err := w.save(ctx, "before")
	if err != nil {
		return err
	}
	if err := w.put(ctx, "workspace/u/back.txt", "second "+w.next()); err != nil {
		return err
	}
	if err := w.put(ctx, "workspace/u/later"+w.next()+".txt", "later"); err != nil {
		return err
	}
	before := w.tree.copy()
	if err := w.restore(ctx, id, was); err != nil {
		return err
	}
	return w.restore(ctx, "", before)
}

// damageNewest does what a failing disk does: the newest checkpoint can't be read, so the next
// start repairs the history. The keeper dies during that, so the computer does not wake until it is
// asked again. At the end the object is put back, so that everything that was acknowledged can be
// checked.
func damageNewest(ctx context.Context, w *world) error {
	for _, content := range []string{"older ", "newest "} { // so that the newest has an undamaged one before it
		if err := w.put(ctx, "workspace/u/repaired.txt", content+w.next()); err != nil {
			return err
		}
		if _, _, err := w.save(ctx, content); err != nil {
			return err
		}
	}
	w.in.Kill()
	// The journal contains the object too, and would repair it.
	if err := os.Remove(filepath.Join(w.gitDir(), "choir", "journal")); err != nil {
		return err
	}
	newest, err := git(w.gitDir(), "rev-parse", "refs/heads/main").Output()
	if err != nil {
		return err
	}
	object := filepath.Join(w.gitDir(), "objects", string(newest[:2]), strings.TrimSpace(string(newest[2:])))
	aside := filepath.Join(filepath.Dir(w.crash), "object")
	if err := os.Rename(object, aside); err != nil {
		return err
	}
	defer func() {
		if err := os.Rename(aside, object); err != nil {
			w.t.Error(err)
		}
	}()
	if err := os.WriteFile(object, nil, 0o444); err != nil {
		return err
	}
	w.c.Close()
	if w.in, err = choirtest.TryStart(w.t, w.options()); err != nil {
		return err
	}
	if w.c, err = client.New(w.in.URL, w.in.Token, ""); err != nil {
		return err
	}
	if _, err := w.c.Info(ctx); err == nil {
		return errors.New("the computer woke, though its keeper died")
	}
	if err := w.wake(ctx); err != nil {
		return err
	}
	w.witness.watch(w.c, w.in.Done())
	return w.put(ctx, "workspace/u/repaired.txt", "after "+w.next())
}

// wake does what the button "try again" does for a computer that did not wake.
func (w *world) wake(ctx context.Context) error {
	resp, err := w.ask(ctx, http.MethodPost, "/api/computers/"+string(w.cid)+"/wake", "{}")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("wake the computer: %s", resp.Status)
	}
	_, err = w.c.Info(ctx) // this waits until it is awake
	return err
}

// ask sends a request that the client has no method for.
func (w *world) ask(ctx context.Context, method, path, body string) (*http.Response, error) {
	_, port, _ := strings.Cut(strings.TrimPrefix(w.in.URL, "http://"), ":")
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+port+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Host = strings.TrimPrefix(w.in.URL, "http://")
	req.Header.Set("Authorization", "Bearer "+w.in.Token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return http.DefaultClient.Do(req)
}

// lookAtDesktop requests the desktop as a page does, until the dev server answers, or until choir
// has ended.
func lookAtDesktop(ctx context.Context, w *world) error {
	for wait := 5 * time.Millisecond; len(w.kind("desktop")) == 0; wait = min(2*wait, 200*time.Millisecond) {
		f, err := w.c.Frame(ctx)
		if err != nil {
			return err
		}
		if f.Desktop.Mode != view.ModeLive {
			break
		}
		time.Sleep(wait) // its box has ended, which is about to be noticed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := w.ask(ctx, http.MethodGet, "/api/computers/-/frame/stream", "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("look at the frame: %s", resp.Status)
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		f, err := w.c.Frame(ctx)
		if err != nil {
			return err
		}
		if f.Desktop.Mode == view.ModeLive {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the desktop is not live: %s %s", f.Desktop.Mode, f.Desktop.Reason)
		case <-w.in.Done():
			return fmt.Errorf("choir is gone")
		case <-time.After(wait):
		}
	}
}

// unknowable are the points at which a call may have been made or not. Such a call is not repeated
// automatically, and the plans of the rehearsal do not handle that.
var unknowable = []string{
	"dispatch.tool.called", "dispatch.tool.done", "dispatch.tool.shown", "task.tool.done", "blob.synced", "blob.renamed",
	"workspace.publish.prepared", "workspace.publish.begun", "workspace.publish.logged", "workspace.publish.applied", // of live edits
	"task.ready", // a call may be on its way before the death of the task is noticed
}

// inBox reports whether a point is in the process of a box.
func inBox(point string) bool {
	kind, _, _ := strings.Cut(point, ".")
	return slices.Contains([]string{"keeper", "director", "associate", "task", "verify", "terminal", "desktop"}, kind)
}

// TestNamedPoints kills choir, or the box, at every named point: once, or five times in the long
// form.
func TestNamedPoints(t *testing.T) {
	rounds := 1
	if long > 0 {
		rounds = 5
	}
	// Each lane is a computer that goes through all its points, so later points also meet what
	// earlier ones left.
	lanes := [][]string{
		{"failing verification"}, {"put", "replacing put", "put that a program changes", "removal", "removal of what a command made", "move", "add", "push", "received push", "push of files", "checkpoint", "restore", "repair"},
		{"large put", "command", "settling", "long output", "failing prompt", "prompt whose checks fail", "desktop"}, {"prompt"}, {"publishing prompt", "prompt in boxes", "checked prompt"}, {"prompt whose work is looked at"},
	}
	for _, s := range slices.Concat(scenarios, again) {
		if !slices.ContainsFunc(lanes, func(lane []string) bool { return slices.Contains(lane, s.name) }) {
			t.Errorf("%q is in no lane, so that nothing is killed at %q", s.name, s.points)
		}
	}
	for _, lane := range lanes {
		t.Run(strings.Join(lane, ", "), func(t *testing.T) {
			t.Parallel()
			for round := range rounds {
				w := newWorld(t)
				for _, s := range slices.Concat(scenarios, again) {
					if !slices.Contains(lane, s.name) {
						continue
					}
					for _, point := range s.points {
						w.killAt(s, point, round)
						if t.Failed() {
							return // what follows would only repeat the failure
						}
					}
				}
				w.disarm()
				w.checkDeep()
				w.end()
			}
		})
	}
}

// killAt arms a point, runs a scenario that passes it, and checks what is left.
func (w *world) killAt(s scenario, point string, round int) {
	w.t.Helper()
	began := time.Now()
	when := fmt.Sprintf("%s, killed at %s", s.name, point)
	ctx, cancel := w.soon()
	defer cancel()
	if strings.HasPrefix(point, "keeper.") {
		if w.keepers == 4 { // a computer that loses many within minutes is put to sleep
			w.in.Stop(w.t)
			w.restart()
		}
		w.keepers++
	}
	w.arm(point, 1+round%nth(point))
	if kind, at, _ := strings.Cut(point, "."); at == "ready" && (kind == "director" || kind == "associate") {
		w.killBoxes(kind) // one that waits for the next run was ready before
	}
	err := s.do(ctx, w)
	if kind, at, _ := strings.Cut(point, "."); !w.hit() && (kind == "desktop" || kind == "keeper" && at == "ready") {
		// Such a box lives long. The next request finds it dead and opens another one.
		w.killBoxes(kind)
		for range 3 {
			if !w.hit() {
				err = s.do(ctx, w)
			}
		}
	}
	if !w.hit() && !inBox(point) {
		// Some things happen only after the answer, such as the end of a run's document.
		deadline := time.Now().Add(20 * time.Second)
		for wait := 2 * time.Millisecond; !w.hit() && time.Now().Before(deadline); wait = min(2*wait, 100*time.Millisecond) {
			time.Sleep(wait)
		}
	}
	if !w.hit() {
		w.t.Fatalf("%s: the point was never reached (%v); passed were %v", when, err, w.passes())
	}
	if !inBox(point) {
		w.dead(when)
		w.disarm()
		w.restart()
	} else if w.disarm(); err != nil {
		w.t.Logf("%s: %v", when, err)
	}
	told := len(w.prompts)
	w.verify(when, !inBox(point))
	result := "acknowledged"
	if err != nil {
		result = "not acknowledged"
	}
	if told > 0 && (strings.Contains(s.name, "prompt") || strings.Contains(s.name, "verification") || s.name == "long output") {
		p := w.prompts[told-1]
		result = "run " + p.outcome
		if p.outcome != "done" && !p.fails && !slices.Contains(unknowable, point) {
			w.t.Errorf("%s: %s; nothing was unknown, so it should have been done", when, result)
		}
	}
	histogram.add(point, result)
	if told > 0 && strings.HasPrefix(result, "run failed") && testing.Verbose() {
		if r, err := w.c.Run(ctx, w.prompts[told-1].run); err == nil {
			w.t.Logf("%s: %.300q", when, r.Summary)
		}
	}
	w.t.Logf("%s: %s (%v)", when, result, time.Since(began).Round(time.Millisecond))
}

// nth limits which pass of a point later rounds choose, to those that every run of the scenario
// makes.
func nth(point string) int {
	switch point {
	case "ledger.sent", "ledger.acknowledged", "state.committing", "state.committed":
		return 1
	case "dispatch.tool.called", "dispatch.tool.done", "dispatch.tool.shown", "director.turn.recorded", "associate.turn.recorded", "associate.tool.calling",
		"workspace.publish.prepared", "workspace.publish.applied", "keeper.publish.merged":
		return 2
	}
	return 1
}

// killBoxes kills the present boxes of a kind and waits for their ends, because until then they
// could be mistaken for the next ones.
func (w *world) killBoxes(kind string) {
	w.t.Helper()
	old := map[int]bool{}
	for _, b := range w.kind(kind) {
		old[b.pid] = true
		_ = syscall.Kill(b.pid, syscall.SIGKILL) // it may have ended by itself
	}
	left := func(v victim) bool { return old[v.pid] }
	for deadline := time.Now().Add(20 * time.Second); slices.ContainsFunc(w.kind(kind), left); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("a killed %s box does not go", kind)
		}
	}
}

// TestPointsAreListed compares the list in the docs, the points in the source, and those that are
// tried here.
func TestPointsAreListed(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(choirtest.Root(), "docs", "crash-points.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z.]+)` \\|").FindAllStringSubmatch(string(doc), -1) {
		listed[m[1]] = true
	}
	tried := map[string]bool{}
	for _, s := range scenarios {
		for _, p := range s.points {
			if tried[p] {
				t.Errorf("%s is tried twice", p)
			}
			tried[p] = true
			if !listed[p] {
				t.Errorf("%s is tried and not in docs/crash-points.md", p)
			}
		}
	}
	for _, p := range recoveryPoints {
		if tried[p.point] = true; !listed[p.point] {
			t.Errorf("%s is tried and not in docs/crash-points.md", p.point)
		}
	}
	for _, p := range forkPoints {
		if tried[p.point] = true; !listed[p.point] {
			t.Errorf("%s is tried and not in docs/crash-points.md", p.point)
		}
	}
	for _, p := range effectPoints {
		if tried[p.point] = true; !listed[p.point] {
			t.Errorf("%s is tried and not in docs/crash-points.md", p.point)
		}
	}
	for _, p := range requestPoints {
		if tried[p.point] = true; !listed[p.point] {
			t.Errorf("%s is tried and not in docs/crash-points.md", p.point)
		}
	}
	for _, p := range compactionPoints {
		if tried[p] = true; !listed[p] {
			t.Errorf("%s is tried and not in docs/crash-points.md", p)
		}
	}
	for p := range listed {
		if !tried[p] {
			t.Errorf("%s is in docs/crash-points.md and not tried", p)
		}
	}
	inSource := regexp.MustCompile(`(?:crash\.At|[es]\.crash)\("([a-z.]+)"\)`)
	err = filepath.WalkDir(filepath.Join(choirtest.Root(), "internal"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range inSource.FindAllStringSubmatch(string(src), -1) {
			known := false
			for p := range tried {
				known = known || p == m[1] || inBox(p) && strings.HasSuffix(p, "."+m[1])
			}
			if !known {
				t.Errorf("%s: the point %s is not tried", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
