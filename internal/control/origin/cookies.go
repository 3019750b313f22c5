package origin

import (
	"net/http"
	"strings"

	"choir.dev/choiros/internal/defence"
)

// A desktop's page, which agents write, may set cookies for the domain that all
// desktops and the console have in common. It can read none of ours and put none
// in their place, but a browser sends 180 foreign ones of 4 KB with each request
// from then on, for as long as they say they last: so a header may be as long as
// they make it, or the console would answer nothing any more, and they are taken
// back.
const (
	ownCookies  = 4 << 10  // a desktop's own page may have a few
	takenBack   = 32 << 10 // how much is said of cookies in one answer; the next request goes on
	cookieDepth = 8        // how many folders of a request's path they are looked for in
)

// TakeBackCookies removes from the browser what a desktop's page has set for
// more hosts than its own.
func (h Hosts) TakeBackCookies(w http.ResponseWriter, r *http.Request, where HostKind) {
	lines := r.Header["Cookie"]
	if len(lines) == 0 || defence.Off(defence.ControlCookies) {
		return
	}
	all := strings.Join(lines, "; ")
	domains := []string{h.Parent}
	if where == Desktop {
		if len(all) <= ownCookies {
			return
		}
		domains = append(domains, "desk."+h.Parent)
	}
	var names []string
	seen := map[string]bool{}
	for pair := range strings.SplitSeq(all, ";") {
		// One without a name is sent as its value alone, and removed as such.
		name, _, named := strings.Cut(strings.TrimSpace(pair), "=")
		if name == "" || seen[name] || strings.HasPrefix(name, "__Host-") {
			continue // those are of one host, which is ours
		}
		seen[name] = true
		if named {
			name += "="
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return
	}
	left := takenBack
	for _, path := range cookiePaths(r.URL.EscapedPath()) {
		for _, domain := range domains {
			for _, more := range []string{"", "; Partitioned"} {
				for _, name := range names {
					line := name + "; Domain=" + domain + "; Path=" + path + "; Max-Age=0; Secure" + more
					if left -= len(line); left < 0 {
						return
					}
					w.Header().Add("Set-Cookie", line)
				}
			}
		}
	}
}

// cookiePaths are the paths for which a cookie that came with a request can have
// been set, the shortest first.
func cookiePaths(path string) []string {
	out := []string{"/"}
	for i := 1; i < len(path) && len(out) < 2*cookieDepth; i++ {
		if path[i] == ';' {
			break
		}
		if path[i] == '/' {
			out = append(out, path[:i], path[:i+1])
		}
	}
	return out
}
