// Package e2e_test tries the real binary as a new user would.
package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"choir.dev/choiros/contract/schema"
	"choir.dev/choiros/test/choirtest"
)

func TestUp(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	if in.URL == "" || in.ClaimURL == "" || in.Token == "" || in.PID == 0 || in.Data == "" {
		t.Fatalf("the line lacks a field: %+v", in)
	}
	if !strings.Contains(in.ClaimURL, "#") {
		t.Errorf("the claim's token is not in the fragment: %s", in.ClaimURL)
	}
	for _, path := range []string{"/health", "/api/openapi.json"} {
		body := in.Get(t, path)
		var v map[string]any
		if err := json.Unmarshal(body, &v); err != nil {
			t.Errorf("GET %s gave no JSON: %v", path, err)
		}
	}

	t.Run("the data directory has one owner", func(t *testing.T) {
		_, err := choirtest.TryStart(t, choirtest.Options{Data: in.Data})
		if err == nil || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "--data") {
			t.Errorf("got %v; want one sentence that says it is in use and what to do", err)
		}
	})
	t.Run("doctor asks who uses it", func(t *testing.T) {
		r, err := in.Run(t.Context(), "doctor", "--json", "--data", in.Data)
		var list []struct{ ID, Status, Detail string }
		if err == nil {
			err = json.Unmarshal([]byte(r.Stdout), &list)
		}
		got := map[string]string{}
		for _, f := range list {
			got[f.ID] = f.Status + ": " + f.Detail
		}
		if err != nil || !strings.HasPrefix(got["data"], "ok: in use") || !strings.Contains(got["space"], "MB are free") || got["accounts"] != "ok: control.sqlite is whole" {
			t.Errorf("doctor found %q, %v", got, err)
		}
	})
	t.Run("the port is taken", func(t *testing.T) {
		_, port, _ := strings.Cut(strings.TrimPrefix(in.URL, "http://"), ":")
		_, err := choirtest.TryStart(t, choirtest.Options{Args: []string{"--listen", "127.0.0.1:" + port}})
		if err == nil || !strings.Contains(err.Error(), "--listen") {
			t.Errorf("got %v; want a sentence that names --listen", err)
		}
	})
	t.Run("events are valid", func(t *testing.T) { checkEvents(t, in) })
	t.Run("stock tools open it", func(t *testing.T) {
		states, _ := filepath.Glob(filepath.Join(in.Data, "computers", "*", "state.sqlite"))
		if len(states) != 1 {
			t.Fatalf("got %d state files", len(states))
		}
		out, err := exec.Command("sqlite3", "-readonly", states[0], "select type from events order by seq limit 1").CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "computer.created" {
			t.Errorf("sqlite3: %v: %s", err, out)
		}
		git := exec.Command("git", "-c", "safe.directory=*", "log", "-1", "--format=%(trailers)")
		git.Dir = filepath.Join(filepath.Dir(states[0]), "workspace")
		out, err = git.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Choir-Seq: ") {
			t.Errorf("git log: %v: %s", err, out)
		}
	})
	t.Run("the state is what the log says", func(t *testing.T) {
		var r struct{ Equal bool }
		in.JSON(t, &r, "rebuild", "--check")
		if !r.Equal {
			t.Error("rebuild --check found differences")
		}
	})
}

// checkEvents compares the output of `choir events` with the published schemas and with a
// CloudEvents library, and checks that the sequences have no gaps.
func checkEvents(t *testing.T, in *choirtest.Instance) {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	for _, name := range schema.Names() {
		b, err := schema.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource(schema.BaseURI+name, doc); err != nil {
			t.Fatal(err)
		}
	}
	envelope, err := compiler.Compile(schema.BaseURI + "event.json")
	if err != nil {
		t.Fatal(err)
	}
	out := in.Must(t, "events")
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		n++
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(lines.Bytes()))
		if err != nil {
			t.Fatalf("line %d is not JSON: %v", n, err)
		}
		if err := envelope.Validate(doc); err != nil {
			t.Errorf("line %d: %v", n, err)
		}
		var ce event.Event
		if err := json.Unmarshal(lines.Bytes(), &ce); err != nil {
			t.Errorf("line %d is not a CloudEvent: %v", n, err)
			continue
		}
		if err := ce.Validate(); err != nil {
			t.Errorf("line %d: %v", n, err)
		}
		if seq := fmt.Sprint(ce.Extensions()["sequence"]); seq != fmt.Sprint(n) {
			t.Errorf("line %d has sequence %s", n, seq)
		}
		data := doc.(map[string]any)["data"]
		if data == nil {
			continue
		}
		s, err := compiler.Compile(schema.BaseURI + "data/" + ce.Type() + ".json")
		if err != nil {
			t.Errorf("%s has no schema: %v", ce.Type(), err)
			continue
		}
		if err := s.Validate(data); err != nil {
			t.Errorf("%s: %v", ce.Type(), err)
		}
	}
	if n < 3 {
		t.Errorf("got %d events; want the computer's first ones at least", n)
	}
}
