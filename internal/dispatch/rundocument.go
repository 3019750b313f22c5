package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
)

// paper keeps a run's living document up to date while the run goes on. What
// the user has edited is told from the document itself, so it stays theirs
// across a restart too.
type paper struct {
	r    *run
	due  chan struct{}
	done sync.WaitGroup
	stop context.CancelFunc // nil until the document is there
}

// pause between two revisions of a document, so that a burst of events is one.
const paperPause = 300 * time.Millisecond

// maxEdited bounds what the Director is shown of the user's edits.
const maxEdited = 8 << 10

func newPaper(r *run) *paper { return &paper{r: r, due: make(chan struct{}, 1)} }

func paperPath(s *story.Run) string {
	return "artifacts/runs/" + s.Began.UTC().Format("2006-01-02") + "-" + s.ID[len(s.ID)-8:] + ".md"
}

// create makes the document, or takes up the one that is there, and starts to
// follow the run.
func (p *paper) create(ctx context.Context) error {
	p.r.mu.Lock()
	s := p.r.s
	title, path, view := document.RunTitle(s.Prompt.Text), paperPath(s), runView(s)
	p.r.mu.Unlock()
	if err := p.r.d.o.Documents.StartRun(ctx, s.DocumentID(), s.ID, title, path, view); err != nil {
		return err
	}
	if p.stop == nil {
		follow, stop := context.WithCancel(p.r.ctx)
		p.stop = stop
		p.done.Go(func() { p.follow(follow) })
	}
	return nil
}

// dirty says that the story grew.
func (p *paper) dirty() {
	select {
	case p.due <- struct{}{}:
	default:
	}
}

func (p *paper) follow(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.due:
		}
		t.Reset(paperPause)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		p.r.mu.Lock()
		view := runView(p.r.s)
		p.r.mu.Unlock()
		if err := supervise.Safely(func() error { return p.write(ctx, view) }); err != nil && ctx.Err() == nil {
			p.r.d.log.Warn("a run's document could not be revised; it is tried again with the next event", "run", p.r.s.ID, "error", err, "stack", supervise.Stack(err))
		}
	}
}

func (p *paper) write(ctx context.Context, v document.RunView) error {
	return p.r.d.o.Documents.UpdateRun(ctx, p.r.s.DocumentID(), p.r.s.ID, v)
}

// close ends following the run.
func (p *paper) close() {
	if p.stop != nil {
		p.stop()
		p.done.Wait()
	}
}

// finish writes the last revision. It comes before the run's report: who reads
// the report finds a document that holds it, and a crash in between leaves a
// run that ends again rather than a document that never does.
func (p *paper) finish(ctx context.Context, rep *contract.RunReported) {
	p.r.mu.Lock()
	has := p.stop != nil || p.r.s.Started && p.r.s.Prompt.Text != "" // it was made before a restart
	p.r.mu.Unlock()
	if !has {
		return
	}
	p.close()
	p.r.mu.Lock()
	view := runView(p.r.s)
	p.r.mu.Unlock()
	view.Status, view.Report, view.Usage = rep.Status, rep, rep.Usage
	view.Elapsed = time.Duration(rep.Usage.WallMS) * time.Millisecond
	if err := p.write(ctx, view); err != nil {
		p.r.d.log.Warn("the last revision of a run's document could not be written; the log has what it would say", "run", p.r.s.ID, "error", err)
	}
}

// edited returns what the user has written into the document, as Markdown, or "".
func (p *paper) edited(ctx context.Context) string {
	if p.stop == nil {
		return ""
	}
	got, err := p.r.d.o.Documents.Get(ctx, p.r.s.DocumentID())
	if err != nil {
		return "" // the Director can go on without; the next wake tries again
	}
	return document.Edited(got.Body, maxEdited)
}

// view is the run as its document shows it. What a task costs is added when an
// attempt ends: a revision for each of its turns would say nothing else.
func runView(s *story.Run) document.RunView {
	v := document.RunView{Prompt: s.Prompt.Text, Objective: s.Objective, Status: s.Status, Plan: s.Plan, Report: s.Report}
	for _, t := range s.Turns {
		v.Usage = v.Usage.Add(t.Usage)
	}
	for _, t := range s.Tasks {
		task := view.Task{ID: t.Request.ID, Goal: title(t.Request.Goal), Kind: t.Request.Kind, Status: "requested", Attempt: t.Now.Number}
		switch {
		case t.Ended():
			task.Status, task.Attempt, task.Result = string(t.Newest.Status), t.Newest.Attempt, t.Newest
		case t.Now.Number > 0:
			task.Status = "running"
		}
		for _, r := range t.Results {
			v.Usage = v.Usage.Add(r.Usage)
		}
		v.Tasks = append(v.Tasks, task)
	}
	v.Questions = slices.Clone(s.Questions)
	return v
}
