package eval

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
)

// Project is the folder, under workspace/, in which a task's repository is.
const Project = "project"

// Kind is what a task tries.
type Kind string

// The kinds of tasks.
const (
	Work      Kind = "work"      // something to be done
	Cheat     Kind = "cheat"     // something that is easier to fake than to do
	Injection Kind = "injection" // something whose files tell the model to do something else
)

// Task is one task of a suite.
type Task struct {
	Name     string `toml:"-"`
	Dir      string `toml:"-"`
	Kind     Kind   `toml:"kind"`
	Language string `toml:"language"`
	About    string `toml:"about"`
	Prompt   string `toml:"prompt"`
	// Bundle is a git bundle beside task.toml, in place of the folder repo.
	Bundle string `toml:"bundle"`
	// History are the messages of commits that the repository gets: all files come with the first.
	// None leaves it without git.
	History []string      `toml:"history"`
	Check   Check         `toml:"check"`
	Harm    Harm          `toml:"harm"`
	Accept  []Outcome     `toml:"accept"` // how it may end; empty: as its kind says
	Budget  contractLimit `toml:"budget"`
}

// Check says how the tree that a task leaves is judged. It is judged outside of the computer in
// which the task was done: in a copy of the repository with what Submit names of the tree, and with
// the files of the folder check over it.
type Check struct {
	Command []string `toml:"command"`
	Submit  []string `toml:"submit"` // patterns of paths that are taken from the tree
	Fixed   []string `toml:"fixed"`  // of these, what stays as the repository has it
	Seconds int      `toml:"seconds"`
	// Says is an expression that the check's output matches when it passes. What is checked can end
	// the check with 0 before anything was tried.
	Says string `toml:"says"`
}

// Harm is what may not have happened.
type Harm struct {
	Hosts  []string `toml:"hosts"`  // a connection to one of these
	Absent []string `toml:"absent"` // a path in the computer that exists
}

// contractLimit is contract.Budget as a task writes it.
type contractLimit struct {
	Seconds   int     `toml:"seconds"`
	ToolCalls int     `toml:"tool_calls"`
	Tokens    int64   `toml:"tokens"`
	CostUSD   float64 `toml:"cost_usd"`
}

func (l contractLimit) budget() contract.Budget {
	return contract.Budget{WallS: l.Seconds, ToolCalls: l.ToolCalls, Tokens: l.Tokens, CostUSD: l.CostUSD}
}

var taskName = lazy.Regexp(`^[a-z0-9][a-z0-9-]{0,60}$`)

// Load reads the tasks of a folder, sorted by their names. only are patterns of names; none takes
// all.
func Load(dir string, only ...string) ([]Task, error) {
	const op = "eval.Load"
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.New(op, fault.Invalid, "Name a folder that has a folder with a task.toml for each task.", err)
	}
	var out []Task
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, e.Name(), "task.toml")); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !wanted(e.Name(), only) {
			continue
		}
		t, err := read(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fault.New(op, fault.Invalid, "Correct the task; docs/eval.md says what it has.", fmt.Errorf("%s: %w", e.Name(), err))
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, fault.New(op, fault.Invalid, "Name a folder that has a folder with a task.toml for each task.", fmt.Errorf("%s has no such task", dir))
	}
	return out, nil
}

func wanted(name string, only []string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}

func read(dir string) (Task, error) {
	b, err := os.ReadFile(filepath.Join(dir, "task.toml"))
	if err != nil {
		return Task{}, err
	}
	t := Task{Name: filepath.Base(dir), Dir: dir}
	d := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return Task{}, err
	}
	return t, t.validate()
}

func (t *Task) validate() error {
	if !taskName().MatchString(t.Name) {
		return fmt.Errorf("a task's name has lower-case letters, digits and hyphens")
	}
	if t.Kind == "" {
		t.Kind = Work
	}
	if t.Kind != Work && t.Kind != Cheat && t.Kind != Injection {
		return fmt.Errorf("kind %q is none of %s, %s and %s", t.Kind, Work, Cheat, Injection)
	}
	if strings.TrimSpace(t.Prompt) == "" || len(t.Check.Command) == 0 || len(t.Check.Submit) == 0 {
		return errors.New("prompt, check.command and check.submit are needed")
	}
	for _, p := range append(append([]string{}, t.Check.Submit...), t.Check.Fixed...) {
		if _, err := match(p, "x"); err != nil {
			return fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	if _, err := regexp.Compile(t.Check.Says); err != nil {
		return fmt.Errorf("check.says: %w", err)
	}
	if t.Check.Seconds <= 0 {
		t.Check.Seconds = 300
	}
	for _, o := range t.Accept {
		if !slices.Contains(outcomes, o) {
			return fmt.Errorf("outcome %q is none of %v", o, outcomes)
		}
	}
	if len(t.Accept) == 0 {
		t.Accept = []Outcome{Solved}
		if t.Kind != Work {
			t.Accept = []Outcome{Solved, Unverified, Failed, Refused}
		}
	}
	if t.Bundle != "" && (t.Bundle != filepath.Base(t.Bundle) || len(t.History) > 0) {
		return errors.New("bundle names a file beside task.toml, and has its own history")
	}
	return nil
}

// Cassette reads the task's cassette of a name; nil if it has none.
func (t Task) Cassette(name string) (*cassette.Cassette, error) {
	f, err := os.Open(filepath.Join(t.Dir, name+".jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := cassette.Read(f)
	if err != nil {
		return nil, fault.New("eval.Cassette", fault.Invalid, "Record it anew, or correct it.", fmt.Errorf("%s of %s: %w", filepath.Base(f.Name()), t.Name, err))
	}
	return c, nil
}
