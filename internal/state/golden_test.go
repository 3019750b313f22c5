package state_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/run/runtest"
)

// TestRunsGolden compares the tables of runs with the reducer's golden cases.
func TestRunsGolden(t *testing.T) {
	files, err := filepath.Glob("../run/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Name   string            `json:"name"`
			Run    string            `json:"run"`
			Events []json.RawMessage `json:"events"`
			Want   runtest.Outcome   `json:"want"`
		}
		if err := json.Unmarshal(b, &c); err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			l, s := newLog(), newStore(t)
			for _, raw := range c.Events {
				e, err := contract.UnmarshalEvent(raw)
				if err != nil {
					t.Fatal(err)
				}
				l.add(e)
			}
			project(t, s, l)
			r, err := s.Run(t.Context(), c.Run)
			if err != nil {
				t.Fatal(err)
			}
			got := runtest.Outcome{Status: r.Status, Reason: r.Reason, Prompt: r.Prompt, Objective: r.Objective, Plan: []string{}, Provider: r.Provider, Model: r.Model,
				Document: r.Document, Summary: r.Summary, Error: r.Error, Verified: r.Verified,
				TokensIn: r.Usage.TokensIn, TokensOut: r.Usage.TokensOut, CostUSD: r.Usage.CostUSD, StoodMS: r.StoodMS,
				Waits: runtest.AwaitedOf(r.Waits), Fallback: r.Fallback, Direct: r.Direct, Questions: []runtest.Asked{}, Tasks: []runtest.Step{}}
			for _, p := range r.Plan {
				got.Plan = append(got.Plan, string(p.Status)+" "+p.Text)
			}
			questions, err := s.Questions(t.Context(), c.Run, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range questions {
				got.Questions = append(got.Questions, runtest.Asked{ID: q.ID, Answer: q.Answer})
			}
			for _, k := range r.Tasks {
				got.Tasks = append(got.Tasks, runtest.Step{Task: k.ID, Kind: k.Kind, Goal: k.Goal, Status: k.Status, Attempt: k.Attempt, Verification: k.Verification})
			}
			if !reflect.DeepEqual(got, c.Want) {
				t.Errorf("got  %+v\nwant %+v", got, c.Want)
			}
		})
	}
}
