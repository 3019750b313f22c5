package control_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// TestAPageBringsFilesIn shows that files that a page is given are put into the workspace's inbox, or the folder that
// it names, beside existing ones, and nowhere else.
func TestAPageBringsFilesIn(t *testing.T) {
	w := open(t)
	origin, cookie := w.enter(w.signIn())
	put := func(name, body string, headers ...string) (int, string) {
		if headers == nil {
			headers = append(fetched(origin), cookie)
		}
		res := w.ask("POST", hostOf(origin), "/_choir/files?name="+name, body, headers...)
		var in struct{ Path string }
		_ = json.Unmarshal([]byte(res.body), &in)
		return res.StatusCode, in.Path
	}
	for _, want := range []string{"inbox/a.txt", "inbox/a-2.txt", "inbox/a-3.txt"} {
		if status, at := put("a.txt", want); status != 200 || at != want || string(w.machine().files[at]) != want {
			t.Errorf("%d %q", status, at)
		}
	}
	long := strings.Repeat("é", 126) + "x.t"
	clipped := strings.Repeat("é", 125)
	for _, row := range [][2]string{
		{".profile", "inbox/.profile"}, {".profile", "inbox/.profile-2"},
		{url.QueryEscape(long), "inbox/" + long}, {url.QueryEscape(long), "inbox/" + clipped + "-2.t"},
		{"a.txt&folder=work/new", "work/new/a.txt"}, {"a.txt&folder=work/new", "work/new/a-2.txt"}, {"a.txt&folder=", "a.txt"},
		{url.QueryEscape("two\nlines \u202e🎻.txt"), "inbox/two\nlines \u202e🎻.txt"},
	} {
		if status, at := put(row[0], row[1]); status != 200 || at != row[1] || string(w.machine().files[at]) != row[1] {
			t.Errorf("%q: %d %q", row[0], status, at)
		}
	}
	for _, folder := range []string{"..", "/etc", "a/../..", ".git", ".git/hooks", "a//b", "a%00"} {
		if status, at := put("x&folder="+folder, "x"); status < 400 || at != "" {
			t.Errorf("into %q: %d %q", folder, status, at)
		}
	}
	for _, name := range []string{"", "..", "a/b", "%2e%2e/x", "/etc/x", "-x", strings.Repeat("x", 300), ".git/x", "a%00"} {
		if status, at := put(name, "x"); status < 400 || at != "" {
			t.Errorf("%q: %d %q", name, status, at)
		}
	}
	for name, headers := range map[string][]string{
		"another origin": {"Origin: " + w.desktop("other"), "Sec-Fetch-Site: same-site", cookie},
		"no session":     fetched(origin),
	} {
		if status, _ := put("b.txt", "x", headers...); status < 400 {
			t.Errorf("%s: %d", name, status)
		}
	}
}

// TestGenerationsOfADesktop: each generation of a desktop has an origin of its own. A session of
// one is not valid in another, and a host that names no generation is refused.
func TestGenerationsOfADesktop(t *testing.T) {
	w := open(t)
	console := w.signIn()
	var tk struct{ Action, Ticket string }
	res := w.ask("POST", hostOf(w.console()), "/api/computers/-/ticket?generation=2", "", append(fetched(w.console()), console)...)
	if err := json.Unmarshal([]byte(res.body), &tk); err != nil || !strings.Contains(tk.Action, "--g2.desk.") {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	origin := strings.TrimSuffix(tk.Action, "/_choir/enter")
	res = w.ask("POST", hostOf(origin), "/_choir/enter", "ticket="+tk.Ticket, w.framed()...)
	cookie := cookieOf(t, res)
	page := w.ask("GET", hostOf(origin), "/", "", append(iframed[:len(iframed):len(iframed)], cookie)...)
	if page.StatusCode != 200 || !strings.Contains(page.Header.Get("Content-Security-Policy"), "connect-src 'self' ws://"+hostOf(origin)+";") || page.Header.Get("Origin-Agent-Cluster") != "?1" {
		t.Errorf("%d %s", page.StatusCode, page.Header.Get("Content-Security-Policy"))
	}
	if res := w.ask("GET", hostOf(origin), "/_choir/session", "", append(fetched(strings.Replace(origin, "--g2", "", 1)), cookie)...); res.StatusCode != 403 {
		t.Errorf("another generation's page: %d", res.StatusCode)
	}
	for _, label := range []string{"--g0", "--g01", "--g-1", "--gx", "--g2--g3", "--g1000001", "--g"} {
		host := strings.Replace(hostOf(origin), "--g2", label, 1)
		if res := w.ask("GET", host, "/", "", append(iframed[:len(iframed):len(iframed)], cookie)...); res.StatusCode != 421 {
			t.Errorf("%s: %d", label, res.StatusCode)
		}
	}
	if res := w.ask("POST", hostOf(w.console()), "/api/computers/-/ticket?generation=-1", "", append(fetched(w.console()), console)...); res.StatusCode != 422 {
		t.Errorf("generation -1: %d", res.StatusCode)
	}
}
