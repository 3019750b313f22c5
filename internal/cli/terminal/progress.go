package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

// Is says whether a file is a terminal.
func Is(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// draws says whether a file is a terminal on which lines can be redrawn.
func draws(f *os.File) bool {
	return Is(f) && os.Getenv("TERM") != "dumb"
}

// colours says whether a file is a terminal on which colours are wanted
// (https://no-color.org).
func colours(f *os.File) bool { return draws(f) && os.Getenv("NO_COLOR") == "" }

var marked = strings.NewReplacer("✓", "\x1b[32m✓\x1b[0m", "✕", "\x1b[31m✕\x1b[0m")

// progress is a line on standard error about something that takes a while, if standard
// error is a terminal. It is removed when that has ended.
type progress struct {
	what  string
	total int64 // bytes; 0: not known
	done  atomic.Int64
	over  chan struct{}
	drawn sync.WaitGroup
}

// progressAfter is how long something takes until progress is shown, and the interval of
// its updates.
const progressAfter = 200 * time.Millisecond

// NewProgress starts showing progress; end stops it.
func NewProgress(what string, total int64) *progress { return ProgressOf(what, total, false) }

// ProgressOf is the same for something during which the person may type, when a line would
// be in the way.
func ProgressOf(what string, total int64, typed bool) *progress {
	p := &progress{what: what, total: total, over: make(chan struct{})}
	if draws(os.Stderr) && !typed {
		p.drawn.Go(func() { p.draw(os.Stderr) })
	}
	return p
}

func (p *progress) draw(w io.Writer) {
	begin, shown := time.Now(), false
	tick := time.NewTicker(progressAfter)
	defer tick.Stop()
	for {
		select {
		case <-p.over:
			if shown {
				fmt.Fprint(w, "\r\x1b[K")
			}
			return
		case <-tick.C:
			fmt.Fprint(w, "\r\x1b[K"+OneLine(p.line(time.Since(begin)), 79))
			shown = true
		}
	}
}

// line is the text after some time.
func (p *progress) line(took time.Duration) string {
	text := fmt.Sprintf("%s, %s", p.what, took.Round(time.Second))
	n := p.done.Load()
	if n == 0 {
		return text
	}
	text += ": " + size(n)
	if p.total > 0 {
		text += fmt.Sprintf(" of %s, %d %%", size(p.total), min(100, n*100/p.total))
	}
	if s := took.Seconds(); s > 0 {
		text += fmt.Sprintf(", %s/s", size(int64(float64(n)/s)))
	}
	return text
}

func (p *progress) End() {
	close(p.over)
	p.drawn.Wait()
}

// To counts what is written to a writer.
func (p *progress) To(w io.Writer) io.Writer { return &counted{w: w, progress: p} }

// Of counts what is read from a reader.
func (p *progress) Of(r io.Reader) io.Reader { return &counted{r: r, progress: p} }

type counted struct {
	r        io.Reader
	w        io.Writer
	progress *progress
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.progress.done.Add(int64(n))
	return n, err
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.progress.done.Add(int64(n))
	return n, err
}

// size spells a number of bytes for a person.
func size(n int64) string {
	f, unit := float64(n), "B"
	for _, next := range []string{"kB", "MB", "GB", "TB"} {
		if f < 1000 {
			break
		}
		f, unit = f/1000, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}
