package control

import (
	"errors"
	"io"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// tagged sets the ETag of an answer to the file's version.
func tagged(w http.ResponseWriter, f view.File) {
	if f.Version != "" {
		w.Header().Set("ETag", `"`+f.Version+`"`)
	}
}

// ranged is a file's content as an io.ReadSeeker, for http.ServeContent. Reading on uses the open file;
// reading elsewhere opens the file anew at that offset.
type ranged struct {
	open func(at int64) (io.ReadCloser, error)
	from io.ReadCloser
	size int64
	pos  int64 // the offset that from is at, if from is open
	want int64
	err  error // why reading failed
}

// Seek implements io.Seeker.
func (f *ranged) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.want
	case io.SeekEnd:
		offset += f.size
	}
	f.want = offset
	return offset, nil
}

// Read implements io.Reader.
func (f *ranged) Read(p []byte) (n int, err error) {
	if f.want >= f.size {
		return 0, io.EOF
	}
	if f.from == nil || f.pos != f.want {
		if err := f.Close(); err != nil {
			return 0, f.failed(err)
		}
		from, err := f.open(f.want)
		if err != nil {
			return 0, f.failed(err)
		}
		f.from, f.pos = from, f.want
	}
	n, err = f.from.Read(p[:min(int64(len(p)), f.size-f.pos)])
	f.pos += int64(n)
	f.want = f.pos
	if errors.Is(err, io.EOF) {
		if f.pos == f.size {
			return n, io.EOF
		}
		err = errors.New("the file changed while it was read")
	}
	if err != nil {
		return n, f.failed(err)
	}
	return n, nil
}

func (f *ranged) failed(err error) error {
	f.err = err
	return err
}

// Close implements io.Closer.
func (f *ranged) Close() error {
	if f.from == nil {
		return nil
	}
	err := f.from.Close()
	f.from = nil
	return err
}

// putFile replaces or makes a file if the request's conditions hold.
func (s *Server) putFile(w http.ResponseWriter, r *http.Request, c Computer, in *rpc.PutRequest) error {
	put := view.Put{Path: in.Path, Mode: in.Mode}
	var err error
	if put.If, err = in.Condition(); err != nil {
		return err
	}
	f, err := c.PutFile(r.Context(), actorOf(r.Context()), put, httpio.Limit(r.Body, maxFile))
	if err != nil {
		return problem.TooLarge(unmet(in.Conditional(), err))
	}
	tagged(w, f)
	return writeJSON(w, f)
}

// refusals turns the plain text with which http.ServeContent refuses a range or a condition into a
// problem document, as all other refusals are.
type refusals struct {
	http.ResponseWriter
	asked   *http.Request
	refused bool
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
