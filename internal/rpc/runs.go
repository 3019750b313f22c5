package rpc

import (
	"encoding/json"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// ActionRequest is a person's intention, in the form of an event.
type ActionRequest struct {
	At
	Body struct {
		Type    string          `json:"type"`
		ID      string          `json:"id"`
		Subject string          `json:"subject,omitempty"`
		Run     string          `json:"run,omitempty"`
		Data    json.RawMessage `json:"data"`
	}
}

// Action decodes the intention.
func (r ActionRequest) Action(by contract.Actor) (view.Action, error) {
	in := r.Body
	if info, ok := contract.Lookup(in.Type); !ok || !info.Action {
		return view.Action{}, &contract.FieldError{Field: "type", Reason: "is not something a desktop can say"}
	}
	data, err := contract.DecodeData(in.Type, in.Data)
	if err != nil {
		return view.Action{}, err
	}
	return view.Action{ID: in.ID, Type: in.Type, Subject: in.Subject, Run: in.Run, By: by, Data: data}, nil
}

// Validate implements validation.
func (r ActionRequest) Validate() error {
	a, err := r.Action(contract.Actor{})
	if err != nil {
		return err
	}
	return a.Validate()
}

// PromptRequest is an intention in words.
type PromptRequest struct {
	At
	Traceparent string `header:"traceparent" maxLength:"256" doc:"the span of the caller's that the run's trace belongs below, as W3C's Trace Context has it"`
	Body        view.Prompt
}

// RunsRequest lists runs.
type RunsRequest struct {
	At
	Paged
}

// OnRun names a run.
type OnRun struct {
	At
	Run string `path:"run" maxLength:"36"`
}

// Validate implements validation.
func (r OnRun) Validate() error { return contract.ValidID("run", r.Run) }

// ShowRunRequest asks for one run.
type ShowRunRequest struct {
	OnRun
	Wait int `query:"wait" minimum:"0" maximum:"300" doc:"seconds to wait; then it is answered as it stands"`
}

// SteerRequest says something to a run.
type SteerRequest struct {
	OnRun
	Body struct {
		Text string `json:"text" required:"true" minLength:"1" maxLength:"32768"`
	}
}

// SwitchModelRequest has a run go on with another model.
type SwitchModelRequest struct {
	OnRun
	Body struct {
		Model string `json:"model" required:"true" minLength:"1" maxLength:"200" doc:"provider/model or an alias"`
	}
}

// AnswerRequest answers a run's question.
type AnswerRequest struct {
	OnRun
	Body view.Answer
}

// RunEventsRequest reads a run's own events.
type RunEventsRequest struct {
	OnRun
	After uint64 `query:"after"`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"500"`
}

// TraceRequest asks what took time in a run.
type TraceRequest struct {
	OnRun
	After int `query:"after" minimum:"0" maximum:"5000" doc:"how many of the first spans to leave out"`
}

// UndoRunRequest undoes what a run changed.
type UndoRunRequest struct {
	OnRun
	Body struct {
		DryRun bool `json:"dry_run,omitempty"`
	}
}

// Runs, and what a person tells them.
var (
	Action = single[ActionRequest, view.Acted](Declared{
		Name: "action", Summary: "Say what a person wants; on the bus at user.{cid}.action", May: contract.CanPrompt, Callers: Desktop, Effect: Stores})
	PromptSubmit = single[PromptRequest, view.Acted](Declared{
		Name: "prompt.submit", Summary: "Submit an intention; it causes a run", HTTP: post("/prompts", "prompts-submit"), May: contract.CanPrompt, Callers: API, Effect: Stores, Host: true})
	RunList = list[RunsRequest, view.Run](Declared{
		Name: "run.list", Summary: "Runs, newest first", HTTP: get("/runs", "runs-list"), May: contract.CanRead, Callers: API, Noun: "runs",
		Tool: &Tool{Description: "List runs, newest first, with their status and report. Page with before."}})
	RunShow = single[ShowRunRequest, view.Run](Declared{
		Name: "run.show", Summary: "One run with its tasks; with wait, as soon as it has ended or asks something",
		HTTP: get("/runs/{run}", "runs-get"), May: contract.CanRead, Callers: API, Limit: Long, Host: true,
		Tool: &Tool{Description: "Show one run: status, plan, tasks, questions, result. With wait (seconds) the answer comes when it has ended or asks something."}})
	RunCancel = runCommand("cancel", "Cancel a run", Tool{Description: "Cancel a run. What it changed is taken back or named in its report.", Destructive: true, Repeatable: true})
	RunPause  = runCommand("pause", "Pause a run before its next step", Tool{Description: "Pause a run before its next step.", Repeatable: true})
	RunResume = runCommand("resume", "Let a paused run go on", Tool{Description: "Let a paused run go on.", Repeatable: true})
	RunSteer  = single[SteerRequest, view.Acted](Declared{
		Name: "run.steer", Summary: "Say something to a run while it goes on", HTTP: post("/runs/{run}/steer", "runs-steer"), May: contract.CanPrompt, Callers: API, Effect: Stores, Host: true,
		Tool: &Tool{Description: "Say something to a run while it goes on; it reads it before its next step."}})
	RunModel = single[SwitchModelRequest, view.Acted](Declared{
		Name: "run.model", Summary: "Have a run go on with another model, also where it waits for the one before", HTTP: post("/runs/{run}/model", "runs-model"), May: contract.CanPrompt, Callers: API, Effect: Stores, Host: true,
		Tool: &Tool{Description: "Have a run go on with another model, also where it waits for the one before; models are named provider/model or by an alias."}})
	RunAnswer = single[AnswerRequest, view.Acted](Declared{
		Name: "run.answer", Summary: "Answer a run's question", HTTP: post("/runs/{run}/answer", "runs-answer"), May: contract.CanPrompt, Callers: API, Effect: Stores, Host: true,
		Tool: &Tool{Description: "Answer a question that a run asks; run_show lists its questions with their ids."}})
	RunGet = single[RunEventsRequest, view.EventPage](Declared{
		Name: "run.get", Summary: "A run's own events, ascending from sequence > after", May: contract.CanRead, Callers: Desktop})
	RunTrace = single[TraceRequest, view.Trace](Declared{
		Name: "run.trace", Summary: "What took time in a run, as OpenTelemetry's spans: the run first, parents before their children",
		HTTP: get("/runs/{run}/trace", "runs-trace"), May: contract.CanRead, Callers: API | Desktop})
	RunFollow = done[OnRun](Declared{
		Name: "run.follow", Summary: "Have a run's words sent to this session as they come, until its connection ends", May: contract.CanRead, Callers: Desktop, Host: true})
	RunUndo = single[UndoRunRequest, view.Restored](Declared{
		Name: "run.undo", Summary: "Take back what a run changed, by a new commit", May: contract.CanRestore, Callers: Desktop, Effect: Governs, Limit: Long})
)

func runCommand(verb, summary string, tool Tool) *Method[OnRun, view.Acted] {
	return single[OnRun, view.Acted](Declared{
		Name: "run." + verb, Summary: summary, HTTP: post("/runs/{run}/"+verb, "runs-"+verb), May: contract.CanPrompt, Callers: API, Effect: Governs, Host: true, Tool: &tool})
}

// ApprovalsRequest lists approvals.
type ApprovalsRequest struct {
	At
	Paged
	All bool `query:"all" doc:"answered ones too"`
}

// OnApproval names an approval.
type OnApproval struct {
	At
	Approval string `path:"approval" maxLength:"36"`
}

// Validate implements validation.
func (r OnApproval) Validate() error { return contract.ValidID("approval", r.Approval) }

// DecideRequest answers an approval.
type DecideRequest struct {
	OnApproval
	Body view.Decision
}

// ReviewsRequest lists reviews.
type ReviewsRequest struct {
	At
	Paged
	All bool `query:"all" doc:"answered ones too"`
}

// OnReview names work of a task that is to be looked at.
type OnReview struct {
	OnRun
	Task string `path:"task" maxLength:"36"`
}

// Validate implements validation.
func (r OnReview) Validate() error {
	if err := r.OnRun.Validate(); err != nil {
		return err
	}
	return contract.ValidID("task", r.Task)
}

// LookedRequest answers a review.
type LookedRequest struct {
	OnReview
	Body view.Looked
}

// Reviews before work is published.
var (
	ReviewList = list[ReviewsRequest, view.Review](Declared{
		Name: "review.list", Summary: "Work that waits until a person has looked at it, newest first", HTTP: get("/reviews", "reviews-list"), May: contract.CanRead, Callers: API, Noun: "reviews",
		Tool: &Tool{Description: "List work of runs that waits until a person has looked at it before it is published."}})
	ReviewShow = single[OnReview, view.Review](Declared{
		Name: "review.show", Summary: "What a task made, hunk by hunk, that waits until a person has looked at it", HTTP: get("/runs/{run}/reviews/{task}", "reviews-get"), May: contract.CanRead, Callers: API | Desktop, Limit: Long,
		Tool: &Tool{Description: "Show what a task made that waits to be looked at: its files, hunk by hunk, with their ids."}})
	ReviewAnswer = single[LookedRequest, view.Acted](Declared{
		Name: "review.answer", Summary: "Publish it or a part of it, send it back with comments, or discard it",
		HTTP: post("/runs/{run}/reviews/{task}", "reviews-answer"), May: contract.CanWrite, Callers: API | Desktop, Effect: Stores, Limit: Long})
)

// EgressRequest asks for the traffic with each host.
type EgressRequest struct {
	At
	Run string `query:"run" maxLength:"36" doc:"only this run's boxes"`
}

// Validate implements validation.
func (r EgressRequest) Validate() error {
	if r.Run == "" {
		return nil
	}
	return contract.ValidID("run", r.Run)
}

// Approvals and network traffic.
var (
	ApprovalList = list[ApprovalsRequest, view.Approval](Declared{
		Name: "approval.list", Summary: "What waits for a person, newest first", HTTP: get("/approvals", "approvals-list"), May: contract.CanRead, Callers: API, Noun: "approvals"})
	ApprovalShow = single[OnApproval, view.Approval](Declared{
		Name: "approval.show", Summary: "An approval, and all that a request would send", HTTP: get("/approvals/{approval}", "approvals-show"), May: contract.CanRead, Callers: API})
	ApprovalAnswer = single[DecideRequest, view.Acted](Declared{
		Name: "approval.answer", Summary: "Allow or deny it, once",
		HTTP: post("/approvals/{approval}", "approvals-answer"), May: contract.CanApprove, Callers: People, Effect: Governs})
	EgressList = list[EgressRequest, view.Traffic](Declared{
		Name: "egress.list", Summary: "Which hosts were reached and how many bytes passed, those of most bytes first",
		HTTP: get("/egress", "egress-list"), May: contract.CanRead, Callers: API, Noun: "hosts"})
)
