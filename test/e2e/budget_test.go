package e2e_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// TestBudgets shows that the owner's budget for a day bounds a run that may spend more, including
// what was spent before a restart, and that a model without a price is refused with an explanation
// until it has one.
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

// TestOneComputersSpendingBoundsTheOther shows that a computer's spending counts against the day's
// budget for all, even when it can no longer wake, and after a kill. The refusal says which budget
// it is, whose, and how to raise it.
func TestOneComputersSpendingBoundsTheOther(t *testing.T) {
	t.Parallel()
	turn := modelserver.Turn{Role: "director", Calls: call("report", object{"status": "done", "summary": "Done."}), Usage: &modelserver.Usage{In: 400, Out: 60_000, Exact: true}, Repeat: true}
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{turn}}).Start()
	t.Cleanup(s.Close)
	opts := choirtest.Options{Data: filepath.Join(t.TempDir(), "data")}
	env := modelEnv(s, modelserver.Anthropic, newKey())
	opts.Env = append(env, "CHOIR_BUDGET_DAY_TOKENS=60000", "CHOIR_BUDGET_COST_USD=100")
	in := choirtest.Start(t, opts)
	if p := prompt(t, in, "first"); p.Status != "done" {
		t.Fatalf("%+v", p)
	}
	in.Kill()
	dirs, err := os.ReadDir(filepath.Join(opts.Data, "computers"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%v, %d computers", err, len(dirs))
	}
	first, second := dirs[0].Name(), string(contract.NewCID())
	if err := os.Rename(filepath.Join(opts.Data, "computers", first), filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(opts.Data, "computers", second), 0o700); err != nil {
		t.Fatal(err)
	}
	ask := func() prompted {
		t.Helper()
		if in, err = choirtest.TryStart(t, opts); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		r, err := in.Run(ctx, "prompt", "--computer", second, "--wait", "--timeout", "100s", "--json", "again")
		if err != nil {
			t.Fatal(err)
		}
		var p prompted
		if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		return p
	}
	p := ask()
	if p.Status != "failed" {
		t.Errorf("the other computer's spending is not counted: %+v", p)
	}
	for _, words := range []string{"the day's budget of 60000 tokens is used up", "all computers of this machine", "budget.day_tokens"} {
		if !strings.Contains(p.Summary, words) {
			t.Errorf("%q does not say %q", p.Summary, words)
		}
	}
	if !strings.Contains(in.Logs(), "does not wake\" computer="+first) {
		t.Errorf("the first computer is not damaged: %s", in.Logs())
	}
	in.Stop(t)
	opts.Env = append(env, "CHOIR_BUDGET_DAY_TOKENS=10000000", "CHOIR_BUDGET_COST_USD=100")
	if p := ask(); p.Status != "done" {
		t.Errorf("the budget was raised: %+v", p)
	}
}

// TestTestsOfModelsCount shows that a test of a model counts after a restart, and that it is
// refused under a budget that is used up or that can't bound it.
func TestTestsOfModelsCount(t *testing.T) {
	t.Parallel()
	turn := modelserver.Turn{Text: "ready", Usage: &modelserver.Usage{In: 400, Out: 60_000, Exact: true}, Repeat: true}
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{turn}}).Start()
	t.Cleanup(s.Close)
	opts := choirtest.Options{Data: filepath.Join(t.TempDir(), "data"), Env: append(modelEnv(s, modelserver.OpenAI, newKey()), "CHOIR_BUDGET_DAY_TOKENS=60000")}
	in := choirtest.Start(t, opts)
	in.Must(t, "models", "test")
	in.Kill()
	in = choirtest.Start(t, opts)
	if p := prompt(t, in, "go"); p.Status != "failed" || !strings.Contains(p.Summary, "the day's budget of 60000 tokens is used up") {
		t.Errorf("after a test that used the budget up: %+v", p)
	}
	for model, words := range map[string]string{"": "the day's budget of 60000 tokens is used up", "openai/never-heard-of-it": "has no price"} {
		r, err := in.Run(t.Context(), append([]string{"models", "test"}, strings.Fields(model)...)...)
		if err != nil || r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, words) || strings.Contains(r.Stdout+r.Stderr, "Check the key") {
			t.Errorf("models test %s: %v %+v", model, err, r)
		}
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d calls were made", n)
	}
}

// TestAppendsAreBounded shows that a program that appends too much in a minute is refused with a
// code, and that the log stays usable.
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
