package cassette

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Version is the form of files that this package writes and reads.
const Version = 1

// Bounds of a file.
const (
	maxFile  = 32 << 20
	maxLine  = 4 << 20
	maxSteps = 5000
	maxTasks = 100
)

// The origins that a cassette may have.
const (
	Written  = "written, not recorded from a model"
	Recorded = "recorded from a model"
)

// The loops that a step can be of.
const (
	Director  = "director"
	Associate = "associate"
)

// Cassette is what a model answered in one task.
type Cassette struct {
	Head
	Steps []Step
}

// Head is the first line of a file.
type Head struct {
	Cassette int    `json:"cassette"` // Version
	Origin   string `json:"origin"`   // Written or Recorded
	Model    string `json:"model,omitempty"`
	About    string `json:"about,omitempty"`
	// Outcome is how the task ends when this is played, and Reason words that its record then has.
	// Empty leaves it to the task.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Step is one answer. The steps of one loop are played in the file's order.
type Step struct {
	Role string `json:"role"`
	// Task is the ordinal, from 1, of the task that an Associate does; 0 is 1.
	Task int `json:"task,omitempty"`
	// Match, on the first step of a task, is an expression that the first request's text matches.
	// It tells the tasks of a run apart where there are several.
	Match string `json:"match,omitempty"`
	// Expect is text that the request has to contain, such as what the last command said. A
	// request without it is refused: the cassette no longer fits what it is played to.
	Expect string `json:"expect,omitempty"`
	// Until is text that what the step's calls returned has at last, such as "has ended" of a command in
	// the background. As long as it has it not, the step is played again: how often a model would look
	// depends on how fast the machine is.
	Until string `json:"until,omitempty"`

	Text  string `json:"text,omitempty"`
	Calls []Call `json:"calls,omitempty"`
	Stop  string `json:"stop,omitempty"` // end, tool_use, length or refusal; empty: it follows from the calls
}

// Call is a tool call of an answer. Its id is made when it is played.
type Call struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// Read reads a file, all of it or nothing.
func Read(r io.Reader) (*Cassette, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxFile+1))
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	var c Cassette
	read := 0
	for n := 1; lines.Scan(); n++ {
		if read += len(lines.Bytes()) + 1; read > maxFile {
			return nil, fmt.Errorf("a cassette has at most %d bytes", maxFile)
		}
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var err error
		if c.Cassette == 0 {
			err = errors.Join(decode(line, &c.Head), c.Head.check())
		} else {
			var s Step
			if err = errors.Join(decode(line, &s), s.check()); err == nil {
				c.Steps = append(c.Steps, s)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(c.Steps) > maxSteps {
			return nil, fmt.Errorf("a cassette has at most %d steps", maxSteps)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(c.Steps) == 0 {
		return nil, errors.New("it has no steps")
	}
	return &c, nil
}

// Write writes a file that Read reads.
func (c *Cassette) Write(w io.Writer) error {
	c.Cassette = Version
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(c.Head); err != nil {
		return err
	}
	for _, s := range c.Steps {
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
	return out.Flush()
}

func decode(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more than one value")
	}
	return nil
}

func (h Head) check() error {
	if h.Cassette != Version {
		return fmt.Errorf("it is of form %d; this choir reads form %d", h.Cassette, Version)
	}
	if h.Origin != Written && h.Origin != Recorded {
		return fmt.Errorf("its origin is neither %q nor %q", Written, Recorded)
	}
	return nil
}

func (s Step) check() error {
	if s.Role != Director && s.Role != Associate {
		return fmt.Errorf("role %q is neither %s nor %s", s.Role, Director, Associate)
	}
	if s.Task < 0 || s.Task > maxTasks || s.Role == Director && s.Task != 0 {
		return fmt.Errorf("task %d is none that the %s can have", s.Task, s.Role)
	}
	switch s.Stop {
	case "", "end", "tool_use", "length", "refusal":
	default:
		return fmt.Errorf("stop %q is unknown", s.Stop)
	}
	if s.Text == "" && len(s.Calls) == 0 && s.Stop == "" {
		return errors.New("the step answers nothing, and has no stop that says why")
	}
	if s.Until != "" && len(s.Calls) == 0 {
		return errors.New("a step without calls waits for nothing that they return")
	}
	for _, c := range s.Calls {
		var object map[string]json.RawMessage
		if c.Name == "" || json.Unmarshal(c.Args, &object) != nil || object == nil {
			return fmt.Errorf("a call of %q has no arguments that are an object", c.Name)
		}
	}
	_, err := regexp.Compile(s.Match)
	return err
}

// stop is why the answer ends.
func (s Step) stop() string {
	switch {
	case s.Stop != "":
		return s.Stop
	case len(s.Calls) > 0:
		return "tool_use"
	}
	return "end"
}

// of returns the steps of one loop.
func (c *Cassette) of(role string, task int) []Step {
	var out []Step
	for _, s := range c.Steps {
		if s.Role == role && (role == Director || max(s.Task, 1) == task) {
			out = append(out, s)
		}
	}
	return out
}

// tasks is the highest ordinal of a task.
func (c *Cassette) tasks() int {
	most := 0
	for _, s := range c.Steps {
		if s.Role == Associate {
			most = max(most, s.Task, 1)
		}
	}
	return most
}

// first returns the task whose first step matches a text, 0 if none does.
func (c *Cassette) first(text string) int {
	for task := 1; task <= c.tasks(); task++ {
		steps := c.of(Associate, task)
		if len(steps) > 0 && steps[0].Match != "" && regexp.MustCompile(steps[0].Match).MatchString(text) {
			return task
		}
	}
	return 0
}

// short cuts a text for a message.
func short(s string) string {
	if s = strings.Join(strings.Fields(s), " "); len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
