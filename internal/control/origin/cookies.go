package origin

import (
	"net/http"
	"strings"

	"choir.dev/choiros/internal/defence"
)

// A desktop's page, which agents write, may set cookies for the domain that all desktops
// and the console share. It can neither read nor replace ours, but a browser sends up to
// 180 such cookies of 4 KB with each request until they expire. So the limit of a request's
// header makes room for them, or the console could not be reached any more, and the answers
// remove them.
const (
	ownCookies  = 4 << 10  // bytes of cookies that a desktop's own page may use
	takenBack   = 32 << 10 // bytes of Set-Cookie headers in one answer; the next answer continues
	cookieDepth = 8        // for how many folders of a request's path cookies are removed
)

// TakeBackCookies removes from the browser the cookies that a desktop's page has set for
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
		// A cookie without a name is sent as its value alone, and is removed by the same.
		name, _, named := strings.Cut(strings.TrimSpace(pair), "=")
		if name == "" || seen[name] || strings.HasPrefix(name, "__Host-") {
			continue // cookies with this prefix are for one host only, and were set by us
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

// cookiePaths returns the paths for which a cookie that came with a request can have been
// set, the shortest first.
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
