package attack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// TestRow15DerivedIDs shows that an event with an id that derives from another event can't be sent
// from outside, so that nobody can take the place of a later event.
func TestRow15DerivedIDs(t *testing.T) {
	in := choirtest.Start(t, choirtest.Options{})
	post := func(id string) (int, string) {
		t.Helper()
		body, err := json.Marshal(map[string]string{"id": id, "text": "an intention"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		host := strings.TrimPrefix(in.URL, "http://")
		_, port, _ := strings.Cut(host, ":")
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:"+port+"/api/computers/-/prompts", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Authorization", "Bearer "+in.Token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	// The control: an id that the sender drew is accepted and becomes the event's.
	mine := contract.NewID()
	if status, body := post(mine); status/100 != 2 || !strings.Contains(in.Must(t, "events", "--type", "prompt.submitted"), mine) {
		t.Fatalf("the control does not work: %d %s", status, body)
	}
	for _, label := range []string{"started", "reported", "requested", "finished:1"} {
		id := contract.DeriveID(mine, label)
		if status, body := post(id); status < 400 || status >= 500 {
			t.Errorf("an id derived for %q is taken: %d %s", label, status, body)
		}
		if out := in.Must(t, "events", "--type", "prompt.submitted"); strings.Contains(out, id) {
			t.Errorf("an id derived for %q is in the log: %s", label, out)
		}
	}
}
