package httpio

import (
	"io"
	"net/http"
	"time"

	"choir.dev/choiros/internal/control/problem"
)

// These are the limits on how long a client may be silent.
const (
	bodyIdle  = 30 * time.Second // between two reads of a body
	WriteIdle = 30 * time.Second // between two writes of a stream
)

// body sets a deadline for each read of a request's body, so that a client that sends a
// byte an hour does not hold a handler. It removes the deadline at the end, because one
// that expires later would look like a client that has disconnected.
type body struct {
	io.ReadCloser
	controller *http.ResponseController
	patient    bool // whether the client may be silent for long, as with a command's standard input
}

// NewBody wraps the body of a request that w answers with read deadlines.
func NewBody(of io.ReadCloser, w http.ResponseWriter) io.ReadCloser {
	return &body{ReadCloser: of, controller: http.NewResponseController(w)}
}

func (b *body) Read(p []byte) (int, error) {
	deadline := time.Time{}
	if !b.patient {
		deadline = time.Now().Add(bodyIdle)
	}
	// An error here means a test's recorder, or a closed connection, which the read
	// reports.
	_ = b.controller.SetReadDeadline(deadline)
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.controller.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Patient removes the deadlines from r's body.
func Patient(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.patient = true
	}
}

// limited reads at most left bytes, and fails with problem.ErrTooLarge if there are more.
type limited struct {
	r    io.Reader
	left int64
}

// Limit returns a reader of at most max bytes of r, which fails with problem.ErrTooLarge if
// there are more.
func Limit(r io.Reader, max int64) io.Reader { return &limited{r, max} }

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		var one [1]byte
		if n, err := l.r.Read(one[:]); n == 0 && err != nil {
			return 0, err
		}
		return 0, problem.ErrTooLarge
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}
