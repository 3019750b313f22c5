package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/rpc/rpctest"
)

// person is an account with a token and a console session.
type person struct {
	identity.User
	token, cookie string
}

// person makes an account that has signed in.
func (w *world) person(name string, powers ...grant.Power) person {
	w.t.Helper()
	ctx := context.Background()
	p := person{}
	var err error
	if p.User, err = w.ids.NewAccount(ctx, name, powers); err != nil {
		w.t.Fatal(err)
	}
	if _, p.token, err = w.ids.NewToken(ctx, p.ID, "a token", identity.TokenScope{}); err != nil {
		w.t.Fatal(err)
	}
	link, _, err := w.ids.NewLink(ctx, p.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	res := w.ask("POST", hostOf(w.console()), "/api/claim", fmt.Sprintf(`{"token":%q}`, link), append(fetched(w.console()), "Content-Type: application/json")...)
	if res.StatusCode != http.StatusOK {
		w.t.Fatalf("claim: %d %s", res.StatusCode, res.body)
	}
	p.cookie = cookieOf(w.t, res)
	return p
}

// computer adds a computer that an account owns.
func (w *world) computer(name, owner string) *machine {
	w.t.Helper()
	m := newMachine(name)
	if _, err := w.ids.Adopt(context.Background(), m.cid, owner, name); err != nil {
		w.t.Fatal(err)
	}
	w.computers.list = append(w.computers.list, m)
	return m
}

// join makes a person a member of a computer.
func (w *world) join(p person, cid contract.CID, role grant.Role) {
	w.t.Helper()
	by := w.owner.ID
	members, err := w.ids.Members(context.Background(), cid)
	check(w.t, err)
	for _, m := range members {
		if m.Role == grant.Owner {
			by = m.Account
		}
	}
	_, token, err := w.ids.NewInvitation(context.Background(), cid, role, by)
	if err == nil {
		_, _, err = w.ids.Accept(context.Background(), token, p.ID)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// asks sends a well-formed request of a method, in the way that allows most to a person who is not
// the machine's owner.
func (w *world) asks(p person, m rpc.Any, computer string, fields map[string]any) answer {
	w.t.Helper()
	r := rpctest.HTTP(m, computer, fields)
	headers := []string{"Authorization: Bearer " + p.token}
	if m.About().Callers&rpc.Program == 0 {
		headers = append(fetched(w.console()), p.cookie)
	}
	if r.Content != "" {
		headers = append(headers, "Content-Type: "+r.Content)
	}
	return w.ask(r.Verb, hostOf(w.console()), r.Target, r.Body, headers...)
}

// TestForeignComputersAreNotThere shows that every method answers about somebody else's computer
// exactly as if there were no such computer.
func TestForeignComputersAreNotThere(t *testing.T) {
	w := open(t)
	b := w.person("B", grant.Powers()...) // B has every power over the machine
	w.computer("B's", b.ID)
	foreign, unknown := w.machine(), contract.NewCID()
	before := foreign.Last()
	for _, m := range rpc.All() {
		d := m.About()
		if d.HTTP.ID == "" || d.Needs == rpc.Plane {
			continue
		}
		got := w.asks(b, m, string(foreign.cid), nil)
		want := w.asks(b, m, string(unknown), nil)
		if want.StatusCode != http.StatusNotFound {
			t.Errorf("%s: a computer that there is not answers %d %s", d.Name, want.StatusCode, want.body)
		}
		if got.StatusCode != want.StatusCode || got.body != want.body || fmt.Sprint(got.Header["Content-Type"]) != fmt.Sprint(want.Header["Content-Type"]) {
			t.Errorf("%s: somebody else's computer answers %d %s", d.Name, got.StatusCode, got.body)
		}
	}
	if foreign.Last() != before {
		t.Errorf("%d events were written", foreign.Last()-before)
	}
	if res := w.ask("GET", hostOf(w.console()), "/api/computers", "", "Authorization: Bearer "+b.token); !strings.Contains(res.body, `"B's"`) || strings.Contains(res.body, string(foreign.cid)) {
		t.Errorf("somebody else's computer is listed: %s", res.body)
	}
	r := rpctest.HTTP(rpc.ComputerCreate, "", map[string]any{"id": string(foreign.cid)})
	if res := w.ask(r.Verb, hostOf(w.console()), r.Target, r.Body, "Content-Type: application/json", "Authorization: Bearer "+b.token); res.StatusCode != http.StatusConflict || strings.Contains(res.body, "Studio") {
		t.Errorf("somebody else's computer is made again: %d %s", res.StatusCode, res.body)
	}
}

// TestMembersDoWhatTheirRoleAllows shows that a member may call exactly the methods that their role
// allows, over HTTP and on the bus.
func TestMembersDoWhatTheirRoleAllows(t *testing.T) {
	for _, role := range []grant.Role{grant.Viewer, grant.Editor} {
		w := open(t)
		p := w.person("B")
		w.join(p, w.machine().cid, role)
		origin, desktop := w.enter(p.cookie)
		nc, cid := w.connectDesktop(origin, desktop)
		for _, m := range rpc.All() {
			d := m.About()
			if d.Needs == rpc.Plane || d.Name == rpc.MemberLeave.Name {
				continue
			}
			may := able(d, roleMay[role])
			if may && d.Kind == rpc.Stream {
				continue // the answer is a stream that goes on
			}
			if d.HTTP.ID != "" && d.Callers&rpc.API != 0 {
				if res := w.asks(p, m, cid, nil); (res.StatusCode != http.StatusForbidden) != may && d.Callers&(rpc.Program|rpc.Console) != 0 {
					t.Errorf("a %s asks %s and is answered %d %s", role, d.Name, res.StatusCode, res.body)
				}
			}
			if d.Callers&rpc.Desktop != 0 {
				subject, body := rpctest.Bus(m, contract.CID(cid), nil)
				if got := request(t, nc, subject, string(body)); strings.Contains(got, `"code":"denied"`) == may {
					t.Errorf("a %s asks %s on the bus and is answered %s", role, d.Name, got)
				}
			}
		}
		res := w.ask("POST", hostOf(origin), "/_choir/files?name=dropped", "bytes", append(fetched(origin), desktop)...)
		if (res.StatusCode == http.StatusOK) != (role == grant.Editor) {
			t.Errorf("a %s brings a file in: %d %s", role, res.StatusCode, res.body)
		}
	}
}

// TestTheMachineIsItsAdministrators shows that methods about the machine require the power for
// them, whatever role the caller has in a computer.
func TestTheMachineIsItsAdministrators(t *testing.T) {
	w := open(t)
	b := w.person("B")
	w.join(b, w.machine().cid, grant.Owner)
	all := w.person("C", grant.Powers()...)
	asked := 0
	for _, m := range rpc.All() {
		d := m.About()
		power := d.Takes()[len(d.Takes())-1]
		if !slices.Contains(grant.Powers(), grant.Power(power)) || d.Callers&rpc.Program == 0 {
			continue
		}
		asked++
		if res := w.asks(b, m, string(w.machine().cid), nil); res.StatusCode != http.StatusForbidden || !strings.Contains(res.body, string(power)) {
			t.Errorf("an account without %s asks %s and is answered %d %s", power, d.Name, res.StatusCode, res.body)
		}
		if res := w.asks(all, m, string(w.machine().cid), nil); d.Needs == rpc.Plane && res.StatusCode == http.StatusForbidden {
			t.Errorf("an account with every power asks %s and is answered %d %s", d.Name, res.StatusCode, res.body)
		}
	}
	if asked < 6 {
		t.Errorf("only %d methods take a power", asked)
	}
}

// TestAForkIsWhoseForkedIt shows that a person who may change a computer and make computers can
// fork it, and is the only owner of the fork. A fork that failed has no owner, and its handle can
// be used again.
func TestAForkIsWhoseForkedIt(t *testing.T) {
	w := open(t)
	source := w.machine().cid
	fork := func(p person, id contract.CID, name string) answer {
		t.Helper()
		fields := map[string]any{"name": name}
		if id != "" {
			fields["id"] = string(id)
		}
		return w.asks(p, rpc.ComputerFork, string(source), fields)
	}
	for name, who := range map[string]struct {
		role   grant.Role
		powers []grant.Power
		want   int
	}{
		"a stranger": {grant.None, []grant.Power{grant.Computers}, http.StatusNotFound}, "a viewer": {grant.Viewer, []grant.Power{grant.Computers}, http.StatusForbidden},
		"an editor who makes none": {grant.Editor, nil, http.StatusForbidden}, "an owner who makes none": {grant.Owner, nil, http.StatusForbidden},
	} {
		p := w.person(name, who.powers...)
		if who.role != grant.None {
			w.join(p, source, who.role)
		}
		if res := fork(p, "", "Theirs"); res.StatusCode != who.want {
			t.Errorf("%s forks it and is answered %d %s", name, res.StatusCode, res.body)
		}
	}
	p := w.person("an editor", grant.Computers)
	w.join(p, source, grant.Editor)
	if res := fork(p, source, "Mine"); res.StatusCode != http.StatusConflict {
		t.Errorf("an editor forks it over itself: %d %s", res.StatusCode, res.body)
	}
	foreign := w.computer("Foreign", w.owner.ID).cid
	if res := fork(p, foreign, "Mine"); res.StatusCode != http.StatusConflict || strings.Contains(res.body, "Foreign") {
		t.Errorf("an editor forks it over somebody else's: %d %s", res.StatusCode, res.body)
	}

	cid, before := contract.NewCID(), len(w.places())
	w.computers.full(fault.New("", fault.Exhausted, "", errors.New("there is too much of it")))
	for range 2 {
		for _, id := range []contract.CID{cid, ""} {
			if res := fork(p, id, "Attempt"); res.StatusCode != http.StatusTooManyRequests {
				t.Errorf("what there is too much of is forked: %d %s", res.StatusCode, res.body)
			}
		}
	}
	w.computers.full(nil)
	if got := len(w.places()); got != before {
		t.Errorf("%d computers are recorded, before forks that came to nothing there were %d", got, before)
	}
	if res := fork(p, cid, "Attempt"); res.StatusCode != http.StatusOK || !strings.Contains(res.body, `"handle":"attempt"`) {
		t.Errorf("an editor forks it and is answered %d %s", res.StatusCode, res.body)
	}
	members, err := w.ids.Members(t.Context(), cid)
	if err != nil || len(members) != 1 || members[0].Account != p.ID || members[0].Role != grant.Owner {
		t.Errorf("members of the fork: %+v, %v", members, err)
	}
	// A fork that exists keeps its owner even if forking it again fails.
	w.computers.full(fault.New("", fault.Exhausted, "", errors.New("there is too much of it")))
	fork(p, cid, "Attempt")
	if members, err := w.ids.Members(t.Context(), cid); err != nil || len(members) != 1 {
		t.Errorf("members of the fork later: %+v, %v", members, err)
	}
}

// places returns the computers that accounts are members of.
func (w *world) places() []identity.Place {
	w.t.Helper()
	out, err := w.ids.Places(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// TestACommandsOutputIsItsSessions shows that a command's output belongs to the session that
// started it: for another member of the computer, or the same person in another browser, there is
// no such command.
func TestACommandsOutputIsItsSessions(t *testing.T) {
	w := open(t)
	b := w.person("B")
	w.join(b, w.machine().cid, grant.Editor)
	mine := w.signIn()
	origin, desktop := w.enter(mine)
	nc, cid := w.connectDesktop(origin, desktop)
	command := contract.NewID()
	if got := request(t, nc, "svc."+cid+".exec.run", `{"id":"`+command+`","argv":["echo","mine"]}`); !strings.Contains(got, command) {
		t.Fatalf("exec: %s", got)
	}
	output := func(nc *nats.Conn) string {
		return request(t, nc, "svc."+cid+".exec.output", `{"command":"`+command+`","after":-1}`)
	}
	w.waitFor(func() bool { return strings.Contains(output(nc), "mine") })
	again, desktop2 := w.enter(mine) // the console was reloaded
	nc2, _ := w.connectDesktop(again, desktop2)
	if got := output(nc2); !strings.Contains(got, "mine") {
		t.Errorf("after a reload: %s", got)
	}
	for who, cookie := range map[string]string{"another member": b.cookie, "another browser": w.signIn()} {
		at, theirs := w.enter(cookie)
		other, _ := w.connectDesktop(at, theirs)
		if got := output(other); !strings.Contains(got, `"code":"not_found"`) || strings.Contains(got, "mine") {
			t.Errorf("%s reads a command's output: %s", who, got)
		}
		if got := request(t, other, "svc."+cid+".exec.stop", `{"command":"`+command+`"}`); !strings.Contains(got, `"code":"not_found"`) {
			t.Errorf("%s stops a command: %s", who, got)
		}
	}
}

// TestNobodyGivesWhatTheyHaveNot shows that a person who may invite accounts can give only powers
// that they have, and can't manage an account that has any power, so they can never gain power in
// this way.
func TestNobodyGivesWhatTheyHaveNot(t *testing.T) {
	w := open(t)
	b := w.person("B", grant.Accounts)
	above, below := w.person("C", grant.Secrets), w.person("D")
	headers := []string{"Authorization: Bearer " + b.token, "Content-Type: application/json"}
	for what, c := range map[string]struct{ verb, target, body string }{
		"to a new account":          {"POST", "/api/accounts", `{"name":"E","powers":["secrets"]}`},
		"to another account":        {"PATCH", "/api/accounts/" + below.ID, `{"powers":["secrets"]}`},
		"to itself":                 {"PATCH", "/api/accounts/" + b.ID, `{"powers":["accounts","secrets"]}`},
		"by taking it from another": {"PATCH", "/api/accounts/" + above.ID, `{"powers":[]}`},
		"by removing who has it":    {"DELETE", "/api/accounts/" + above.ID, ""},
	} {
		if res := w.ask(c.verb, hostOf(w.console()), c.target, c.body, headers...); res.StatusCode != http.StatusForbidden {
			t.Errorf("a power was given by who has not got it, %s: %d %s", what, res.StatusCode, res.body)
		}
	}
	if res := w.ask("POST", hostOf(w.console()), "/api/links?account="+below.ID, "", headers[0]); res.StatusCode != http.StatusForbidden {
		t.Errorf("a link to another's account: %d %s", res.StatusCode, res.body)
	}
	own := append(fetched(w.console()), b.cookie, headers[1])
	if res := w.ask("POST", hostOf(w.console()), "/api/accounts", `{"name":"E","powers":["secrets"]}`, own...); res.StatusCode != http.StatusForbidden {
		t.Errorf("a power was given by who has not got it, on the console: %d %s", res.StatusCode, res.body)
	}
	res := w.ask("POST", hostOf(w.console()), "/api/accounts", `{"name":"E","powers":["accounts"]}`, own...)
	if res.StatusCode != http.StatusOK || !strings.Contains(res.body, w.console()+"/claim#") {
		t.Errorf("an account: %d %s", res.StatusCode, res.body)
	}
	if res := w.ask("DELETE", hostOf(w.console()), "/api/accounts/"+below.ID, "", headers...); res.StatusCode/100 != 2 {
		t.Errorf("an account goes: %d %s", res.StatusCode, res.body)
	}
}
