package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// counter is a service that takes orders over HTTPS, and keeps what it was asked for.
type counter struct {
	mu    sync.Mutex
	taken []string // method, path, key and body
}

func (d *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	d.taken = append(d.taken, fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL, r.Header.Get("X-Desk"), r.Header.Get("Idempotency-Key"), body))
	d.mu.Unlock()
	switch r.URL.Path {
	case "/moved":
		http.Redirect(w, r, "/orders", http.StatusTemporaryRedirect)
	case "/cut":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"number":4711}`)
	}
}

func (d *counter) asked(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, t := range d.taken {
		if strings.Contains(t, " "+path+" ") {
			n++
		}
	}
	return n
}

// TestARequestOutside: a request to an address that the user named leaves, out of a box that has nothing of the computer's, once it
// was allowed on the console, where all of it was shown; one that is denied, and one to a private address, do not; a redirect is
// followed nowhere; one whose connection breaks is unknown and was sent once; and the ledger, the run and its document tell it.
func TestARequestOutside(t *testing.T) {
	t.Parallel()
	d := &counter{}
	srv, ca := tlsServer(t, "127.0.0.1", d)
	addr := srv.Listener.Addr().String()
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, ca, 0o644); err != nil {
		t.Fatal(err)
	}
	send := func(method, url, body string) modelserver.Turn {
		args := object{"method": method, "url": url, "headers": []any{object{"name": "X-Desk", "value": "1"}}, "reason": "to order it"}
		if body != "" {
			args["body"], args["content_type"] = body, "application/json"
		}
		return modelserver.Turn{Calls: call("web_request", args)}
	}
	long := `{"what":"` + strings.Repeat("ladder ", 2000) + `","last":"the end"}`
	script := modelserver.Script{Turns: join(
		director(delegate(object{"kind": "agent", "goal": "order the ladder", "tools": []any{"web_request"}, "verify": object{"profile": "none"}}), report("done", "Ordered.")),
		turnsOf("associate", "order the ladder",
			send("POST", "https://"+addr+"/orders?for=me", long),
			send("PUT", "https://"+addr+"/denied", `{}`),
			send("POST", "https://"+addr+"/moved", `{}`),
			send("DELETE", "https://"+addr+"/cut", ""),
			send("POST", "https://127.0.0.1:1/private", `{}`),
			send("DELETE", "https://"+addr+"/cut", ""),
			finish("ok", "Ordered.")),
	)}
	in, models := startModel(t, modelserver.Anthropic, script, "CHOIR_EGRESS_ALLOW_PRIVATE="+addr, "CHOIR_EGRESS_CA_FILE="+caFile, "CHOIR_APPROVALS_WAIT_S=900")
	if r, err := in.Run(t.Context(), "prompt", "--wait", "--json", "Order it at https://"+addr+"/orders?for=me, please."); err != nil || r.Code != 4 || !strings.Contains(r.Stderr, "sending POST https://"+addr+"/orders?for=me") {
		t.Fatalf("%v, code %d, want 4: a run that waits for its user\n%s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	next := func(path string) view.Approval {
		t.Helper()
		var list []view.Approval
		choirtest.Eventually(t, 60*time.Second, "a request waits for an answer: "+path, func() bool {
			list = approvalsOf(t, in)
			return len(list) == 1 && strings.Contains(list[0].URL, path)
		})
		return list[0]
	}
	first := next("/orders")
	if first.Kind != contract.ApprovalRequest || first.Method != "POST" || first.URL != "https://"+addr+"/orders?for=me" || first.Claim != "to order it" || !first.Request.Cut || first.Request.Size != len(long) || d.asked("/orders?for=me") != 0 {
		t.Errorf("%+v %+v", first, first.Request)
	}
	if said := in.Must(t, "approvals"); !strings.Contains(said, "sending POST "+first.URL) || !strings.Contains(said, "X-Desk: 1") || strings.Contains(said, "the end") || !strings.Contains(said, "choir approvals show "+first.ID) {
		t.Errorf("what choir approvals shows:\n%s", said)
	}
	if said := in.Must(t, "approvals", "show", first.ID); !strings.Contains(said, "the end") {
		t.Errorf("what choir approvals show shows:\n%s", said)
	}
	if r, err := in.Run(t.Context(), "approve", "--run", first.ID); err != nil || r.Code == 0 || !strings.Contains(r.Stderr, "one time alone") {
		t.Errorf("it is allowed for the run: %v %+v", err, r)
	}
	in.Must(t, "approve", first.ID)
	in.Must(t, "approve", "--deny", next("/denied").ID)
	for _, path := range []string{"/moved", "/cut", "/private"} {
		in.Must(t, "approve", next(path).ID)
	}
	var run view.Run
	choirtest.Eventually(t, 90*time.Second, "the run ends", func() bool {
		run = runOf(t, in, first.Run)
		return run.Status.Ended()
	})
	for path, n := range map[string]int{"/orders?for=me": 1, "/denied": 0, "/moved": 1, "/orders": 0, "/cut": 1} {
		if got := d.asked(path); got != n {
			t.Errorf("%s was asked for %d times, want %d", path, got, n)
		}
	}
	heard := ""
	for _, q := range models.Requests() {
		if q.Role == "associate" {
			heard = q.Text
		}
	}
	for _, want := range []string{"/orders: status 201 Created (application/json, 15 bytes)", `> {"number":4711}`, "/denied was not sent: the user denied it", "status 307", "It names another address, which was not followed", "> Location: /orders", "Unknown: it may have happened outside (DELETE https://" + addr + "/cut",
		"that boxes may not reach (127.0.0.1)", "whether it happened is not known, so it is not made again by itself"} {
		if !strings.Contains(heard, want) {
			t.Errorf("the model is not told %q:\n%.6000s", want, heard)
		}
	}
	var effects []view.Effect
	in.JSON(t, &effects, "effects", "--run", run.ID)
	slices.Reverse(effects)
	want := []string{"POST https://" + addr + "/orders done 201", "POST https://" + addr + "/moved failed 307", "DELETE https://" + addr + "/cut unknown 0", "POST https://127.0.0.1:1/private failed 0"}
	for i, e := range effects {
		if got := fmt.Sprintf("%s %s %d", e.Target, e.Outcome, e.Status); i >= len(want) || got != want[i] || e.Kind != contract.EffectRequest || e.Approval == "" {
			t.Errorf("the ledger has %s, %+v", got, e)
		}
	}
	if len(effects) != len(want) {
		t.Fatalf("%d effects", len(effects))
	}
	if said := in.Must(t, "effects", "show", effects[0].ID); !strings.Contains(said, "4711") || !strings.Contains(said, "allowed by") {
		t.Errorf("what choir effects show shows:\n%.3000s", said)
	}
	if said := in.Must(t, "runs", run.ID); !strings.Contains(said, "DELETE https://"+addr+"/cut") {
		t.Errorf("the run does not say what is unknown:\n%s", said)
	}
	if res := run.Tasks[0].Result; res == nil || len(res.Effects) != 4 || res.Effects[0].Outcome != contract.EffectUnknown || !slices.Contains(res.Egress.Allowed, addr) {
		t.Errorf("the result reports %+v", res)
	}
	for _, e := range eventsOf(t, in, "egress.allowed") {
		if d := data[contract.EgressDecided](t, e); d.Kind != contract.BoxScratch {
			t.Errorf("%+v", d)
		}
	}
	if said := in.Must(t, "egress", "--run", run.ID); !strings.Contains(said, "127.0.0.1") {
		t.Errorf("what passed is not on record: %s", said)
	}
}

// approvalsOf lists what waits for an answer.
func approvalsOf(t *testing.T, in *choirtest.Instance) (list []view.Approval) {
	t.Helper()
	in.JSON(t, &list, "approvals")
	return list
}
