package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
)

// connectDesktop connects as the page does, with a session, over a WebSocket, to NATS.
func (w *world) connectDesktop(origin, cookie string) (*nats.Conn, string) {
	w.t.Helper()
	res := w.ask("GET", hostOf(origin), "/_choir/session", "", append(fetched(origin)[1:], cookie)...)
	var s struct {
		CID  string
		NATS struct{ URL, JWT, Seed, Inbox string }
	}
	if err := json.Unmarshal([]byte(res.body), &s); err != nil || s.NATS.URL != "/_choir/nats" {
		w.t.Fatalf("session: %d %s", res.StatusCode, res.body)
	}
	nc, err := nats.Connect("nats://choir.localhost:1", nats.SkipHostLookup(), nats.UserJWTAndSeed(s.NATS.JWT, s.NATS.Seed), nats.CustomInboxPrefix(s.NATS.Inbox), nats.NoReconnect(),
		nats.SetCustomDialer(dialer(func() (net.Conn, error) {
			h := http.Header{"Origin": {origin}, "Sec-Fetch-Site": {"same-origin"}, "Cookie": {strings.TrimPrefix(cookie, "Cookie: ")}}
			ws, _, err := websocket.Dial(context.Background(), "ws://"+hostOf(origin)+"/_choir/nats", &websocket.DialOptions{HTTPHeader: h, HTTPClient: w.loopback()})
			if err != nil {
				return nil, err
			}
			ws.SetReadLimit(4 << 20)
			return websocket.NetConn(context.Background(), ws, websocket.MessageBinary), nil
		})))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc, s.CID
}

type dialer func() (net.Conn, error)

func (d dialer) Dial(string, string) (net.Conn, error) { return d() }
func (d dialer) SkipTLSHandshake() bool                { return true }

// loopback dials loopback for every name.
func (w *world) loopback() *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", w.port))
	}}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func request(t *testing.T, nc *nats.Conn, subject, body string) string {
	t.Helper()
	msg, err := nc.Request(subject, []byte(body), 10*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return string(msg.Data)
}

func TestDesktopOnTheBus(t *testing.T) {
	w := open(t)
	cookie := w.signIn()
	origin, desktop := w.enter(cookie)
	nc, cid := w.connectDesktop(origin, desktop)
	live := make(chan *nats.Msg, 64)
	if _, err := nc.ChanSubscribe("live."+cid+".>", live); err != nil {
		t.Fatal(err)
	}
	id := contract.NewID()
	prompt := fmt.Sprintf(`{"type":"prompt.submitted","id":%q,"data":{"text":"hello"}}`, id)
	first := request(t, nc, "user."+cid+".action", prompt)
	if !strings.Contains(first, `"run":"`+contract.DeriveID(id, "run")+`"`) || first != request(t, nc, "user."+cid+".action", prompt) {
		t.Fatalf("prompt: %s", first)
	}
	for _, c := range []struct{ name, subject, body, want string }{
		{"read", "log.read", `{"after":0,"limit":10}`, `"last":2`},
		{"snapshot", "state.snapshot", `{}`, `"documents":[]`},
		{"checkpoints", "checkpoint.list", `{"limit":5}`, `"commit":"aaaa`},
		{"create", "checkpoint.create", `{"message":"m"}`, `"created":true`},
		{"diff", "checkpoint.diff", `{"from":"aaaaaaa","to":""}`, `"truncated":false`},
		{"restore", "checkpoint.restore", `{"to":"aaaaaaa","dry_run":true}`, `"changes":[]`},
		{"document", "document.get", `{"document":"` + contract.NewID() + `"}`, `"body":"# Doc`},
		{"proposals", "proposal.list", `{"document":"` + contract.NewID() + `"}`, `"status":"open"`},
		{"a proposal", "proposal.get", `{"document":"` + contract.NewID() + `","proposal":"` + proposed.ID + `"}`, `"truncated":true`},
		{"accept", "proposal.accept", `{"document":"` + contract.NewID() + `","proposal":"` + proposed.ID + `"}`, `"revision":3`},
		{"dismiss", "proposal.dismiss", `{"document":"` + contract.NewID() + `","proposal":"` + proposed.ID + `"}`, `"resolution":"dismissed"`},
		{"no such proposal", "proposal.dismiss", `{"document":"` + contract.NewID() + `","proposal":"` + contract.NewID() + `"}`, `"code":"not_found"`},
		{"no proposal", "proposal.get", `{"document":"` + contract.NewID() + `"}`, `"field":"proposal"`},
		{"unknown service", "no.such", `{}`, `"code":"not_found"`},
		{"unknown field", "log.read", `{"after":0,"limitt":10}`, `"field":"limitt"`},
		{"not JSON", "log.read", `]`, `"code":"invalid"`},
		{"trailing bytes", "log.read", `{} {}`, `"code":"invalid"`},
		{"traversal", "checkpoint.restore", `{"to":"aaaaaaa","paths":["../x"]}`, `"field":"paths"`},
		{"an option for git", "checkpoint.diff", `{"from":"--output=x"}`, `"field":"from"`},
		{"two ways back", "checkpoint.restore", `{"to":""}`, `"code":"invalid"`},
	} {
		if got := request(t, nc, "svc."+cid+"."+c.subject, c.body); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	before := w.machine().Last()
	for name, body := range map[string]string{
		"an event of the system":  `{"type":"run.reported","id":"` + contract.NewID() + `","data":{"status":"done","summary":"x","verified":"pass","usage":{}}}`,
		"an id to come":           `{"type":"prompt.submitted","id":"` + contract.DeriveID(id, "run") + `","data":{"text":"x"}}`,
		"no id":                   `{"type":"prompt.submitted","data":{"text":"x"}}`,
		"another's user":          `{"type":"prompt.submitted","id":"` + contract.NewID() + `","user":"u-x","data":{"text":"x"}}`,
		"a run on a prompt":       `{"type":"prompt.submitted","id":"` + contract.NewID() + `","run":"` + contract.NewID() + `","data":{"text":"x"}}`,
		"another window's topic":  `{"type":"window.closed","id":"` + contract.NewID() + `","subject":"task/1/1","data":{"window":"w"}}`,
		"steering no run":         `{"type":"run.steered","id":"` + contract.NewID() + `","data":{"text":"x"}}`,
		"unknown fields in data":  `{"type":"prompt.submitted","id":"` + contract.NewID() + `","data":{"text":"x","role":"system"}}`,
		"data of the wrong shape": `{"type":"window.moved","id":"` + contract.NewID() + `","data":{"window":"w","frame":{"x":1e9},"state":"normal"}}`,
	} {
		if got := request(t, nc, "user."+cid+".action", body); !strings.Contains(got, `"code":"invalid"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := w.machine().Last(); got != before {
		t.Errorf("%d events were written", got-before)
	}
	command := contract.NewID()
	if got := request(t, nc, "svc."+cid+".exec.run", `{"id":"`+command+`","argv":["echo","häh"]}`); !strings.Contains(got, command) {
		t.Fatalf("exec: %s", got)
	}
	for tick, deadline := false, time.After(20*time.Second); !tick; {
		select {
		case m := <-live:
			tick = m.Subject == contract.SubjectTick(contract.CID(cid)) && strings.Contains(string(m.Data), `"sequence":`)
		case <-deadline:
			t.Fatal("no tick came")
		}
	}
	w.waitFor(func() bool {
		return strings.Contains(request(t, nc, "svc."+cid+".exec.output", `{"command":"`+command+`","after":-1,"wait":true}`), "häh")
	})
	w.waitFor(func() bool {
		return strings.Contains(request(t, nc, "svc."+cid+".exec.output", `{"command":"`+command+`","after":-1}`), `"exit_code":3`)
	})
	slow := contract.NewID()
	request(t, nc, "svc."+cid+".exec.run", `{"id":"`+slow+`","argv":["sleep"]}`)
	request(t, nc, "svc."+cid+".exec.stop", `{"command":"`+slow+`"}`)
	select {
	case <-w.machine().killed:
	case <-time.After(20 * time.Second):
		t.Fatal("the command was not stopped")
	}
	// Signing out ends the connection.
	w.ask("POST", hostOf(w.console()), "/api/signout?everywhere=true", "", append(fetched(w.console()), cookie)...)
	w.waitFor(nc.IsClosed)
}

// TestAPanicIsOneRequestsFault shows that a panic in a request or in a command is answered with an
// error, and affects neither the process nor other requests.
func TestAPanicIsOneRequestsFault(t *testing.T) {
	w := open(t)
	origin, desktop := w.enter(w.signIn())
	nc, cid := w.connectDesktop(origin, desktop)
	for _, c := range []struct{ subject, body string }{
		{"document.get", fmt.Sprintf(`{"document":%q,"revision":%d}`, contract.NewID(), fatal)},
		{"exec.run", fmt.Sprintf(`{"id":%q,"argv":["panic"]}`, contract.NewID())},
	} {
		got := request(t, nc, "svc."+cid+"."+c.subject, c.body)
		if !strings.Contains(got, `"code":"internal"`) || strings.Contains(got, "a fault of ours") || strings.Contains(got, "goroutine") {
			t.Errorf("%s: %s", c.subject, got)
		}
	}
	if got := request(t, nc, "svc."+cid+".log.read", `{"after":0}`); !strings.Contains(got, `"events"`) {
		t.Errorf("after the panics: %s", got)
	}
}

// TestAttack33_ReplySubjects shows that an answer goes to the client's own inbox only, whatever
// reply subject the client names.
func TestAttack33_ReplySubjects(t *testing.T) {
	w := open(t)
	origin, desktop := w.enter(w.signIn())
	spy := make(chan *nats.Msg, 8)
	victim := "live." + string(newMachine("x").cid) + ".user.prompt.submitted"
	sub, err := w.bus.Conn().ChanSubscribe(victim, spy)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, sub.Unsubscribe()) }()
	check(t, w.bus.Conn().Flush())
	nc, cid := w.connectDesktop(origin, desktop)
	check(t, nc.PublishRequest("svc."+cid+".log.read", victim, []byte(`{}`)))
	w.waitFor(nc.IsClosed)
	check(t, w.bus.Conn().Flush())
	select {
	case m := <-spy:
		t.Errorf("an answer was written to %s: %s", m.Subject, m.Data)
	default:
	}
}
