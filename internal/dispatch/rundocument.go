package dispatch

import (
	"context"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/supervise"
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

func paperPath(s *story) string {
	return "artifacts/runs/" + s.began.UTC().Format("2006-01-02") + "-" + s.id[len(s.id)-8:] + ".md"
}

// create makes the document, or takes up the one that is there, and starts to
// follow the run.
func (p *paper) create(ctx context.Context) error {
	p.r.mu.Lock()
	s := p.r.s
	title, path, view := document.RunTitle(s.prompt.Text), paperPath(s), s.view()
	p.r.mu.Unlock()
	if err := p.r.d.o.Documents.StartRun(ctx, s.document, s.id, title, path, view); err != nil {
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
		view := p.r.s.view()
		p.r.mu.Unlock()
		if err := supervise.Safely(func() error { return p.write(ctx, view) }); err != nil && ctx.Err() == nil {
			p.r.d.log.Warn("a run's document could not be revised; it is tried again with the next event", "run", p.r.s.id, "error", err, "stack", supervise.Stack(err))
		}
	}
}

func (p *paper) write(ctx context.Context, v document.RunView) error {
	return p.r.d.o.Documents.UpdateRun(ctx, p.r.s.document, p.r.s.id, v)
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
	if p.stop == nil {
		return // the run failed before it had a document
	}
	p.close()
	p.r.mu.Lock()
	view := p.r.s.view()
	p.r.mu.Unlock()
	view.Status, view.Report, view.Usage = rep.Status, rep, rep.Usage
	view.Elapsed = time.Duration(rep.Usage.WallMS) * time.Millisecond
	if err := p.write(ctx, view); err != nil {
		p.r.d.log.Warn("the last revision of a run's document could not be written; the log has what it would say", "run", p.r.s.id, "error", err)
	}
}

// edited returns what the user has written into the document, as Markdown, or "".
func (p *paper) edited(ctx context.Context) string {
	if p.stop == nil {
		return ""
	}
	got, err := p.r.d.o.Documents.Get(ctx, p.r.s.document)
	if err != nil {
		return "" // the Director can go on without; the next wake tries again
	}
	return document.Edited(got.Body, maxEdited)
}

// view is the run as its document shows it. What a task costs is added when an
// attempt ends: a revision for each of its turns would say nothing else.
func (s *story) view() document.RunView {
	v := document.RunView{Prompt: s.prompt.Text, Objective: s.plan.Objective, Status: s.status, Plan: s.plan.Plan, Report: s.report}
	for _, t := range s.turns {
		v.Usage = v.Usage.Add(t.Usage)
	}
	for _, t := range s.tasks {
		task := document.TaskView{ID: t.task.ID, Goal: title(t.task.Goal), Kind: t.task.Kind, Status: "requested", Attempt: t.attempt}
		switch {
		case t.ended():
			task.Status, task.Attempt, task.Result = string(t.last.Status), t.last.Attempt, t.last
		case t.attempt > 0:
			task.Status = "running"
		}
		for _, r := range t.results {
			v.Usage = v.Usage.Add(r.Usage)
		}
		v.Tasks = append(v.Tasks, task)
	}
	for _, q := range s.questions {
		v.Questions = append(v.Questions, document.QuestionView{Question: q.Question, Answered: q.answered, Answer: q.answer, ByDefault: q.byDefault})
	}
	return v
}
