package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestBudgets: the owner's day bounds a run that may spend more, with what was
// spent before a restart; and a model without a price is refused, in words, until
// it has one.
func TestBudgets(t *testing.T) {
	t.Parallel()
	turn := modelserver.Turn{Role: "director", Calls: call("report", object{"status": "done", "summary": "Done."}), Usage: &modelserver.Usage{In: 400, Out: 3000}, Repeat: true}
	script := modelserver.Script{Turns: []modelserver.Turn{turn}}
	t.Run("the day's", func(t *testing.T) {
		s := modelserver.New(script).Start()
		t.Cleanup(s.Close)
		data := filepath.Join(t.TempDir(), "data")
		opts := choirtest.Options{Data: data, Env: append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_BUDGET_DAY_TOKENS=9000", "CHOIR_BUDGET_COST_USD=100")}
		in := choirtest.Start(t, opts)
		if p := prompt(t, in, "first"); p.Status != "done" {
			t.Fatalf("%+v", p)
		}
		in.Stop(t)
		in = choirtest.Start(t, opts)
		for i := 0; ; i++ {
			p := prompt(t, in, "again")
			if p.Status == "failed" {
				if !strings.Contains(p.Summary, "the day's budget of 9000 tokens is used up") {
					t.Errorf("it says %q", p.Summary)
				}
				break
			}
			if i == 4 {
				t.Fatal("the day's budget bounds nothing")
			}
		}
	})
	t.Run("a model without a price", func(t *testing.T) {
		s := modelserver.New(script).Start()
		t.Cleanup(s.Close)
		env := append(modelEnv(s, modelserver.OpenAI, newKey()), "CHOIR_MODEL=openai/never-heard-of-it")
		p := prompt(t, choirtest.Start(t, choirtest.Options{Env: env}), "go")
		if p.Status != "failed" || !strings.Contains(p.Summary, `"openai/never-heard-of-it"`) || !strings.Contains(p.Summary, "models.catalogue") || len(s.Requests()) > 0 {
			t.Errorf("%+v, %d requests", p, len(s.Requests()))
		}
		catalogue := filepath.Join(t.TempDir(), "catalogue.toml")
		if err := os.WriteFile(catalogue, []byte("[[models]]\nname = 'openai/never-heard-of-it'\nprice_in = 0\nprice_out = 0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if p := prompt(t, choirtest.Start(t, choirtest.Options{Env: append(env, "CHOIR_MODELS_CATALOGUE="+catalogue)}), "go"); p.Status != "done" {
			t.Errorf("with a price of 0: %+v", p)
		}
	})
}

// TestAppendsAreBounded: a program that says too much in a minute is refused with
// a code, and the log goes on.
func TestAppendsAreBounded(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{Env: []string{"CHOIR_BUDGET_SESSION_EVENTS=4"}})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	refused := 0
	for range 8 {
		r, err := in.Run(ctx, "checkpoint")
		if err != nil {
			t.Fatal(err)
		}
		if r.Code != 0 {
			refused++
			if !strings.Contains(r.Stderr, "too much at once") || !strings.Contains(r.Stderr, "Wait a minute") {
				t.Errorf("code %d: %s", r.Code, r.Stderr)
			}
		}
	}
	if refused < 3 || refused > 4 {
		t.Errorf("%d of 8 were refused", refused)
	}
	if out := in.Must(t, "events"); !strings.Contains(out, "computer.created") {
		t.Error("reading is refused too")
	}
}
