package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestApprovals shows that after `choir approve` a host beyond the grant can be reached by one task
// of one run and by no other, and that a Director that grants itself a host gets nothing.
func TestApprovals(t *testing.T) {
	t.Parallel()
	friend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a friend") }))
	defer friend.Close()
	addr := friend.Listener.Addr().String()
	task := func(goal string, allow ...any) modelserver.Turn {
		return delegate(object{"kind": "agent", "goal": goal, "tools": []any{"bash"}, "verify": object{"profile": "none"},
			"egress": object{"profile": "custom", "allow": allow, "reason": "the docs are there"}, "want": object{"logs": true}})
	}
	try := bash(fmt.Sprintf("curl -sS -k -m 20 --noproxy '' https://%s; echo code $?", addr))
	script := modelserver.Script{Turns: join(
		director(task("reach out", addr), task("reach out again", addr), task("raw", "tcp://"+addr), report("done", "Tried.")),
		turnsOf("associate", "reach out", try, finish("ok", "I tried.")),
		turnsOf("associate", "reach out again", try, finish("ok", "I tried.")),
	)}
	in, _ := startModel(t, modelserver.Anthropic, script, "CHOIR_EGRESS_ALLOW_PRIVATE="+addr, "CHOIR_APPROVALS_WAIT_S=900")
	if r, err := in.Run(t.Context(), "prompt", "--wait", "--json", "who is there?"); err != nil || r.Code != 4 {
		t.Fatalf("%v, code %d, want 4: a run that waits for its user\n%s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	open := func() []view.Approval {
		t.Helper()
		var list []view.Approval
		if err := json.Unmarshal([]byte(in.Must(t, "approvals", "--json")), &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	next := func() view.Approval {
		t.Helper()
		choirtest.Eventually(t, 30*time.Second, "something waits for an answer", func() bool { return len(open()) == 1 })
		return open()[0]
	}
	first := next()
	if contract.Act.Target(contract.Act{Host: first.Host, Port: first.Port}) != addr || first.Claim != "the docs are there" || first.Prompt != "who is there?" {
		t.Errorf("%+v", first)
	}
	if wait := first.Deadline.Sub(first.Asked).Round(5 * time.Second); wait != 900*time.Second {
		t.Errorf("it waits %v; approvals.wait_s is 900", wait)
	}
	if got := in.Must(t, "__complete", "approve", ""); !strings.Contains(got, first.ID+"\t") {
		t.Errorf("what completes an approval: %q", got)
	}
	in.Must(t, "approve", first.ID)
	second := next()
	if second.ID == first.ID || second.Digest != first.Digest {
		t.Errorf("%+v after %+v", second, first)
	}
	in.Must(t, "approve", "--deny", second.ID)
	var run view.Run
	choirtest.Eventually(t, 60*time.Second, "the run ends", func() bool {
		run = runOf(t, in, first.Run)
		return run.Status.Ended()
	})
	if len(run.Tasks) != 2 {
		t.Fatalf("%d tasks; the raw one is no task", len(run.Tasks))
	}
	for i, want := range []string{"a friendcode 0", "code 56"} {
		res := run.Tasks[i].Result
		if res == nil || len(res.Commands) != 1 || !strings.Contains(res.Commands[0].Stdout, want) {
			t.Errorf("task %d: %+v", i, res)
			continue
		}
		if slices.Contains(res.Egress.Allowed, addr) != (i == 0) || slices.Contains(res.Egress.Denied, addr) != (i == 1) {
			t.Errorf("task %d reports %+v", i, res.Egress)
		}
	}
	if got := eventsOf(t, in, "approval.answered"); len(got) != 2 || got[0].Kind() != contract.KindPerson || got[1].Kind() != contract.KindPerson {
		t.Errorf("answers %+v", got)
	}
}
