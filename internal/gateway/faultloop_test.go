package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/test/modelserver"
)

// deeds are a loop's tools: look only reads, set changes something, ask asks the user, who has no time, and end ends the work.
type deeds struct {
	mu   sync.Mutex
	made []string
}

func (d *deeds) Specs() []contract.ToolSpec {
	var out []contract.ToolSpec
	for _, name := range []string{"look", "set", "ask", "end"} {
		out = append(out, contract.ToolSpec{Name: name, Description: name, Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["of"],"properties":{"of":{"type":"string"}}}`)})
	}
	return out
}

func (d *deeds) ReadOnly(name string) bool { return name == "look" }

func (d *deeds) Call(_ context.Context, c contract.ToolCall) (harness.Return, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made = append(d.made, c.Name)
	return harness.Return{Content: "did " + c.Name, End: c.Name == "end"}, nil
}

// asked is a gateway as a loop's model.
type asked struct {
	g     *gateway.Gateway
	scope gateway.Scope
}

func (a asked) Turn(ctx context.Context, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
	return a.g.Turn(ctx, a.scope, req, onDelta)
}

// TestEveryModelThatDoesNoGoodEndsRight prints the part of the table of faults that is a loop's: what a model does that answers
// well and acts badly. In each format the loop ends for the right reason, within its turns, calls and tokens.
func TestEveryModelThatDoesNoGoodEndsRight(t *testing.T) {
	act := func(name, of string) modelserver.Call {
		return modelserver.Call{Name: name, Args: modelserver.Args(map[string]string{"of": of})}
	}
	does := func(calls ...modelserver.Call) modelserver.Turn { return modelserver.Turn{Calls: calls} }
	again := func(turns ...modelserver.Turn) []modelserver.Turn {
		var out []modelserver.Turn
		for n := range 60 {
			next := turns[n%len(turns)]
			calls := append([]modelserver.Call(nil), next.Calls...)
			for i := range calls {
				calls[i].Args = json.RawMessage(strings.ReplaceAll(string(calls[i].Args), "{{n}}", fmt.Sprint(n)))
			}
			next.Calls = calls
			out = append(out, next)
		}
		return out
	}
	then := func(turns ...modelserver.Turn) []modelserver.Turn { return append(turns, does(act("end", "it"))) }
	praise := modelserver.Turn{Text: "Great progress! Everything works beautifully, and I am very happy with it."}
	twice := act("set", "a")
	twice.ID = "c1"
	both := does(twice, twice)
	tooLong := modelserver.Turn{Text: "prompt is too long: 210000 tokens > 200000 maximum", Fault: &modelserver.Fault{Kind: "status", Status: 400}}
	cut := modelserver.Turn{Fault: &modelserver.Fault{Kind: "cut"}}
	const calls, tokens = 12, 400_000
	for _, c := range []struct {
		name            string
		turns           []modelserver.Turn
		ends            harness.Reason
		turnsMost, sets int // requests at most; calls that changed something, -1: any number
	}{
		{"the same call for ever", again(does(act("look", "a"))), harness.Repetition, 6, 0},
		{"to and fro for ever", again(does(act("set", "on")), does(act("set", "off"))), harness.Repetition, 12, -1},
		{"to and fro, and a look between", again(does(act("set", "on")), does(act("look", "a")), does(act("set", "off")), does(act("look", "a"))), harness.Repetition, 12, -1},
		{"ever new calls", again(does(act("look", "{{n}}"))), harness.Budget, calls + 1, 0},
		{"praise without a deed", again(praise), harness.Silence, 3, 0},
		{"praise, and a look between", again(praise, does(act("look", "a"))), harness.Repetition, 12, 0},
		{"asks the same for ever", again(does(act("ask", "may I?"))), harness.Repetition, 6, 0},
		{"asks ever something new", again(does(act("ask", "and {{n}}?"))), harness.Budget, calls + 1, 0},
		{"says nothing", again(modelserver.Turn{}), harness.Silence, 3, 0},
		{"calls what there is not", again(does(act("rm_rf", "a"))), harness.Silence, 3, 0},
		{"arguments that are no JSON, for ever", again(does(modelserver.Call{Name: "set", Raw: `{of: a}`})), harness.Silence, 3, 0},
		{"a call without its end, for ever", again(does(modelserver.Call{Name: "set", Raw: `{"of": "a`})), harness.Silence, 3, 0},
		{"a call without its end, then whole", then(does(modelserver.Call{Name: "set", Raw: `{"of": "a`}), does(act("set", "a"))), harness.Finished, 3, 1},
		{"cut by its length within a call, for ever", again(modelserver.Turn{Stop: "length", Calls: []modelserver.Call{{Name: "set", Raw: `{"of": "a`}}}), harness.Silence, 3, 0},
		{"cut by its length, for ever", again(modelserver.Turn{Stop: "length", Text: "And so"}), harness.Silence, 3, 0},
		{"a call sent twice", then(both), harness.Finished, 2, 1},
		{"a stream cut once", then(cut, does(act("set", "a"))), harness.Finished, 3, 1},
		{"over the window once", then(does(act("set", "a")), does(act("set", "b")), tooLong, modelserver.Turn{Text: "## Goal\nA."}), harness.Finished, 5, 2},
		{"over the window for ever", again(tooLong), harness.ModelError, 12, 0},
		{"declines", again(modelserver.Turn{Text: "No.", Stop: "refusal"}), harness.Refused, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, wire modelserver.Wire) {
				g, s, m, _, _, sc := patient(t, wire, func(o *gateway.Options) {
					o.Limits.FirstByte, o.Limits.Idle, o.Limits.Stall = 20*time.Second, 20*time.Second, 20*time.Second
				}, c.turns...)
				sc.Budget = contract.Budget{Tokens: tokens}
				d := &deeds{}
				out, err := harness.Run(t.Context(), harness.Options{Model: asked{g, sc}, Tools: d, EndTool: "end", Budget: contract.Budget{ToolCalls: calls, Tokens: tokens},
					Opening: func(context.Context) (string, error) { return "Set a.", nil }, Backoff: func(int) time.Duration { return 0 }})
				if err != nil {
					t.Fatal(err)
				}
				sets := 0
				for _, name := range d.made {
					if name == "set" {
						sets++
					}
				}
				t.Logf("%-42s %-10s → %-10s after %2d requests, %2d calls and %6d tokens", c.name, wire, out.Reason, len(s.Requests()), len(d.made), out.Usage.TokensIn+out.Usage.TokensOut)
				if out.Reason != c.ends {
					t.Errorf("it ended as %s (%s); want %s", out.Reason, out.Detail, c.ends)
				}
				if out.Reason != harness.Finished && out.Detail == "" {
					t.Error("nobody is told why it ended")
				}
				if n := len(s.Requests()); n > c.turnsMost {
					t.Errorf("%d requests; want at most %d", n, c.turnsMost)
				}
				if c.sets >= 0 && sets != c.sets {
					t.Errorf("%d calls changed something; want %d", sets, c.sets)
				}
				var used contract.Usage
				for _, u := range m.taken() {
					used = used.Add(u.Usage)
				}
				if len(d.made) > calls+1 || used.TokensIn+used.TokensOut > tokens || out.Usage.Validate() != nil {
					t.Errorf("%d calls of %d, %d tokens of %d", len(d.made), calls, used.TokensIn+used.TokensOut, tokens)
				}
			})
		})
	}
}

// TestInstructionsOfOthersAreTried lists where a model is tried that is told what to do by what it reads, as the rest of the table.
func TestInstructionsOfOthersAreTried(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, c := range []struct{ in, file, name string }{
		{"a file", "eval/testdata/tasks/inject-readme-done", ""},
		{"a file of instructions", "eval/testdata/tasks/inject-agents-md", ""},
		{"a tool's output", "eval/testdata/tasks/inject-tool-output", ""},
		{"a commit message", "eval/testdata/tasks/inject-commit-message", ""},
		{"a comment", "eval/testdata/tasks/inject-source-comment", ""},
		{"a file's name", "eval/testdata/tasks/inject-file-name", ""},
		{"data of a test", "eval/testdata/tasks/inject-fixture-hook", ""},
		{"a dependency", "eval/testdata/tasks/inject-dependency-readme", ""},
		{"a page", "test/e2e/webinject_test.go", "TestInstructionsInAPage"},
		{"the tree, in an opening", "internal/harness/told_test.go", "TestNothingInAnOpeningPassesForTheUsersWords"},
		{"the tree, where the user speaks", "internal/harness/hostile_test.go", "TestWhatTheTreeSaysIsNotTheUsersWord"},
	} {
		path := filepath.Join(root, c.file)
		info, err := os.Stat(path)
		if err != nil {
			t.Errorf("instructions in %s: %v", c.in, err)
			continue
		}
		if !info.IsDir() {
			if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), "func "+c.name+"(") {
				t.Errorf("instructions in %s: %s has no %s (%v)", c.in, c.file, c.name, err)
			}
		}
		t.Logf("instructions in %-32s → %s %s", c.in, c.file, c.name)
	}
}
