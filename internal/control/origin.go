package control

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/defence"
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

func (h hosts) console() string             { return "http://" + h.authority("console") }
func (h hosts) desktop(label string) string { return "http://" + h.authority(label+".desk") }
func (h hosts) socket(label string) string  { return "ws://" + h.authority(label+".desk") }

// maxGeneration bounds how many origins one desktop may have in a browser.
const maxGeneration = 1_000_000

// labelOf is a desktop's host label in one generation. A page that hangs keeps
// its process, and what it stored or had cached, with its origin: a browser that
// asks for the next generation gets rid of all three. No handle holds "--".
func labelOf(handle string, generation int) string {
	if generation <= 0 {
		return handle
	}
	return handle + "--g" + strconv.Itoa(generation)
}

// handleOf is the handle that a label is of; "" when it is of none.
func handleOf(label string) string {
	handle, n, ok := strings.Cut(label, "--g")
	if !ok {
		return label
	}
	if generation, err := strconv.Atoi(n); err != nil || generation < 1 || generation > maxGeneration || labelOf(handle, generation) != label {
		return ""
	}
	return handle
}

// find says what a Host header names, and the label of a desktop: its handle, in
// one of its generations. Names are
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
	if handleOf(handle) == "" {
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
	strict := !defence.Off(defence.ControlOrigin)
	if strict && (len(got) > 1 || len(got) == 1 && got[0] != origin) {
		return no
	}
	if !defence.Off(defence.ControlFetchSite) && site != "" && site != "same-origin" && (site != "none" || unsafe(r)) {
		return no
	}
	if strict && len(got) == 0 && (unsafe(r) || site == "") {
		return refusal(http.StatusForbidden, fault.Denied, "this request does not say which page sent it", "Use a current browser, or the command line.")
	}
	return nil
}

// unsafe reports whether a request may change something or opens a channel.
func unsafe(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != ""
}
