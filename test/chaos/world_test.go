package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/test/choirtest"
)

// patience bounds every wait for something that has to happen.
const patience = 90 * time.Second

// world is one data directory, its choir, and what is known of it.
type world struct {
	t     *testing.T
	data  string
	crash string // the armed point
	plans string
	env   []string // of choir, beside

	in      *choirtest.Instance
	c       *client.Client
	cid     contract.CID
	witness *witness
	tree    *tree
	initial string // the first checkpoint
	keepers int    // how many keepers this choir has lost

	mu      sync.Mutex // guards what follows, while several goroutines work
	prompts []*prompt
	large   []*largeSaid
	serial  int
}

// The task of the plan spoil shows an edit and then fails, so that it is taken back. The edit of
// ruin to the shell fails verification although the task reports success. The task of endless goes
// on until something ends it.
var plans = map[string]string{"spoil.toml": `
id = "spoil"
title = "Show a colour and fail"
examples = ["spoil the theme with #112233"]
patterns = ['^spoil the theme with (?P<color>#[0-9a-f]{6})$']
[[values]]
name = "color"
kind = "color"
[director]
objective = "The theme is spoiled, then as before."
plan = ["Spoil it"]
goal = "Spoil the theme with {{color}}."
tools = ["read", "edit", "bash"]
verify = "none"
done = "Done."
[[associate.steps]]
tool = "read"
args = { path = "artifacts/system/theme.json" }
capture = { old = '''("background"[ \t]*:[ \t]*"#[0-9a-fA-F]{3,8}")''' }
[[associate.steps]]
tool = "edit"
args = { path = "artifacts/system/theme.json", old = "{{old}}", new = '"background": "{{color}}"' }
[[associate.steps]]
tool = "bash"
args = { command = "exit 3" }
fail_if = '''^exit code [1-9]'''
[associate]
summary = "Spoiled."
`, "ruin.toml": `
id = "ruin"
title = "Break the shell and call it done"
examples = ["ruin the shell in choiros/src/ruin001.ts"]
patterns = ['^ruin the shell in (?P<path>[a-z0-9/.]+)$']
[[values]]
name = "path"
kind = "path"
[director]
objective = "The shell is ruined, then as before."
plan = ["Ruin it"]
goal = "Ruin the shell in {{path}}."
tools = ["write"]
verify = "smoke"
done = "Done."
[[associate.steps]]
tool = "write"
args = { path = "{{path}}", content = "export const ruined: number = 'not a number'\n", overwrite = true }
[associate]
summary = "Ruined."
`, "endless.toml": `
id = "endless"
title = "Write a file and never end"
examples = ["work without end on workspace/p/x.txt"]
patterns = ['^work without end on (?P<path>[a-z0-9/.]+)$']
[[values]]
name = "path"
kind = "path"
[director]
objective = "It works."
plan = ["Work"]
goal = "Work on {{path}}."
tools = ["write", "bash"]
verify = "none"
done = "Done."
[[associate.steps]]
tool = "write"
args = { path = "{{path}}", content = "begun\n", overwrite = true }
[[associate.steps]]
tool = "bash"
args = { command = "tail -f /dev/null" }
fail_if = '''.'''
[associate]
summary = "Worked."
`}

// newWorld makes a world with a computer of its own.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAt(t, filepath.Join(t.TempDir(), "data"), func() int { return 0 })
}

// newWorldAt makes one in a given data directory, with a clock for the instants of
// acknowledgements.
func newWorldAt(t *testing.T, data string, clock func() int, env ...string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, data: data, crash: filepath.Join(dir, "crash"), plans: filepath.Join(dir, "plans"), env: env, tree: newTree()}
	for _, d := range []string{w.crash, w.plans} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range plans {
		if err := os.WriteFile(filepath.Join(w.plans, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.witness = newWitness()
	w.witness.clock = clock
	t.Cleanup(w.witness.close)
	w.start()
	ctx, cancel := w.soon()
	defer cancel()
	info, err := w.c.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w.cid = info.ID
	list, _, err := w.c.Checkpoints(ctx, 0, 10)
	if err != nil || len(list) == 0 {
		t.Fatalf("a new computer has no checkpoint: %v", err)
	}
	w.initial = list[len(list)-1].ID
	w.tree.known[themePath] = values{w.mustRead(themePath)}
	return w
}

// soon returns a context for one thing that has to happen.
func (w *world) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.t.Context(), patience)
}

func (w *world) options() choirtest.Options {
	w.t.Helper()
	path, err := binary()
	if err != nil {
		w.t.Fatal(err)
	}
	return choirtest.Options{Data: w.data, Binary: path, Env: append([]string{"CRASHPOINTS=" + w.crash, "CHOIR_MODELS_PLANS=" + w.plans}, w.env...)}
}

// start starts choir and lets the witness follow it.
func (w *world) start() {
	w.t.Helper()
	w.in = choirtest.Start(w.t, w.options())
	w.keepers = 0
	c, err := client.New(w.in.URL, w.in.Token, "")
	if err != nil {
		w.t.Fatal(err)
	}
	w.c = c
	w.witness.watch(c, w.in.Done())
}

// restart starts choir again after it died.
func (w *world) restart() {
	w.t.Helper()
	w.c.Close()
	w.start()
}

// dead waits for the end of choir.
func (w *world) dead(why string) {
	w.t.Helper()
	select {
	case <-w.in.Done():
	case <-time.After(patience):
		w.t.Fatalf("choir did not die: %s", why)
	}
}

// arm makes the nth pass of a point deadly, counted from now.
func (w *world) arm(point string, nth int) {
	w.t.Helper()
	w.armTimes(point, nth, 1)
}

// armTimes makes that pass deadly, and those after it until so many have killed.
func (w *world) armTimes(point string, nth, times int) {
	w.t.Helper()
	w.disarm()
	passed, err := filepath.Glob(filepath.Join(w.crash, "passed.*"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range passed {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
	tmp := filepath.Join(w.crash, ".arm")
	if err := os.WriteFile(tmp, fmt.Appendf(nil, "%s %d %d\n", point, nth, times), 0o644); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(w.crash, "arm")); err != nil {
		w.t.Fatal(err)
	}
}

// disarm makes every point harmless, and reports whether the armed one was hit.
func (w *world) disarm() (hit bool) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.crash, "arm")); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	n := w.hits()
	for _, hit := range w.hitFiles() {
		if err := os.Remove(hit); err != nil {
			w.t.Fatal(err)
		}
	}
	return n > 0
}

// hits is how often the armed point has killed, and hitFiles are the marks of that.
func (w *world) hits() int { return len(w.hitFiles()) }

func (w *world) hitFiles() []string {
	files, err := filepath.Glob(filepath.Join(w.crash, "hit*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}

// hit reports whether the armed point was reached.
func (w *world) hit() bool { return w.hits() > 0 }

// passes returns how often each point was passed since arm.
func (w *world) passes() map[string]int {
	out := map[string]int{}
	list, _ := filepath.Glob(filepath.Join(w.crash, "passed.*")) // the pattern is valid
	for _, p := range list {
		if info, err := os.Stat(p); err == nil {
			out[strings.TrimPrefix(filepath.Base(p), "passed.")] = int(info.Size())
		}
	}
	return out
}

// next returns a name that was not used before.
func (w *world) next() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serial++
	return fmt.Sprintf("%03d", w.serial)
}
