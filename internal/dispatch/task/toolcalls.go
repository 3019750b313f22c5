package task

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/summary"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool"
)

// maxLogged bounds a tool's output in its event; a longer output is stored whole as a blob.
const maxLogged = 16 << 10

// handler serves what an Associate's box may ask of the host.
func (a *attempt) handler() http.Handler {
	mux := http.NewServeMux()
	loop := a.scope()
	loop.Waiter, loop.Hold = a.run.ModelWaits(a.ref.Task), a.said.Owe
	mux.Handle("POST /model/turns", a.fenced(a.ahead(a.host.Models.Handler(loop))))
	mux.Handle("POST /wake", a.fenced(loops.Endpoint(1<<10, a.wake)))
	mux.Handle("POST /facts", a.fenced(loops.Endpoint(1<<10, a.known)))
	mux.Handle("POST /clock", a.fenced(loops.Endpoint(1<<10, func(context.Context, *http.Request, struct{}) (any, error) {
		return harness.Clock{UsedMS: max(0, a.spent().Milliseconds())}, nil
	})))
	mux.Handle("POST /turns", a.fenced(loops.Endpoint(contract.MaxTurn, a.turn)))
	mux.Handle("POST /tools/{name}", a.fenced(http.HandlerFunc(a.tool)))
	return mux
}

// fenced accepts only requests that carry the attempt's token.
func (a *attempt) fenced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if subtle.ConstantTimeCompare([]byte(req.Header.Get(harness.HeaderFence)), []byte(a.fence)) != 1 {
			loops.Refuse(w, http.StatusGone, loops.ErrGone)
			return
		}
		h.ServeHTTP(w, req)
	})
}

// wake waits while the run is paused, and answers with what the user said of it.
func (a *attempt) wake(ctx context.Context, _ *http.Request, _ struct{}) (any, error) {
	if a.paused() {
		if err := a.run.Rest(a.ref.Task, func() error { return a.run.Until(ctx, func(s *story.Run) bool { return !s.Paused }) }); err != nil {
			return nil, err
		}
	}
	return a.tell(ctx)
}

func (a *attempt) paused() (is bool) {
	a.run.Story(func(s *story.Run) { is = s.Paused })
	return is
}

// news is what the loop is told of the run before its next request.
func (a *attempt) news(ctx context.Context) (w associate.WakeReply, err error) {
	kept, err := a.run.KeptSince(ctx)
	if err != nil {
		return w, err
	}
	a.run.Story(func(s *story.Run) { w.Notes = append(kept, summary.Words(s)...) })
	w.Notes = append(w.Notes, a.run.Meanwhile(ctx, a.ref)...)
	return w, nil
}

// tell is news, of which the loop hears.
func (a *attempt) tell(ctx context.Context) (associate.WakeReply, error) {
	w, err := a.news(ctx)
	if err == nil {
		a.mu.Lock()
		a.heard = w.Notes
		a.mu.Unlock()
	}
	return w, err
}

// quiet reports whether there is nothing that the loop has not heard, and nothing that it would have to wait for.
func (a *attempt) quiet(ctx context.Context) bool {
	w, err := a.news(ctx)
	if err != nil || a.paused() {
		return false // it asks, and hears why
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Equal(w.Notes, a.heard)
}

// known answers with what the log knows of the attempt, for a loop that compacts its conversation.
func (a *attempt) known(ctx context.Context, _ *http.Request, in associate.FactsRequest) (any, error) {
	crash.At("dispatch.compaction.asked")
	if err := a.said.Wait(); err != nil {
		return nil, err
	}
	var f associate.Facts
	kept, err := a.run.KeptSince(ctx)
	if err != nil {
		return nil, err
	}
	a.run.Story(func(s *story.Run) {
		f.Text = summary.Facts(s, s.Task(a.ref.Task), kept, min(max(in.Most, 0), contract.MaxTurn/4))
	})
	return f, nil
}

// turn records a turn. One whose calls follow is stored with the first of them, and nothing waits for what they returned: a model that is
// asked with a turn which a crash loses is asked once more, as if the crash had come before the call's return. The loop asks its model next,
// so that it is told at once what it would ask for before that.
func (a *attempt) turn(ctx context.Context, req *http.Request, t contract.TurnRecorded) (any, error) {
	t.Attempt = a.ref.Attempt
	if err := t.Validate(); err != nil {
		return nil, fault.New("", fault.Invalid, "", err) // now, for what is stored later is not refused
	}
	d := a.event("", "turn.recorded", &t)
	switch {
	case t.Compacted != nil:
		if err := a.said.Now(ctx, d); err != nil {
			return nil, err
		}
		crash.At("dispatch.compaction.recorded")
		return associate.TurnReply{}, nil
	case len(t.Returns) == 0 && slices.ContainsFunc(t.Message.Parts, func(p contract.Part) bool { return p.Call != nil }):
		return associate.TurnReply{}, a.said.Hold(d)
	}
	if err := a.said.Later(d); err != nil || a.paused() || req.Header.Get(harness.HeaderTurn) != "" {
		return associate.TurnReply{}, err // it asks, or hears nothing, for what stands in front of a request has no answer
	}
	w, err := a.tell(ctx)
	return associate.TurnReply{Wake: &w}, err
}

// event is one of the attempt's loop. Without an id it gets a new one.
func (a *attempt) event(id, eventType string, p contract.Payload) contract.Draft {
	return contract.Draft{ID: id, Actor: contract.AssociateOf(a.ref.Task), Type: eventType, Subject: a.ref.Task, Task: a.ref.Task, Data: p}
}

// tool carries out one call: it checks whether the call is allowed, records it, forwards it, publishes
// what is shown live, and records the result.
func (a *attempt) tool(w http.ResponseWriter, req *http.Request) {
	if err := a.turnOf(req, false); err != nil {
		loops.Refuse(w, http.StatusUnprocessableEntity, err)
		return
	}
	t, known := a.host.Tools.Lookup(req.PathValue("name"))
	if !known {
		loops.Refuse(w, 0, fault.New("", fault.Denied, "", fmt.Errorf("there is no tool %q", summary.OneLine(req.PathValue("name"), 60))))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, int64(t.Limits.In)))
	if err != nil {
		loops.Refuse(w, http.StatusRequestEntityTooLarge, err)
		return
	}
	// What only reads is made beside other calls that only read.
	if t.ReadOnly() {
		a.forward.RLock()
		defer a.forward.RUnlock()
	} else {
		a.forward.Lock()
		defer a.forward.Unlock()
	}
	res, err := a.forwardCall(req.Context(), t, req.Header.Get(harness.HeaderCall), body)
	if err != nil {
		if lost(err) {
			a.mu.Lock()
			a.lostCall = true
			a.mu.Unlock()
		}
		loops.Refuse(w, 0, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if a.quiet(req.Context()) {
		w.Header().Set(harness.HeaderNews, "none")
	}
	_ = json.NewEncoder(w).Encode(res) // the loop is gone if this fails
}

// ahead records the turn that stands in front of a request for the next one, if one does.
func (a *attempt) ahead(model http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := a.turnOf(req, true); err != nil {
			loops.Refuse(w, http.StatusUnprocessableEntity, err)
			return
		}
		model.ServeHTTP(w, req)
	})
}

// turnOf records the turn that stands at the beginning of a request's body, if one does: with or without its calls' returns.
func (a *attempt) turnOf(req *http.Request, returned bool) error {
	size := req.Header.Get(harness.HeaderTurn)
	if size == "" {
		return nil
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 1 || n > contract.MaxTurn {
		return fmt.Errorf("%.20q is no length of a turn", size)
	}
	var body bytes.Buffer // of what is announced nothing is believed
	var t contract.TurnRecorded
	if _, err = io.CopyN(&body, req.Body, int64(n)); err == nil {
		err = contract.DecodeStrict(body.Bytes(), contract.MaxTurn, &t)
	}
	if err == nil && (len(t.Returns) > 0 != returned || t.Compacted != nil) {
		err = errors.New("it is not the one that goes here")
	}
	if err == nil {
		_, err = a.turn(req.Context(), req, t)
	}
	return fault.Wrap("the turn in front", err)
}

func (a *attempt) forwardCall(ctx context.Context, t tool.Tool, call string, args json.RawMessage) (tool.Result, error) {
	if err := a.admit(t, call, args); err != nil {
		return tool.Result{}, err
	}
	if t.Executor == tool.Box {
		// A call that can't be made is not recorded, so that its outcome is not recorded as unknown.
		if err := a.boxEnded(0); err != nil {
			return tool.Result{}, err
		}
	}
	if err := a.said.Now(ctx, a.event(contract.DeriveID(a.ref.Task, fmt.Sprintf("called:%d:%s", a.ref.Attempt, call)), "tool.called",
		&contract.ToolCalled{Call: call, Name: t.Name, Args: args, ReadOnly: t.ReadOnly(), Attempt: a.ref.Attempt})); err != nil {
		return tool.Result{}, err
	}
	crash.At("dispatch.tool.called")
	return a.perform(ctx, call, t, args)
}

// perform makes a call that is in the log, and records its result.
func (a *attempt) perform(ctx context.Context, call string, t tool.Tool, args json.RawMessage) (tool.Result, error) {
	began := time.Now()
	res, err := a.carryOut(ctx, call, t, args)
	if err != nil {
		return tool.Result{}, err
	}
	crash.At("dispatch.tool.done")
	if t.Executor == tool.Box && t.Has(tool.Writes) {
		// What the call wrote must be durable before the call is acknowledged, for it will not be written
		// again.
		live, err := a.host.Workspace.Settle(ctx, a.overlay)
		if err != nil {
			return tool.Result{}, fault.Wrap("dispatch.tool", err)
		}
		if live {
			a.show(ctx, &res)
		}
	}
	crash.At("dispatch.tool.shown")
	took := time.Since(began).Milliseconds()
	if err := loops.KeepPictures(ctx, a.host.Blobs, a.host.CID, &res); err != nil {
		return tool.Result{}, fault.Wrap("dispatch.tool", err)
	}
	ret := &contract.ToolReturned{Call: call, Name: t.Name, OK: res.OK, Output: harness.Clip(res.Output, maxLogged), DurationMS: took, Attempt: a.ref.Attempt,
		Command: summary.Shortened(res.Command, a.task.Want.Logs), Images: res.Images}
	if whole := wholeOutput(res); len(whole) > maxLogged {
		if ret.OutputRef, _, err = a.host.Blobs.Put(ctx, a.host.CID, strings.NewReader(whole)); err != nil {
			return tool.Result{}, fault.Wrap("dispatch.tool", err)
		}
	}
	res.Data = nil
	say := a.said.Later
	if t.Executor != tool.Box {
		// What it did is not in the tree alone, so it is told only when it is known that it was.
		say = func(d contract.Draft) error { return a.said.Now(ctx, d) }
	}
	return res, say(a.event(contract.DeriveID(a.ref.Task, fmt.Sprintf("returned:%d:%s", a.ref.Attempt, call)), "tool.returned", ret))
}

// maxWhole bounds what of one output the log keeps, in bytes.
const maxWhole = 1 << 20

// wholeOutput is what a call returned as the log keeps it: of a command more than a model is shown at once.
func wholeOutput(res tool.Result) string {
	if c := res.Command; c != nil && res.Truncated && len(c.Stdout)+len(c.Stderr) > len(res.Output) {
		first, _, _ := strings.Cut(res.Output, "\n")
		return harness.Clip(first+"\n"+c.Stdout+c.Stderr, maxWhole)
	}
	return res.Output
}

// recorded returns the turns from which an interrupted attempt continues. Calls that were under way and
// only read are made again: they do no harm on the attempt's tree as it stands, and the model need not
// ask twice. So are those of which the user was being asked: nothing of them left, and they wait for the same answer. The results of other calls stay unknown, and the model is told so.
func (a *attempt) recorded(ctx context.Context) ([]contract.TurnRecorded, error) {
	a.endEffects()
	var open []contract.ToolCalled
	left := map[string]bool{}
	a.run.Story(func(s *story.Run) {
		t := s.Task(a.ref.Task)
		open = t.Unreturned()
		for call := range t.Outside {
			left[call] = true
		}
	})
	for _, c := range open {
		t, _ := a.host.Tools.Lookup(c.Name)
		asked := t.Asked && !left[c.Call]
		if !asked && (!c.ReadOnly || !t.ReadOnly()) || a.host.Tools.Check(c.Name, c.Args) != nil {
			continue
		}
		if _, err := a.perform(ctx, c.Call, t, c.Args); err != nil {
			return nil, fmt.Errorf("repeat the call of %s that a restart interrupted: %w", c.Name, err)
		}
	}
	if err := a.said.Wait(); err != nil {
		return nil, err
	}
	var turns, closed []contract.TurnRecorded
	a.run.Story(func(s *story.Run) {
		t := s.Task(a.ref.Task)
		turns = summary.Resumable(t)
		closed = summary.Closed(t.Turns, turns)
	})
	for _, t := range closed {
		// What is not known of a call is recorded before the model is asked, so that another crash changes nothing.
		t.Attempt = a.ref.Attempt
		if err := a.said.Now(ctx, a.event("", "turn.recorded", &t)); err != nil {
			return nil, err
		}
	}
	return turns, nil
}

// admit decides whether the attempt may make a call, and counts it.
func (a *attempt) admit(t tool.Tool, call string, args json.RawMessage) error {
	if len(call) == 0 || len(call) > 128 {
		return fault.New("", fault.Invalid, "", errors.New("the call has no id"))
	}
	switch a.task.Kind {
	case contract.KindExec, contract.KindGit:
		if err := a.isStep(t, args); err != nil {
			return err
		}
	default:
		if !catalogue.Allowed(a.task, t) {
			return fault.New("", fault.Denied, "", fmt.Errorf("this task may not use the tool %q", t.Name))
		}
		if err := catalogue.WithinDocument(a.task, t, args); err != nil {
			return err
		}
	}
	if err := catalogue.Permitted(a.task, t); err != nil {
		return err
	}
	if err := a.host.Tools.Check(t.Name, args); err != nil {
		return fault.New("", fault.Invalid, "", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used[call] {
		return fault.New("", fault.Conflict, "", fmt.Errorf("the call %q was made before", call))
	}
	if b := a.task.Budget.ToolCalls; b > 0 && a.calls >= b {
		return fault.New("", fault.Exhausted, "", fmt.Errorf("the budget of %d tool calls is used up", b))
	}
	a.used[call] = true
	a.calls++
	return nil
}

// isStep accepts only the calls that a deterministic task lists as its steps.
func (a *attempt) isStep(t tool.Tool, args json.RawMessage) error {
	if !t.For(tool.Step) {
		return fault.New("", fault.Denied, "", fmt.Errorf("%s is not for steps", t.Name))
	}
	got, err := catalogue.Canonical(t.Name, args)
	if err != nil {
		return fault.New("", fault.Invalid, "", err)
	}
	for _, s := range a.task.Steps {
		n, raw, err := associate.StepCall(s)
		if err != nil {
			return err
		}
		want, err := catalogue.Canonical(n, raw)
		if err != nil {
			return err
		}
		if want == got {
			return nil
		}
	}
	return fault.New("", fault.Denied, "", errors.New("this is not a step of the task"))
}

// inBox calls a tool in a task's or a verification's box. The box's guest enforces the tool's limits, and
// the host enforces them once more because it does not trust the guest.
func (a *attempt) inBox(ctx context.Context, box ports.Box, t tool.Tool, args json.RawMessage) (tool.Result, error) {
	ctx, stop := loops.Answering(ctx, box, a.host.Times.Silence*5/4, func() { a.host.kill(a.ref.Run, box) })
	defer stop()
	res, err := t.Within(a.host.Times.Grace).Do(ctx, args, func(ctx context.Context) (tool.Result, error) {
		return loops.CallTool(ctx, box, t.Name, args, a.now.Base)
	})
	return res, a.silent(err)
}

// show publishes at once those changes that the user should see at once.
func (a *attempt) show(ctx context.Context, res *tool.Result) {
	if a.reviewed() {
		return // nothing is published before a person has looked at it
	}
	a.host.publishing.Lock()
	_, err := a.host.Workspace.PublishLive(ctx, a.overlay)
	a.host.publishing.Unlock()
	if err != nil {
		// The task has not failed: everything is published at its end.
		a.host.Logger.Warn("an edit could not be shown live", "task", a.ref.Task, "error", err)
		res.Output += "\n(not shown to the user yet: " + summary.OneLine(fault.Told(err), 300) + ")"
	}
}

// git carries out a git step on the workspace's history.
func (a *attempt) git(ctx context.Context, args json.RawMessage) (tool.Result, error) {
	var step contract.GitStep
	if err := contract.DecodeStrict(args, contract.MaxTask, &step); err != nil {
		return tool.Result{}, fault.New("", fault.Invalid, "", err)
	}
	a.host.publishing.Lock()
	defer a.host.publishing.Unlock()
	got, err := a.host.Workspace.Git(ctx, ports.GitRequest{Run: a.ref.Run, Task: a.ref.Task, Step: step})
	if err != nil {
		if ctx.Err() != nil || lost(err) {
			return tool.Result{}, err
		}
		return tool.Result{Output: summary.OneLine(fault.Told(err), 2000)}, nil
	}
	if got.Checkpoint != "" {
		a.mu.Lock()
		a.head = got.Checkpoint
		a.mu.Unlock()
	}
	return tool.Result{OK: true, Output: got.Output}, nil
}
