package origin

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// HostKind says which of our hosts a request is for.
type HostKind int

const (
	None    HostKind = iota // none of ours
	Console                 // the console and the API
	Desktop                 // one desktop
	Bare                    // an IP address or localhost: serves health, and the API with a token
)

// Hosts knows the names we answer to. Requests to other names are refused, so that a
// foreign DNS name that resolves to this address (DNS rebinding) reaches nothing.
type Hosts struct {
	Parent string // such as choir.localhost
	Port   string // as in URLs
}

func (h Hosts) authority(label string) string {
	if h.Port == "80" {
		return label + "." + h.Parent
	}
	return net.JoinHostPort(label+"."+h.Parent, h.Port)
}

func (h Hosts) Console() string             { return "http://" + h.authority("console") }
func (h Hosts) Desktop(label string) string { return "http://" + h.authority(label+".desk") }
func (h Hosts) Socket(label string) string  { return "ws://" + h.authority(label+".desk") }

// maxGeneration bounds how many origins one desktop may have in a browser.
const maxGeneration = 1_000_000

// Label returns a desktop's host label in one generation. A browser keeps an origin's
// process, storage and caches, also when the page hangs; asking for the next generation,
// which is another origin, leaves all three behind. No handle contains "--".
func Label(handle string, generation int) string {
	if generation <= 0 {
		return handle
	}
	return handle + "--g" + strconv.Itoa(generation)
}

// Handle returns the handle that a label belongs to; "" when the label is none.
func Handle(label string) string {
	handle, n, ok := strings.Cut(label, "--g")
	if !ok {
		return label
	}
	if generation, err := strconv.Atoi(n); err != nil || generation < 1 || generation > maxGeneration || Label(handle, generation) != label {
		return ""
	}
	return handle
}

// Find returns which host a Host header names, and a desktop's label: its handle in one of
// its generations. Names are compared without case, as in DNS. A name with a trailing dot
// is another origin to a browser, so it is refused.
func (h Hosts) Find(host string) (HostKind, string) {
	if h.Port == "80" && !strings.Contains(host, ":") {
		host += ":80"
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil || port != h.Port {
		return None, ""
	}
	name = strings.ToLower(name)
	switch name {
	case "console." + h.Parent:
		return Console, ""
	case "127.0.0.1", "::1", "localhost":
		return Bare, ""
	}
	handle, ok := strings.CutSuffix(name, ".desk."+h.Parent)
	if !ok || handle == "" || len(handle) > 63 || strings.Trim(handle, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return None, ""
	}
	if Handle(handle) == "" {
		return None, ""
	}
	return Desktop, handle
}

// Foreign refuses requests that a page of another origin sent to origin.
//
// A request that changes something, or upgrades, must carry our Origin. One that only reads
// must come from our own page or from the address bar, as the Sec-Fetch-Site header says; a
// browser that sends neither header is refused. SameSite cookies do not help here, because
// every desktop is of the console's site.
func Foreign(r *http.Request, origin string) *problem.Error {
	got := r.Header.Values("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	no := problem.Refuse(http.StatusForbidden, fault.Denied, "this request came from another page", "Use the console itself.")
	strict := !defence.Off(defence.ControlOrigin)
	if strict && (len(got) > 1 || len(got) == 1 && got[0] != origin) {
		return no
	}
	if !defence.Off(defence.ControlFetchSite) && site != "" && site != "same-origin" && (site != "none" || Unsafe(r)) {
		return no
	}
	if strict && len(got) == 0 && (Unsafe(r) || site == "") {
		return problem.Refuse(http.StatusForbidden, fault.Denied, "this request does not say which page sent it", "Use a current browser, or the command line.")
	}
	return nil
}

// Unsafe reports whether a request may change something or opens a channel.
func Unsafe(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != ""
}
