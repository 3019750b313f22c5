// Package tracing exports the runs of one computer to a collector, each once it has ended. Its queue is
// the log: what was sent is a number in a file, and nothing waits in memory.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/trace/otlp"
	"choir.dev/choiros/internal/view"
)

// The pauses before a collector that takes nothing is tried again.
const (
	firstPause = time.Second
	mostPause  = 5 * time.Minute
)

// reported is the type of the event behind which a run's trace is complete.
const reported = "run.reported"

// maxFile bounds the file, in bytes.
const maxFile = 64

// Past is what has happened in the computer.
type Past interface {
	Events(ctx context.Context, q view.EventQuery) (view.EventPage, error)
	Trace(ctx context.Context, run string) (view.Trace, error)
	Follow(ctx context.Context, after uint64) iter.Seq2[contract.Event, error]
	Last() uint64
}

// Exporter sends a trace; *otlp.Exporter is one.
type Exporter interface {
	Export(ctx context.Context, cid contract.CID, t view.Trace) error
}

// Options of the part.
type Options struct {
	CID      contract.CID
	Past     Past
	Exporter Exporter
	File     string        // holds the sequence up to which runs were sent
	Pause    time.Duration // before the second try; 0: a second
	Logger   *slog.Logger
}

// Tracing is a part of a computer that is awake.
type Tracing struct {
	options Options

	mu    sync.Mutex
	waits string // what the collector is waited for
}

// New makes it; Part runs it.
func New(o Options) *Tracing {
	if o.Pause == 0 {
		o.Pause = firstPause
	}
	return &Tracing{options: o}
}

// Off forgets where an earlier export stood, so that what ends while nothing is exported never is.
func Off(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap("tracing.Off", err)
	}
	return nil
}

// Part is the part. A computer goes on without it.
func (t *Tracing) Part() supervise.Part {
	return supervise.Part{Name: "tracing", Run: t.run, Optional: true, Rest: mostPause, Waits: t.waiting}
}

func (t *Tracing) waiting() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waits
}

func (t *Tracing) wait(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits = why
}

// run exports what has ended since the file was written, and then each run as it ends.
func (t *Tracing) run(ctx context.Context) error {
	after, err := t.sent()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		page, err := t.options.Past.Events(ctx, view.EventQuery{Types: []string{reported}, After: after})
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if err := t.export(ctx, e); err != nil {
				return err
			}
			after = e.Sequence
			if err := t.note(after); err != nil {
				return err
			}
		}
		if after = page.Next; page.More {
			continue
		}
		for e, err := range t.options.Past.Follow(ctx, after) {
			if err != nil {
				return err
			}
			if e.Type == reported {
				break // the query above finds it
			}
			after = e.Sequence
		}
	}
	return ctx.Err()
}

// export sends a run's trace, however long the collector takes none.
func (t *Tracing) export(ctx context.Context, e contract.Event) error {
	if e.Run == "" {
		return nil
	}
	tr, err := t.options.Past.Trace(ctx, e.Run)
	if fault.Is(err, fault.NotFound) {
		return nil // its beginning is lost
	}
	if err != nil {
		return err
	}
	log, pause := t.options.Logger, t.options.Pause
	defer t.wait("")
	for tries := 0; ; tries++ {
		err := t.options.Exporter.Export(ctx, t.options.CID, tr)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			if tries > 0 {
				log.Info("the collector takes traces again")
			}
			return nil
		case fault.Is(err, fault.Invalid):
			log.Warn("the collector does not take the trace of a run, which is left out", "run", e.Run, "error", err, "hint", fault.HintOf(err))
			return nil
		case tries == 0: // the first of a row is told
			log.Warn("traces wait in the log until the collector takes them", "error", err, "hint", fault.HintOf(err))
		}
		t.wait(fault.Text(err))
		wait := pause
		if later := new(otlp.AfterError); errors.As(err, &later) {
			wait = max(wait, later.After)
		}
		if !awake.Pause(ctx, wait) {
			return ctx.Err()
		}
		pause = min(2*pause, mostPause)
	}
}

// sent reads the file. If there is none tracing was just switched on: it begins with the runs that end
// from now on.
func (t *Tracing) sent() (uint64, error) {
	last := t.options.Past.Last()
	info, err := os.Lstat(t.options.File)
	if errors.Is(err, fs.ErrNotExist) {
		return last, t.note(last)
	}
	if err != nil {
		return 0, fault.Wrap("tracing", err)
	}
	if info.Size() > maxFile {
		return last, t.damaged(last)
	}
	b, err := os.ReadFile(t.options.File)
	if err != nil {
		return 0, fault.Wrap("tracing", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return last, t.damaged(last)
	}
	return min(n, last), nil // the log may have been recovered to an earlier end
}

func (t *Tracing) damaged(last uint64) error {
	t.options.Logger.Warn("where tracing stood can't be read; it goes on with the runs that end from now on", "file", t.options.File)
	return t.note(last)
}

func (t *Tracing) note(sequence uint64) error {
	return datadir.WriteFile(t.options.File, fmt.Appendf(nil, "%d\n", sequence), 0o600)
}
