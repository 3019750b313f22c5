package control_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"choir.dev/choiros/console"
	"choir.dev/choiros/internal/control"
	"choir.dev/choiros/internal/grant"
)

// linkOf has a browser make a link for one more device, and returns the link's token.
func (w *world) linkOf(cookie string) string {
	w.t.Helper()
	res := w.ask("POST", hostOf(w.console()), "/api/sessions/link", "", append(fetched(w.console()), cookie)...)
	var out struct{ URL string }
	if err := json.Unmarshal([]byte(res.body), &out); err != nil || res.StatusCode != 200 {
		w.t.Fatalf("link: %d %s", res.StatusCode, res.body)
	}
	_, token, _ := strings.Cut(out.URL, "#")
	return token
}

func (w *world) claims(token string, headers ...string) answer {
	w.t.Helper()
	return w.ask("POST", hostOf(w.console()), "/api/claim", fmt.Sprintf(`{"token":%q}`, token), append(append(fetched(w.console()), "Content-Type: application/json"), headers...)...)
}

// idOfOther returns the id of the one session that is not the one that asks.
func (w *world) idOfOther(cookie string) string {
	w.t.Helper()
	res := w.ask("GET", hostOf(w.console()), "/api/sessions", "", append(fetched(w.console()), cookie)...)
	var list []struct {
		ID   string
		This bool
	}
	if err := json.Unmarshal([]byte(res.body), &list); err != nil {
		w.t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	for _, s := range list {
		if !s.This {
			return s.ID
		}
	}
	w.t.Fatalf("no other: %s", res.body)
	return ""
}

// TestALinkEndsWithTheSessionThatMadeIt has somebody at a foreign browser make a link before its owner signs that
// browser out: the link must not sign it in again.
func TestALinkEndsWithTheSessionThatMadeIt(t *testing.T) {
	w := open(t)
	thief := w.signIn()
	mine := cookieOf(t, w.claims(w.linkOf(thief)))
	token := w.linkOf(thief)
	id := w.idOfOther(mine)
	if res := w.ask("DELETE", hostOf(w.console()), "/api/sessions/"+id, "", append(fetched(w.console()), mine)...); res.StatusCode/100 != 2 {
		t.Fatalf("end: %d %s", res.StatusCode, res.body)
	}
	if res := w.ask("GET", hostOf(w.console()), "/api/account", "", append(fetched(w.console())[1:], thief)...); res.StatusCode != http.StatusUnauthorized {
		t.Fatalf("the session goes on: %d", res.StatusCode)
	}
	if res := w.claims(token); res.StatusCode == http.StatusOK {
		t.Errorf("the browser that was signed out signs in again with the link that it made before: %d", res.StatusCode)
	}
}

// TestWhoSignsOutLeavesNoLink is the same for who signs out by themselves, as at a borrowed machine.
func TestWhoSignsOutLeavesNoLink(t *testing.T) {
	w := open(t)
	cookie := w.signIn()
	token := w.linkOf(cookie)
	if res := w.ask("POST", hostOf(w.console()), "/api/signout", "", append(fetched(w.console()), cookie)...); res.StatusCode/100 != 2 {
		t.Fatalf("sign out: %d %s", res.StatusCode, res.body)
	}
	if res := w.claims(token); res.StatusCode == http.StatusOK {
		t.Error("a link made by a session that signed out still signs in")
	}
}

// TestSheetsAreNotForOthers tries the sheets' methods with whoever must not have them.
func TestSheetsAreNotForOthers(t *testing.T) {
	w := open(t)
	w.signIn()
	owner := w.signIn()
	id := w.idOfOther(owner)
	b := w.person("B")
	w.join(b, w.machine().cid, "editor")
	origin, desktop := w.enterAt(b.cookie, string(w.machine().cid))
	for _, m := range []string{"GET /api/sessions", "DELETE /api/sessions/" + id, "POST /api/sessions/link", "POST /api/stop"} {
		verb, target, _ := strings.Cut(m, " ")
		for who, headers := range map[string][]string{
			"a token":                       {"Authorization: Bearer " + b.token},
			"the owner's token from a page": append(fetched(w.console()), "Authorization: Bearer "+w.token),
			"a desktop's page":              append(fetched(origin), b.cookie),
			"a desktop's page, same-site":   {"Origin: " + origin, "Sec-Fetch-Site: same-site", owner},
			"nobody says which page":        {owner},
			"a null origin":                 {"Origin: null", "Sec-Fetch-Site: cross-site", owner},
			"two cookies":                   append(fetched(w.console()), owner+"; "+strings.TrimPrefix(b.cookie, "Cookie: ")),
			"a desktop's cookie":            append(fetched(w.console()), strings.Replace(desktop, "desktop", "console", 1)),
			"the address bar or a form":     {"Sec-Fetch-Site: none", owner},
			"another person":                append(fetched(w.console()), b.cookie),
		} {
			if who == "another person" && (verb == "GET" || target == "/api/sessions/link") || who == "the address bar or a form" && verb == "GET" {
				continue // of their own account
			}
			if res := w.ask(verb, hostOf(w.console()), target, "", headers...); res.StatusCode < 400 {
				t.Errorf("%s by %s: %d %s", m, who, res.StatusCode, res.body)
			}
		}
		for _, host := range []string{"evil.example", fmt.Sprintf("console.choir.localhost.:%d", w.port), fmt.Sprintf("localhost:%d", w.port), fmt.Sprintf("127.0.0.1:%d", w.port), hostOf(origin)} {
			if res := w.ask(verb, host, target, "", "Origin: http://"+host, "Sec-Fetch-Site: same-origin", owner); res.StatusCode < 400 && host != hostOf(origin) || res.StatusCode/100 == 2 && strings.Contains(res.Header.Get("Content-Type"), "json") {
				t.Errorf("%s at %s: %d %s", m, host, res.StatusCode, res.body)
			}
		}
	}
	if res := w.ask("GET", hostOf(w.console()), "/api/sessions", "", append(fetched(w.console()), b.cookie)...); strings.Contains(res.body, id) {
		t.Error("another's session is listed")
	}
	if strings.Contains(w.log.String(), w.linkOf(owner)) {
		t.Error("a link is in the log")
	}
}

// TestAnEndedSessionsStreamsEnd ends a session that has a stream, a desktop and its bus open.
func TestAnEndedSessionsStreamsEnd(t *testing.T) {
	w := open(t)
	theirs := w.signIn()
	origin, desktop := w.enter(theirs)
	nc, _ := w.connectDesktop(origin, desktop)
	ended := w.follow("/api/computers/-/frame/stream", append(fetched(w.console()), theirs)...)
	mine := w.signIn()
	if res := w.ask("DELETE", hostOf(w.console()), "/api/sessions/"+w.idOfOther(mine), "", append(fetched(w.console()), mine)...); res.StatusCode/100 != 2 {
		t.Fatalf("end: %d %s", res.StatusCode, res.body)
	}
	<-ended
	w.waitFor(nc.IsClosed)
	if res := w.ask("GET", hostOf(origin), "/_choir/session", "", append(fetched(origin)[1:], desktop)...); res.StatusCode != 401 {
		t.Errorf("the desktop answers %d", res.StatusCode)
	}
	if res := w.ask("POST", hostOf(origin), "/_choir/files?name=x", "x", append(fetched(origin), desktop)...); res.StatusCode != 401 {
		t.Errorf("files: %d", res.StatusCode)
	}
}

// TestAnInvitedPersonsSheetsAreTheirOwn shows what somebody who was invited, without a power, may do: no more than with their
// own browsers, and nothing to the machine.
func TestAnInvitedPersonsSheetsAreTheirOwn(t *testing.T) {
	stopped := 0
	w := openWith(t, console.Files(), func(o *control.Options) { o.Stop = func() error { stopped++; return nil } })
	b := w.person("B")
	m := w.person("M", grant.Machine)
	for cookie, want := range map[string]int{b.cookie: 403, m.cookie: 204} {
		if res := w.ask("POST", hostOf(w.console()), "/api/stop", "", append(fetched(w.console()), cookie)...); res.StatusCode != want {
			t.Errorf("stop: %d %s, want %d", res.StatusCode, res.body, want)
		}
	}
	if stopped != 1 {
		t.Errorf("stopped %d times", stopped)
	}
	signed := cookieOf(t, w.claims(w.linkOf(b.cookie)))
	res := w.ask("GET", hostOf(w.console()), "/api/account", "", append(fetched(w.console())[1:], signed)...)
	if !strings.Contains(res.body, b.ID) {
		t.Errorf("the link of B is of %s", res.body)
	}
	for _, r := range []string{"PUT /api/secrets/OPENAI_API_KEY", "DELETE /api/secrets/OPENAI_API_KEY", "GET /api/secrets", "POST /api/models/test", "GET /api/doctor"} {
		verb, target, _ := strings.Cut(r, " ")
		body := map[string]string{"PUT": `{"value":"x"}`, "POST": `{"model":"openai/x"}`}[verb]
		if res := w.ask(verb, hostOf(w.console()), target, body, append(fetched(w.console()), "Content-Type: application/json", b.cookie)...); res.StatusCode != 403 {
			t.Errorf("%s: %d %s", r, res.StatusCode, res.body)
		}
	}
	if res := w.ask("POST", hostOf(w.console()), "/api/sessions/link", `{"account":"`+w.owner.ID+`"}`, append(fetched(w.console()), "Content-Type: application/json", b.cookie)...); res.StatusCode == 200 {
		var out struct{ URL string }
		_ = json.Unmarshal([]byte(res.body), &out)
		_, token, _ := strings.Cut(out.URL, "#")
		as := cookieOf(t, w.claims(token))
		if res := w.ask("GET", hostOf(w.console()), "/api/account", "", append(fetched(w.console())[1:], as)...); !strings.Contains(res.body, b.ID) {
			t.Errorf("a link of B is of %s", res.body)
		}
	}
}

// TestAViewersPageBringsNothingIn brings a file in as somebody who may only look, and from elsewhere.
func TestAViewersPageBringsNothingIn(t *testing.T) {
	w := open(t)
	b := w.person("B")
	w.join(b, w.machine().cid, grant.Viewer)
	origin, desktop := w.enterAt(b.cookie, string(w.machine().cid))
	mine, cookie := w.enter(w.signIn())
	for what, res := range map[string]answer{
		"a viewer":             w.ask("POST", hostOf(origin), "/_choir/files?name=x", "x", append(fetched(origin), desktop)...),
		"no origin":            w.ask("POST", hostOf(mine), "/_choir/files?name=x", "x", cookie),
		"the console's origin": w.ask("POST", hostOf(mine), "/_choir/files?name=x", "x", append(fetched(w.console()), cookie)...),
		"a same-site page":     w.ask("POST", hostOf(mine), "/_choir/files?name=x", "x", "Origin: "+mine, "Sec-Fetch-Site: same-site", cookie),
		"a frame":              w.ask("POST", hostOf(mine), "/_choir/files?name=x", "x", "Origin: "+mine, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: iframe", cookie),
		"another host":         w.ask("POST", "evil.example", "/_choir/files?name=x", "x", "Origin: http://evil.example", "Sec-Fetch-Site: same-origin", cookie),
	} {
		if res.StatusCode < 400 {
			t.Errorf("%s: %d %s", what, res.StatusCode, res.body)
		}
	}
}
