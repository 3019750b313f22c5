// Package telling records what an agent program reports of its work, within bounds.
package telling

import (
	"fmt"
	"strings"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/acp"
	"choir.dev/choiros/internal/fault"
)

// Bounds of what is recorded of a program's words in one session.
const (
	maxTold      = 2000     // events
	maxToldCalls = 100_000  // calls that are told apart
	maxWords     = 12 << 10 // bytes of what is told at once
)

// Telling records what a program reports: text when it is whole or long, each call when it begins and
// when it ends, each plan that is another.
type Telling struct {
	options Options

	mu    sync.Mutex
	text  strings.Builder // what it said, of which the log does not know yet
	whole string          // what it said last without doing anything in between
	after bool            // whether it did something since
	plan  string
	calls map[string]*toldCall
	told  int
	err   error // why something could not be recorded
}

// toldCall is a call as it was told of.
type toldCall struct {
	title     string
	begun     bool
	concluded bool
}

// Options are what a Telling needs of the attempt.
type Options struct {
	MaxCalls int // the task's budget of calls; 0: none
	// Calls returns how many calls the attempt has made, after it has added some.
	Calls func(add int) int
	// Record stores a report.
	Record func(contract.ProgramReported) error
}

// New returns a Telling of a program that has said nothing yet.
func New(o Options) *Telling { return &Telling{options: o, calls: map[string]*toldCall{}} }

// Hear takes an update of the program. What it returns ends the conversation.
func (t *Telling) Hear(u acp.Update) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch u.Kind {
	case acp.Said:
		return t.said(u.Text)
	case acp.Plan:
		if u.Text == t.plan {
			return nil
		}
		t.plan = u.Text
		if err := t.flushed(); err != nil {
			return err
		}
		return t.tell(contract.ProgramReported{What: contract.ProgramPlan, Text: u.Text})
	case acp.Call:
		return t.called(u)
	}
	return nil
}

func (t *Telling) said(text string) error {
	if t.after {
		t.whole, t.after = "", false
	}
	t.whole += text[:min(len(text), maxWords-len(t.whole))]
	for len(text) > 0 {
		n := min(len(text), maxWords-t.text.Len())
		t.text.WriteString(text[:n])
		if text = text[n:]; t.text.Len() >= maxWords {
			if err := t.flushed(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Telling) called(u acp.Update) error {
	t.after = true
	c := t.calls[u.Call]
	if c == nil {
		n := t.options.Calls(1)
		if most := t.options.MaxCalls; most > 0 && n > most {
			return fault.New("", fault.Exhausted, "", fmt.Errorf("its budget of %d tool calls is used up", most))
		}
		if len(t.calls) >= maxToldCalls {
			return fault.New("", fault.Exhausted, "", fmt.Errorf("it made more than %d tool calls", maxToldCalls))
		}
		c = &toldCall{}
		t.calls[u.Call] = c
	}
	if u.Text != "" {
		c.title = u.Text
	}
	status := contract.CallStatus("")
	switch {
	case c.concluded:
	case u.Status == acp.Completed:
		c.concluded, status = true, contract.CallDone
	case u.Status == acp.Failed:
		c.concluded, status = true, contract.CallFailed
	case u.Status == acp.Running && !c.begun:
		c.begun, status = true, contract.CallBegun
	}
	if status == "" {
		return nil
	}
	if err := t.flushed(); err != nil {
		return err
	}
	return t.tell(contract.ProgramReported{What: contract.ProgramCall, Text: c.title, Call: u.Call, Status: status})
}

// Flush records what is not in the log yet.
func (t *Telling) Flush() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flushed()
}

func (t *Telling) flushed() error {
	if t.text.Len() == 0 {
		return nil
	}
	text := strings.ToValidUTF8(t.text.String(), "\uFFFD")
	t.text.Reset()
	return t.tell(contract.ProgramReported{What: contract.ProgramSaid, Text: text})
}

// tell records one report, as long as there were not too many.
func (t *Telling) tell(p contract.ProgramReported) error {
	if t.told++; t.told > maxTold {
		return nil
	}
	p.Calls = t.options.Calls(0)
	err := t.options.Record(p)
	if t.err == nil {
		t.err = err
	}
	return err
}

// Last is what the program said last.
func (t *Telling) Last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(t.whole, "")
}

// Failed is why something could not be recorded.
func (t *Telling) Failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
