package trace_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/trace"
	"choir.dev/choiros/internal/view"
)

const cid = contract.CID("abcdefghijklmnop")

var runID = contract.DeriveID("prompt", "run")

// secret stands in everything that people, models, tools and files wrote.
const secret = "canary-7f3a"

// entry is an event with its payload.
type entry struct {
	contract.Event
	data contract.Payload
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// history is a run in which a Director delegates a task, whose first attempt fails its checks and whose
// second waits for a model and a person, calls a tool that fails, and is published.
func history() []entry {
	task := contract.DeriveID("task", "one")
	question, approval := contract.DeriveID("question", ""), contract.DeriveID("approval", "")
	failed := &contract.Verification{Profile: contract.VerifyStandard, Status: contract.VerificationFail, Reason: secret}
	passed := &contract.Verification{Profile: contract.VerifyStandard, Status: contract.VerificationPass, Tests: 3}
	usage := func(call, role string) *contract.UsageMetered {
		return &contract.UsageMetered{Call: call, Role: role, Provider: "bedrock", Model: "vendor/model-1", Outcome: "ok", Usage: contract.Usage{WallMS: 400, TokensIn: 100, TokensOut: 10, TokensCached: 60}}
	}
	var out []entry
	add := func(eventType, task string, data contract.Payload) {
		n := uint64(len(out) + 1)
		out = append(out, entry{contract.Event{ID: contract.DeriveID(runID, fmt.Sprint(n)), Type: eventType, Sequence: n, Time: began.Add(time.Duration(n) * time.Second), Run: runID, Task: task, Computer: cid}, data})
	}
	add("prompt.submitted", "", &contract.PromptSubmitted{Text: secret})
	add("run.started", "", &contract.RunStarted{Provider: "bedrock", Model: "vendor/model-1", Facts: []contract.Fact{{Text: secret}}})
	add("usage.metered", "", usage("call-1", "director"))
	add("run.planned", "", &contract.RunPlanned{Objective: secret, Plan: []contract.PlanItem{{Text: secret}}})
	add("question.asked", "", &contract.QuestionAsked{Question: contract.Question{ID: question, Text: secret, Choices: []string{secret}}})
	add("question.answered", "", &contract.QuestionAnswered{Question: question, Answer: secret})
	add("task.requested", task, &contract.TaskRequested{Task: contract.DirectorTask{ID: task, Kind: contract.KindAgent, Goal: secret, Acceptance: []string{secret}}})
	add("attempt.moved", task, &contract.AttemptMoved{Attempt: 1, State: contract.AttemptBegun})
	add("task.started", task, &contract.TaskStarted{Attempt: 1, Box: secret})
	add("attempt.moved", task, &contract.AttemptMoved{Attempt: 1, State: contract.AttemptVerifying})
	add("attempt.moved", task, &contract.AttemptMoved{Attempt: 1, State: contract.AttemptVerified, Verification: failed, Scope: []string{secret}})
	add("repair.requested", task, &contract.RepairRequested{Attempt: 1, Repair: 1, Failed: secret})
	add("task.finished", task, &contract.TaskFinished{Result: contract.AssociateResult{Attempt: 1, Status: contract.ResultFailed, Summary: secret, Verification: *failed}})
	add("attempt.moved", task, &contract.AttemptMoved{Attempt: 2, State: contract.AttemptBegun})
	add("task.started", task, &contract.TaskStarted{Attempt: 2})
	add("model.waiting", task, &contract.ModelWaiting{Role: "associate", Provider: "bedrock", Model: "vendor/model-1", Code: "rate_limited", Message: secret})
	add("model.resumed", task, &contract.ModelResumed{Outcome: contract.WaitAnswered})
	add("usage.metered", task, usage("call-2", "associate"))
	add("tool.called", task, &contract.ToolCalled{Call: secret, Name: "bash", Args: json.RawMessage(`{"command":"` + secret + `"}`), Attempt: 2})
	add("approval.requested", task, &contract.ApprovalRequested{Approval: approval, Attempt: 2, Claim: secret, Act: contract.Act{Kind: contract.ApprovalFetch, Host: secret, URL: "https://" + secret}})
	add("approval.answered", task, &contract.ApprovalAnswered{Approval: approval, Answer: contract.ApprovalDeny})
	add("tool.returned", task, &contract.ToolReturned{Call: secret, Name: "bash", Output: secret, Attempt: 2})
	add("tool.called", task, &contract.ToolCalled{Call: "call_2", Name: "a name with " + secret, Attempt: 2}) // never returns
	add("run.stood", "", &contract.RunStood{ForMS: 500, Why: contract.StoodSuspended})
	add("attempt.moved", task, &contract.AttemptMoved{Attempt: 2, State: contract.AttemptVerifying})
	add("attempt.moved", task, &contract.AttemptMoved{Attempt: 2, State: contract.AttemptVerified, Verification: passed})
	add("attempt.moved", task, &contract.AttemptMoved{Attempt: 2, State: contract.AttemptPublishing})
	add("task.finished", task, &contract.TaskFinished{Result: contract.AssociateResult{Attempt: 2, Status: contract.ResultOK, Summary: secret, Verification: *passed}})
	add("run.reported", "", &contract.RunReported{Status: contract.RunDone, Summary: secret, Verified: contract.VerificationPass, Usage: contract.Usage{TokensIn: 200, TokensOut: 20, CostUSD: 0.5}})
	return out
}

func traceOf(list []entry) view.Trace {
	r := trace.New(cid, runID)
	for _, e := range list {
		r.Apply(e.Event, e.data)
	}
	return r.Trace()
}

// paths are the spans as their names from the run on.
func paths(t view.Trace) []string {
	names := map[string]string{}
	var out []string
	for _, s := range t.Spans {
		names[s.ID] = s.Name
		if up := names[s.Parent]; up != "" {
			names[s.ID] = up + " > " + s.Name
		}
		out = append(out, names[s.ID])
	}
	return out
}

// TestARunIsATree shows what spans a run has, and below what each is.
func TestARunIsATree(t *testing.T) {
	got := traceOf(history())
	const run, task, associate = "invoke_workflow run", "invoke_workflow run > task agent", "invoke_workflow run > task agent > invoke_agent Associate"
	want := []string{
		run, run + " > invoke_agent Director", run + " > invoke_agent Director > chat vendor/model-1", run + " > invoke_agent Director > wait_for_answer",
		task, associate, associate + " > verify", associate, associate + " > wait_for_model", associate + " > chat vendor/model-1", associate + " > execute_tool bash",
		associate + " > wait_for_approval", associate + " > execute_tool _OTHER", run + " > invoke_agent Director > stand_still", associate + " > verify", associate + " > publish",
	}
	if diff := cmp.Diff(want, paths(got)); diff != "" {
		t.Errorf("the tree is another (-want +got):\n%s", diff)
	}
	type of struct {
		took  time.Duration
		fails string
	}
	spans := map[string]of{}
	for i, s := range got.Spans {
		spans[fmt.Sprint(i, " ", s.Name)] = of{s.End.Sub(s.Start), s.Error}
	}
	for name, want := range map[string]of{
		"0 invoke_workflow run": {28 * time.Second, ""}, "2 chat vendor/model-1": {400 * time.Millisecond, ""}, "3 wait_for_answer": {time.Second, ""},
		"4 task agent": {21 * time.Second, ""}, "5 invoke_agent Associate": {5 * time.Second, "failed"}, "6 verify": {time.Second, "verification_failed"},
		"10 execute_tool bash": {3 * time.Second, "tool_error"}, "12 execute_tool _OTHER": {5 * time.Second, ""}, "13 stand_still": {500 * time.Millisecond, ""},
	} {
		if spans[name] != want {
			t.Errorf("%s took %v and failed as %q; want %v", name, spans[name].took, spans[name].fails, want)
		}
	}
	// The events in which a span's contents are: of a call of a tool its arguments and its output.
	for i, want := range map[int][2]uint64{0: {1, 29}, 1: {2, 29}, 2: {3, 3}, 3: {5, 6}, 4: {7, 28}, 5: {8, 13}, 6: {10, 11}, 7: {14, 28}, 8: {16, 17}, 10: {19, 22}, 12: {23, 0}, 13: {24, 24}, 15: {27, 28}} {
		if s := got.Spans[i]; s.From != want[0] || s.To != want[1] {
			t.Errorf("%s is from event %d to %d, want %v", s.Name, s.From, s.To, want)
		}
	}
	chat := map[string]any{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "aws.bedrock", "gen_ai.request.model": "vendor/model-1", "gen_ai.conversation.id": runID,
		"gen_ai.usage.input_tokens": int64(100), "gen_ai.usage.output_tokens": int64(10), "gen_ai.usage.cache_read.input_tokens": int64(60), "choir.cost_usd": 0.0}
	if diff := cmp.Diff(chat, got.Spans[9].Attributes); diff != "" || got.Spans[9].Kind != view.SpanClient {
		t.Errorf("a call of a model says (-want +got):\n%s", diff)
	}
	if !got.Ended || got.Spans[0].Attributes["choir.run.status"] != "done" || got.Spans[12].Attributes["choir.unfinished"] != true {
		t.Errorf("%+v", got)
	}
}

// TestSpansHaveNoContents shows that nothing that people, models, tools or files wrote is in a span.
func TestSpansHaveNoContents(t *testing.T) {
	list := history()
	said := 0
	for _, e := range list {
		b, err := json.Marshal(e.data)
		if err != nil {
			t.Fatal(err)
		}
		said += strings.Count(string(b), secret)
	}
	b, err := json.Marshal(traceOf(list))
	if err != nil {
		t.Fatal(err)
	}
	if said < 20 || strings.Contains(string(b), secret) {
		t.Errorf("the events say it %d times, and the spans:\n%s", said, b)
	}
}

// TestAnyEventsGiveATree shows that what is cut off, missing, out of order or said twice gives a tree all the
// same, and that what is there at the end has the ids that it had before.
func TestAnyEventsGiveATree(t *testing.T) {
	whole := history()
	check := func(list []entry, what string) {
		t.Helper()
		got := traceOf(list)
		seen := map[string]view.Span{}
		for i, s := range got.Spans {
			up, ok := seen[s.Parent]
			switch {
			case i == 0 && s.Parent != "" || i > 0 && !ok:
				t.Fatalf("%s: %s is below nothing that is before it: %v", what, s.Name, paths(got))
			case seen[s.ID].ID != "" || len(s.ID) != 16:
				t.Fatalf("%s: the id %q", what, s.ID)
			case s.Start.IsZero() || !s.End.IsZero() && s.End.Before(s.Start) || s.Start.Before(up.Start):
				t.Fatalf("%s: %s is from %v to %v, below %v", what, s.Name, s.Start, s.End, up.Start)
			case s.From == 0 || s.To != 0 && (s.To < s.From || s.End.IsZero()):
				t.Fatalf("%s: %s is from event %d to %d, and ends at %v", what, s.Name, s.From, s.To, s.End)
			case got.Ended && s.End.IsZero():
				t.Fatalf("%s: %s has no end", what, s.Name)
			}
			seen[s.ID] = s
		}
		if got.ID != traceOf(whole).ID {
			t.Fatalf("%s: another trace", what)
		}
	}
	last := map[string]bool{}
	for n := range len(whole) + 1 {
		check(whole[:n], fmt.Sprintf("the first %d", n))
		now := map[string]bool{}
		for _, s := range traceOf(whole[:n]).Spans {
			now[s.ID] = true
		}
		for id := range last {
			if !now[id] {
				t.Fatalf("with %d events, %s is gone", n, id)
			}
		}
		last = now
	}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 3000 {
		list := slices.Clone(whole)
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:random.IntN(len(list)+1)]
		for i := range list { // the log's order, and a clock that is set back
			list[i].Sequence = uint64(i + 1)
			if random.IntN(4) == 0 {
				list[i].Time = list[i].Time.Add(-time.Minute)
			}
		}
		check(list, fmt.Sprintf("disorder %d", n))
		check(append(list, list...), fmt.Sprintf("disorder %d, twice", n))
	}
}

// TestATraceIsBounded shows that a run of very many calls has at most so many spans, and says how many more
// there were.
func TestATraceIsBounded(t *testing.T) {
	r := trace.New(cid, runID)
	for i := range trace.MaxSpans + 100 {
		r.Apply(contract.Event{Sequence: uint64(i + 1), Time: began, Type: "usage.metered"}, &contract.UsageMetered{Call: fmt.Sprint(i), Provider: "p", Model: "m", Outcome: "ok"})
	}
	if got := r.Trace(); len(got.Spans) != trace.MaxSpans || got.Dropped != 102 {
		t.Errorf("%d spans, %d dropped", len(got.Spans), got.Dropped)
	}
}

// TestARunBelongsBelowWhoAskedForIt shows that a prompt's trace context is that of its run, and that one that is
// none is ignored.
func TestARunBelongsBelowWhoAskedForIt(t *testing.T) {
	const id, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	list := history()
	list[0].Traceparent = "00-" + id + "-" + span + "-01"
	if got := traceOf(list); got.ID != id || got.Spans[0].Parent != span || got.Spans[1].ID != traceOf(history()).Spans[1].ID {
		t.Errorf("%s below %s", got.ID, got.Spans[0].Parent)
	}
	for _, bad := range []string{"", "x", "00-" + id + "-" + span, "ff-" + id + "-" + span + "-01", "00-" + strings.Repeat("0", 32) + "-" + span + "-01", "00-" + strings.ToUpper(id) + "-" + span + "-01", "00-" + id + "-" + span + "-01-more"} {
		list[0].Traceparent = bad
		if got := traceOf(list); got.ID != traceOf(history()).ID || got.Spans[0].Parent != "" || trace.Traceparent(bad) != "" {
			t.Errorf("%q is taken: %s below %s", bad, got.ID, got.Spans[0].Parent)
		}
	}
}
