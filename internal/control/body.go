package control

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// body puts a deadline on each read of a request's body, so that a client that
// sends a byte an hour does not hold a handler, and lifts it at the end: a
// deadline that passes later would look like a client that has gone.
type body struct {
	io.ReadCloser
	rc      *http.ResponseController
	patient bool // may be silent for long: a command's standard input
}

func (b *body) Read(p []byte) (int, error) {
	deadline := time.Time{}
	if !b.patient {
		deadline = time.Now().Add(bodyIdle)
	}
	// Errors mean a recorder or a connection that has gone; the read says so.
	_ = b.rc.SetReadDeadline(deadline)
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// patient lifts the limit on silence from r's body.
func patient(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.patient = true
	}
}

// limited reads at most max bytes, and says so when there are more.
type limited struct {
	r    io.Reader
	left int64
}

var errTooLarge = errors.New("the body is too large")

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		var one [1]byte
		if n, err := l.r.Read(one[:]); n == 0 && err != nil {
			return 0, err
		}
		return 0, errTooLarge
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}
