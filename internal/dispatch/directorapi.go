package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/look"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/dispatch/task"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/webpage"
)

// directorAPI is the API that a Director's box may call on the host.
type directorAPI struct {
	run  *run
	eyes *look.Box // in which it looks at the files
	// mu allows one delegation at a time, so that tasks are numbered without gaps.
	mu sync.Mutex
}

func (a *directorAPI) handler() http.Handler {
	r := a.run
	mux := http.NewServeMux()
	mux.Handle("POST /model/turns", r.shown(r.dispatcher.options.Models.Handler(ports.ModelScope{Run: r.story.ID, Role: contract.KindDirector, Model: r.story.Prompt.Model, Effort: r.story.Prompt.Effort, Budget: r.Budget(),
		Waiter: &modelWaits{run: r, rest: r.unpaused}, Chosen: r.Chosen})))
	mux.HandleFunc("POST /clock", loops.Endpoint(1<<10, func(context.Context, *http.Request, struct{}) (any, error) {
		return harness.Clock{UsedMS: max(0, r.used().Milliseconds())}, nil
	}))
	mux.HandleFunc("POST /wake", loops.Endpoint(1<<10, a.wake))
	mux.HandleFunc("POST /turns", loops.Endpoint(contract.MaxTurn, a.turn))
	mux.HandleFunc("POST /events", loops.Endpoint(contract.MaxTask, a.event))
	mux.HandleFunc("POST /tasks", loops.Endpoint(4*contract.MaxTask, a.tasks))
	mux.HandleFunc("POST /tools/{name}", a.look)
	mux.HandleFunc("POST /remember", loops.Endpoint(64<<10, a.remember))
	mux.HandleFunc("POST /ask", loops.Endpoint(64<<10, a.ask))
	mux.HandleFunc("POST /report", loops.Endpoint(1<<10, a.report))
	return mux
}

func (a *directorAPI) wake(ctx context.Context, _ *http.Request, _ struct{}) (any, error) {
	r := a.run
	if err := r.Settle(ctx); err != nil {
		return nil, err
	}
	if err := r.unpaused(ctx); err != nil {
		return nil, err
	}
	if err := r.Settle(ctx); err != nil {
		return nil, err
	}
	folders, err := r.dispatcher.options.Workspace.Folders(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := r.KeptSince(ctx)
	if err != nil {
		return nil, err
	}
	edited := r.doc.Edited(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	w := director.WakeReply{Objective: r.story.Objective, Plan: r.story.Plan, Tree: folders, Document: edited,
		Steering: summary.Words(r.story), Looked: summary.Looked(r.story, a.looks), Kept: kept}
	for _, t := range r.story.Tasks {
		w.Tasks = append(w.Tasks, summary.Task(t))
	}
	if len(w.Tasks) > 40 {
		w.Tasks = w.Tasks[len(w.Tasks)-40:]
	}
	for _, q := range r.story.Questions {
		if q.Answered {
			w.Answers = append(w.Answers, director.Answer{Question: q.Text, Answer: q.Answer, Default: q.ByDefault})
		}
	}
	return w, nil
}

func (a *directorAPI) turn(ctx context.Context, _ *http.Request, t contract.TurnRecorded) (any, error) {
	_, err := a.run.Append(ctx, contract.Draft{Actor: contract.DirectorOf(a.run.story.ID), Type: "turn.recorded", Subject: a.run.story.ID, Data: &t})
	return struct{}{}, err
}

func (a *directorAPI) event(ctx context.Context, _ *http.Request, p director.Post) (any, error) {
	if p.Type != "run.planned" || !contract.MayPost(contract.BoxDirector, p.Type) {
		return nil, fault.New("", fault.Denied, "", fmt.Errorf("a Director may not post %q here", summary.OneLine(p.Type, 60)))
	}
	data, err := contract.DecodeData(p.Type, p.Data)
	if err != nil {
		return nil, fault.New("", fault.Invalid, "", err)
	}
	_, err = a.run.Append(ctx, contract.Draft{Actor: contract.DirectorOf(a.run.story.ID), Type: p.Type, Subject: a.run.story.ID, Data: data})
	return struct{}{}, err
}

// tasks validates a whole delegation, requests its tasks, and waits for them to end.
func (a *directorAPI) tasks(ctx context.Context, _ *http.Request, d director.Delegate) (any, error) {
	r := a.run
	if d.Call == "" || len(d.Call) > 128 {
		return nil, fault.New("", fault.Invalid, "", &contract.FieldError{Field: "call", Reason: "is required"})
	}
	if len(d.Tasks) == 0 || len(d.Tasks) > 8 {
		return nil, fault.New("", fault.Invalid, "", &contract.FieldError{Field: "tasks", Reason: fmt.Sprintf("has %d entries; it must have from 1 to 8", len(d.Tasks))})
	}
	ids, again, err := a.request(ctx, d)
	if err != nil {
		return nil, err
	}
	if err := r.Settle(ctx); err != nil {
		return nil, err
	}
	ended := func(s *story.Run) bool {
		for _, id := range ids {
			if t := s.Task(id); t == nil || !t.Ended() || !r.settled[id] {
				return false
			}
		}
		return true
	}
	for over := false; !over; {
		if err := r.Until(ctx, func(s *story.Run) bool { over = ended(s); return over || s.Paused }); err != nil {
			return nil, err
		}
		if err := r.unpaused(ctx); err != nil {
			return nil, err
		}
	}
	a.eyes.Changed()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out director.Delegated
	for _, id := range ids {
		v := summary.Task(r.story.Task(id))
		v.Again = again[id]
		out.Tasks = append(out.Tasks, v)
	}
	return out, nil
}

// request completes and checks every task before any of them is requested. Of tasks that were asked for
// before, in the same words, it says so, and requests them no second time.
func (a *directorAPI) request(ctx context.Context, d director.Delegate) (ids []string, again map[string]bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.run
	r.mu.Lock()
	n := len(r.story.Tasks)
	r.mu.Unlock()
	if n+len(d.Tasks) > maxTasks {
		return nil, nil, fault.New("", fault.Exhausted, "", fmt.Errorf("a run has at most %d tasks and this one has had %d; report what is done", maxTasks, n))
	}
	cause := summary.Delegation(r.story, d.Call)
	var drafts []contract.Draft
	var fresh []contract.DirectorTask
	again = map[string]bool{}
	for i, raw := range d.Tasks {
		t, err := r.accept(ctx, raw, n+len(fresh))
		if err != nil {
			return nil, nil, prefix(fmt.Sprintf("tasks[%d]", i), err)
		}
		if id := r.asked(t, fresh); id != "" {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
			again[id] = true
			continue
		}
		if r.written(t.Document, fresh) {
			return nil, nil, prefix(fmt.Sprintf("tasks[%d]", i), &contract.FieldError{Field: "document", Reason: t.Document + " is being written by another task; a document has one writer, so give it to one task, or wait for that one"})
		}
		ids, fresh = append(ids, t.ID), append(fresh, t)
		drafts = append(drafts, contract.Draft{ID: contract.DeriveID(t.ID, "requested"), Actor: contract.DirectorOf(a.run.story.ID), Type: "task.requested",
			Subject: t.ID, Task: t.ID, Causation: cause, Data: &contract.TaskRequested{Task: t}})
	}
	if len(fresh) == 0 {
		return ids, again, nil
	}
	if to, reason, news := r.doing(true); news {
		drafts = append(drafts, r.moved(to, reason))
	}
	if _, err := r.Append(ctx, drafts...); err != nil {
		return nil, nil, err
	}
	crash.At("dispatch.task.requested")
	for _, t := range fresh {
		r.work(t.ID)
	}
	return ids, again, nil
}

// written reports whether a document has a writer already: a task that is under way, or one of those beside.
func (r *run) written(document string, beside []contract.DirectorTask) bool {
	if document == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(beside, func(o contract.DirectorTask) bool { return o.Document == document }) ||
		slices.ContainsFunc(r.story.Tasks, func(o *story.Task) bool { return o.Request.Document == document && !o.Ended() })
}

// asked is the id of a task that was asked for in the same words as t, if asking again would bring nothing
// else: it is among those of the same delegation, it is under way, or it went well and nothing came after
// it, neither another task nor a word of the user. What failed may be tried again, and fixed steps may be
// repeated for what they say now.
func (r *run) asked(t contract.DirectorTask, beside []contract.DirectorTask) string {
	words := func(o contract.DirectorTask) string {
		o.ID, o.Attempt, o.Budget = "", 0, contract.Budget{} // the host's, and what the run has left
		b, _ := json.Marshal(o)                              // it came as JSON
		return string(b)
	}
	same := func(o contract.DirectorTask) bool { return words(o) == words(t) }
	for _, o := range beside {
		if same(o) {
			return o.ID
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.story.Tasks) - 1; i >= 0; i-- {
		o := r.story.Tasks[i]
		newest := o.Batch == r.story.Tasks[len(r.story.Tasks)-1].Batch && len(r.story.Steering)+len(r.story.Questions) == 0
		well := o.Ended() && o.Newest.Status == contract.ResultOK && newest && t.Kind != contract.KindExec
		if same(o.Request) && (!o.Ended() || well) {
			return o.Request.ID
		}
	}
	return ""
}

// accept turns what a model wrote into a task of this run, or says which of its fields is wrong.
func (r *run) accept(ctx context.Context, raw json.RawMessage, n int) (contract.DirectorTask, error) {
	var t contract.DirectorTask
	if err := contract.DecodeStrict(raw, contract.MaxTask, &t); err != nil {
		return t, err
	}
	if t.Version != 0 || t.ID != "" || t.Run != "" || t.Attempt != 0 {
		return t, &contract.FieldError{Field: "id", Reason: "and version, run, attempt are the host's to give"}
	}
	t = t.WithDefaults()
	t.ID, t.Run = contract.DeriveID(r.story.ID, fmt.Sprintf("task:%d", n)), r.story.ID
	if err := t.Validate(); err != nil {
		return t, err
	}
	if err := task.CheckNetwork(t.Egress); err != nil {
		return t, err
	}
	if t.Base != "" {
		_, err := r.dispatcher.options.Workspace.Start(ctx, t.Base)
		if fault.Is(err, fault.NotFound) {
			return t, &contract.FieldError{Field: "base", Reason: "is nothing to start from: " + fault.Text(err)}
		}
		if err != nil {
			return t, err
		}
	}
	if r.story.Looked && slices.ContainsFunc(t.Steps, func(s contract.Step) bool { return s.Git != nil && s.Git.Op == contract.GitRestore }) {
		return t, &contract.FieldError{Field: "steps", Reason: "restore files, which would be live before the user has looked at it, as they want to in this run: have a task change the files back, or tell them in your report what to go back to"}
	}
	if err := r.checkProgram(t); err != nil {
		return t, err
	}
	for i, name := range t.Tools {
		field := fmt.Sprintf("tools[%d]", i)
		if name == catalogue.Model {
			if !catalogue.ModelGranted(t) {
				return t, &contract.FieldError{Field: field, Reason: fmt.Sprintf("%q is for programs, which no task of kind %s runs", name, t.Kind)}
			}
			continue
		}
		listed, ok := r.dispatcher.tools.Lookup(name)
		switch {
		case !ok || !listed.For(tool.Agent) || listed.Ends:
			return t, &contract.FieldError{Field: field, Reason: fmt.Sprintf("%q is not a tool", summary.OneLine(name, 60))}
		case !t.Kind.Thinks():
			return t, &contract.FieldError{Field: "tools", Reason: fmt.Sprintf("are not for kind %s", t.Kind)}
		case t.Kind.OnlyReads() && !catalogue.Fits(t.Kind, listed):
			return t, &contract.FieldError{Field: field, Reason: fmt.Sprintf("%q changes things; a task of kind %s only reads, by %s", name, t.Kind, strings.Join(r.dispatcher.tools.ToolNames(t.Kind), ", "))}
		case !catalogue.Fits(t.Kind, listed):
			return t, &contract.FieldError{Field: field, Reason: fmt.Sprintf("%q is not for a task of kind %s, which may list %s", name, t.Kind, strings.Join(r.dispatcher.tools.ToolNames(t.Kind), ", "))}
		}
		if err := catalogue.Permitted(t, listed); err != nil {
			return t, &contract.FieldError{Field: field, Reason: fault.Text(err)}
		}
	}
	if t.Kind.Thinks() && len(t.Tools) == 0 && t.Program == "" {
		return t, &contract.FieldError{Field: "tools", Reason: "is empty; list the tools the task needs: " + strings.Join(r.dispatcher.tools.ToolNames(t.Kind), ", ")}
	}
	t.Budget = r.left(t.Budget)
	return t, nil
}

// checkProgram refuses an agent program that the owner did not configure, and tools for one, which brings
// its own.
func (r *run) checkProgram(t contract.DirectorTask) error {
	if t.Program == "" {
		return nil
	}
	known := r.dispatcher.options.Programs
	if _, ok := known[t.Program]; !ok {
		there := "none is configured"
		if len(known) > 0 {
			there = "there are " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
		}
		return &contract.FieldError{Field: "program", Reason: fmt.Sprintf("%q is no agent program of this computer's: %s", summary.OneLine(t.Program, 40), there)}
	}
	if len(t.Tools) > 0 {
		return &contract.FieldError{Field: "tools", Reason: "are not for a task that an agent program does: it brings its own"}
	}
	return nil
}

func prefix(parent string, err error) error {
	if fe := contract.AsFieldError(err); fe != nil {
		return fault.New("", fault.Invalid, "", &contract.FieldError{Field: parent + "." + fe.Field, Reason: fe.Reason})
	}
	return fault.New("", fault.Invalid, "", &contract.FieldError{Field: parent, Reason: err.Error()})
}

// questionOf is what a person is asked. It stands on the console among the host's own words, so nothing in it hides, or
// turns what is around it.
func questionOf(in director.Ask) contract.Question {
	q := contract.Question{Text: webpage.Seen(in.Text), Default: webpage.Seen(in.Default)}
	for _, choice := range in.Choices {
		q.Choices = append(q.Choices, webpage.Seen(choice))
	}
	return q
}

// ask puts a question to the user and waits for the answer or the deadline.
func (a *directorAPI) ask(ctx context.Context, _ *http.Request, in director.Ask) (any, error) {
	r := a.run
	wait := time.Duration(in.DeadlineS) * time.Second
	if wait <= 0 || wait > 24*time.Hour {
		wait = 10 * time.Minute
	}
	if in.Call == "" {
		return nil, fault.New("", fault.Invalid, "", &contract.FieldError{Field: "call", Reason: "is required"})
	}
	q := questionOf(in)
	q.ID, q.Deadline = summary.QuestionID(r.story, in.Call), r.dispatcher.options.Now().Add(wait).UTC().Format(time.RFC3339)
	if err := q.Validate(); err != nil {
		return nil, fault.New("", fault.Invalid, "", err)
	}
	known := r.known(&q)
	if !known {
		if _, err := r.Append(ctx, contract.Draft{Actor: contract.DirectorOf(r.story.ID), Type: "question.asked", Subject: q.ID, Data: &contract.QuestionAsked{Question: q}}); err != nil {
			return nil, err
		}
	}
	defer r.Waits("")()
	if err := r.Settle(ctx); err != nil {
		return nil, err
	}
	var got director.Answer
	answered := func(s *story.Run) bool {
		for _, k := range s.Questions {
			if k.ID == q.ID && k.Answered {
				got = director.Answer{Question: k.Text, Answer: k.Answer, Default: k.ByDefault}
				return true
			}
		}
		return false
	}
	left, err := r.untilDefault(q.ID)
	if err != nil {
		return nil, err
	}
	done := false
	r.Story(func(s *story.Run) { done = answered(s) })
	if done {
		return got, nil
	}
	err = r.place.Rest(r.ctx, func() error { return r.answered(ctx, q, left, answered) })
	return got, err
}

// answered waits until a question is answered; after so long its default does.
func (r *run) answered(ctx context.Context, q contract.Question, left time.Duration, answered func(*story.Run) bool) error {
	timed, cancel := awake.WithTimeout(ctx, left)
	defer cancel()
	err := r.Until(timed, answered)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, err = r.answer(ctx, Word{By: contract.System()}, contract.QuestionAnswered{Question: q.ID, Answer: q.Default, Default: true})
	if err != nil && !fault.Is(err, fault.Conflict) {
		return err
	}
	return r.Until(ctx, answered) // on a conflict the user was faster by a hair, and their answer counts
}

// known reports whether a question was asked already, before a restart or in the same words in another call, and then
// makes it that one: nobody is asked the same twice.
func (r *run) known(q *contract.Question) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.story.Questions {
		if k.ID == q.ID {
			return true
		}
	}
	for _, k := range r.story.Questions {
		if !defence.Off(defence.RunAsked) && k.Text == q.Text && slices.Equal(k.Choices, q.Choices) {
			q.ID, q.Default = k.ID, k.Default
			return true
		}
	}
	return false
}

// untilDefault is how long a question that was asked still waits for its answer.
func (r *run) untilDefault(id string) (left time.Duration, err error) {
	r.Story(func(s *story.Run) {
		for _, k := range s.Questions {
			if k.ID == id {
				var deadline time.Time
				deadline, err = time.Parse(time.RFC3339, k.Deadline)
				left = r.patience(k.Lost, deadline)
			}
		}
	})
	return left, fault.Wrap("dispatch.ask", err)
}
