package httpio

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Lines writes lines with a deadline on each flush.
type Lines struct {
	buf        *bufio.Writer
	controller *http.ResponseController
}

// NewLines returns a writer of lines to w.
func NewLines(w http.ResponseWriter) *Lines {
	l := &Lines{controller: http.NewResponseController(w)}
	l.buf = bufio.NewWriterSize(deadlined{w, l.controller}, 32<<10)
	return l
}

// Write adds a line.
func (l *Lines) Write(b []byte) error {
	if _, err := l.buf.Write(b); err != nil {
		return err
	}
	return l.buf.WriteByte('\n')
}

// Flush sends what was written.
func (l *Lines) Flush() error {
	if err := l.buf.Flush(); err != nil {
		return err
	}
	return l.controller.Flush()
}

// deadlined sets a deadline for each write, for clients that do not read.
type deadlined struct {
	http.ResponseWriter
	controller *http.ResponseController
}

// Deadlined returns w with a deadline for each write.
func Deadlined(w http.ResponseWriter) http.ResponseWriter {
	return deadlined{w, http.NewResponseController(w)}
}

func (d deadlined) Write(p []byte) (int, error) {
	// This fails only on a closed connection, which the write then reports.
	_ = d.controller.SetWriteDeadline(time.Now().Add(WriteIdle))
	return d.ResponseWriter.Write(p)
}

// Unwrap lets a response controller reach the connection.
func (d deadlined) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// ReadLine reads up to a newline, at most max bytes.
func ReadLine(r *bufio.Reader, max int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > max:
			return nil, problem.Refuse(http.StatusRequestEntityTooLarge, fault.Exhausted, "the request line is too long", "")
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, &contract.FieldError{Field: "body", Reason: "must begin with one line of JSON"}
		}
	}
}

// disconnectReader calls gone when the client disconnects in the middle of a request's body. net/http
// can't notice that before the body has been read to its end.
type disconnectReader struct {
	r    io.Reader
	gone func()
}

// WhileConnected returns a reader of r that calls gone when the client disconnects
// meanwhile.
func WhileConnected(r io.Reader, gone func()) io.Reader { return &disconnectReader{r, gone} }

func (h *disconnectReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		h.gone()
	}
	return n, err
}

// frames writes the server's side of the exec stream; a failed write ends the command.
type frames struct {
	mu         sync.Mutex
	w          io.Writer
	controller *http.ResponseController
	cancel     func()
	sent       bool
	failed     error
}

// NewFrames returns a writer of frames to w, which calls cancel when a write fails.
func NewFrames(w http.ResponseWriter, cancel func()) *frames {
	rc := http.NewResponseController(w)
	return &frames{w: deadlined{w, rc}, controller: rc, cancel: cancel}
}

// Frame writes one frame.
func (f *frames) Frame(kind view.FrameKind, payload []byte) {
	f.do(func() error { return view.WriteFrame(f.w, kind, payload) })
}

// JSON writes one frame that holds JSON.
func (f *frames) JSON(kind view.FrameKind, v any) {
	f.do(func() error { return view.WriteJSONFrame(f.w, kind, v) })
}

func (f *frames) do(write func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return
	}
	f.sent = true
	if f.failed = write(); f.failed == nil {
		f.failed = f.controller.Flush()
	}
	if f.failed != nil {
		f.cancel()
	}
}

// Began reports whether anything was written.
func (f *frames) Began() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.sent }

// Err returns why writing failed; nil while it has not.
func (f *frames) Err() error { f.mu.Lock(); defer f.mu.Unlock(); return f.failed }

// Writer returns a writer that sends what is written to it as frames of one kind.
func (f *frames) Writer(kind view.FrameKind) io.Writer { return &frameWriter{f, kind} }

type frameWriter struct {
	frames *frames
	kind   view.FrameKind
}

func (w *frameWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.frames.Frame(w.kind, p)
	if err := w.frames.Err(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// paced copies in pieces of 256 KiB, the size of the tether's window, and sets a deadline
// for each piece.
type paced struct{ deadlined }

// Paced returns w with a ReadFrom that writes in large pieces, each with a deadline.
func Paced(w http.ResponseWriter) http.ResponseWriter {
	return paced{deadlined{w, http.NewResponseController(w)}}
}

// ReadFrom implements io.ReaderFrom.
func (p paced) ReadFrom(from io.Reader) (int64, error) {
	return io.CopyBuffer(onlyWriter{p.deadlined}, from, make([]byte, 256<<10))
}

// onlyWriter hides a writer's other methods, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

// Answer remembers whether any of an answer was sent.
type Answer struct {
	http.ResponseWriter
	Started bool
}

func (t *Answer) WriteHeader(status int) { t.Started = true; t.ResponseWriter.WriteHeader(status) }

func (t *Answer) Write(p []byte) (int, error) {
	t.Started = true
	return t.ResponseWriter.Write(p)
}

func (t *Answer) Unwrap() http.ResponseWriter { return t.ResponseWriter }
