package engine_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/httpapi"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestContentIsFoundByItsHash shows that content is found by its hash in live files, in the trash
// and in the history, within the search's bounds, and that the search says when it did not look
// everywhere.
func TestContentIsFoundByItsHash(t *testing.T) {
	c := open(t)
	sum := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
	c.write("live", "live\n")
	c.write("old", "old\n")
	c.checkpoint("both")
	c.write("old", "new\n")
	c.checkpoint("the newer")
	c.write("workspace/ignored/.gitignore", "*\n")
	c.write("workspace/ignored/gone", "gone\n")
	removed, err := c.Remove(t.Context(), wire.RemoveRequest{Path: "workspace/ignored/gone"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("live", c.path("link")); err != nil {
		t.Fatal(err)
	}
	wanted := []string{sum("live\n"), sum("old\n"), sum("gone\n"), sum("nowhere\n")}
	r, err := c.Find(t.Context(), wire.FindRequest{SHA256: wanted})
	if err != nil || len(r.Found) != 3 || r.Partial {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, want := range []wire.Found{{SHA256: wanted[0], Path: "live"}, {SHA256: wanted[2], Trash: removed.ID}, {SHA256: wanted[1], Object: r.Found[2].Object}} {
		if r.Found[i] != want || i == 2 && want.Object == "" {
			t.Errorf("found %+v; want %+v", r.Found[i], want)
		}
	}
	if r, err := c.Find(t.Context(), wire.FindRequest{SHA256: wanted, Bytes: 6}); err != nil || !r.Partial || len(r.Found) > 1 {
		t.Errorf("within 6 bytes: %+v, %v", r, err)
	}
	for _, bad := range [][]string{{"x"}, {sum("a")[:40]}, make([]string, 201)} {
		if _, err := c.Find(t.Context(), wire.FindRequest{SHA256: bad}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%d sums: %v", len(bad), err)
		}
	}
}

// TestContentIsFoundInChunks shows that an older version of a large file is found in its chunks,
// and that a live file that is too large for the search hides no smaller one.
func TestContentIsFoundInChunks(t *testing.T) {
	c := open(t, lowThreshold)
	sum := func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }
	one, two := noise(1, 6<<20), noise(2, 6<<20)
	c.write("workspace/big", one)
	c.checkpoint("one")
	c.write("workspace/big", two)
	c.write("a", noise(3, 900_000)) // below the threshold for large files, and searched first
	c.write("z", "small\n")
	c.checkpoint("two")
	r, err := c.Find(t.Context(), wire.FindRequest{SHA256: []string{sum(one), sum(two), sum("small\n")}, Bytes: 100_000})
	if err != nil || len(r.Found) != 3 || !r.Partial {
		t.Fatalf("%+v, %v", r, err)
	}
	srv := httptest.NewServer(httpapi.Handler(c.Engine))
	defer srv.Close()
	for _, f := range r.Found {
		if f.Chunked == (f.Path == "z") {
			t.Errorf("found %+v", f)
		}
		q, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(srv.URL+"/keeper/stream/found?q="+url.QueryEscape(string(q)), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || sum(string(got)) != f.SHA256 {
			t.Errorf("%+v gives %d bytes with %s, %v", f, len(got), sum(string(got)), err)
		}
	}
}
