package control

import (
	"net"
	"net/http"
	"strings"

	"choir.dev/choiros/internal/fault"
)

// place says which of our hosts a request is for.
type place int

const (
	placeNone    place = iota // none of ours
	placeConsole              // console and API
	placeDesktop              // one desktop
	placeBare                 // an address: health, and the API with a token
)

// hosts knows the names we answer to. Anything else is refused, so that a name
// that someone else's DNS points at us (rebinding) reaches nothing.
type hosts struct {
	parent string // such as choir.localhost
	port   string // as it stands in URLs
}

func (h hosts) authority(label string) string {
	if h.port == "80" {
		return label + "." + h.parent
	}
	return net.JoinHostPort(label+"."+h.parent, h.port)
}

func (h hosts) console() string              { return "http://" + h.authority("console") }
func (h hosts) desktop(handle string) string { return "http://" + h.authority(handle+".desk") }
func (h hosts) socket(handle string) string  { return "ws://" + h.authority(handle+".desk") }

// find says what a Host header names, and the handle of a desktop. Names are
// compared without case, as DNS does; a trailing dot is another origin to a
// browser, so it is none of ours.
func (h hosts) find(host string) (place, string) {
	if h.port == "80" && !strings.Contains(host, ":") {
		host += ":80"
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil || port != h.port {
		return placeNone, ""
	}
	name = strings.ToLower(name)
	switch name {
	case "console." + h.parent:
		return placeConsole, ""
	case "127.0.0.1", "::1", "localhost":
		return placeBare, ""
	}
	handle, ok := strings.CutSuffix(name, ".desk."+h.parent)
	if !ok || handle == "" || len(handle) > 63 || strings.Trim(handle, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return placeNone, ""
	}
	return placeDesktop, handle
}

// foreign refuses what a page of another origin sent to origin.
//
// A request that changes something, or upgrades, must carry our Origin. One
// that reads must be by our own page or typed by the user: the fetch metadata
// say so, and a browser that sends neither is not let in. SameSite is no help
// here: every desktop is of the console's site.
func foreign(r *http.Request, origin string) *problem {
	got := r.Header.Values("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	no := refusal(http.StatusForbidden, fault.Denied, "this request came from another page", "Use the console itself.")
	if len(got) > 1 || len(got) == 1 && got[0] != origin {
		return no
	}
	if site != "" && site != "same-origin" && (site != "none" || unsafe(r)) {
		return no
	}
	if len(got) == 0 && (unsafe(r) || site == "") {
		return refusal(http.StatusForbidden, fault.Denied, "this request does not say which page sent it", "Use a current browser, or the command line.")
	}
	return nil
}

// unsafe reports whether a request may change something or opens a channel.
func unsafe(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != ""
}
