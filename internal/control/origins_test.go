package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/control/problem"

	"choir.dev/choiros/internal/view"
)

// TestWhoMayAskForWhat also says what must not appear in any answer to somebody who may not have
// it.
func TestWhoMayAskForWhat(t *testing.T) {
	w := open(t)
	cookie := w.signIn()
	con, desk := w.console(), w.desktop("my-studio")
	port := fmt.Sprint(w.port)
	bearer := "Authorization: Bearer " + w.token
	cookies := []string{cookie}
	with := func(h ...string) []string { return append(append([]string{}, cookies...), h...) }
	prompt := `{"text":"take over"}`
	jsonType := "Content-Type: application/json"
	for _, c := range []struct {
		name               string
		method, host, path string
		body               string
		headers            []string
		status             int
	}{
		// Attack 20: unknown host names, on every path.
		{"rebinding", "GET", "evil.example:" + port, "/api/computers", "", []string{bearer}, 421},
		{"rebinding health", "GET", "evil.example:" + port, "/health", "", nil, 421},
		{"a name that ends like ours", "GET", "evilconsole.choir.localhost:" + port, "/", "", nil, 421},
		{"our parent", "GET", "choir.localhost:" + port, "/", "", nil, 421},
		{"trailing dot", "GET", "console.choir.localhost.:" + port, "/", "", nil, 421},
		{"another port", "GET", "console.choir.localhost:1", "/", "", nil, 421},
		{"no port", "GET", "console.choir.localhost", "/", "", nil, 421},
		{"two labels before desk", "GET", "a.b.desk.choir.localhost:" + port, "/", "", nil, 421},
		{"an address has no pages", "GET", "127.0.0.1:" + port, "/", "", nil, 421},
		{"an address has no cookies", "GET", "127.0.0.1:" + port, "/api/computers", "", with("Sec-Fetch-Site: same-origin"), 401},
		{"an address has health", "GET", "127.0.0.1:" + port, "/health", "", nil, 200},
		{"an address with a token", "GET", "localhost:" + port, "/api/computers", "", []string{bearer}, 200},
		{"case of a name", "GET", "CONSOLE.choir.localhost:" + port, "/health", "", nil, 200},
		// These sign in.
		{"nobody", "GET", hostOf(con), "/api/computers", "", []string{"Sec-Fetch-Site: same-origin"}, 401},
		{"a wrong token", "GET", hostOf(con), "/api/computers", "", []string{"Authorization: Bearer choir_" + strings.Repeat("a", 43)}, 401},
		{"basic", "GET", hostOf(con), "/api/computers", "", []string{"Authorization: Basic YTpi"}, 401},
		{"a page with a token", "GET", hostOf(con), "/api/computers", "", []string{bearer, "Sec-Fetch-Site: same-origin"}, 403},
		{"a page of another origin with a token", "POST", hostOf(con), "/api/computers/-/prompts", prompt, []string{bearer, jsonType, "Origin: http://evil.example"}, 403},
		// Attacks 24 and 28: another page uses the console's session.
		{"the console reads", "GET", hostOf(con), "/api/computers", "", with("Sec-Fetch-Site: same-origin"), 200},
		{"a foreign page reads", "GET", hostOf(con), "/api/computers", "", with("Sec-Fetch-Site: cross-site", "Origin: http://evil.example"), 403},
		{"a desktop reads, without Origin", "GET", hostOf(con), "/api/computers", "", with("Sec-Fetch-Site: same-site"), 403},
		{"a desktop reads", "GET", hostOf(con), "/api/computers", "", with("Sec-Fetch-Site: same-site", "Origin: "+desk), 403},
		{"a browser that says nothing", "GET", hostOf(con), "/api/computers", "", cookies, 403},
		{"a foreign page writes", "POST", hostOf(con), "/api/computers/-/prompts", prompt, with(jsonType, "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"), 403},
		{"a desktop writes", "POST", hostOf(con), "/api/computers/-/prompts", prompt, with(jsonType, "Origin: "+desk, "Sec-Fetch-Site: same-site"), 403},
		{"a form without Origin", "POST", hostOf(con), "/api/computers/-/prompts", prompt, with("Content-Type: text/plain", "Sec-Fetch-Site: same-origin"), 403},
		{"Origin null", "POST", hostOf(con), "/api/computers/-/prompts", prompt, with(jsonType, "Origin: null", "Sec-Fetch-Site: same-origin"), 403},
		{"two Origins", "POST", hostOf(con), "/api/computers/-/prompts", prompt, with(jsonType, "Origin: "+con, "Origin: http://evil.example"), 403},
		{"a typed address that writes", "POST", hostOf(con), "/api/computers/-/prompts", prompt, with(jsonType, "Origin: "+con, "Sec-Fetch-Site: none"), 403},
		{"a desktop rewinds", "POST", hostOf(con), "/api/computers/-/rewind", `{}`, with(jsonType, "Origin: "+desk, "Sec-Fetch-Site: same-site"), 403},
		{"a desktop sets a secret", "PUT", hostOf(con), "/api/secrets/x", `{"value":"v"}`, with(jsonType, "Origin: "+desk, "Sec-Fetch-Site: same-site"), 403},
		{"a desktop asks for a ticket", "POST", hostOf(con), "/api/computers/-/ticket", "", with("Origin: "+desk, "Sec-Fetch-Site: same-site"), 403},
		{"a desktop signs out", "POST", hostOf(con), "/api/signout?everywhere=true", "", with("Origin: "+desk, "Sec-Fetch-Site: same-site"), 403},
		{"login CSRF", "POST", hostOf(con), "/api/claim", `{"token":"x"}`, []string{jsonType, "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"}, 403},
		{"login CSRF by a desktop", "POST", hostOf(con), "/api/claim", `{"token":"x"}`, []string{jsonType, "Origin: " + desk, "Sec-Fetch-Site: same-site"}, 403},
		{"a prefetched claim", "GET", hostOf(con), "/api/claim", "", []string{"Sec-Fetch-Site: none"}, 405},
		{"a link made by a browser", "POST", hostOf(con), "/api/links", "", with("Origin: "+con, "Sec-Fetch-Site: same-origin"), 403},
		// If the console's cookie is given twice, neither counts.
		{"a shadowed cookie", "GET", hostOf(con), "/api/computers", "", with("Sec-Fetch-Site: same-origin", "Cookie: __Host-choir-console=x"), 401},
		// These use the desktop's origin.
		{"the console's cookie on a desktop", "GET", hostOf(desk), "/_choir/session", "", with("Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty"), 401},
		{"no API on a desktop", "GET", hostOf(desk), "/api/computers", "", with("Sec-Fetch-Site: same-origin", "Sec-Fetch-Dest: empty", bearer), 401},
		{"what is public", "GET", hostOf(con), "/api/openapi.json", "", nil, 200},
		{"a schema", "GET", hostOf(con), "/api/schemas/data/prompt.submitted.json", "", nil, 200},
		{"a schema out of the way", "GET", hostOf(con), "/api/schemas/..%2f..%2fevent.go", "", nil, 404},
		{"a strange method", "TRACE", hostOf(con), "/", "", nil, 405},
		{"a strange method of the API", "STRANGE", hostOf(con), "/api/computers", "", []string{bearer}, 405},
		{"a strange method under no name", "STRANGE", "127.0.0.1:" + port, "/api/computers", "", []string{bearer}, 405},
		{"health is not written", "POST", "127.0.0.1:" + port, "/health", "", nil, 405},
		{"health by its headers alone", "HEAD", hostOf(con), "/health", "", nil, 200},
		{"a page that is written to", "PUT", hostOf(con), "/", "", []string{bearer, "Origin: " + con, "Sec-Fetch-Site: same-origin"}, 405},
		{"a ticket that is got", "GET", hostOf(desk), "/_choir/enter", "", nil, 405},
		// These have invalid input.
		{"an unknown field", "POST", hostOf(con), "/api/computers/-/prompts", `{"text":"x","admin":true}`, []string{bearer, jsonType}, 422},
		{"no text", "POST", hostOf(con), "/api/computers/-/prompts", `{}`, []string{bearer, jsonType}, 422},
		{"too large", "POST", hostOf(con), "/api/computers/-/prompts", `{"text":"` + strings.Repeat("x", 2<<20) + `"}`, []string{bearer, jsonType}, 413},
		{"somebody else's computer", "GET", hostOf(con), "/api/computers/zzzzzzzzzzzzzzzz", "", []string{bearer}, 404},
		{"a revision that is an option", "GET", hostOf(con), "/api/computers/-/diff?from=--output=x", "", []string{bearer}, 422},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := w.ask(c.method, c.host, c.path, c.body, c.headers...)
			if res.StatusCode != c.status {
				t.Fatalf("%d, want %d: %s", res.StatusCode, c.status, res.body)
			}
			if c.status < 400 {
				return
			}
			var p problem.Problem
			if err := json.Unmarshal([]byte(res.body), &p); err != nil || p.Code == "" || p.Detail == "" {
				t.Errorf("not a problem: %s", res.body)
			}
			if allow := res.Header.Get("Allow"); (allow != "") != (c.status == http.StatusMethodNotAllowed) {
				t.Errorf("it allows %q", allow)
			}
			if strings.Contains(res.body, "Studio") || len(res.Cookies()) > 0 {
				t.Errorf("it shows: %s %v", res.body, res.Header)
			}
			if res.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("CORS is allowed")
			}
		})
	}
	if n := w.machine().Last(); n != 1 { // the event is the claim's new name
		t.Errorf("%d events were written", n)
	}
}

func TestClaim(t *testing.T) {
	w := open(t)
	ctx := context.Background()
	token, _, err := w.ids.NewLink(ctx, w.owner.ID)
	if err != nil {
		t.Fatal(err)
	}
	if u := w.srv.ClaimURL(token, false); u != w.console()+"/claim#"+token {
		t.Errorf("the token is not in the fragment: %s", u)
	}
	// A prefetcher may fetch the page any number of times.
	for range 3 {
		if res := w.ask("GET", hostOf(w.console()), "/claim", ""); res.StatusCode != 200 || !strings.Contains(res.body, "claim.js") {
			t.Fatalf("page: %d", res.StatusCode)
		}
	}
	post := func(body string) answer {
		return w.ask("POST", hostOf(w.console()), "/api/claim", body, append(fetched(w.console()), "Content-Type: application/json")...)
	}
	if res := post(fmt.Sprintf(`{"token":%q,"name":%q}`, token, strings.Repeat("n", 101))); res.StatusCode != 422 {
		t.Fatalf("a bad name: %d", res.StatusCode)
	}
	res := post(fmt.Sprintf(`{"token":%q,"name":"Ada's Wörkshop"}`, token))
	if res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	var c view.Computer
	if err := json.Unmarshal([]byte(res.body), &c); err != nil || c.Name != "Ada's Wörkshop" || c.Handle != "ada-s-w-rkshop" {
		t.Errorf("%+v, %v", c, err)
	}
	set := res.Header.Get("Set-Cookie")
	for _, want := range []string{"__Host-choir-console=", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"} {
		if !strings.Contains(set, want) {
			t.Errorf("the cookie lacks %s: %s", want, set)
		}
	}
	if strings.Contains(set, "Domain") || strings.Contains(w.log.String(), token) {
		t.Error("the cookie has a domain, or the log has the token")
	}
	if res := post(fmt.Sprintf(`{"token":%q}`, token)); res.StatusCode != 403 || len(res.Cookies()) > 0 {
		t.Errorf("the link works twice: %d", res.StatusCode)
	}
	for range 12 {
		res = post(`{"token":"` + strings.Repeat("x", 43) + `"}`)
	}
	if res.StatusCode != 429 {
		t.Errorf("guessing is not bounded: %d", res.StatusCode)
	}
}

func TestSignOutEndsStreamsAndDesktops(t *testing.T) {
	w := open(t)
	cookie := w.signIn()
	origin, desktop := w.enter(cookie)
	session := func() int {
		return w.ask("GET", hostOf(origin), "/_choir/session", "", append(fetched(origin)[1:], desktop)...).StatusCode
	}
	if got := session(); got != 200 {
		t.Fatalf("before: %d", got)
	}
	ended := w.follow("/api/computers/-/events?follow=true", "Sec-Fetch-Site: same-origin", cookie)
	res := w.ask("POST", hostOf(w.console()), "/api/signout?everywhere=true", "", append(fetched(w.console()), cookie)...)
	if res.StatusCode != http.StatusNoContent || !strings.Contains(res.Header.Get("Set-Cookie"), "Max-Age=0") {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream goes on")
	}
	if got := session(); got != 401 {
		t.Errorf("the desktop after: %d", got)
	}
	if got := w.ask("GET", hostOf(w.console()), "/api/account", "", "Sec-Fetch-Site: same-origin", cookie).StatusCode; got != 401 {
		t.Errorf("the console after: %d", got)
	}
}

func TestOpenAPIDescribesEveryVerb(t *testing.T) {
	w := open(t)
	res := w.ask("GET", hostOf(w.console()), "/api/openapi.json", "")
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(res.body), &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Fatal(err, doc.OpenAPI)
	}
	for _, path := range []string{"prompts", "runs", "runs/{run}", "runs/{run}/cancel", "events", "checkpoints", "diff", "restore", "undo", "rewind", "files", "content", "add", "add/tar", "exec", "frame", "rebuild"} {
		if len(doc.Paths["/api/computers/{computer}/"+path]) == 0 {
			t.Errorf("%s is missing", path)
		}
	}
}
