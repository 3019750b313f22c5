package devserver

import (
	"maps"
	"net/http"

	"choir.dev/choiros/internal/defence"
)

// boxAnswer takes what a proxy has to say of the dev server's answer and keeps
// its headers apart from the host's: what the box says is only ever copied, by
// name, from a map of its own, and the host's are set after it. Informational
// answers end here (a browser would take policies and preloads from them, and
// the proxy empties the map that they are written from), and so does what comes
// after the headers: trailers.
type boxAnswer struct {
	http.ResponseWriter
	host  http.Header // what this origin says of every answer
	box   http.Header // what the proxy writes into
	final bool
}

func newBoxAnswer(w http.ResponseWriter) *boxAnswer {
	return &boxAnswer{ResponseWriter: w, host: w.Header().Clone(), box: http.Header{}}
}

// Header implements http.ResponseWriter: the box's headers.
func (a *boxAnswer) Header() http.Header {
	if defence.Off(defence.BoxHeadersApart) {
		return a.ResponseWriter.Header()
	}
	return a.box
}

// WriteHeader implements http.ResponseWriter.
func (a *boxAnswer) WriteHeader(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		if defence.Off(defence.BoxInformational) {
			a.send(status)
		}
		return
	}
	if !a.final {
		a.final = true
		a.send(status)
	}
}

func (a *boxAnswer) send(status int) {
	h := a.ResponseWriter.Header()
	if !defence.Off(defence.BoxHeadersApart) {
		for _, name := range fromBox {
			if v := a.box.Get(name); v != "" {
				h.Set(name, v)
			}
		}
		setHost(h, a.host)
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *boxAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (a *boxAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// setHost puts the host's headers over a box's. How long an answer may be kept
// and of what type it is are the box's to say, within bounds.
func setHost(h, host http.Header) {
	host = maps.Clone(host)
	for _, name := range []string{"Cache-Control", "Content-Type"} {
		if h.Get(name) != "" {
			delete(host, name)
		}
	}
	maps.Copy(h, host)
}
