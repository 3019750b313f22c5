package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// A plan is a journalled change of the live tree from one commit to another,
// path by path. Its directory under .git/choir/publish/{id}/ holds
//
//	plan.json     what is to be done (never changes)
//	started       from here on it is rolled forward, whatever happens
//	staged        every file to be put in place is whole, and durable, in aside/
//	aside/{n}     before its turn the file to put in place, after it what was there
//	result.json   done: conflicts, and what is known of the files in aside/
type Plan struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"` // publish, restore, invert
	From   string `json:"from"` // HEAD, and the live tree, when it was made
	Commit string `json:"commit"`
	Tree   string `json:"tree"`
	Base   string `json:"base,omitempty"`
	Live   bool   `json:"live,omitempty"`
	Task   string `json:"task,omitempty"`
	Mark   string `json:"mark,omitempty"` // live publishing: the tree that is now published
	Ops    []Step `json:"ops"`
	// Received names what lies beside the store and is added to it when the plan was started.
	Received string `json:"received,omitempty"`
	// Conflicts are those found when the plan was made; their paths are not in Ops.
	Conflicts []wire.Conflict `json:"conflicts,omitempty"`
}

// Step is one path of a plan: the content expected there, and the content that is to
// replace it.
type Step struct {
	Path wire.Path      `json:"path"`
	From gitstore.Entry `json:"from"`
	To   gitstore.Entry `json:"to"`
}

// Result is the outcome of a plan, and what is known of the files that it moved aside.
type Result struct {
	wire.Applied
	// Seen is, by step number, the content of aside/{n} when it was last read.
	Seen   map[string]gitstore.Entry `json:"seen,omitempty"`
	Since  int64                     `json:"since"`          // Unix seconds
	Logged bool                      `json:"told,omitempty"` // the host has logged it
}

var planID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`) })

// CheckPlanID checks an id that came from outside and becomes part of a file's name.
func CheckPlanID(id string) error {
	if !planID().MatchString(id) {
		return fault.New("", fault.Invalid, "", fmt.Errorf("publish id %q must be letters, digits, - and _", wire.Short(id)))
	}
	return nil
}

// PlanDir is the path of a plan's directory, or of something in it.
func (mv *Mover) PlanDir(id string, elem ...string) string {
	return mv.store.Work(append([]string{"publish", id}, elem...)...)
}

func (mv *Mover) aside(id string, n int) string { return mv.PlanDir(id, "aside", strconv.Itoa(n)) }

// SavePlan makes a plan durable. ClearPlan comes before it.
func (mv *Mover) SavePlan(p Plan) error {
	mv.agenda.touch(p.ID)
	if err := os.MkdirAll(mv.PlanDir(p.ID, "aside"), 0o755); err != nil {
		return err
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return mv.store.Keep(record(p.ID, "plan.json"), raw)
}

// record returns the name of a plan's record, relative to the keeper's own folder.
func record(id, name string) string { return "publish/" + id + "/" + name }

// ForgetPlan removes a plan and everything that is still in its folder. The mark that it
// was started is removed before its result: a power cut in between must never leave a plan
// that was started and has no result, which the next start would carry out again.
func (mv *Mover) ForgetPlan(id string) error {
	mv.agenda.touch(id)
	records := []string{"started", "staged", "result.json", "plan.json"}
	var names []string
	for _, name := range records {
		names = append(names, record(id, name))
	}
	if err := mv.store.Forget(names...); err != nil {
		return err
	}
	for _, name := range records {
		if err := disk.RemoveIfThere(mv.PlanDir(id, name)); err != nil {
			return err
		}
	}
	return disk.RemoveTree(mv.PlanDir(id))
}

// ClearPlan makes room for a plan with an id that was used before: the earlier plan did not
// start, or is finished. What a finished one displaced, and a program may still write to,
// goes to the trash.
func (mv *Mover) ClearPlan(id string) error {
	r, done, err := mv.LoadResult(id)
	if err != nil {
		return err
	}
	if done && len(r.Seen) > 0 {
		old, err := mv.LoadPlan(id)
		if err != nil {
			return err
		}
		for key, seen := range r.Seen {
			n, err := strconv.Atoi(key)
			if err != nil || n < 0 || n >= len(old.Ops) {
				return fmt.Errorf("result names step %q", key)
			}
			if there, err := disk.Exists(mv.aside(id, n)); err != nil {
				return err
			} else if !there {
				continue
			}
			if err := mv.discard(mv.aside(id, n), old.Ops[n].Path, seen); err != nil {
				return err
			}
		}
	}
	return mv.ForgetPlan(id)
}

// LoadPlan reads a plan.
func (mv *Mover) LoadPlan(id string) (Plan, error) {
	var p Plan
	return p, disk.ReadJSON(mv.PlanDir(id, "plan.json"), &p)
}

// LoadResult reads the outcome of a plan, and returns false if it is not finished.
func (mv *Mover) LoadResult(id string) (Result, bool, error) {
	var r Result
	err := disk.ReadJSON(mv.PlanDir(id, "result.json"), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	return r, err == nil, err
}

// SaveResult makes the outcome of a plan durable.
func (mv *Mover) SaveResult(id string, r Result) error {
	mv.agenda.touch(id)
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return mv.store.Keep(record(id, "result.json"), raw)
}

// NoteResult is SaveResult, unsynced, for facts that may be lost: that the host has heard
// of the result, which is then reported to it again, or that a displaced file is gone,
// which is then noticed again.
func (mv *Mover) NoteResult(id string, r Result) error {
	mv.agenda.touch(id)
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return mv.store.Note(record(id, "result.json"), raw)
}

// Mark records durably that a plan has reached a point.
func (mv *Mover) Mark(id, name string) error {
	mv.agenda.touch(id)
	return mv.store.Keep(record(id, name), nil)
}

// Plans lists the ids of all plans on disk.
func (mv *Mover) Plans() ([]string, error) {
	entries, err := os.ReadDir(mv.store.Work("publish"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, en := range entries {
		if !en.IsDir() {
			continue
		}
		if ok, xerr := disk.Exists(mv.PlanDir(en.Name(), "plan.json")); xerr != nil {
			return nil, xerr
		} else if ok {
			ids = append(ids, en.Name())
		}
	}
	return ids, err
}

// RollForward finishes every plan that has started, after syncing what was put, removed or
// moved.
func (mv *Mover) RollForward(ctx context.Context) error {
	if err := mv.may(); err != nil {
		return err
	}
	if err := mv.SettleActs(); err != nil {
		return err
	}
	ids, err := mv.Pending(ctx)
	return errors.Join(err, mv.finishPlans(ctx, ids))
}

func (mv *Mover) finishPlans(ctx context.Context, ids []string) error {
	for _, id := range ids {
		_, _, err := mv.FinishPlan(ctx, id)
		if err != nil {
			err = mv.setAside(ctx, id, err)
		}
		if err != nil {
			return fmt.Errorf("roll publish %s forward: %w", id, err)
		}
	}
	return nil
}

// orderSteps puts steps in the order in which a half-finished plan is least surprising:
// what must make room goes first, and a nested repository gets its objects before the refs
// that name them, and loses them after the refs.
func orderSteps(steps []Step) {
	added, deleted := map[string]bool{}, map[string]bool{}
	for _, s := range steps {
		if s.To.Exists() {
			added[string(s.Path)] = true
		} else {
			deleted[string(s.Path)] = true
		}
	}
	blocks := map[wire.Path]bool{}
	for _, s := range steps {
		for d := wire.ParentDir(string(s.Path)); d != "."; d = wire.ParentDir(d) {
			if s.To.Exists() && deleted[d] {
				blocks[wire.Path(d)] = true
			}
			if !s.To.Exists() && added[d] {
				blocks[s.Path] = true
			}
		}
	}
	rank := func(s Step) int {
		switch {
		case blocks[s.Path]:
			return 0
		case s.To.Exists() && nested.IsObject(string(s.Path)):
			return 1
		case s.To.Exists():
			return 2
		case !nested.IsObject(string(s.Path)):
			return 3
		}
		return 4
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		if rank(a) == 0 || rank(a) > 2 { // deletions: deepest first
			return gitstore.ComparePaths(string(b.Path), string(a.Path))
		}
		return gitstore.ComparePaths(string(a.Path), string(b.Path))
	})
}

// Steps turns changes into steps, in the order in which they are made.
func Steps(changes []gitstore.Change) []Step {
	var steps []Step
	for _, c := range changes {
		steps = append(steps, Step{wire.Path(c.Path), c.From, c.To})
	}
	orderSteps(steps)
	return steps
}
