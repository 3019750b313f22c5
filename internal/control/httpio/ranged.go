package httpio

import (
	"errors"
	"io"
	"net/http"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/fault"
)

// Ranged is a file's content as an io.ReadSeeker, for http.ServeContent. Reading on uses the open file;
// reading elsewhere opens the file anew at that offset.
type Ranged struct {
	Open func(at int64) (io.ReadCloser, error)
	From io.ReadCloser // at the beginning
	Size int64
	Err  error // why reading failed
	pos  int64 // the offset that From is at, if From is open
	want int64
}

// Seek implements io.Seeker.
func (f *Ranged) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.want
	case io.SeekEnd:
		offset += f.Size
	}
	f.want = offset
	return offset, nil
}

// Read implements io.Reader.
func (f *Ranged) Read(p []byte) (n int, err error) {
	if f.want >= f.Size {
		return 0, io.EOF
	}
	if f.From == nil || f.pos != f.want {
		if err := f.Close(); err != nil {
			return 0, f.failed(err)
		}
		from, err := f.Open(f.want)
		if err != nil {
			return 0, f.failed(err)
		}
		f.From, f.pos = from, f.want
	}
	n, err = f.From.Read(p[:min(int64(len(p)), f.Size-f.pos)])
	f.pos += int64(n)
	f.want = f.pos
	if errors.Is(err, io.EOF) {
		if f.pos == f.Size {
			return n, io.EOF
		}
		err = errors.New("the file changed while it was read")
	}
	if err != nil {
		return n, f.failed(err)
	}
	return n, nil
}

func (f *Ranged) failed(err error) error {
	f.Err = err
	return err
}

// Close implements io.Closer.
func (f *Ranged) Close() error {
	if f.From == nil {
		return nil
	}
	err := f.From.Close()
	f.From = nil
	return err
}

// refusals turns the plain text with which http.ServeContent refuses a range or a condition into a
// problem document, as all other refusals are.
type refusals struct {
	http.ResponseWriter
	asked   *http.Request
	refused bool
}

// ServeContent serves a file's content, or the part that a request asks for; refusals of a
// range or a condition are problem documents.
func ServeContent(w http.ResponseWriter, r *http.Request, content *Ranged) error {
	http.ServeContent(&refusals{ResponseWriter: Paced(w), asked: r}, r, "", time.Time{}, content)
	return errors.Join(content.Err, content.Close())
}

// WriteHeader implements http.ResponseWriter.
func (w *refusals) WriteHeader(status int) {
	var p *problem.Error
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		p = problem.Refuse(status, fault.Invalid, "no part of the file is at "+contract.Clip(w.asked.Header.Get("Range"), 100), "Content-Range says how long the file is.")
	case http.StatusPreconditionFailed:
		p = problem.Refuse(status, fault.Conflict, "the file is not the one that was asked for", "Read it again and decide what to keep.")
	default:
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.refused = true
	for _, of := range []string{"Content-Disposition", "Content-Length", "Choir-Mode"} {
		w.Header().Del(of)
	}
	problem.Write(w.ResponseWriter, p)
}

// Write implements http.ResponseWriter.
func (w *refusals) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil // this is the plain text that the problem document replaced
	}
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (w *refusals) ReadFrom(from io.Reader) (int64, error) {
	return io.Copy(w.ResponseWriter, from)
}
