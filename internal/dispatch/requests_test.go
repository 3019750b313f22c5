package dispatch_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
)

// TestAWorkersRequestsReachWhoeverPlans shows that what a task requests is in its result as what it is, that the Director reads it,
// and that a request of no known type is one that its model makes again.
func TestAWorkersRequestsReachWhoeverPlans(t *testing.T) {
	h := newHouse(t)
	seen := ""
	plans := plan(m{"kind": "agent", "goal": "fetch it", "tools": []string{"bash"}})
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		seen = returnsOf(req)
		return plans(n, req)
	}
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		ends := func(id, kind string) []contract.Part {
			return parts(use(id, "finish", m{"status": "failed", "summary": "Can't.", "requests": []m{{"type": kind, "text": "The task has no network."}, {"type": "conflict", "text": "There is another one."}}}))
		}
		if n == 0 {
			return ends("a", "urgent")
		}
		if got := returnsOf(req); !strings.Contains(got, "reprioritise") {
			t.Errorf("a request without a known type returns %s", got)
		}
		return ends("b", "blocked")
	}
	h.report(h.submit("fetch it"))
	h.quiet()
	results := h.results()
	if len(results) != 1 || len(results[0].Requests) != 2 || results[0].Requests[0] != (contract.Request{Type: contract.RequestBlocked, Text: "The task has no network."}) {
		t.Fatalf("%+v", results)
	}
	for _, want := range []string{"it requests (blocked): The task has no network.", "it requests (conflict): There is another one."} {
		if !strings.Contains(seen, want) {
			t.Errorf("the Director is not told %q: %s", want, seen)
		}
	}
}

// TestADirectorTakesOverWhatAWorkerRequests shows that a prompt that went to one Associate at once is taken over by a Director when
// the Associate requests something, even if it did what it was told.
func TestADirectorTakesOverWhatAWorkerRequests(t *testing.T) {
	h := newDirectHouse(t)
	h.model.associate = steps(edit("c1"), use("fin", "finish", m{"status": "ok", "summary": "Did it.",
		"requests": []m{{"type": "reprioritise", "text": "The other script is broken; mend it first."}}}))
	told := ""
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		told += textOf(req)
		return parts(use("r", "report", m{"status": "done", "summary": "It is done."}))
	}
	rep := h.report(h.submit("Make a.sh say two"))
	h.quiet()
	if rep.Summary == "" || !strings.Contains(told, "it requests (reprioritise): The other script is broken") {
		t.Errorf("%+v: the Director was told %s", rep, told)
	}
}
