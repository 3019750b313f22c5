package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestEgress tries to use the network from inside a task, and from inside a command.
func TestEgress(t *testing.T) {
	t.Parallel()
	friend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a friend") }))
	defer friend.Close()
	addr := friend.Listener.Addr().String()
	const allowed, direct = "curl -sS -k -m 20 --noproxy '' https://%s", "curl -sS -k -m 5 --noproxy '*' https://%s"
	task := func(egress object, goal string) modelserver.Turn {
		return delegate(object{"kind": "agent", "goal": goal, "tools": []any{"bash"}, "verify": object{"profile": "none"}, "egress": egress, "want": object{"logs": true}})
	}
	script := modelserver.Script{Turns: join(
		director(task(object{"profile": "default"}, "reach out"), task(object{"profile": "none"}, "stay inside"), report("done", "Tried.")),
		turnsOf("associate", "reach out",
			bash("curl -sS -m 20 https://evil.example; echo code $?"),
			bash(fmt.Sprintf(allowed+"; echo code $?", addr)),
			bash(fmt.Sprintf(direct+"; echo code $?", addr)),
			finish("ok", "I tried.")),
		turnsOf("associate", "stay inside",
			bash(fmt.Sprintf(allowed+"; echo code $?; env | grep -i proxy; echo code $?", addr)),
			finish("ok", "I tried.")),
	)}
	in, s := startModel(t, modelserver.Anthropic, script, "CHOIR_EGRESS_ALLOW="+addr, "CHOIR_EGRESS_ALLOW_PRIVATE="+addr)
	p := prompt(t, in, "who is there?")
	if p.Status != "done" || len(p.Tasks) != 2 {
		t.Fatalf("%+v (turns left: %v)", p, s.Left())
	}
	r := runOf(t, in, p.Run)
	said := func(task, command int) string {
		t.Helper()
		if res := r.Tasks[task].Result; res != nil && len(res.Commands) > command {
			return res.Commands[command].Stdout + res.Commands[command].Stderr
		}
		t.Fatalf("task %d has no command %d: %+v", task, command, r.Tasks[task].Result)
		return ""
	}
	if out := said(0, 0); strings.Contains(out, "code 0") || !strings.Contains(out, "code ") {
		t.Errorf("a host that is not allowed: %s", out)
	}
	if out := said(0, 1); !strings.Contains(out, "a friendcode 0") {
		t.Errorf("a host that is allowed: %s\n%s", out, in.Must(t, "events", "--type", "egress.denied"))
	}
	if out := said(0, 2); strings.Contains(out, "code 0") {
		t.Errorf("a direct connection: %s", out)
	}
	if out := said(1, 0); strings.Contains(out, "code 0") || strings.Contains(strings.ToLower(out), "http_proxy=") {
		t.Errorf("a task without network: %s", out)
	}
	report := r.Tasks[0].Result.Egress
	if !slices.Equal(report.Denied, []string{"evil.example:443"}) || !slices.Equal(report.Allowed, []string{addr}) {
		t.Errorf("the result reports %+v", report)
	}
	if report := r.Tasks[1].Result.Egress; len(report.Allowed)+len(report.Denied) != 0 {
		t.Errorf("the task without network reports %+v", report)
	}
	for typ, host := range map[string]string{"egress.denied": "evil.example", "egress.allowed": "127.0.0.1"} {
		events := eventsOf(t, in, typ)
		if len(events) != 1 {
			t.Errorf("got %d events %s; want one", len(events), typ)
			continue
		}
		if d := data[contract.EgressDecided](t, events[0]); d.Host != host || events[0].Run != p.Run || events[0].Task != r.Tasks[0].ID || (d.Reason == "") == (typ == "egress.denied") {
			t.Errorf("%s: %s of task %s", typ, events[0].Data, events[0].Task)
		}
	}

	// The user's own commands have the default policy.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	env := in.Must(t, "exec", "--", "env")
	for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy"} {
		if !strings.Contains(env, v+"=") {
			t.Errorf("a command's environment lacks %s:\n%s", v, env)
		}
	}
	control := strings.TrimPrefix(in.URL, "http://")
	_, controlPort, _ := strings.Cut(control, ":")
	for what, try := range map[string]struct {
		script string
		code   bool
	}{
		"an allowed host":       {fmt.Sprintf(allowed, addr), true},
		"a host not allowed":    {"curl -sS -m 20 https://evil.example", false},
		"a direct connection":   {fmt.Sprintf(direct, addr), false},
		"the control plane":     {"curl -sS -m 5 --noproxy '*' http://127.0.0.1:" + controlPort + "/health", false},
		"its port by the proxy": {"curl -sS -m 20 --noproxy '' https://127.0.0.1:" + controlPort + "/health", false},
		"a name server":         {"getent hosts evil.example || getent hosts " + "choir.dev", false},
	} {
		r, err := in.Run(ctx, "exec", "--", "sh", "-c", try.script)
		if err != nil || (r.Code == 0) != try.code {
			t.Errorf("%s: %v, code %d: %s%s", what, err, r.Code, r.Stdout, r.Stderr)
		}
	}
	choirtest.Eventually(t, 10*time.Second, "the commands' denials are in the log", func() bool { return len(eventsOf(t, in, "egress.denied")) >= 3 })
}
