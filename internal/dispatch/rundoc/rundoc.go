// Package rundoc keeps a run's living document up to date while the run goes on. What the
// user has edited is found in the document itself, so it stays theirs across a restart too.
package rundoc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/document"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/supervise"
)

// Options configure a Writer.
type Options struct {
	Documents ports.Documents
	Log       *slog.Logger
	// View calls a function with the run's story, which does not change during the call.
	View func(func(*story.Run))
}

// Writer keeps one run's document. Only the run's goroutine uses it, except for Dirty,
// which anyone may call.
type Writer struct {
	options Options
	run     string
	doc     string
	due     chan struct{}
	done    sync.WaitGroup
	stop    context.CancelFunc // nil until the document exists
}

// pause is the time between two revisions of a document, so that a burst of events makes
// one revision.
const pause = 300 * time.Millisecond

// maxEdited bounds what the Director is shown of the user's edits.
const maxEdited = 8 << 10

// New makes a Writer, which does nothing before Create.
func New(o Options) *Writer {
	w := &Writer{options: o, due: make(chan struct{}, 1)}
	o.View(func(s *story.Run) { w.run, w.doc = s.ID, s.DocumentID() })
	return w
}

func path(s *story.Run) string {
	return "artifacts/runs/" + s.Began.UTC().Format("2006-01-02") + "-" + s.ID[len(s.ID)-8:] + ".md"
}

// Create makes the document unless it exists, and follows the run until ctx ends or Close
// is called.
func (w *Writer) Create(ctx context.Context) error {
	var title, at string
	var sections document.Sections
	w.options.View(func(s *story.Run) {
		title, at, sections = document.RunTitle(s.Prompt.Text), path(s), document.SectionsOf(s, nil)
	})
	if err := w.options.Documents.StartRun(ctx, w.doc, w.run, title, at, sections); err != nil {
		return err
	}
	if w.stop == nil {
		follow, stop := context.WithCancel(ctx)
		w.stop = stop
		w.done.Go(func() { w.follow(follow) })
	}
	return nil
}

// Dirty says that the story has changed.
func (w *Writer) Dirty() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

func (w *Writer) follow(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.due:
		}
		t.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := supervise.Safely(func() error { return w.write(ctx, nil) }); err != nil && ctx.Err() == nil {
			w.options.Log.Warn("a run's document could not be revised; it is tried again with the next event", "run", w.run, "error", err, "stack", supervise.Stack(err))
		}
	}
}

// write brings the document up to date; end is the report of a run that ends now.
func (w *Writer) write(ctx context.Context, end *contract.RunReported) error {
	var sections document.Sections
	w.options.View(func(s *story.Run) { sections = document.SectionsOf(s, end) })
	return w.options.Documents.UpdateRun(ctx, w.doc, w.run, sections)
}

// Close ends the following of the run.
func (w *Writer) Close() {
	if w.stop != nil {
		w.stop()
		w.done.Wait()
	}
}

// Finish writes the last revision. This comes before the run's report: whoever reads the
// report finds a document that contains it, and after a crash in between the run ends once
// more, instead of leaving a document that is never finished.
func (w *Writer) Finish(ctx context.Context, rep *contract.RunReported) {
	has := w.stop != nil
	w.options.View(func(s *story.Run) { has = has || s.Started && s.Prompt.Text != "" }) // it was made before a restart
	if !has {
		return
	}
	w.Close()
	if err := w.write(ctx, rep); err != nil {
		w.options.Log.Warn("the last revision of a run's document could not be written; the log has what it would say", "run", w.run, "error", err)
	}
}

// Edited returns what the user has written into the document, as Markdown, or "".
func (w *Writer) Edited(ctx context.Context) string {
	if w.stop == nil {
		return ""
	}
	got, err := w.options.Documents.Get(ctx, w.doc)
	if err != nil {
		return "" // the Director can go on without; the next wake tries again
	}
	return document.Edited(got.Body, maxEdited)
}
