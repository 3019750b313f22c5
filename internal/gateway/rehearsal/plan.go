package rehearsal

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
	"choir.dev/choiros/internal/library"
)

//go:embed plans/*.toml
var builtIn embed.FS

const (
	maxPlanFile = 256 << 10
	maxPlans    = 200
	maxSteps    = 50
)

// Plan is one file: which prompts it answers, and what it then does.
type Plan struct {
	ID       string   `toml:"id"`
	Title    string   `toml:"title"`
	Examples []string `toml:"examples"`
	// Patterns are RE2 expressions over the whole prompt; the first one that matches gives the
	// values, by group name.
	Patterns  []string  `toml:"patterns"`
	Values    []Value   `toml:"values"`
	Director  Director  `toml:"director"`
	Associate Associate `toml:"associate"`

	compiled []*regexp.Regexp
}

// Value checks and normalises what a group of the pattern captured.
type Value struct {
	Name    string   `toml:"name"`
	Kind    string   `toml:"kind"` // color, choice, document, path, text
	Of      string   `toml:"of"`   // of a document: the value that it is about
	Choices []string `toml:"choices"`
	Default string   `toml:"default"`
	Max     int      `toml:"max"` // bytes; 4096 when left out
}

// Director is what the planning loop does: it delegates one task and then reports, where
// {{summary}} is the Associate's summary.
type Director struct {
	Kind      string   `toml:"kind"` // agent (the default), inspect, research or write
	Objective string   `toml:"objective"`
	Plan      []string `toml:"plan"`
	Goal      string   `toml:"goal"`
	Tools     []string `toml:"tools"`
	Document  string   `toml:"document"` // of kind write
	Verify    string   `toml:"verify"`   // none, smoke, standard, strict
	Egress    string   `toml:"egress"`   // none, default
	Done      string   `toml:"done"`     // the report when the task succeeded
}

// Associate is what the executing loop does, one tool call after the other.
type Associate struct {
	Steps   []Step `toml:"steps"`
	Summary string `toml:"summary"`
}

// Step is one tool call. Args may use {{name}} for values and captures.
type Step struct {
	Tool string         `toml:"tool"`
	Args map[string]any `toml:"args"`
	// Capture finds further values in what the tool returned. It maps names to expressions with one
	// group, in which {{name}} stands for a value, literally. If an expression is not found, the
	// task fails.
	Capture map[string]string `toml:"capture"`
	// FailIf makes the task fail if it matches what the tool returned.
	FailIf string `toml:"fail_if"`

	failIf *regexp.Regexp
}

// Load reads the built-in plans and those in dir, which are tried first; dir may be "". A malformed
// plan is an error that names the file and the field.
func Load(dir string) (*Provider, error) {
	p := &Provider{}
	if dir != "" {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = errors.New("not a folder")
		}
		if err == nil {
			err = p.add(os.DirFS(dir), ".")
		}
		if err != nil {
			return nil, fault.New("rehearsal.Load", fault.Invalid, "Check models.plans in the configuration.", fmt.Errorf("%s: %w", dir, err))
		}
	}
	if err := p.add(builtIn, "plans"); err != nil {
		return nil, fault.Wrap("rehearsal.Load", err)
	}
	return p, nil
}

func (p *Provider) add(fsys fs.FS, dir string) error {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".toml") {
			names = append(names, e.Name())
		}
	}
	sort.Strings(names)
	for _, name := range names {
		path := name
		if dir != "." {
			path = dir + "/" + name
		}
		plan, err := read(fsys, path)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if p.byID(plan.ID) != nil {
			continue // a plan of the same id that was read before replaces this one
		}
		if len(p.plans) == maxPlans {
			return fmt.Errorf("%s: there are more than %d plans", name, maxPlans)
		}
		p.plans = append(p.plans, plan)
	}
	return nil
}

func read(fsys fs.FS, path string) (*Plan, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPlanFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxPlanFile {
		return nil, errors.New("the file is over 256 KiB")
	}
	var plan Plan
	if err := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields().Decode(&plan); err != nil {
		return nil, err
	}
	return &plan, plan.compile()
}

var idPattern = lazy.Regexp(`^[a-z0-9][a-z0-9-]{0,63}$`)

func (p *Plan) compile() error {
	switch {
	case !idPattern().MatchString(p.ID):
		return fmt.Errorf("id is %q; use lower-case letters, digits and hyphens", p.ID)
	case p.Title == "" || len(p.Examples) == 0 || len(p.Patterns) == 0:
		return errors.New("title, examples and patterns are required")
	case p.Director.Goal == "" || p.Director.Objective == "" || len(p.Director.Plan) == 0 || p.Director.Done == "" || p.Associate.Summary == "":
		return errors.New("director.objective, .plan, .goal, .done and associate.summary are required")
	case !slices.Contains([]string{"", "agent", "inspect", "research", "write"}, p.Director.Kind):
		return fmt.Errorf("director.kind is %q; allowed: agent, inspect, research, write", p.Director.Kind)
	case (p.Director.Kind == "write") != (p.Director.Document != ""):
		return errors.New("director.document is what a plan of kind write writes, and only such a one")
	case len(p.Associate.Steps) == 0 || len(p.Associate.Steps) > maxSteps:
		return fmt.Errorf("associate.steps has %d entries; it must have from 1 to %d", len(p.Associate.Steps), maxSteps)
	}
	for i, s := range p.Patterns {
		re, err := regexp.Compile(s)
		if err != nil {
			return fmt.Errorf("patterns[%d]: %w", i, err)
		}
		p.compiled = append(p.compiled, re)
	}
	for i, v := range p.Values {
		switch v.Kind {
		case "color", "path", "text":
		case "document":
			if v.Of == "" {
				return fmt.Errorf("values[%d].of is what the document is of", i)
			}
		case "choice":
			if len(v.Choices) == 0 {
				return fmt.Errorf("values[%d].choices is empty", i)
			}
		default:
			return fmt.Errorf("values[%d].kind is %q; allowed: color, choice, document, path, text", i, v.Kind)
		}
	}
	for i := range p.Associate.Steps {
		s := &p.Associate.Steps[i]
		if s.Tool == "" {
			return fmt.Errorf("associate.steps[%d].tool is required", i)
		}
		for name, expr := range s.Capture {
			if _, err := s.capture(expr, nil, ""); err != nil {
				return fmt.Errorf("associate.steps[%d].capture.%s: %w", i, name, err)
			}
		}
		if s.FailIf != "" {
			re, err := regexp.Compile(s.FailIf)
			if err != nil {
				return fmt.Errorf("associate.steps[%d].fail_if: %w", i, err)
			}
			s.failIf = re
		}
	}
	for _, e := range p.Examples {
		if _, ok, err := p.match(e); !ok || err != nil {
			return fmt.Errorf("example %q does not match the plan's own patterns: %v", e, err)
		}
	}
	return nil
}

// match reports whether the plan answers a prompt, and with which values. The error says what is
// wrong with a value and is shown to the person.
func (p *Plan) match(prompt string) (values map[string]string, ok bool, err error) {
	prompt = strings.TrimSpace(prompt)
	for _, re := range p.compiled {
		m := re.FindStringSubmatch(prompt)
		if m == nil {
			continue
		}
		values = map[string]string{}
		for i, name := range re.SubexpNames() {
			if name != "" && (m[i] != "" || values[name] == "") {
				values[name] = m[i]
			}
		}
		for _, v := range p.Values {
			if v.Kind == "document" {
				values[v.Name] = library.SummaryPath(values[v.Of])
				continue
			}
			got, err := v.check(values[v.Name])
			if err != nil {
				return nil, true, err
			}
			values[v.Name] = got
		}
		return values, true, nil
	}
	return nil, false, nil
}

// capture finds an expression's group in text; found is nil if it is not there.
func (s *Step) capture(expr string, values map[string]string, text string) (found *string, err error) {
	quoted := make(map[string]string, len(values))
	for k, v := range values {
		quoted[k] = regexp.QuoteMeta(v)
	}
	expr = template().ReplaceAllLiteralString(fill(expr, quoted), "")
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, err
	}
	if re.NumSubexp() != 1 {
		return nil, errors.New("the expression must have one group")
	}
	if m := re.FindStringSubmatch(text); m != nil {
		return &m[1], nil
	}
	return nil, nil
}

var template = lazy.Regexp(`\{\{([a-z0-9_]+)\}\}`)

// fill replaces the names of values in a text. A name without a value stays unchanged.
func fill(s string, values map[string]string) string {
	return template().ReplaceAllStringFunc(s, func(m string) string {
		if v, ok := values[m[2:len(m)-2]]; ok {
			return v
		}
		return m
	})
}

// next returns the first step from the nth on that changes anything: an edit is skipped if its new
// text equals the old one.
func (p *Plan) next(n int, values map[string]string) int {
	for ; n < len(p.Associate.Steps); n++ {
		step := p.Associate.Steps[n]
		before, ok := step.Args["old"].(string)
		after, both := step.Args["new"].(string)
		if step.Tool != "edit" || !ok || !both || fill(before, values) != fill(after, values) {
			break
		}
	}
	return n
}

// fillAny calls fill for every text within a decoded TOML value.
func fillAny(v any, values map[string]string) any {
	switch v := v.(type) {
	case string:
		return fill(v, values)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = fillAny(v[i], values)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = fillAny(v[k], values)
		}
		return out
	}
	return v
}
