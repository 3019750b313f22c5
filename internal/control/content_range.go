package control

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// tagged names a file's version in an answer.
func tagged(w http.ResponseWriter, f view.File) {
	if f.Version != "" {
		w.Header().Set("ETag", `"`+f.Version+`"`)
	}
}

// ranged is a file of which a part may be asked for. It is read on from where it
// is, and opened anew to go elsewhere.
type ranged struct {
	open func(at int64) (io.ReadCloser, error)
	from io.ReadCloser
	size int64
	pos  int64 // of from, if there is one
	want int64
	err  error // what kept it from being read
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

// putFile replaces a file, if it is as the request's conditions want it.
func (s *Server) putFile(w http.ResponseWriter, r *http.Request, c Computer, in *rpc.PutRequest) error {
	put := view.Put{Path: in.Path, Mode: in.Mode}
	var err error
	if put.If, err = condition(r.Header); err != nil {
		return err
	}
	f, err := c.PutFile(r.Context(), callerOf(r.Context()).actor(), put, httpio.Limit(r.Body, maxFile))
	if put.If != "" && fault.Is(err, fault.Conflict) {
		return problem.Refuse(http.StatusPreconditionFailed, fault.Conflict, err.Error(), fault.HintOf(err))
	}
	if err != nil {
		return problem.TooLarge(err)
	}
	tagged(w, f)
	return writeJSON(w, f)
}

// noVersion is a version that no file has.
var noVersion = strings.Repeat("0", 40)

// condition is what a request wants to replace: one version, any, or nothing.
func condition(h http.Header) (string, error) {
	match, none := h.Get("If-Match"), h.Get("If-None-Match")
	switch version, ok := strings.CutPrefix(strings.TrimSuffix(match, `"`), `"`); {
	case match == "" && none == "":
		return "", nil
	case match == "" && none == "*":
		return view.NoVersion, nil
	case none == "" && match == "*":
		return view.AnyVersion, nil
	case none == "" && ok && versionForm().MatchString(version):
		return version, nil
	case none == "" && ok && !strings.ContainsAny(version, `",`):
		return noVersion, nil // a tag that was never given
	}
	return "", problem.Refuse(http.StatusBadRequest, fault.Invalid, "a put takes one ETag in If-Match, or * there or in If-None-Match", "")
}

var versionForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`) })
