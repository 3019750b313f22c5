package dispatch

import (
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/director"
)

// story is a run as its events tell it. It is folded from the log, while the
// run goes on and again after a crash, and from nothing else.
type story struct {
	id          string // the run's
	document    string
	prompt      contract.PromptSubmitted
	user        string
	cause       string // id of prompt.submitted
	correlation string
	sequence    uint64 // of prompt.submitted
	began       time.Time

	started   *contract.RunStarted
	plan      contract.RunPlanned
	status    contract.RunStatus
	tasks     []*taskStory // in the order they were requested
	byID      map[string]*taskStory
	turns     []contract.TurnRecorded // the Director's
	questions []question
	steering  []string
	approvals []*approval
	paused    bool
	cancelled bool
	report    *contract.RunReported
	causes    []string // per task, what delegated it
}

type question struct {
	contract.Question
	answer    string
	answered  bool
	byDefault bool
}

// taskStory is one task of a run.
type taskStory struct {
	task    contract.DirectorTask
	batch   int // tasks of one delegation share it
	results map[int]contract.AssociateResult
	last    *contract.AssociateResult // the newest attempt's
	attempt int                       // newest that was started; 0 before
	base    string                    // of that attempt
	starts  int                       // how often that attempt was started
	turns   []contract.TurnRecorded
	calls   []contract.ToolCalled
	returns map[string]contract.ToolReturned
	live    bool // something of it was published live
	settled bool // nobody works on it any more; not from the log
}

func (t *taskStory) ended() bool { return t.last != nil && t.last.Attempt >= t.attempt }

// changes reports whether the task's purpose is to change something.
func (t *taskStory) changes() bool { return t.task.Kind != contract.KindInspect }

func newStory(runID string) *story {
	return &story{id: runID, document: contract.DeriveID(runID, "document"), status: contract.RunQueued, byID: map[string]*taskStory{}}
}

// apply takes one event of the run. Payloads that are not about runs are ignored.
func (s *story) apply(e contract.Event, p contract.Payload) {
	switch p := p.(type) {
	case *contract.PromptSubmitted:
		s.prompt, s.user, s.cause, s.sequence, s.began = *p, e.User, e.ID, e.Sequence, e.Time
		s.correlation = e.ID
	case *contract.RunStarted:
		s.started = p
	case *contract.RunPlanned:
		s.plan = *p
	case *contract.RunMoved:
		s.status = p.Status
	case *contract.RunSteered:
		s.steering = append(s.steering, p.Text)
	case *contract.RunCommanded:
		switch p.Command {
		case contract.CommandPause:
			s.paused = true
		case contract.CommandResume:
			s.paused = false
		case contract.CommandCancel:
			s.cancelled = true
		}
	case *contract.QuestionAsked:
		for _, q := range s.questions {
			if q.ID == p.Question.ID {
				return
			}
		}
		s.questions = append(s.questions, question{Question: p.Question})
	case *contract.QuestionAnswered:
		for i := range s.questions {
			if q := &s.questions[i]; q.ID == p.Question && !q.answered {
				q.answer, q.answered, q.byDefault = p.Answer, true, p.Default
			}
		}
	case *contract.RunReported:
		s.report, s.status = p, p.Status
	default:
		if !s.applyApproval(e, p) {
			s.applyTask(e, p)
		}
	}
}

func (s *story) applyTask(e contract.Event, p contract.Payload) {
	if p, ok := p.(*contract.TaskRequested); ok {
		if s.byID[p.Task.ID] != nil {
			return
		}
		batch := 0
		if n := len(s.tasks); n > 0 {
			batch = s.tasks[n-1].batch
			if s.causes[n-1] != e.Causation {
				batch++
			}
		}
		t := &taskStory{task: p.Task, batch: batch, results: map[int]contract.AssociateResult{}, returns: map[string]contract.ToolReturned{}}
		s.tasks = append(s.tasks, t)
		s.byID[p.Task.ID] = t
		s.causes = append(s.causes, e.Causation)
		return
	}
	if p, ok := p.(*contract.TurnRecorded); ok && e.Task == "" {
		s.turns = put(s.turns, *p)
		return
	}
	t := s.byID[e.Task]
	if t == nil {
		return
	}
	switch p := p.(type) {
	case *contract.TaskStarted:
		if p.Attempt != t.attempt {
			t.attempt, t.starts, t.turns, t.calls, t.live = p.Attempt, 0, nil, nil, false
			t.returns = map[string]contract.ToolReturned{}
		}
		t.base = p.Base
		t.starts++
	case *contract.TaskFinished:
		t.results[p.Result.Attempt] = p.Result
		if t.last == nil || p.Result.Attempt >= t.last.Attempt {
			r := p.Result
			t.last = &r
		}
	case *contract.TurnRecorded:
		if p.Attempt == t.attempt {
			t.turns = put(t.turns, *p)
		}
	case *contract.ToolCalled:
		if p.Attempt == t.attempt {
			t.calls = append(t.calls, *p)
		}
	case *contract.ToolReturned:
		if p.Attempt == t.attempt {
			t.returns[p.Call] = *p
		}
	case *contract.PublishStarted:
		t.live = t.live || p.Live
	}
}

func put(list []contract.TurnRecorded, t contract.TurnRecorded) []contract.TurnRecorded {
	for i := range list {
		if list[i].Index == t.Index {
			list[i] = t
			return list
		}
	}
	return append(list, t)
}

// unreturned are the calls of the newest attempt whose return is not in the log.
func (t *taskStory) unreturned() []contract.ToolCalled {
	var out []contract.ToolCalled
	for _, c := range t.calls {
		if _, ok := t.returns[c.Call]; !ok {
			out = append(out, c)
		}
	}
	return out
}

// resumable fills the returns of the last recorded turn from what the log knows
// of its calls: one that returned has its output, one that did not is unknown,
// and one that was never made was not made. A turn of which nothing was made is
// left out: the model is asked again.
func (t *taskStory) resumable() []contract.TurnRecorded {
	out := append([]contract.TurnRecorded(nil), t.turns...)
	if len(out) == 0 || out[len(out)-1].Returns != nil {
		return out
	}
	called := map[string]contract.ToolCalled{}
	for _, c := range t.calls {
		called[c.Call] = c
	}
	last := &out[len(out)-1]
	msg := contract.Message{Role: contract.MessageUser}
	any := false
	for _, p := range last.Message.Parts {
		if p.Call == nil {
			continue
		}
		r := &contract.ToolReturn{ID: p.Call.ID}
		_, made := called[p.Call.ID]
		any = any || made
		ret, returned := t.returns[p.Call.ID]
		switch {
		case returned:
			r.Content, r.IsError = ret.Output, !ret.OK
			if r.Content == "" {
				r.Content = "(no output)"
			}
		case made:
			r.IsError, r.Content = true, "Unknown: the box or the computer ended while this call ran. It may or may not have happened; look before you repeat it."
		default:
			r.IsError, r.Content = true, "Not run: the box or the computer ended before it."
		}
		msg.Parts = append(msg.Parts, contract.Part{Return: r})
	}
	if !any && len(msg.Parts) > 0 {
		return out[:len(out)-1]
	}
	if len(msg.Parts) > 0 {
		last.Returns = []contract.Message{msg}
	}
	return out
}

// resumable is the same for the Director: its tasks have all ended, so what
// came of a delegation is known.
func (s *story) resumable() []contract.TurnRecorded {
	out := append([]contract.TurnRecorded(nil), s.turns...)
	if len(out) == 0 || out[len(out)-1].Returns != nil {
		return out
	}
	last := &out[len(out)-1]
	msg := contract.Message{Role: contract.MessageUser}
	any := false
	for _, p := range last.Message.Parts {
		if p.Call == nil {
			continue
		}
		r := &contract.ToolReturn{ID: p.Call.ID, Content: "Not run: the computer restarted before it.", IsError: true}
		var views []director.TaskView
		for i, t := range s.tasks {
			if s.causes[i] == s.delegation(p.Call.ID) {
				views = append(views, t.view())
			}
		}
		if len(views) > 0 {
			r.Content, r.IsError, any = director.DescribeTasks(views), false, true
		}
		for _, q := range s.questions {
			if q.ID == s.questionID(p.Call.ID) && q.answered {
				r.Content, r.IsError, any = director.DescribeAnswer(director.Answer{Answer: q.answer, Default: q.byDefault}), false, true
			}
		}
		msg.Parts = append(msg.Parts, contract.Part{Return: r})
	}
	if len(msg.Parts) == 0 {
		return out
	}
	if !any {
		return out[:len(out)-1]
	}
	last.Returns = []contract.Message{msg}
	return out
}

// delegation is what causes the tasks of one call of delegate.
func (s *story) delegation(call string) string {
	return contract.DeriveID(s.id, "delegation:"+call)
}

func (s *story) questionID(call string) string { return contract.DeriveID(s.id, "question:"+call) }

// view is the task as the Director sees it.
func (t *taskStory) view() director.TaskView {
	v := director.TaskView{ID: t.task.ID, Kind: t.task.Kind, Goal: t.task.Goal, Status: "working"}
	if !t.ended() {
		return v
	}
	r := t.last
	v.Status, v.Summary, v.Head, v.Next = string(r.Status), r.Summary, r.Head, r.SuggestedNext
	v.Verification, v.Reason = r.Verification.Status, r.Verification.Reason
	for _, c := range r.Verification.Checks {
		if c.Status != contract.VerificationPass {
			out := c.Command.Stdout + "\n" + c.Command.Stderr
			v.Reason += fmt.Sprintf("\n%s: exit code %d\n%s", c.Name, c.Command.ExitCode, tail(out, 1500))
		}
	}
	for i, c := range r.Changes {
		if i == 40 {
			v.Changes = append(v.Changes, fmt.Sprintf("and %d more", len(r.Changes)-i))
			break
		}
		v.Changes = append(v.Changes, fmt.Sprintf("%s (%s)", c.Path, c.Op))
	}
	for _, q := range r.Questions {
		v.Questions = append(v.Questions, q.Text)
	}
	return v
}

// verdict is the host's own judgement of a run that claims to be done: the last
// attempt at each of its tasks must have worked, and it is verified when all
// that changed something are. A later task with the same goal is another
// attempt; one with another goal makes up for nothing.
func (s *story) verdict() (ok bool, verified contract.VerificationStatus, why []string) {
	if len(s.tasks) == 0 {
		return true, contract.VerificationUnknown, []string{"No task was given to anybody: nothing was done or changed, these are only words."}
	}
	ok, verified = true, contract.VerificationUnknown
	passed, doubted, changed := false, false, false
	for i, t := range s.tasks {
		name := fmt.Sprintf("“%s”", title(t.task.Goal))
		if t.ended() && len(t.last.Changes) > 0 && t.last.Status == contract.ResultOK || t.ended() && t.last.Head != "" {
			changed = true
		}
		switch {
		case !t.ended():
			ok = false
			why = append(why, name+" has not ended.")
		case t.last.Status != contract.ResultOK && s.again(i):
			why = append(why, fmt.Sprintf("An earlier attempt at %s ended as %s.", name, t.last.Status))
		case t.last.Status != contract.ResultOK && defence.Off(defence.RunConjunction):
		case t.last.Status != contract.ResultOK:
			ok, doubted = false, true
			why = append(why, fmt.Sprintf("%s ended as %s.", name, t.last.Status))
		case !t.changes():
		case t.last.Verification.Status == contract.VerificationPass:
			passed = true
			for _, said := range t.last.Verification.Said {
				why = append(why, fmt.Sprintf("In %s %s.", name, said))
			}
		case len(t.last.Changes) > 0:
			doubted = true
			for _, said := range t.last.Verification.Said {
				why = append(why, fmt.Sprintf("In %s %s.", name, said))
			}
			why = append(why, fmt.Sprintf("%s is not verified: %s.", name, t.last.Verification.Reason))
		}
	}
	if !changed {
		why = append(why, "Nothing was changed.")
	}
	if passed && !doubted {
		verified = contract.VerificationPass
	}
	return ok, verified, why
}

// again reports whether a later task is another attempt at task i: it has the
// same kind and goal, and changes something that it must answer for.
func (s *story) again(i int) bool {
	for _, later := range s.tasks[i+1:] {
		if later.task.Kind == s.tasks[i].task.Kind && later.task.Goal == s.tasks[i].task.Goal {
			return true
		}
	}
	return false
}

// checkpoint is the newest one that holds work of the run.
func (s *story) checkpoint() string {
	for i := len(s.tasks) - 1; i >= 0; i-- {
		if l := s.tasks[i].last; l != nil && l.Head != "" {
			return l.Head
		}
	}
	return ""
}
