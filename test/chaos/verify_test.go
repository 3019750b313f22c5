package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// verify waits until choir has settled and compares everything with what is known. thorough adds a
// replay of the log and a search for leftovers.
func (w *world) verify(when string, thorough bool) {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	if err := w.check(ctx, thorough); err != nil {
		w.t.Errorf("%s:\n%v", when, err)
	}
}

// check is verify with its verdict as an error.
func (w *world) check(ctx context.Context, thorough bool) error {
	if err := w.settle(ctx); err != nil {
		return err
	}
	// A change makes the keeper complete first what a dead keeper left unfinished.
	if err := w.nudge(ctx); err != nil {
		return err
	}
	known := w.witness.testify()
	h, err := readHistory(ctx, w.c)
	if err != nil {
		return fmt.Errorf("the log: %w", err)
	}
	errs := []error{known.confront(h, w.gitDir()), w.checkRuns(h)}
	w.tellRuns(h)
	errs = append(errs, w.checkTree(ctx), w.checkLarge(), w.checkBoxes(h), w.checkHistory(h), w.checkAdded(ctx))
	if thorough {
		r, err := w.c.Rebuild(ctx, true)
		if err == nil && !r.Equal {
			err = fmt.Errorf("the state is not what the log says: %s", strings.Join(r.Differences, "; "))
		}
		errs = append(errs, err, w.tidy(w.in.PID))
	}
	return errors.Join(errs...)
}

// nudge makes a checkpoint. If the keeper is dead, this starts another one.
func (w *world) nudge(ctx context.Context) error {
	var errs []error
	for range 3 {
		k, err := w.c.Checkpoint(ctx, "a look at what is there")
		if err == nil {
			w.witness.checkpoint(k.ID)
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// settle waits until no run is open.
func (w *world) settle(ctx context.Context) error {
	for before := uint64(0); ; {
		runs, more, err := w.c.Runs(ctx, before, 100)
		if err != nil {
			return fmt.Errorf("list the runs: %w", err)
		}
		for _, r := range runs {
			before = r.Sequence
			if r.Status.Ended() {
				continue
			}
			got, err := w.c.Wait(ctx, r.ID)
			if err != nil || !got.Status.Ended() {
				return fmt.Errorf("run %s (%q) stays %s: %w", r.ID, r.Prompt, got.Status, err)
			}
		}
		if !more || len(runs) == 0 {
			return nil
		}
	}
}

// checkRuns compares the log with the promises about runs.
func (w *world) checkRuns(h *history) error {
	var errs []error
	reported := map[string]int{}
	var prompts []string
	requested, finished := map[string]bool{}, map[string]bool{}
	results := map[string]int{}
	started, done := map[string]bool{}, map[string]bool{}
	commands := map[string]bool{} // command → whether it has ended
	effects := map[string]int{}   // what may have been changed outside → how many ends it has
	for i, e := range h.events {
		d := h.data[i]
		switch e.Type {
		case "prompt.submitted":
			prompts = append(prompts, e.Run)
		case "run.reported":
			reported[e.Run]++
		case "task.requested":
			requested[e.Task] = true
		case "task.finished":
			finished[e.Task] = true
			results[e.Subject]++
		case "effect.intended":
			effects[fmt.Sprint(d["effect"])] += 0
		case "effect.ended":
			effects[fmt.Sprint(d["effect"])]++
		case "command.started":
			commands[fmt.Sprint(d["command"])] = false
		case "command.finished":
			commands[fmt.Sprint(d["command"])] = true
		case "publish.started":
			started[fmt.Sprint(d["publish"])] = true
		case "publish.finished":
			done[fmt.Sprint(d["publish"])] = true
		}
	}
	for _, run := range prompts {
		if reported[run] != 1 {
			errs = append(errs, fmt.Errorf("run %s was reported %d times", run, reported[run]))
		}
	}
	for task := range requested {
		if !finished[task] {
			errs = append(errs, fmt.Errorf("task %s has no result", task))
		}
	}
	for subject, n := range results {
		if n != 1 {
			errs = append(errs, fmt.Errorf("%s has %d results", subject, n))
		}
	}
	for effect, n := range effects {
		if n != 1 {
			errs = append(errs, fmt.Errorf("effect %s has %d ends", effect, n))
		}
	}
	for c, ended := range commands {
		if !ended {
			errs = append(errs, fmt.Errorf("command %s never ended", c))
		}
	}
	for p := range started {
		if !done[p] {
			errs = append(errs, fmt.Errorf("publish %s was begun and never finished", p))
		}
	}
	return errors.Join(errs...)
}

// outcome is what the log says of a run.
type outcome struct {
	status    contract.RunStatus
	published bool // changes of it are in the live tree and were not taken back
}

func outcomes(h *history) map[string]outcome {
	out := map[string]outcome{}
	live := map[string]bool{}
	for i, e := range h.events {
		d := h.data[i]
		o := out[e.Run]
		switch e.Type {
		case "run.reported":
			var p contract.RunReported
			if json.Unmarshal(e.Data, &p) == nil {
				o.status = p.Status
			}
		case "publish.started":
			live[fmt.Sprint(d["publish"])], _ = d["live"].(bool)
		case "publish.finished":
			inverted, _ := d["inverted"].(bool)
			if !inverted && !live[fmt.Sprint(d["publish"])] {
				o.published = true
			}
		default:
			continue
		}
		if e.Run != "" {
			out[e.Run] = o
		}
	}
	return out
}

// tellRuns records in the tree the changes that runs have certainly made.
func (w *world) tellRuns(h *history) {
	all := outcomes(h)
	for _, p := range w.prompts {
		if p.told {
			continue
		}
		run := p.run
		if run == "" { // it was never acknowledged, and may have been accepted all the same
			for i, e := range h.events {
				if e.Type == "prompt.submitted" && h.data[i]["text"] == p.text {
					run = e.Run
				}
			}
		}
		o, known := all[run]
		p.told = true
		p.outcome = "never begun"
		if known {
			p.outcome = string(o.status)
		}
		if known && p.fails {
			if err := failedWholly(h, run, p.unverified); err != nil {
				w.t.Errorf("%q: %v", p.text, err)
			}
		}
		switch {
		case !known || p.fails:
		case o.status == contract.RunDone, o.published:
			for path, content := range p.writes {
				w.tree.is(path, content(w.tree.at(path)))
			}
		}
	}
}

// failedWholly checks a run that is to fail: it has to say so, none of its tasks may say that its
// work is published or verified, and everything of it that was published has to be taken back. A
// run that fails by its verification has reported that.
func failedWholly(h *history, run string, unverified bool) error {
	var errs []error
	var last contract.VerificationStatus
	live := map[string]bool{}
	back := false
	for i, e := range h.events {
		if e.Run != run {
			continue
		}
		switch e.Type {
		case "run.reported":
			if s := h.data[i]["status"]; s != string(contract.RunFailed) {
				errs = append(errs, fmt.Errorf("its run is %v", s))
			}
			if v := h.data[i]["verified"]; v == string(contract.VerificationPass) {
				errs = append(errs, errors.New("its run is verified"))
			}
		case "task.finished":
			var p contract.TaskFinished
			if err := json.Unmarshal(e.Data, &p); err != nil {
				errs = append(errs, err)
			}
			last = p.Result.Verification.Status
			if r := p.Result; r.Status == contract.ResultOK || r.Head != "" || r.Verification.Status == contract.VerificationPass {
				errs = append(errs, fmt.Errorf("attempt %d of a task is %s, verified %s, in checkpoint %q: %s", r.Attempt, r.Status, r.Verification.Status, r.Head, r.Verification.Reason))
			}
		case "publish.started":
			if l, _ := h.data[i]["live"].(bool); l {
				live[fmt.Sprint(h.data[i]["publish"])], back = true, false
			}
		case "publish.finished":
			if inverted, _ := h.data[i]["inverted"].(bool); inverted {
				back = true
			}
		}
	}
	if unverified && last != contract.VerificationFail {
		errs = append(errs, fmt.Errorf("its verification is %q, not failed", last))
	}
	if unverified && len(live) == 0 {
		errs = append(errs, errors.New("it showed nothing live, so there was nothing to take back"))
	}
	if len(live) > 0 && !back {
		errs = append(errs, errors.New("what it showed live was not taken back"))
	}
	return errors.Join(errs...)
}

// checkBoxes returns an error if overlays of ended tasks are still there. A command's open box
// waits some time for its user's next command, and one box of each loop waits for the next run's.
func (w *world) checkBoxes(h *history) error {
	kept, epoch := map[string]bool{}, h.events[len(h.events)-1].Epoch
	for i, e := range h.events {
		switch {
		case e.Epoch != epoch:
		case e.Type == "box.opened" && h.data[i]["kind"] == string(contract.BoxTerminal):
			kept[fmt.Sprint(h.data[i]["box"])] = true
		case e.Type == "box.closed":
			delete(kept, fmt.Sprint(h.data[i]["box"]))
		}
	}
	dir := filepath.Join(w.data, "computers", string(w.cid), "boxes")
	deadline := time.Now().Add(20 * time.Second)
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		var left []string
		for _, e := range entries {
			if !kept[e.Name()] && !strings.HasPrefix(e.Name(), "keeper-") && !strings.HasPrefix(e.Name(), "desktop") && !strings.HasPrefix(e.Name(), "build") && !strings.HasPrefix(e.Name(), ".out-build") {
				left = append(left, e.Name())
			}
		}
		if left, err = choirtest.NotWaiting(h.events, left); err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("boxes of nobody are left: %v", left)
		}
		time.Sleep(wait)
	}
}

// checkHistory checks that each commit of the history has an event, and that the objects are sound.
func (w *world) checkHistory(h *history) error {
	told := map[string]bool{}
	for i, e := range h.events {
		if e.Type == "checkpoint.created" {
			told[fmt.Sprint(h.data[i]["commit"])] = true
		}
	}
	out, err := git(w.gitDir(), "rev-list", "--first-parent", "refs/heads/main").Output()
	if err != nil {
		return fmt.Errorf("git rev-list: %w", err)
	}
	var errs []error
	for _, c := range strings.Fields(string(out)) {
		// A checkpoint may be made during this check; its event comes after it.
		if !told[c] {
			later, err := readHistory(w.t.Context(), w.c)
			if err != nil {
				return err
			}
			for i, e := range later.events {
				if e.Type == "checkpoint.created" {
					told[fmt.Sprint(later.data[i]["commit"])] = true
				}
			}
		}
		if !told[c] {
			errs = append(errs, fmt.Errorf("commit %s has no event", c))
		}
	}
	return errors.Join(errs...)
}

// checkAdded compares what was imported with the log: everything that is there has its event, even
// if a process died before it was reported.
func (w *world) checkAdded(ctx context.Context) error {
	there, err := filepath.Glob(filepath.Join(filepath.Dir(w.gitDir()), "workspace", "added*"))
	if err != nil || len(there) == 0 {
		return err
	}
	var missing []string
	for until := time.Now().Add(20 * time.Second); ; {
		h, err := readHistory(ctx, w.c)
		if err != nil {
			return err
		}
		told := map[string]bool{}
		for i, e := range h.events {
			if e.Type == "repository.added" {
				told[fmt.Sprint(h.data[i]["path"])] = true
			}
		}
		missing = nil
		for _, dir := range there {
			if p := "workspace/" + filepath.Base(dir); !told[p] {
				missing = append(missing, p)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("brought in without an event: %v", missing)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// checkDeep checks everything once with the verbs that a person has.
func (w *world) checkDeep() {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	if err := w.checkExplained(ctx); err != nil {
		w.t.Error(err)
	}
	if out, err := git(w.gitDir(), "fsck", "--full", "--no-dangling").CombinedOutput(); err != nil {
		w.t.Errorf("git fsck: %v\n%s", err, out)
	}
	lines := strings.Count(w.in.Must(w.t, "events"), "\n")
	h, err := readHistory(ctx, w.c)
	if err != nil || lines == 0 || len(h.events) < lines {
		w.t.Errorf("choir events prints %d lines, the log has %d events (%v)", lines, len(h.events), err)
	}
	var r struct{ Equal bool }
	w.in.JSON(w.t, &r, "rebuild", "--check")
	if !r.Equal {
		w.t.Error("choir rebuild --check found differences")
	}
	for p, v := range w.tree.known {
		if len(v) == 1 && v[0] != gone && strings.HasPrefix(p, "workspace/") {
			if got := w.in.Must(w.t, "files", "cat", p); got != v[0] {
				w.t.Errorf("choir files cat %s: %.80q; want %.80q", p, got, v[0])
			}
			break
		}
	}
}

// end stops choir in an orderly way and checks that nothing is left running.
func (w *world) end() {
	w.t.Helper()
	w.in.Stop(w.t)
	if err := w.tidy(stopped); err != nil {
		w.t.Errorf("after choir stopped: %v", err)
	}
}
