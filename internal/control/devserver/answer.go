package devserver

import (
	"maps"
	"net/http"

	"choir.dev/choiros/internal/defence"
)

// boxAnswer receives the dev server's answer from a proxy and keeps its headers apart from
// the host's: the box's headers go into a map of their own, from which allowed ones are
// copied by name, and the host's are set after them. Informational (1xx) answers are
// dropped, because a browser would take policies and preloads from them, and because the
// proxy clears the header map after writing one. Trailers are dropped too.
type boxAnswer struct {
	http.ResponseWriter
	host  http.Header // the headers that this origin sets on every answer
	box   http.Header // the headers that the proxy writes
	final bool
}

func newBoxAnswer(w http.ResponseWriter) *boxAnswer {
	return &boxAnswer{ResponseWriter: w, host: w.Header().Clone(), box: http.Header{}}
}

// Header implements http.ResponseWriter. It returns the box's headers.
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

// setHost copies the host's headers over a box's. The box may choose Cache-Control and
// Content-Type, within the bounds that fromDevServer sets.
func setHost(h, host http.Header) {
	host = maps.Clone(host)
	for _, name := range []string{"Cache-Control", "Content-Type"} {
		if h.Get(name) != "" {
			delete(host, name)
		}
	}
	maps.Copy(h, host)
}
