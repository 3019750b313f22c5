package httpio

import (
	"errors"
	"io"
	"net/http"
	"time"

	"choir.dev/choiros/internal/control/problem"
)

// WriteIdle is how long a client may take none of a stream.
const WriteIdle = 30 * time.Second

// bodyIdle is how long a client may send none of a body. Only a test changes it.
var bodyIdle = 30 * time.Second

// impatient bounds how long a client may be silent that has announced a body, whatever
// becomes of the request. Before net/http sends an answer it reads what is left of the body:
// without a deadline a client whose request was refused unread would hold its connection
// for as long as it likes, whoever it is.
func impatient(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyIdle)) // it fails where the connection has gone
		}
		h.ServeHTTP(w, r)
	})
}

// body sets a deadline for each read of a request's body, so that a client that sends a
// byte an hour does not hold a handler. It removes the deadline at the body's end, because
// one that expires later would look like a client that has disconnected. A client that was
// silent for too long keeps the deadline, and so not its connection.
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
	if errors.Is(err, io.EOF) {
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
