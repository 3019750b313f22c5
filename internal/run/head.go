package run

import (
	"strings"
	"time"

	"choir.dev/choiros/contract"
)

// Head is a run as lists show it.
type Head struct {
	Status     contract.RunStatus          `json:"status"`
	Reason     string                      `json:"reason"`
	Command    contract.RunCommand         `json:"command"` // the user's last pause, resume or cancel
	Document   string                      `json:"document"`
	Provider   string                      `json:"provider"`
	Model      string                      `json:"model"`
	Direct     string                      `json:"direct"` // why it went to one Associate at once; "" if a Director planned it
	Objective  string                      `json:"objective"`
	Plan       []contract.PlanItem         `json:"plan"`
	Summary    string                      `json:"summary"`
	Error      string                      `json:"error"`
	Verified   contract.VerificationStatus `json:"verified"`
	Checkpoint string                      `json:"checkpoint"`
	// Usage is what was metered so far; once the run is reported, it is what the report
	// says and what was metered afterwards.
	Usage contract.Usage `json:"usage"`
	Ended time.Time      `json:"ended"` // zero while the run is open
	// StoodMS is how long it stood still because the machine or choir did.
	StoodMS int64 `json:"stood_ms"`
	// Waits are the loops that wait for their model.
	Waits []ModelWait `json:"waits"`
	// Fallback is the model (provider/model) that answers in the place of Model; "" if none does.
	Fallback string `json:"fallback"`
}

// ModelWait is a loop that waits for its model.
type ModelWait struct {
	Task string `json:"task,omitempty"` // "" is the Director
	contract.ModelWaiting
}

// waits replaces what is known of the wait of one loop; nil ends it.
func (h *Head) waits(task string, w *contract.ModelWaiting) {
	var out []ModelWait // what was returned before may still be read
	for _, k := range h.Waits {
		if k.Task != task {
			out = append(out, k)
		}
	}
	if w != nil && h.Ended.IsZero() {
		out = append(out, ModelWait{task, *w})
	}
	h.Waits = out
}

// NewHead is a run of which only the prompt is known.
func NewHead(p contract.PromptSubmitted) Head {
	return Head{Status: contract.RunQueued, Model: p.Model}
}

// Apply applies an event of the run and says whether it changed anything: a change of
// status after the report, which lost the race against it, does not.
func (h *Head) Apply(e contract.Event, p contract.Payload) bool {
	switch p := p.(type) {
	case *contract.RunStarted:
		h.Document, h.Provider, h.Model, h.Direct = p.Document, p.Provider, p.Model, p.Direct
	case *contract.RunPlanned:
		h.Objective, h.Plan = p.Objective, p.Plan
	case *contract.RunMoved:
		if !h.Ended.IsZero() {
			return false
		}
		h.Status, h.Reason = p.Status, p.Reason
		if p.Status != contract.RunWaiting {
			h.Waits = nil
		}
	case *contract.ModelWaiting:
		h.waits(e.Task, p)
	case *contract.ModelResumed:
		h.waits(e.Task, nil)
		if p.Outcome == contract.WaitAnswered {
			h.Fallback = ""
			if p.Instead != "" {
				h.Fallback = p.Provider + "/" + p.Model
			}
		}
	case *contract.ModelSwitched:
		h.Provider, h.Model, _ = strings.Cut(p.Model, "/")
		h.Fallback = ""
	case *contract.RunStood:
		if p.Why != contract.StoodBox { // a box's time is part of its task's, which counts
			h.StoodMS += p.ForMS
		}
	case *contract.RunCommanded:
		h.Command = p.Command
	case *contract.UsageMetered:
		h.Usage = h.Usage.Add(p.Usage)
	case *contract.RunReported:
		if !h.Ended.IsZero() {
			return false
		}
		h.Status, h.Reason, h.Summary, h.Error = p.Status, "", p.Summary, p.Error
		h.Checkpoint, h.Verified, h.Usage, h.Ended = p.Checkpoint, p.Verified, p.Usage, e.Time.UTC()
		if p.Document != "" {
			h.Document = p.Document
		}
		h.Waits = nil
	default:
		return false
	}
	return true
}

// Statuses of a task before it has a result.
const (
	TaskRequested = "requested"
	TaskRunning   = "running"
)

// TaskHead is a task as lists show it.
type TaskHead struct {
	Status       string                      `json:"status"` // requested, running, or the newest result's
	Attempt      int                         `json:"attempt"`
	Base         string                      `json:"base"`
	Head         string                      `json:"head"`
	Summary      string                      `json:"summary"`
	Verification contract.VerificationStatus `json:"verification"`
	Started      time.Time                   `json:"started"`
	Finished     time.Time                   `json:"finished"`
}

// NewTaskHead is a task that was requested.
func NewTaskHead(t contract.DirectorTask) TaskHead {
	return TaskHead{Status: TaskRequested, Attempt: t.Attempt, Base: t.Base}
}

// Apply applies an event of the task and says whether it changed anything; an event of an
// older attempt does not.
func (t *TaskHead) Apply(e contract.Event, p contract.Payload) bool {
	switch p := p.(type) {
	case *contract.TaskStarted:
		if p.Attempt < t.Attempt {
			return false
		}
		t.Status, t.Attempt = TaskRunning, p.Attempt
		if p.Base != "" {
			t.Base = p.Base
		}
		if t.Started.IsZero() {
			t.Started = e.Time.UTC()
		}
	case *contract.TaskFinished:
		r := &p.Result
		if r.Attempt < t.Attempt {
			return false
		}
		t.Status, t.Attempt, t.Head, t.Summary, t.Verification = string(r.Status), r.Attempt, r.Head, r.Summary, r.Verification.Status
		t.Finished = e.Time.UTC()
		if r.Base != "" {
			t.Base = r.Base
		}
	default:
		return false
	}
	return true
}
