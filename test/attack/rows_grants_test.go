package attack_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/redact"
	"choir.dev/choiros/test/modelserver"
)

var grantRows = []Row{
	{Number: 42, Attack: "a Director's task names a host that its computer was not granted", Defences: []defence.Name{defence.EgressNarrow}, Run: named("evil.example:443", "evil.example:443")},
	{Number: 42, Attack: "a Director's task names a raw tunnel to a host that is granted with TLS only", Defences: []defence.Name{defence.EgressRawTCP, defence.EgressNarrow},
		Run: named("tcp://mail.example:25", "mail.example:25")},
	{Number: 45, Attack: "many runs spend together what none may alone", Defences: []defence.Name{defence.BudgetAll}, Run: func(t *testing.T) Verdict {
		return spends(t, "openai/gpt-5.4", 3, func(o *gateway.Options) { o.Bounds.Day.Tokens = 1000 }, contract.Budget{Tokens: 10_000})
	}},
	{Number: 45, Attack: "a prompt names a model that nobody priced", Defences: []defence.Name{defence.BudgetPrice}, Run: func(t *testing.T) Verdict {
		return spends(t, "openai/never-heard-of-it", 1, func(*gateway.Options) {}, contract.Budget{CostUSD: 0.000001})
	}},
	{Number: 39, Attack: "a command's secret is read from the log", Defences: []defence.Name{defence.ExecRedacted}, Run: func(*testing.T) Verdict {
		got := fmt.Sprint(redact.Args([]string{"deploy", "--token", "hunter2", "correct-horse-battery"}, []string{"correct-horse-battery"}))
		return Verdict{got == "[deploy --token hunter2 correct-horse-battery]", got}
	}},
}

// named asks for the policy of a task that names a rule, and whether it lets the
// task out to a host.
func named(rule, host string) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		granted, err := egress.ParseRules([]string{"mail.example:443", "registry.example:443"})
		if err != nil {
			t.Fatal(err)
		}
		s := &egress.Sources{Extra: granted, Logger: slog.New(slog.DiscardHandler)}
		p := s.Policy(t.Context(), contract.EgressSpec{Profile: contract.EgressCustom, Allow: []string{rule}})
		target, err := egress.ParseTarget(host)
		if err != nil {
			t.Fatal(err)
		}
		_, out := p.Allows(target)
		return Verdict{out, fmt.Sprintf("let out: %v (%v)", out, p.Err)}
	}
}

// spends makes one call in each of so many runs; it worked if all were made.
func spends(t *testing.T, model string, runs int, tune func(*gateway.Options), run contract.Budget) Verdict {
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "x", Repeat: true, Usage: &modelserver.Usage{In: 100, Out: 400}}}}).Start()
	defer s.Close()
	o := gateway.Options{Keys: func(context.Context, string) (string, error) { return "a-key-of-this-test", nil }, LocalBaseURL: "none",
		OpenAIBaseURL: s.OpenAIURL(), Logger: slog.New(slog.DiscardHandler), Default: model}
	tune(&o)
	g, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	cid := contract.NewCID()
	for range runs {
		if _, err = g.Turn(t.Context(), gateway.Scope{CID: cid, Run: contract.NewID(), Role: "director", Budget: run}, contract.TurnRequest{MaxTokens: 400,
			Messages: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: "spend"}}}}}, nil); err != nil {
			break
		}
	}
	return Verdict{len(s.Requests()) == runs, fmt.Sprintf("%d of %d calls were made (%v)", len(s.Requests()), runs, err)}
}
