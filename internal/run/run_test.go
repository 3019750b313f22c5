package run_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/run/runtest"
)

var update = flag.Bool("update", false, "write what the reducer gives into the cases")

// goldenCase is a sequence of events and what every reducer must make of it.
type goldenCase struct {
	Name   string            `json:"name"`
	Run    string            `json:"run"`
	Events []json.RawMessage `json:"events"`
	Want   runtest.Outcome   `json:"want"`
}

func load(t *testing.T) map[string]*goldenCase {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	out := map[string]*goldenCase{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var c goldenCase
		if err := json.Unmarshal(b, &c); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[f] = &c
	}
	return out
}

func decode(t *testing.T, raw json.RawMessage) (contract.Event, contract.Payload) {
	t.Helper()
	e, err := contract.UnmarshalEvent(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	p, err := contract.DecodeData(e.Type, e.Data)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return e, p
}

// The state's tables and the desktop's reducer pass the same cases.
func TestGolden(t *testing.T) {
	for file, c := range load(t) {
		t.Run(c.Name, func(t *testing.T) {
			r, again := run.New(c.Run), run.New(c.Run)
			for _, raw := range c.Events {
				e, p := decode(t, raw)
				r.Apply(e, p)
				again.Apply(e, p)
				again.Apply(e, p) // an event that is applied twice changes nothing
			}
			if *update {
				c.Want = runtest.Of(r)
				b, err := json.MarshalIndent(c, "", " ")
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := runtest.Of(r); !reflect.DeepEqual(got, c.Want) {
				t.Errorf("got  %+v\nwant %+v", got, c.Want)
			}
			if !reflect.DeepEqual(r, again) {
				t.Errorf("events that came twice changed it:\n%+v\n%+v", r, again)
			}
		})
	}
}
