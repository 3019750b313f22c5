package choirtest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/view"
)

// Get returns the console API's answer at path, which must have status 200.
func (in *Instance) Get(t testing.TB, path string) []byte {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(in.URL, "http://"), ":")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = strings.TrimPrefix(in.URL, "http://")
	req.Header.Set("Authorization", "Bearer "+in.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s: %s", path, resp.Status, b.Bytes())
	}
	return b.Bytes()
}

// Standing returns the one computer, as soon as it is no longer waking.
func (in *Instance) Standing(t testing.TB) view.Computer {
	t.Helper()
	var list []view.Computer
	Eventually(t, time.Minute, "the computer wakes or says why not", func() bool {
		list = nil
		if err := json.Unmarshal(in.Get(t, "/api/computers"), &list); err != nil || len(list) != 1 {
			return false
		}
		return list[0].State != view.StateWaking && list[0].State != view.StateAsleep
	})
	return list[0]
}
