package dispatch

import (
	"maps"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/summary"
	story "choir.dev/choiros/internal/run"
)

// UnderWay is how a run stands that has not ended.
type UnderWay struct {
	ID     string
	Status contract.RunStatus
	For    string    // what it waits for: person, model or slot; "" if for nothing
	Reason string    // what exactly, in a line
	Since  time.Time // zero if that is not known
}

// Health lists the runs that have not ended, by id, at most so many. It reads nothing.
func (d *Dispatcher) Health(most int) []UnderWay {
	d.mu.Lock()
	open := slices.Concat(slices.Collect(maps.Keys(d.runs)), slices.Collect(maps.Keys(d.parked)))
	slices.Sort(open)
	out := make([]UnderWay, 0, min(most, len(open)))
	var going []*run
	for _, id := range open[:min(most, len(open))] {
		if p := d.parked[id]; p != nil {
			out = append(out, p.standing)
			continue
		}
		going = append(going, d.runs[id])
	}
	d.mu.Unlock()
	for _, r := range going {
		r.Story(func(s *story.Run) { out = append(out, healthOf(s)) })
	}
	slices.SortFunc(out, func(a, b UnderWay) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// healthOf says what a run waits for: for its person before its model, since the person can do
// something about it.
func healthOf(s *story.Run) UnderWay {
	h := UnderWay{ID: s.ID, Status: s.Status}
	say := func(what, why string, since time.Time) {
		if h.For == "" {
			h.For, h.Reason, h.Since = what, summary.OneLine(why, 200), since
		}
	}
	for _, q := range s.Questions {
		if !q.Answered {
			say("person", q.Text, time.Time{})
		}
	}
	for _, a := range s.Approvals {
		if !a.Answered {
			say("person", "something is to be allowed or denied on the console", time.Time{})
		}
	}
	if s.Paused {
		say("person", "it is paused", time.Time{})
	}
	for _, w := range s.Waits {
		since, _ := time.Parse(time.RFC3339, w.Since) // zero: it is not known
		say("model", w.Provider+"/"+w.Model+": "+w.Message, since)
	}
	if s.Status == contract.RunQueued {
		say("slot", "other runs of this computer go on", time.Time{})
	}
	return h
}
