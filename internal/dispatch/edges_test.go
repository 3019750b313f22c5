package dispatch_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/test/choirtest"
)

// reaper is a log whose process dies at the n-th transition of an attempt:
// before it is stored, or right after.
type reaper struct {
	dispatch.Log
	n     int
	after bool
	tell  func(from, to contract.AttemptState)
	dead  chan struct{}

	mu   sync.Mutex
	seen int
	at   map[string]contract.AttemptState // by subject
}

func (l *reaper) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	l.mu.Lock()
	gone := l.n > 0 && l.seen >= l.n
	mine := false
	for _, d := range drafts {
		if _, to := attempt.To(d.Data); to != "" && !gone {
			l.seen++
			mine = mine || l.seen == l.n
			l.tell(l.at[d.Subject], to)
			l.at[d.Subject] = to
		}
	}
	l.mu.Unlock()
	if mine && l.after {
		if _, err := l.Log.Append(context.WithoutCancel(ctx), drafts...); err != nil {
			return nil, err
		}
	}
	if mine {
		close(l.dead)
	}
	if mine || gone {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return l.Log.Append(ctx, drafts...)
}

// deathAt lets a run die at its n-th transition, and, if again is set, once
// more at the first one after the restart. It returns what came of it.
func deathAt(t *testing.T, prepare func(h *house), n int, after, again bool, at map[string]contract.AttemptState, tell func(from, to contract.AttemptState)) (result string, reached bool) {
	h := newHouse(t)
	prepare(h)
	var l *reaper
	die := func(n int, after bool) {
		h.sleep()
		l = &reaper{n: n, after: after, tell: tell, dead: make(chan struct{}), at: at}
		h.wrap = func(real dispatch.Log) dispatch.Log { l.Log = real; return l }
		h.wake()
	}
	die(n, after)
	run := h.submit("go")
	died := func() bool {
		choirtest.Eventually(t, time.Minute, "the run dies or ends", func() bool {
			select {
			case <-l.dead:
				return true
			default:
				return !h.d.Busy()
			}
		})
		select {
		case <-l.dead:
			return true
		default:
			return false
		}
	}
	if reached = died(); reached {
		if again {
			die(1, true)
			if err := h.d.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			died()
		}
		h.restart()
	}
	rep := h.report(run)
	h.quiet()
	counts := map[int]int{}
	for _, r := range h.results() {
		if counts[r.Attempt]++; counts[r.Attempt] > 1 {
			t.Errorf("attempt %d has two results", r.Attempt)
		}
	}
	all := h.results()
	last := all[len(all)-1]
	paths := ""
	for _, c := range last.Changes {
		paths += c.Path + " " + string(c.Op) + ","
	}
	return fmt.Sprintf("run %s %s, task %s, verification %s, published %v, changes %s, live %q", rep.Status, rep.Verified, last.Status,
		last.Verification.Status, last.Head != "", paths, string(slurp(h.ws.live(), "workspace/a.sh"))+string(slurp(h.ws.live(), "choiros/x.css"))), reached
}

// TestDeathAtEachEdge kills the process before each transition of an attempt is
// stored, with all done that it would have told, in runs that end well, whose
// checks fail, whose steps fail and whose live tree moves; in the first also
// after each, and then once more after the next, and with CHOIR_DEATHS=all, as
// make chaos has it, in the second as well. What comes of them is what comes of an
// undisturbed run.
func TestDeathAtEachEdge(t *testing.T) {
	blue := use("c0", "write", m{"path": "choiros/x.css", "content": "blue\n"})
	scenarios := map[string]func(h *house){
		"good": func(h *house) {
			h.model.director = plan(agentTask)
			h.model.associate = steps(blue, edit("c1"))
		},
		"failed check": func(h *house) {
			h.model.director = plan(agentTask)
			h.model.associate = steps(blue, use("c1", "write", m{"path": "workspace/a.sh", "content": "if then"}))
		},
		"steps": func(h *house) {
			h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "choiros/x.css", "content": "blue\n"}},
				{"write": m{"path": "workspace/a.sh", "content": "echo two\n"}}}})
		},
		"failed step": func(h *house) {
			h.model.director = plan(m{"kind": "exec", "goal": "steps", "steps": []m{{"write": m{"path": "choiros/x.css", "content": "blue\n"}},
				{"run": m{"argv": []string{"false"}}}}})
		},
		"moving tree": func(h *house) {
			h.model.director = plan(agentTask)
			h.model.associate = steps(blue, edit("c1"))
			var once sync.Once
			h.ws.race = func() { once.Do(func() { put(h.ws.live(), "workspace/user.txt", []byte("mine\n")) }) }
		},
		"nothing changed": func(h *house) {
			h.model.director = plan(agentTask)
			h.model.associate = steps(use("c0", "read", m{"path": "workspace/a.sh"}))
		},
		"history": func(h *house) {
			h.model.director = plan(m{"kind": "git", "goal": "look", "steps": []m{{"git": m{"op": "status"}}}})
		},
	}
	var mu sync.Mutex
	tried := map[attempt.Edge]bool{}
	tell := func(from, to contract.AttemptState) {
		mu.Lock()
		defer mu.Unlock()
		tried[attempt.Edge{From: from, To: to}] = true
	}
	t.Run("runs", func(t *testing.T) {
		for name, prepare := range scenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				want, _ := deathAt(t, prepare, 0, false, false, map[string]contract.AttemptState{}, tell)
				hows := map[string]struct{ after, again bool }{"before": {}}
				if name == "good" || name == "failed check" && os.Getenv("CHOIR_DEATHS") == "all" {
					hows["after, twice"] = struct{ after, again bool }{after: true, again: true}
				}
				for n := 1; ; n++ {
					for how, c := range hows {
						at := map[string]contract.AttemptState{}
						got, reached := deathAt(t, prepare, n, c.after, c.again, at, tell)
						if !reached {
							return
						}
						if got != want {
							t.Errorf("killed %s transition %d:\n%s; undisturbed:\n%s", how, n, got, want)
						}
					}
				}
			})
		}
	})
	for _, e := range attempt.Edges() {
		if !tried[e] && !untried[e] {
			t.Errorf("nothing was killed at the edge from %q to %s", e.From, e.To)
		}
	}
}

// untried are the edges that only a failure of the machinery takes: a box, the
// keeper or the disk. TestTheMachineryFails takes them.
var untried = map[attempt.Edge]bool{
	{From: "", To: contract.AttemptEnded}:                              true,
	{From: contract.AttemptBegun, To: contract.AttemptTakingBack}:      true,
	{From: contract.AttemptWorking, To: contract.AttemptTakingBack}:    true,
	{From: contract.AttemptVerifying, To: contract.AttemptTakingBack}:  true,
	{From: contract.AttemptMerged, To: contract.AttemptTakingBack}:     true,
	{From: contract.AttemptPublishing, To: contract.AttemptTakingBack}: true,
}

// stubborn is a workspace that fails at one thing, a number of times.
type stubborn struct {
	dispatch.Workspace
	mu    sync.Mutex
	fails map[string]int
	tries map[string]int
}

func (w *stubborn) fail(what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[what]++
	if w.fails[what] > 0 {
		w.fails[what]--
		return fault.New("stubborn", fault.Internal, "", fmt.Errorf("%s does not work", what))
	}
	return nil
}

func (w *stubborn) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tries[what]
}

func (w *stubborn) Checkpoint(ctx context.Context, r dispatch.CheckpointRequest) (string, error) {
	if err := w.fail("checkpoint"); err != nil {
		return "", err
	}
	return w.Workspace.Checkpoint(ctx, r)
}

func (w *stubborn) Begin(ctx context.Context, t dispatch.TaskRef, base string) (dispatch.Overlay, error) {
	if err := w.fail("begin"); err != nil {
		return nil, err
	}
	return w.Workspace.Begin(ctx, t, base)
}

func (w *stubborn) Merge(ctx context.Context, o dispatch.Overlay) (dispatch.Merged, error) {
	if err := w.fail("merge"); err != nil {
		return dispatch.Merged{}, err
	}
	return w.Workspace.Merge(ctx, o)
}

func (w *stubborn) Publish(ctx context.Context, o dispatch.Overlay, m dispatch.Merged, v contract.VerificationStatus, force bool) (dispatch.Published, error) {
	if err := w.fail("publish"); err != nil {
		return dispatch.Published{}, err
	}
	return w.Workspace.Publish(ctx, o, m, v, force)
}

func (w *stubborn) Invert(ctx context.Context, o dispatch.Overlay) error {
	if err := w.fail("invert"); err != nil {
		return err
	}
	return w.Workspace.Invert(ctx, o)
}

// TestTheMachineryFails: whatever can't be done, the attempt is taken back and
// has one failed result, and nothing of it is left in the live tree.
func TestTheMachineryFails(t *testing.T) {
	for what, times := range map[string]int{"checkpoint": 1, "begin": 1, "merge": 1, "publish": 3} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			w := &stubborn{Workspace: h.ws, fails: map[string]int{what: times}, tries: map[string]int{}}
			h.tune = func(o *dispatch.Options) { o.Workspace = w }
			h.sleep()
			h.wake()
			h.model.director = plan(agentTask)
			h.model.associate = steps(use("c0", "write", m{"path": "choiros/x.css", "content": "blue\n"}), edit("c1"))
			rep := h.report(h.submit("go"))
			h.quiet()
			res := h.results()
			if rep.Status != contract.RunFailed || len(res) != 1 || res[0].Status != contract.ResultFailed || res[0].Verification.Status == contract.VerificationPass {
				t.Errorf("%+v\n%+v", rep, res)
			}
			if got := string(slurp(h.ws.live(), "workspace/a.sh")) + string(slurp(h.ws.live(), "choiros/x.css")); got != "echo one\nred\n" {
				t.Errorf("live %q", got)
			}
		})
	}
}

// TestTakingBackIsTriedUntilItIsDone: what can't be taken back now is tried
// again, across a restart too, and the result waits for it.
func TestTakingBackIsTriedUntilItIsDone(t *testing.T) {
	h := newHouse(t)
	w := &stubborn{Workspace: h.ws, fails: map[string]int{"invert": 1 << 30}, tries: map[string]int{}}
	h.tune = func(o *dispatch.Options) { o.Workspace = w }
	h.sleep()
	h.wake()
	h.model.director = plan(agentTask)
	h.model.associate = steps(use("c0", "write", m{"path": "choiros/x.css", "content": "blue\n"}), use("c1", "write", m{"path": "workspace/a.sh", "content": "if then"}))
	run := h.submit("go")
	choirtest.Eventually(t, time.Minute, "it is tried twice", func() bool { return w.count("invert") >= 2 })
	if len(h.results()) != 0 || string(slurp(h.ws.live(), "choiros/x.css")) != "blue\n" {
		t.Fatalf("%+v, live %q", h.results(), slurp(h.ws.live(), "choiros/x.css"))
	}
	h.sleep()
	w.mu.Lock()
	w.fails["invert"] = 2
	w.mu.Unlock()
	h.restart()
	rep := h.report(run)
	h.quiet()
	res := h.results()
	if rep.Status != contract.RunFailed || len(res) != 1 || res[0].Verification.Status != contract.VerificationFail {
		t.Errorf("%+v\n%+v", rep, res)
	}
	if got := string(slurp(h.ws.live(), "workspace/a.sh")) + string(slurp(h.ws.live(), "choiros/x.css")); got != "echo one\nred\n" {
		t.Errorf("live %q", got)
	}
}
