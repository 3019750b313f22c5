package trace

import (
	"slices"
	"strconv"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// MaxSpans bounds the spans of a run; what comes after them is counted.
const MaxSpans = 5000

// Types lists the types of the events that matter to a trace; others need not be applied.
func Types() []string {
	return []string{"prompt.submitted", "run.started", "run.planned", "run.stood", "run.reported", "question.asked", "question.answered", "model.waiting", "model.resumed",
		"task.requested", "attempt.moved", "task.started", "repair.requested", "task.finished", "usage.metered", "tool.called", "tool.returned", "approval.requested", "approval.answered"}
}

// Tree is the trace of one run, as far as its events were applied.
type Tree struct {
	cid  contract.CID
	run  string
	id   string // of the trace
	from string // the span of another program that asked for the run

	spans   []*span // parents before their children
	byKey   map[string]*span
	newest  map[string]int // the newest attempt of each task
	open    map[string]*span
	last    uint64
	ended   bool
	dropped int
}

// span is one that is being put together.
type span struct {
	view.Span
	parent *span
}

// New is the trace of a run of which no event is known.
func New(cid contract.CID, run string) *Tree {
	r := &Tree{cid: cid, run: run, byKey: map[string]*span{}, newest: map[string]int{}, open: map[string]*span{}}
	r.id = r.derive("trace", "", 16)
	return r
}

// Apply applies an event of the run. Events must come in the log's order; one that was applied
// before changes nothing, and neither does one behind the run's report.
func (r *Tree) Apply(e contract.Event, p contract.Payload) {
	if e.Sequence <= r.last || r.ended {
		return
	}
	r.last = e.Sequence
	at := e.Time.UTC()
	switch p := p.(type) {
	case *contract.PromptSubmitted:
		root := r.root(at)
		if id, from, ok := parent(e.Traceparent); ok {
			r.id, r.from = id, from
		}
		if p.Continues != "" {
			root.set("choir.run.continues", p.Continues)
		}
	case *contract.RunStarted:
		r.root(at).set("choir.run.direct", p.Direct != "")
		if p.Direct == "" {
			r.director(at)
		}
	case *contract.RunPlanned:
		r.director(at)
	case *contract.RunStood:
		s := r.add("stood/"+e.ID, r.loop(e.Task, 0, at), "stand_still", at.Add(-time.Duration(p.ForMS)*time.Millisecond))
		r.end(s, at)
		s.set("choir.stood.why", label(string(p.Why)))
	case *contract.RunReported:
		r.report(p, at)
	case *contract.UsageMetered:
		r.chat(e, p, at)
	case *contract.TaskRequested:
		r.requested(p, at)
	case *contract.TaskStarted:
		r.attempt(e.Task, p.Attempt, at)
	case *contract.AttemptMoved:
		r.moved(e, p, at)
	case *contract.RepairRequested:
		r.attempt(e.Task, p.Attempt, at).set("choir.attempt.repairs", int64(p.Repair))
	case *contract.TaskFinished:
		r.finished(e, p, at)
	case *contract.ToolCalled:
		r.called(e, p, at)
	case *contract.ToolReturned:
		r.returned(e, p, at)
	default:
		r.waits(e, p, at)
	}
}

// waits applies the events between which a loop waits for a person or a model.
func (r *Tree) waits(e contract.Event, p contract.Payload, at time.Time) {
	switch p := p.(type) {
	case *contract.QuestionAsked:
		key := "question/" + p.Question.ID
		r.begin(key, key, r.director(at), "wait_for_answer", at)
	case *contract.QuestionAnswered:
		if s := r.close("question/"+p.Question, at); s != nil {
			s.set("choir.answer.default", p.Default)
		}
	case *contract.ApprovalRequested:
		key := "approval/" + p.Approval
		r.begin(key, key, r.loop(e.Task, p.Attempt, at), "wait_for_approval", at).set("choir.approval.kind", label(string(p.Act.Kind)))
	case *contract.ApprovalAnswered:
		if s := r.close("approval/"+p.Approval, at); s != nil {
			s.set("choir.approval.answer", label(string(p.Answer)))
		}
	case *contract.ModelWaiting:
		s := r.begin("model/"+e.Task, "model/"+e.ID, r.loop(e.Task, 0, at), "wait_for_model", at)
		s.set("choir.wait.code", label(p.Code))
		s.set(providerName, provider(p.Provider))
		s.set(requestModel, label(p.Model))
	case *contract.ModelResumed:
		if s := r.close("model/"+e.Task, at); s != nil {
			s.set("choir.wait.outcome", label(string(p.Outcome)))
		}
	}
}

// root is the span of the run.
func (r *Tree) root(at time.Time) *span {
	s := r.add("run", nil, "invoke_workflow run", at)
	s.set(operation, "invoke_workflow")
	s.set("gen_ai.workflow.name", "run")
	s.set("choir.run.id", r.run)
	return s
}

// director is the span of the run's Director.
func (r *Tree) director(at time.Time) *span {
	s := r.add("director", r.root(at), "invoke_agent Director", at)
	s.set(operation, "invoke_agent")
	s.set("gen_ai.agent.name", "Director")
	return s
}

func (r *Tree) task(id string, at time.Time) *span {
	s := r.add("task/"+id, r.root(at), "task", at)
	s.set("choir.task.id", id)
	return s
}

// attempt is the span of an attempt at a task.
func (r *Tree) attempt(task string, n int, at time.Time) *span {
	t := r.task(task, at)
	if n > r.newest[task] {
		r.newest[task], t.End, t.To = n, time.Time{}, 0 // the task goes on
	}
	s := r.add("attempt/"+task+"/"+strconv.Itoa(n), t, "attempt", at)
	s.set("choir.attempt", int64(n))
	if agent, ok := t.Attributes["choir.task.agent"].(string); ok {
		s.Name = "invoke_agent " + agent
		s.set(operation, "invoke_agent")
		s.set("gen_ai.agent.name", agent)
		s.set("gen_ai.agent.id", task)
	}
	return s
}

// loop is the span of the loop that an event is of: the Director's, or an attempt's. Of attempt 0
// it is the newest, and before the first the task's own.
func (r *Tree) loop(task string, attempt int, at time.Time) *span {
	if task == "" {
		return r.director(at)
	}
	if attempt == 0 {
		attempt = r.newest[task]
	}
	if attempt == 0 {
		return r.task(task, at)
	}
	return r.attempt(task, attempt, at)
}

func (r *Tree) requested(p *contract.TaskRequested, at time.Time) {
	t := r.task(p.Task.ID, at)
	t.Name = "task " + label(string(p.Task.Kind))
	t.set("choir.task.kind", label(string(p.Task.Kind)))
	switch {
	case p.Task.Program != "":
		t.set("choir.task.agent", label(p.Task.Program))
	case p.Task.Kind.Thinks():
		t.set("choir.task.agent", "Associate")
	}
}

// moved applies a transition of an attempt. How long it is verified and published are spans.
func (r *Tree) moved(e contract.Event, p *contract.AttemptMoved, at time.Time) {
	a := r.attempt(e.Task, p.Attempt, at)
	key := e.Task + "/" + strconv.Itoa(p.Attempt)
	verify, publish := "verify/"+key, "publish/"+key
	if p.State != contract.AttemptPublishing {
		r.close(publish, at)
	}
	switch p.State {
	case contract.AttemptVerifying:
		r.begin(verify, "verify/"+e.ID, a, "verify", at)
	case contract.AttemptVerified:
		if s := r.close(verify, at); s != nil && p.Verification != nil {
			s.set(verification, label(string(p.Verification.Status)))
			s.set("choir.verification.tests", int64(p.Verification.Tests))
			if p.Verification.Status == contract.VerificationFail {
				s.Error = "verification_failed"
			}
		}
	case contract.AttemptPublishing:
		r.begin(publish, "publish/"+e.ID, a, "publish", at)
	}
}

func (r *Tree) finished(e contract.Event, p *contract.TaskFinished, at time.Time) {
	n := p.Result.Attempt
	a := r.attempt(e.Task, n, at)
	r.close("publish/"+e.Task+"/"+strconv.Itoa(n), at)
	ended := []*span{a}
	if n >= r.newest[e.Task] {
		ended = append(ended, r.task(e.Task, at))
	}
	for _, s := range ended {
		r.end(s, at)
		s.set("choir.task.status", label(string(p.Result.Status)))
		s.set(verification, label(string(p.Result.Verification.Status)))
		s.Error = ""
		if p.Result.Status != contract.ResultOK && p.Result.Status != contract.ResultNeedsInput {
			s.Error = label(string(p.Result.Status))
		}
	}
}

// chat adds a call of a model, which was metered when it had ended.
func (r *Tree) chat(e contract.Event, p *contract.UsageMetered, at time.Time) {
	begun := at.Add(-time.Duration(p.Usage.WallMS) * time.Millisecond)
	s := r.add("chat/"+p.Call, r.loop(e.Task, 0, begun), "chat "+label(p.Model), begun)
	s.Kind = view.SpanClient
	r.end(s, at)
	s.set(operation, "chat")
	s.set(providerName, provider(p.Provider))
	s.set(requestModel, label(p.Model))
	s.set(inputTokens, p.Usage.TokensIn)
	s.set(outputTokens, p.Usage.TokensOut)
	if p.Usage.TokensCached > 0 {
		s.set("gen_ai.usage.cache_read.input_tokens", p.Usage.TokensCached)
	}
	s.set("choir.cost_usd", p.Usage.CostUSD)
	if p.Estimated {
		s.set("choir.usage.estimated", true)
	}
	if p.Retries > 0 {
		s.set("choir.retries", int64(p.Retries))
	}
	if p.Outcome != "ok" {
		s.Error = label(p.Outcome)
	}
}

func (r *Tree) called(e contract.Event, p *contract.ToolCalled, at time.Time) {
	key := toolKey(e.Task, p.Attempt, p.Call)
	s := r.begin(key, "tool/"+e.ID, r.loop(e.Task, p.Attempt, at), "execute_tool "+label(p.Name), at)
	s.set(operation, "execute_tool")
	s.set("gen_ai.tool.name", label(p.Name))
	s.set("gen_ai.tool.type", "function")
	s.set("choir.tool.read_only", p.ReadOnly)
}

func (r *Tree) returned(e contract.Event, p *contract.ToolReturned, at time.Time) {
	if s := r.close(toolKey(e.Task, p.Attempt, p.Call), at); s != nil && !p.OK {
		s.Error = "tool_error"
	}
}

func toolKey(task string, attempt int, call string) string {
	return "tool/" + task + "/" + strconv.Itoa(attempt) + "/" + call
}

func (r *Tree) report(p *contract.RunReported, at time.Time) {
	s := r.root(at)
	r.end(s, at)
	if d := r.byKey["director"]; d != nil {
		r.end(d, at)
	}
	s.set("choir.run.status", label(string(p.Status)))
	s.set(verification, label(string(p.Verified)))
	s.set("choir.run.tokens_in", p.Usage.TokensIn)
	s.set("choir.run.tokens_out", p.Usage.TokensOut)
	s.set("choir.run.cost_usd", p.Usage.CostUSD)
	if p.Status != contract.RunDone {
		s.Error = label(string(p.Status))
	}
	r.ended = true
}

// add returns the span of a key, which is made if there is none. One that there is begins at the
// earlier of two times.
func (r *Tree) add(key string, parent *span, name string, at time.Time) *span {
	if s := r.byKey[key]; s != nil {
		if at.Before(s.Start) {
			s.Start = at
		}
		return s
	}
	s := &span{parent: parent, Span: view.Span{ID: r.derive("span", key, 8), Name: name, Kind: view.SpanInternal, Start: at, From: r.last, Attributes: map[string]any{}}}
	if r.byKey[key] = s; parent != nil {
		s.Parent = parent.ID
	}
	if len(r.spans) >= MaxSpans {
		r.dropped++
		return s // whatever belongs to it comes later, and is dropped, too
	}
	r.spans = append(r.spans, s)
	return s
}

// begin adds a span that is open, and known by what, until it is closed. One that is open already
// goes on.
func (r *Tree) begin(what, key string, parent *span, name string, at time.Time) *span {
	if s := r.open[what]; s != nil {
		return s
	}
	s := r.add(key, parent, name, at)
	r.open[what] = s
	return s
}

// close ends what is open, nil if nothing is.
func (r *Tree) close(what string, at time.Time) *span {
	s := r.open[what]
	if s != nil {
		r.end(s, at)
		delete(r.open, what)
	}
	return s
}

// end ends a span with the event that is being applied.
func (r *Tree) end(s *span, at time.Time) { s.End, s.To = at, r.last }

func (s *span) set(key string, value any) { s.Attributes[key] = value }

// Trace is what the applied events give. What was not closed ends with its parent.
func (r *Tree) Trace() view.Trace {
	t := view.Trace{ID: r.id, Run: r.run, Ended: r.ended, Dropped: r.dropped, Spans: make([]view.Span, 0, len(r.spans))}
	shown := make(map[*span]view.Span, len(r.spans))
	for _, s := range r.spans {
		v := s.Span
		v.Attributes = make(map[string]any, len(s.Attributes)+1)
		for key, value := range s.Attributes {
			v.Attributes[key] = value
		}
		if s.Attributes[operation] != nil {
			v.Attributes["gen_ai.conversation.id"] = r.run
		}
		if s.parent == nil {
			v.Parent = r.from
		} else {
			above := shown[s.parent]
			if v.Start.Before(above.Start) {
				v.Start = above.Start // a clock was set back
			}
			if v.End.IsZero() && !above.End.IsZero() {
				v.End = above.End
				v.Attributes["choir.unfinished"] = true
			}
		}
		if !v.End.IsZero() && v.End.Before(v.Start) {
			v.End = v.Start
		}
		shown[s] = v
		t.Spans = append(t.Spans, v)
	}
	return t
}

// Known says whether the run has any span.
func (r *Tree) Known() bool {
	return slices.ContainsFunc(r.spans, func(s *span) bool { return s.parent == nil })
}
