package publish

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// A plan is remembered for a day after its end, and nothing is to be done for most of
// those that are: nobody has a displaced file open any more. What is to be done for a
// plan changes only when one of its records does, which this process alone writes, or
// when its day has passed. So the records of a plan are read when one of them may have
// changed, or its time has come, and not each time that all plans are gone through.

// readAllAfter is after what time all records are read again, whoever wrote them: one that
// is damaged under a running keeper is found by then, though nobody asks for that plan.
const readAllAfter = time.Hour

// agenda says which plans are gone through next. It holds nothing of what their records
// say: that is read from the disk, whenever it is asked for.
type agenda struct {
	read  time.Time       // when all plans were listed; zero before the first time
	next  map[string]bool // plans whose records are read next time
	later []resting       // the soonest first; a plan may be there more than once
}

// resting is a plan for which nothing is to be done before a time, in Unix seconds.
type resting struct {
	until int64
	id    string
}

// never is when nothing is to be done for a plan unless its records change.
const never = int64(-1)

// touch has the next pass read a plan's records. It comes before they are written: a
// write that fails may have changed them, too.
func (a *agenda) touch(id string) {
	if a.next != nil {
		a.next[id] = true
	}
}

// rest takes a plan whose records were read from the next pass.
func (a *agenda) rest(id string, until int64) {
	delete(a.next, id)
	if until == never {
		return
	}
	r := resting{until, id}
	at, _ := slices.BinarySearchFunc(a.later, r, func(a, b resting) int { return cmp.Compare(a.until, b.until) })
	a.later = slices.Insert(a.later, at, r)
}

// attend lists the plans whose records are to be read now.
func (mv *Mover) attend() ([]string, error) {
	a, now := &mv.agenda, mv.now()
	if since := now.Sub(a.read); a.next == nil || since < 0 || since >= readAllAfter {
		ids, err := mv.Plans()
		if err != nil {
			return nil, err
		}
		*a = agenda{read: now, next: map[string]bool{}}
		for _, id := range ids {
			a.next[id] = true
		}
	}
	due := 0
	for ; due < len(a.later) && a.later[due].until <= now.Unix(); due++ {
		a.next[a.later[due].id] = true
	}
	a.later = slices.Delete(a.later, 0, due)
	return slices.Sorted(maps.Keys(a.next)), nil
}

// standing is what the records of a plan say.
type standing struct {
	there   bool // there is a plan
	started bool
	done    bool
	result  Result
	made    int64 // when it was prepared, in Unix seconds
}

// forget reports from when on nobody asks for a plan any more, in Unix seconds, never
// where something is to come before that.
func (s standing) forget() int64 {
	switch {
	case !s.done && !s.started:
		return s.made + keepResults
	case s.done && s.result.Logged && len(s.result.Seen) == 0:
		return s.result.Since + keepResults + 1
	}
	return never
}

// standing reads the records of a plan. One for which nothing is to be done rests from then on.
func (mv *Mover) standing(id string) (s standing, err error) {
	st, err := os.Lstat(mv.PlanDir(id, "plan.json"))
	if disk.IsGone(err) {
		mv.agenda.rest(id, never)
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.there, s.made = true, st.ModTime().Unix()
	if s.started, err = disk.Exists(mv.PlanDir(id, "started")); err != nil {
		return s, err
	}
	if s.result, s.done, err = mv.LoadResult(id); err != nil {
		return s, err
	}
	if (s.started && !s.done) || len(s.result.Seen) > 0 {
		return s, nil
	}
	if until := s.forget(); until == never || until > mv.now().Unix() {
		mv.agenda.rest(id, until)
	}
	return s, nil
}

// Pending lists plans that have started and are not finished.
func (mv *Mover) Pending(ctx context.Context) ([]string, error) {
	ids, err := mv.attend()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, id := range ids {
		s, err := mv.standing(id)
		if err != nil {
			if err := mv.setAside(ctx, id, err); err != nil {
				return nil, fmt.Errorf("read what became of publish %s: %w", id, err)
			}
			continue
		}
		if s.started && !s.done {
			out = append(out, id)
		}
	}
	return out, nil
}
