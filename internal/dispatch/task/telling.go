package task

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

// telling records what a program reports: text when it is whole or long, each call when it begins and
// when it ends, each plan that is another.
type telling struct {
	attempt *attempt

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

func newTelling(a *attempt) *telling { return &telling{attempt: a, calls: map[string]*toldCall{}} }

// hear takes an update of the program. What it returns ends the conversation.
func (t *telling) hear(u acp.Update) error {
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

func (t *telling) said(text string) error {
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

func (t *telling) called(u acp.Update) error {
	t.after = true
	c := t.calls[u.Call]
	if c == nil {
		a := t.attempt
		a.mu.Lock()
		a.calls++
		n := a.calls
		a.mu.Unlock()
		if most := a.task.Budget.ToolCalls; most > 0 && n > most {
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

// flush records what is not in the log yet.
func (t *telling) flush() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.flushed()
}

func (t *telling) flushed() error {
	if t.text.Len() == 0 {
		return nil
	}
	text := strings.ToValidUTF8(t.text.String(), "\uFFFD")
	t.text.Reset()
	return t.tell(contract.ProgramReported{What: contract.ProgramSaid, Text: text})
}

// tell records one report, as long as there were not too many.
func (t *telling) tell(p contract.ProgramReported) error {
	if t.told++; t.told > maxTold {
		return nil
	}
	a := t.attempt
	a.mu.Lock()
	p.Calls = a.calls
	a.mu.Unlock()
	p.Attempt, p.Program = a.ref.Attempt, a.task.Program
	_, err := a.run.Append(a.run.Context(), contract.Draft{Actor: contract.AssociateOf(a.ref.Task), Type: "program.reported", Subject: a.ref.Task, Task: a.ref.Task, Data: &p})
	if t.err == nil {
		t.err = err
	}
	return err
}

// last is what the program said last.
func (t *telling) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(t.whole, "")
}

// failed is why something could not be recorded.
func (t *telling) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
