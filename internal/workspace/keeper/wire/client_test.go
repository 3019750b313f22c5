package wire_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// transport goes to one server, whatever the request names.
type transport struct{ to *url.URL }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Host = t.to.Host
	return http.DefaultTransport.RoundTrip(r)
}

// Why what is sent could not be read to its end is told as it is, and not as a
// keeper that is gone.
func TestWhatEndsAStreamIsTold(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, "{}")
	}))
	defer s.Close()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	k := wire.NewClient(transport{to}, nil)
	full := fault.New("op", fault.DiskFull, fault.FreeSpace, errors.New("the disk is full"))
	_, err = k.Stream(t.Context(), "write", wire.Done{}, io.MultiReader(strings.NewReader("some"), failing{full}))
	if !fault.Is(err, fault.DiskFull) {
		t.Errorf("what can't be read for want of space is told as %v", err)
	}
	r, err := k.Stream(t.Context(), "write", wire.Done{}, strings.NewReader("all"))
	if err != nil {
		t.Fatalf("what is read whole: %v", err)
	}
	r.Body.Close()
	s.Close()
	if _, err := k.Stream(t.Context(), "write", wire.Done{}, strings.NewReader("all")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a keeper that is gone is told as %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
