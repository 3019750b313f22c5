package dispatch

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
)

// hearing decides whether a run takes words of its user: what it has taken is told to a loop, or else its report says
// that it was not.
type hearing struct {
	// words is held for reading while words are appended, and for writing while it is decided that no more are taken:
	// otherwise some could come between the last look at them and the report.
	words sync.RWMutex
	deaf  bool // the run has reported, and takes no more
	// How many words there were, and how many of them it was not told, when a Director was last held up for them.
	said, untold int
}

var errReported = errors.New("the run has just reported, and takes no more words")

// hear appends what the user says, unless the run has reported.
func (r *run) hear(ctx context.Context, w Word, p *contract.RunSteered) (uint64, error) {
	r.hearing.words.RLock()
	defer r.hearing.words.RUnlock()
	if r.hearing.deaf {
		return 0, fault.New("", fault.NotFound, "Say it in a prompt that continues this run.", errReported)
	}
	return r.said(ctx, w, "run.steered", p)
}

// lastWord asks whether the run may report as it stands. If so it takes no more words from then on. ends is called with
// mu held.
func (r *run) lastWord(ends func() bool) {
	r.hearing.words.Lock()
	defer r.hearing.words.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hearing.deaf = ends()
}

// deafen has a run that ends take no more words.
func (r *run) deafen() { r.lastWord(func() bool { return true }) }

// report takes the report of a Director, unless the user has said something that it was not told.
func (a *directorAPI) report(_ context.Context, _ *http.Request, _ director.Reporting) (any, error) {
	r := a.run
	var out director.Reported
	r.lastWord(func() bool {
		if r.news(r.story.Turns) {
			out.Unheard = summary.NotOver
		}
		return out.Unheard == ""
	})
	return out, nil
}

// news reports whether a Director with these turns has to be told something before it reports. It is held up once for
// each word, and as long as it is told more of them: one request has room for some. It is called by lastWord's ends.
func (r *run) news(turns []contract.TurnRecorded) bool {
	h, n := &r.hearing, summary.Unheard(turns, r.story)
	more := n > 0 && (len(r.story.Steering) > h.said || n < h.untold)
	h.said, h.untold = len(r.story.Steering), n
	return more
}

// reopen is what a Director that resumes finds of its turns, and what of it has to be recorded. If it had reported, and
// the user has said something that it was not told, then its report is not taken.
func (r *run) reopen() (turns, closed []contract.TurnRecorded) {
	r.lastWord(func() bool {
		turns = summary.ResumableRun(r.story)
		closed = summary.Closed(r.story.Turns, turns)
		reported := summary.HasReported(turns)
		if reported && r.news(turns) {
			last := &turns[len(turns)-1]
			*last = summary.NotTaken(*last)
			closed = append(closed, *last)
			return false
		}
		return reported
	})
	return turns, closed
}
