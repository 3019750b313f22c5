package control_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/rpc"
)

// These are the capabilities of each role, and those of an account where no computer is named. They
// are written down a second time, apart from the table of internal/grant, because that table is
// what is tested.
var (
	ofViewers = []contract.Capability{"read", "enter", "self"}
	ofEditors = append(slices.Clone(ofViewers), "prompt", "write", "exec", "restore", "arrange", "network")
	ofOwners  = append(slices.Clone(ofEditors), "approve", "manage", "invite")
	roleMay   = map[grant.Role][]contract.Capability{grant.Viewer: ofViewers, grant.Editor: ofEditors, grant.Owner: ofOwners}
	ofAnybody = []contract.Capability{"read", "self"}
)

// able reports whether somebody has all capabilities that a method requires.
func able(d rpc.Declared, may []contract.Capability) bool {
	return !slices.ContainsFunc(d.Takes(), func(c contract.Capability) bool { return !slices.Contains(may, c) })
}

// lent makes a token of a person's with some capabilities.
func (w *world) lent(p person, may []contract.Capability, until time.Time) string {
	w.t.Helper()
	_, secret, err := w.ids.NewToken(context.Background(), p.ID, "lent", identity.TokenScope{May: may, Expires: until})
	if err != nil {
		w.t.Fatal(err)
	}
	return secret
}

// some returns a random part of a list, never nil.
func some[T any](of []T) []T {
	return slices.DeleteFunc(append(make([]T, 0, len(of)), of...), func(T) bool { return rand.IntN(2) == 0 })
}

// TestMethodsAnswerAsTheTableSays draws callers with any role, powers and token: each method
// answers over HTTP as the table says.
func TestMethodsAnswerAsTheTableSays(t *testing.T) {
	w := open(t)
	scopes := make([][]contract.Capability, 0, 12)
	for _, c := range []contract.Capability{"read", "prompt", "write", "exec", "restore", "self"} {
		scopes = append(scopes, []contract.Capability{c})
	}
	scopes = append(scopes, []contract.Capability{}, contract.TokenCapabilities)
	for len(scopes) < cap(scopes) {
		scopes = append(scopes, some(contract.TokenCapabilities))
	}
	for n, scope := range scopes {
		role := []grant.Role{grant.Owner, grant.Editor, grant.Viewer}[rand.IntN(3)]
		powers := some(grant.Powers())
		m := w.computer(fmt.Sprintf("C%d", n), w.owner.ID)
		u, err := w.ids.NewAccount(t.Context(), fmt.Sprintf("P%d", n), powers)
		check(t, err)
		p := person{User: u}
		w.join(p, m.cid, role)
		p.token = w.lent(p, scope, time.Time{})
		asked := fmt.Sprintf("a %s with the powers %v", role, powers)
		for _, method := range rpc.All() {
			d := method.About()
			if d.HTTP.ID == "" || d.Callers&rpc.Program == 0 || d.Name == rpc.MemberLeave.Name {
				continue
			}
			granted := ofAnybody
			if d.Needs != rpc.Plane {
				granted = roleMay[role]
			}
			granted = slices.Clone(granted)
			for _, power := range powers {
				granted = append(granted, contract.Capability(power))
			}
			may := able(d, granted) && able(d, scope)
			if may && d.Kind == rpc.Stream {
				continue // the answer is a stream that goes on
			}
			res := w.asks(p, method, string(m.cid), map[string]any{"powers": []grant.Power{}})
			if refused := res.StatusCode == http.StatusForbidden && strings.Contains(res.body, "was not given to you"); refused == may {
				t.Errorf("%s and a token for %v asks %s and is answered %d %s", asked, scope, d.Name, res.StatusCode, res.body)
			}
		}
	}
}

// TestActorsOfEveryKindAskAsTheTableSays does the same on the bus, for every kind of actor with any
// grant.
func TestActorsOfEveryKindAskAsTheTableSays(t *testing.T) {
	for _, kind := range contract.ActorKinds {
		for range 50 {
			may := some(contract.Capabilities)
			who := contract.Actor{Kind: kind, ID: "x", On: "u"}.Only(may...)
			for _, m := range rpc.All() {
				d := m.About()
				door := kind == contract.KindPerson && d.Callers&rpc.API != 0 || kind == contract.KindApp && d.Callers&rpc.Desktop != 0
				if got := d.Permits(who) == nil; got != (door && able(d, may)) {
					t.Fatalf("a %s that may %v asks %s: %v", kind, may, d.Name, got)
				}
			}
		}
	}
}

// TestALentTokenEndsNoSessions shows that a token with few capabilities can't end its account's
// sessions, and that it never allows more than its account may do.
func TestALentTokenEndsNoSessions(t *testing.T) {
	w := open(t)
	p := w.person("B")
	w.join(p, w.machine().cid, grant.Viewer)
	ask := func(verb, target string, may ...contract.Capability) int {
		t.Helper()
		return w.ask(verb, hostOf(w.console()), target, "", "Authorization: Bearer "+w.lent(p, may, time.Time{})).StatusCode
	}
	if got := ask("POST", "/api/signout?everywhere=true", contract.CanRead, contract.CanPrompt); got != http.StatusForbidden {
		t.Errorf("a token for reading ends the account's sessions: %d", got)
	}
	if got := ask("POST", "/api/signout?everywhere=true", contract.CanSelf); got/100 != 2 {
		t.Errorf("a token for the account's own: %d", got)
	}
}

// TestAStreamIsHeldToItsToken shows that a stream requires a token that allows reading, and ends
// when the token expires, after which the token is refused.
func TestAStreamIsHeldToItsToken(t *testing.T) {
	w := open(t)
	p := w.person("B")
	w.join(p, w.machine().cid, grant.Editor)
	for _, m := range []rpc.Any{rpc.EventsRead, rpc.FrameStream, rpc.ExecHTTP, rpc.FilesGet} {
		d := m.About()
		but := slices.DeleteFunc(slices.Clone(contract.TokenCapabilities), func(c contract.Capability) bool { return c == d.May })
		q := p
		q.token = w.lent(p, but, time.Time{})
		if res := w.asks(q, m, string(w.machine().cid), nil); res.StatusCode != http.StatusForbidden {
			t.Errorf("a token for everything but %s asks %s and is answered %d %s", d.May, d.Name, res.StatusCode, res.body)
		}
	}
	q := p
	q.token = w.lent(p, []contract.Capability{contract.CanRead}, time.Now().Add(3*time.Second))
	stream := w.stream(q, "/api/computers/"+string(w.machine().cid)+"/frame/stream")
	select {
	case <-stream:
	case <-within(t).Done():
		t.Fatal("a stream outlives the token that it was asked with")
	}
	w.waitFor(func() bool {
		got := w.ask("GET", hostOf(w.console()), "/api/account", "", "Authorization: Bearer "+q.token)
		return got.StatusCode == http.StatusUnauthorized && strings.Contains(got.body, "expired")
	})
}
