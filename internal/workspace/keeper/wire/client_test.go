package wire_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// transport sends every request to one server, whatever the request names.
type transport struct{ to *url.URL }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Host = t.to.Host
	return http.DefaultTransport.RoundTrip(r)
}

// TestWhatEndsAStreamIsTold shows that an error in reading what is sent is reported as it is, and
// not as a keeper that is gone.
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
	_, err = k.Stream(t.Context(), "write", wire.Empty{}, io.MultiReader(strings.NewReader("some"), failing{full}))
	if !fault.Is(err, fault.DiskFull) {
		t.Errorf("what can't be read for want of space is told as %v", err)
	}
	r, err := k.Stream(t.Context(), "write", wire.Empty{}, strings.NewReader("all"))
	if err != nil {
		t.Fatalf("what is read whole: %v", err)
	}
	r.Body.Close()
	s.Close()
	if _, err := k.Stream(t.Context(), "write", wire.Empty{}, strings.NewReader("all")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a keeper that is gone is told as %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestASmallBodyIsSentWhole shows that a small body is sent at once with a known length and a
// larger one as it comes, and that a body that is cut off is never taken for a complete one.
func TestASmallBodyIsSentWhole(t *testing.T) {
	t.Parallel()
	type got struct {
		length int64
		body   string
	}
	requests := make(chan got, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		requests <- got{r.ContentLength, string(b)}
		io.WriteString(w, "{}")
	}))
	defer s.Close()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	k := wire.NewClient(transport{to}, nil)
	for length, want := range map[int]int64{0: 0, 1: 1, 8 << 10: 8 << 10, 12 << 10: 12 << 10, 12<<10 + 1: -1, 1 << 20: -1} {
		body := strings.Repeat("x", length)
		r, err := k.Stream(t.Context(), "write", wire.Empty{}, iotest.OneByteReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if g := <-requests; g.length != want || g.body != body {
			t.Errorf("a body of %d bytes came as one of %d with the length %d", length, len(g.body), g.length)
		}
	}
	for _, length := range []int{0, 1, 12 << 10, 1 << 20} {
		cut := io.MultiReader(strings.NewReader(strings.Repeat("x", length)), failing{io.ErrUnexpectedEOF})
		if _, err := k.Stream(t.Context(), "write", wire.Empty{}, cut); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a body that is cut off after %d bytes: %v", length, err)
		}
		select {
		case g := <-requests:
			t.Errorf("a body that is cut off after %d bytes was taken for one of %d", length, len(g.body))
		default:
		}
	}
}
