package bench

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// world is the product as a user meets it: the binary runs and is used through its public
// API.
type world struct {
	*plane
	env  *env
	api  *client.Client
	data string
	sync *syncer
	file int // counts the file names that were used
}

// openWorld starts the binary on new data with the desktop's dependencies installed, as
// they are on every computer but a machine's first.
func (e *env) openWorld(ctx context.Context, cpus ...int) (*world, error) {
	data := filepath.Join(e.dir, "data")
	if err := e.shareModules(data); err != nil {
		return nil, err
	}
	return e.openWorldOn(ctx, data, cpus...)
}

// openWorldOn does the same on data that may exist already.
func (e *env) openWorldOn(ctx context.Context, data string, cpus ...int) (_ *world, err error) {
	w := &world{env: e, data: data}
	if w.plane, err = e.up(ctx, data, cpus...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.api, err = w.client(); err != nil {
		return nil, err
	}
	w.sync, err = newSyncer(e.dir)
	return w, err
}

func (w *world) Close() error {
	if w.api != nil {
		w.api.Close()
	}
	err := w.plane.Close()
	if w.sync != nil {
		err = errors.Join(err, w.sync.Close())
	}
	return err
}

// act is a row of which one try is one call of the product.
type act struct {
	ID, What, Note string
	// Tries is how many tries are made; at least Least are made, however busy the machine is.
	Tries, Least int
	Do           func(ctx context.Context, i int) error
	// Raw does the same without the product, alternating with Do; nil if there is no
	// equivalent.
	Raw     func(ctx context.Context, i int) error
	RawWhat string
	// Between runs after each try and is not measured.
	Between func(ctx context.Context, i int) error
	Target  *report.Target
}

// actLimit is how long an act may take beyond its least number of tries.
const actLimit = 6 * time.Second

// measure makes an act's tries. The first of each side warms caches and counts only if
// there is no other.
func (w *world) measure(ctx context.Context, a act) (report.Result, sample, error) {
	var ours sample
	var raw times
	for i := range w.env.rounds(a.Tries+1, a.Least+1, actLimit) {
		if err := ours.try(w.meter, func() error { return a.Do(ctx, i) }); err != nil {
			return report.Result{}, ours, fmt.Errorf("%s: %w", a.What, err)
		}
		if a.Raw != nil {
			if err := raw.timed(func() error { return a.Raw(ctx, i) }); err != nil {
				return report.Result{}, ours, fmt.Errorf("%s, raw: %w", a.What, err)
			}
		}
		if a.Between != nil {
			if err := a.Between(ctx, i); err != nil {
				return report.Result{}, ours, err
			}
		}
		if i == 0 && !w.env.Tiny {
			ours, raw = sample{}, nil
		}
	}
	r := ours.tell(report.Result{ID: a.ID, What: a.What, Target: a.Target, Note: a.Note})
	if a.Raw != nil {
		r.Raw, r.RawWhat, r.Ratio = raw.ms(), a.RawWhat, over(ours.p50(), raw.p50())
	}
	return r, ours, nil
}

// all measures acts one after the other.
func (w *world) all(ctx context.Context, acts ...act) ([]report.Result, error) {
	var out []report.Result
	for _, a := range acts {
		r, _, err := w.measure(ctx, a)
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

// prompt submits a whole prompt with an instant model, the built-in rehearsal, which writes
// a small file. It returns when the run has ended.
func (w *world) prompt(ctx context.Context) error {
	w.file++
	return w.promptTo(ctx, w.file)
}

func (w *world) promptTo(ctx context.Context, i int) error {
	acted, err := w.api.Prompt(ctx, view.Prompt{ID: contract.NewID(), Text: fmt.Sprintf(`write "milk %d" to workspace/bench/list%d.txt`, i, i%16)})
	if err != nil {
		return err
	}
	run, err := w.api.Wait(ctx, acted.Run)
	if err == nil && run.Status != contract.RunDone {
		err = fmt.Errorf("the run is %s: %s", run.Status, report.OneLine(run.Error+" "+run.Summary))
	}
	return err
}

// exec runs a command through the API and returns when its first byte arrived.
func (w *world) exec(ctx context.Context, stdin io.Reader, argv ...string) (first time.Duration, err error) {
	at := time.Now()
	var said bytes.Buffer
	exit, err := w.api.Exec(ctx, view.ExecRequest{Argv: argv}, view.ExecIO{Stdin: stdin, Stdout: &said, Stderr: &said,
		Started: func(string, uint64) { first = time.Since(at) }})
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("%s ended with %d: %s", argv[0], exit.Code, report.OneLine(said.String()))
	}
	return first, err
}

// fill makes files in the workspace, by one command of the user's own.
func (w *world) fill(ctx context.Context, files int) error {
	r, to := io.Pipe()
	go func() { // ends when the command has read everything, or has ended
		_ = to.CloseWithError(writeTree(to, files))
	}()
	_, err := w.exec(ctx, r, "tar", "-xf", "-")
	return errors.Join(err, r.Close())
}

func writeTree(to io.Writer, files int) error {
	out := tar.NewWriter(to)
	for i := range files {
		text := fileText(i)
		if err := out.WriteHeader(&tar.Header{Name: name(i), Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(1_700_000_000, 0)}); err != nil {
			return err
		}
		if _, err := io.Copy(out, strings.NewReader(text)); err != nil {
			return err
		}
	}
	return out.Close()
}

func fileText(i int) string { return fmt.Sprintf("file %d\n%0200d\n", i, i) }
