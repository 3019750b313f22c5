package control_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestAttack22_CookiesOfADesktopKeepNobodyOut: a desktop's page can set cookies for the console's
// host as well. Requests with these are answered, and the cookies are removed; the console's own
// stays.
func TestAttack22_CookiesOfADesktopKeepNobodyOut(t *testing.T) {
	w := open(t)
	session := w.signIn()
	ask := func(more string) answer {
		t.Helper()
		res := w.ask("GET", hostOf(w.console()), "/api/account", "", append(fetched(w.console()), session+more)...)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("the console answers %d %s", res.StatusCode, res.body)
		}
		return res
	}
	many := strings.Builder{}
	for i := range 180 {
		fmt.Fprintf(&many, "; c%d=%s", i, strings.Repeat("A", 4000))
	}
	size, paths, names := 0, map[string]bool{}, map[string]bool{}
	for _, line := range ask(many.String()).Header.Values("Set-Cookie") {
		size += len(line)
		c, err := http.ParseSetCookie(line)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(c.Name, "__Host-") || c.MaxAge >= 0 || c.Domain != "choir.localhost" {
			t.Errorf("%s", line)
		}
		paths[c.Path], names[c.Name] = true, true
	}
	if len(names) != 180 || !paths["/"] || size > 32<<10 {
		t.Errorf("%d cookies of 180 are taken back, in %v, by %d bytes", len(names), paths, size)
	}
	// If there are few, there is room to remove each for every path that it can have been set for.
	got := fmt.Sprint(ask("; odd").Header.Values("Set-Cookie"))
	for _, path := range []string{"/", "/api", "/api/"} {
		if want := "odd; Domain=choir.localhost; Path=" + path + "; Max-Age=0; Secure"; !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	if got := ask("").Header.Values("Set-Cookie"); len(got) > 0 {
		t.Errorf("without any: %v", got)
	}
}
