package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// whileAsleep are the operations that work for a computer that is not awake.
var whileAsleep = []string{"computers-wake", "computers-recover", "computers-export", "computers-remove", "computers-put-back",
	"members-list", "members-change", "members-remove", "members-leave", "invitations-create", "invitations-list", "invitations-revoke"}

// bodies are the bodies without which these operations refuse a request; for the others nothing, or
// an empty object, is enough.
var bodies = map[string]string{
	"approvals-answer": `{"digest":"` + strings.Repeat("a", 64) + `","answer":"deny"}`, "computers-rename": `{"name":"n"}`, "computers-fork": `{"name":"n"}`,
	"prompts-submit": `{"text":"hello"}`, "runs-steer": `{"text":"left"}`, "runs-model": `{"model":"smart"}`, "runs-answer": `{"question":"` + contract.NewID() + `","answer":"red"}`,
	"reviews-answer": `{"attempt":1,"review":1,"work":"` + strings.Repeat("a", 40) + `","decision":"discard"}`, "exec-run": `{"argv":["true"]}`, "files-add-url": `{"url":"https://example.com/a.git"}`, "checkpoints-restore": `{"to":"aaaaaaa"}`,
	"git-token": `{"name":"git"}`, "documents-revise": `{"base":1,"text":"words"}`, "memory-remember": `{"text":"words"}`, "effects-resolve": `{"found":"done"}`, "effects-compensate": `{"words":"keep the account"}`, "mcp-add": `{"name":"library","command":["true"]}`,
	"mcp-approve": `{"tools":[{"tool":"look","digest":"d"}]}`, "mcp-revoke": `{"tools":["look"]}`,
	"files-move": `{"from":"workspace/a","to":"workspace/b"}`,
}

// operations returns every operation on a computer that the API describes, each with an address
// that names the computer and a body.
func (w *world) operations() map[string][3]string {
	w.t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			RequestBody struct{ Required bool }
		}
	}
	if err := json.Unmarshal([]byte(w.ask("GET", hostOf(w.console()), "/api/openapi.json", "").body), &doc); err != nil {
		w.t.Fatal(err)
	}
	fill := strings.NewReplacer("{computer}", string(w.machine().cid), "{checkpoint}", "aaaaaaa", "{server}", "library")
	out := map[string][3]string{}
	for path, methods := range doc.Paths {
		if !strings.HasPrefix(path, "/api/computers/{computer}") {
			continue
		}
		at := fill.Replace(path)
		for strings.Contains(at, "{") {
			begin, end := strings.Index(at, "{"), strings.Index(at, "}")
			at = at[:begin] + contract.NewID() + at[end+1:]
		}
		switch {
		case strings.HasSuffix(at, "/content"):
			at += "?path=workspace/a"
		case strings.HasSuffix(at, "/add/tar"):
			at += "?name=a"
		}
		for method, op := range methods {
			body := bodies[op.OperationID]
			if body == "" && op.RequestBody.Required {
				body = "{}"
			}
			out[op.OperationID] = [3]string{strings.ToUpper(method), at, body}
		}
	}
	return out
}

// TestWhoComesEarlyIsToldToComeAgain shows that every way of asking for a computer that is not
// awake yet is answered with when to try again, and neither with an error nor as if there were no
// such computer.
func TestWhoComesEarlyIsToldToComeAgain(t *testing.T) {
	w := open(t)
	cookie := w.signIn()
	origin, desktop := w.enter(cookie)
	nc, cid := w.connectDesktop(origin, desktop)
	page := w.ask("GET", hostOf(origin), "/", "", append(iframed, desktop)...)
	_, load, _ := strings.Cut(page.body, `data-load="`)
	load, _, _ = strings.Cut(load, `"`)
	w.computers.say(fault.New("", fault.Unavailable, "Try again in a moment.", errors.New("Studio is waking")))
	told := func(door string, res answer) {
		t.Helper()
		var p struct{ Code, Detail, Hint string }
		if err := json.Unmarshal([]byte(res.body), &p); err != nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" ||
			p.Code != "unavailable" || p.Detail != "Studio is waking" && p.Detail != "Studio is waking." || p.Hint != "Try again in a moment." {
			t.Errorf("%s: %d, Retry-After %q: %s", door, res.StatusCode, res.Header.Get("Retry-After"), res.body)
		}
	}

	// This is the API, as a program and as the console's page use it.
	operations := w.operations()
	if len(operations) < 30 {
		t.Fatalf("only %d operations are described", len(operations))
	}
	for id, o := range operations {
		if slices.Contains(whileAsleep, id) {
			continue
		}
		body, headers := o[2], []string(nil)
		if body != "" {
			headers = []string{"Content-Type: application/json"}
		}
		if id != "frame-ticket" { // tickets can be had by the console's page only
			told("token, "+id, w.ask(o[0], fmt.Sprintf("127.0.0.1:%d", w.port), o[1], body, append(headers, "Authorization: Bearer "+w.token)...))
		}
		told("console, "+id, w.ask(o[0], hostOf(w.console()), o[1], body, append(append(headers, fetched(w.console())...), cookie)...))
	}

	// This is the desktop's origin.
	own := append(fetched(origin)[1:], desktop)
	told("session", w.ask("GET", hostOf(origin), "/_choir/session", "", own...))
	told("page", w.ask("GET", hostOf(origin), "/", "", append(iframed, desktop)...))
	told("asset", w.ask("GET", hostOf(origin), "/assets/app-1.js", "", own...))
	told("source", w.ask("GET", hostOf(origin), "/src/main.tsx", "", own...))
	told("heartbeat", w.ask("POST", hostOf(origin), "/_choir/heartbeat", `{"load":"`+load+`"}`, append(fetched(origin), desktop, "Content-Type: application/json")...))
	told("files", w.ask("POST", hostOf(origin), "/_choir/files?name=a.txt", "a", append(fetched(origin), desktop)...))
	for _, socket := range []string{"/_choir/nats", "/"} {
		h := http.Header{"Origin": {origin}, "Sec-Fetch-Site": {"same-origin"}, "Cookie": {strings.TrimPrefix(desktop, "Cookie: ")}}
		ws, res, err := websocket.Dial(context.Background(), "ws://"+hostOf(origin)+socket, &websocket.DialOptions{HTTPHeader: h, HTTPClient: w.loopback()})
		if err == nil {
			_ = ws.CloseNow()
		}
		if res == nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("the socket %s: %v, %+v", socket, err, res)
		}
	}

	// This is the bus, over a connection that was made before.
	for _, subject := range []string{"user." + cid + ".action", "svc." + cid + ".log.read", "svc." + cid + ".state.snapshot", "svc." + cid + ".run.get", "svc." + cid + ".run.trace", "svc." + cid + ".run.undo",
		"svc." + cid + ".document.get", "svc." + cid + ".proposal.list", "svc." + cid + ".checkpoint.list", "svc." + cid + ".checkpoint.create", "svc." + cid + ".checkpoint.restore",
		"svc." + cid + ".files.list", "svc." + cid + ".exec.run", "svc." + cid + ".exec.output", "svc." + cid + ".computer.health"} {
		if got := request(t, nc, subject, `{}`); !strings.Contains(got, `"code":"unavailable"`) || !strings.Contains(got, "Studio is waking") {
			t.Errorf("%s: %s", subject, got)
		}
	}

	// This is the client, which the command line uses.
	if _, err := w.client().Info(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.Text(err), "is waking") || fault.HintOf(err) == "" {
		t.Errorf("the client: %v", err)
	}

	w.computers.say(nil)
	if res := w.ask("GET", hostOf(origin), "/_choir/session", "", own...); res.StatusCode != http.StatusOK {
		t.Errorf("once it is awake: %d %s", res.StatusCode, res.body)
	}
}

// TestAClaimOfAComputerThatDoesNotWakeSignsIn shows that a link that is used while the computer
// does not wake signs in, because the page that it leads to says what is wrong. The link is used up
// in any case.
func TestAClaimOfAComputerThatDoesNotWakeSignsIn(t *testing.T) {
	w := open(t)
	w.computers.say(fault.New("", fault.Damaged, "Recover it.", errors.New("its log is damaged")))
	cookie := w.signIn()
	if res := w.ask("GET", hostOf(w.console()), "/api/computers", "", append(fetched(w.console()), cookie)...); res.StatusCode != http.StatusOK || !strings.Contains(res.body, string(w.machine().cid)) {
		t.Errorf("signed in: %d %s", res.StatusCode, res.body)
	}
}
