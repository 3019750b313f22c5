package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/internal/fault"
)

// Options say what to measure with.
type Options struct {
	// Binary is the choir program that is started for the rows that measure the whole
	// product, and Version its version.
	Binary, Version string
	// Guest is the guest binary that boxes are started with.
	Guest string
	// Dir is where everything is written, on the disk that is to be measured: in a
	// directory that is removed at the end.
	Dir string
	// Modules are places where the desktop's dependencies may be installed, by lock file,
	// as in DATA/cache/node_modules. The first that exists is used.
	Modules []string
	// Progress is written what is being measured; nil: nothing is.
	Progress io.Writer
	// Tiny measures so little that the numbers mean nothing; it is for tests.
	Tiny bool
}

// Row is something that can be measured by itself.
type Row struct {
	Name  string `json:"id"`
	About string `json:"about"`
	run   func(ctx context.Context, e *env) ([]report.Result, error)
	limit time.Duration // bounds its time, so that a row that hangs does not keep the others from being measured
}

// Rows lists the rows in the order of a whole run.
func Rows() []Row {
	return []Row{
		{"start", "choir up to healthy, on a new and on an existing data directory", start, 3 * time.Minute},
		{"painted", "choir up to a painted desktop in a headless Chromium", painted, 3 * time.Minute},
		{"idle", "memory of a control plane with nothing to do", idle, 3 * time.Minute},
		{"asleep", "memory of each of 100 sleeping computers, and waking one", asleep, 5 * time.Minute},
		{"prompt", "a prompt until it is acknowledged, and a whole one with an instant model", prompts, 3 * time.Minute},
		{"first", "the first prompt of a new computer, against later ones", firstPrompt, 3 * time.Minute},
		{"crowd", "16 prompts at once, against their processor time", concurrentPrompts, 3 * time.Minute},
		{"turn", "a turn of a task of 200 turns with an instant model, and how much of its requests is repeated", turns, 3 * time.Minute},
		{"gateway", "the first byte of a model's answer through the gateway, against a bare request", firstByte, 3 * time.Minute},
		{"runs", "100 runs at once in one computer on two processors, and the memory of one that waits", runsAtOnce, 5 * time.Minute},
		{"waiting", "memory of a bare loop that waits for its model", waitingRuns, 3 * time.Minute},
		{"exec", "/bin/true through the API, as a command, and in a warm box", execs, 3 * time.Minute},
		{"files", "putting, asking for and reading a file through the API", files, 3 * time.Minute},
		{"document", "writing a revision through the API; 60 of them with their text", documents, 3 * time.Minute},
		{"tree", "prompts, commands and checkpoints with 1,000, 10,000 and 100,000 files", trees, 25 * time.Minute},
		{"append", "an append to a log, against raw publishes", appends, 3 * time.Minute},
		{"replay", "projecting a log, against raw inserts of its rows", replay, 8 * time.Minute},
		{"past", "questions about the past of 1,000 and 100,000 events", past, 8 * time.Minute},
		{"event", "an event until a desktop has it", events, 3 * time.Minute},
		{"desktops", "an event until each of many desktops has it", desktops, 3 * time.Minute},
		{"terminal", "a terminal from opening to its prompt, and its echo", terminal, 3 * time.Minute},
		{"box", "the start of a box, against bubblewrap alone", boxes, 3 * time.Minute},
		{"hmr", "what the way to the dev server adds to a hot update", hmr, 3 * time.Minute},
		{"binary", "the size of the program", binarySize, 3 * time.Minute},
	}
}

// env is what the code of rows uses.
type env struct {
	Options
	dir    string  // the row's own scratch directory
	curves *curves // the points of the run's curves
	config string  // lines that the row adds to the configuration
}

// size is n, or tiny in a tiny run.
func (e *env) size(n, tiny int) int {
	if e.Tiny {
		return tiny
	}
	return n
}

// say writes a line of progress.
func (e *env) say(format string, args ...any) {
	if e.Progress != nil {
		fmt.Fprintf(e.Progress, format+"\n", args...) // the reader may be gone
	}
}

// missingError says that this machine lacks what a row needs, which is not a failure.
type missingError struct{ why string }

func (m missingError) Error() string { return m.why }

// Run measures the named rows, or all. An error means that nothing was measured:
// fault.NotFound for an unknown name. What went wrong in a row is in its Result.
func Run(ctx context.Context, o Options, names ...string) (report.Report, error) {
	rows, err := choose(names)
	if err != nil {
		return report.Report{}, err
	}
	dir, err := os.MkdirTemp(o.Dir, "choir-bench-")
	if err != nil {
		return report.Report{}, fault.Wrap("bench", err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil && o.Progress != nil {
			fmt.Fprintln(o.Progress, "left behind:", err)
		}
	}()
	r := report.Report{Started: time.Now().UTC().Truncate(time.Second), Version: o.Version, Machine: lookAt(ctx, dir)}
	begin := time.Now()
	var drawn curves
	for i, row := range rows {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		e := &env{Options: o, curves: &drawn}
		e.say("[%d/%d] %s: %s", i+1, len(rows), row.Name, row.About)
		at := time.Now()
		results, err := e.measure(ctx, dir, row)
		if err != nil {
			result := report.Result{ID: row.Name, What: row.About, NotMeasured: err.Error()}
			if missing := (missingError{}); !errors.As(err, &missing) {
				result.Failed = true
			}
			results = append(results, result)
		}
		for _, result := range results {
			result = result.Judge()
			r.Results = append(r.Results, result)
			e.say("      %s", result.Line())
		}
		e.say("      (%.1f s)", time.Since(at).Seconds())
	}
	r.Took = time.Since(begin)
	r.Curves = drawn.all
	r.Machine.LoadAfter = load()
	return r, ctx.Err()
}

func (e *env) measure(ctx context.Context, dir string, row Row) (_ []report.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, row.limit)
	defer cancel()
	if e.dir, err = os.MkdirTemp(dir, row.Name+"-"); err != nil {
		return nil, err
	}
	// Dirty pages of one row must not be written during the next.
	defer func() { err = errors.Join(err, os.RemoveAll(e.dir), settle(dir)) }()
	return row.run(ctx, e)
}

func choose(names []string) ([]Row, error) {
	all := Rows()
	if len(names) == 0 {
		return all, nil
	}
	var out []Row
	for _, name := range names {
		i := slices.IndexFunc(all, func(r Row) bool { return r.Name == name })
		if i < 0 {
			known := make([]string, len(all))
			for i, r := range all {
				known[i] = r.Name
			}
			return nil, fault.New("bench", fault.NotFound, "There are: "+strings.Join(known, ", ")+".", fmt.Errorf("there is no benchmark %q", name))
		}
		out = append(out, all[i])
	}
	return out, nil
}
