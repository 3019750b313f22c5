package e2e_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// pricedModels are names for which the built-in catalogue has prices.
var pricedModels = map[modelserver.Wire]string{
	modelserver.Anthropic: "anthropic/claude-sonnet-4-6",
	modelserver.OpenAI:    "openai/gpt-5.4",
}

// keyVariable is the variable from which `choir up` takes the key of a wire format.
var keyVariable = map[modelserver.Wire]string{
	modelserver.Anthropic: "ANTHROPIC_API_KEY",
	modelserver.OpenAI:    "OPENAI_API_KEY",
}

// newKey draws a key that occurs nowhere else.
func newKey() string {
	var b [24]byte
	_, _ = rand.Read(b[:])
	return "sk-canary-" + hex.EncodeToString(b[:])
}

// modelEnv is the environment that a user would set to use the server's models. Scripts have turns of a
// Director, however small their prompts are, so every prompt is planned.
func modelEnv(s *modelserver.Server, wire modelserver.Wire, key string) []string {
	// A script that has no turn for a request fails, which is not waited for long.
	env := []string{keyVariable[wire] + "=" + key, "CHOIR_MODEL=" + pricedModels[wire], "CHOIR_MODELS_PATIENCE_S=6", "CHOIR_LOOPS_DIRECT_WORDS=0"}
	if wire == modelserver.Anthropic {
		return append(env, "ANTHROPIC_BASE_URL="+s.URL())
	}
	return append(env, "OPENAI_BASE_URL="+s.OpenAIURL())
}

// startModel starts a server for a script, and a control plane that uses it.
func startModel(t *testing.T, wire modelserver.Wire, script modelserver.Script, env ...string) (*choirtest.Instance, *modelserver.Server) {
	t.Helper()
	s := modelserver.New(script).Start()
	t.Cleanup(s.Close)
	in := choirtest.Start(t, choirtest.Options{Env: append(modelEnv(s, wire, newKey()), env...)})
	return in, s
}

// call is a tool call of a turn.
func call(name string, args any) []modelserver.Call {
	return []modelserver.Call{{Name: name, Args: modelserver.Args(args)}}
}

type object = map[string]any

// turnsOf sets the role of turns, and what their requests must match.
func turnsOf(role, match string, turns ...modelserver.Turn) []modelserver.Turn {
	for i := range turns {
		turns[i].Role = role
		if turns[i].Match == "" {
			turns[i].Match = match
		}
	}
	return turns
}

func delegate(task object) modelserver.Turn {
	return modelserver.Turn{Calls: call("delegate", object{"tasks": []any{task}})}
}

func report(status, summary string) modelserver.Turn {
	return modelserver.Turn{Calls: call("report", object{"status": status, "summary": summary})}
}

func finish(status, summary string) modelserver.Turn {
	return modelserver.Turn{Calls: call("finish", object{"status": status, "summary": summary})}
}

func bash(command string) modelserver.Turn {
	return modelserver.Turn{Calls: call("bash", object{"command": command})}
}

// prompted is the part of the output of `choir prompt --json` that the tests use.
type prompted struct {
	Run        string  `json:"run"`
	Status     string  `json:"status"`
	Verified   string  `json:"verified"`
	Summary    string  `json:"summary"`
	Document   string  `json:"document"`
	Checkpoint string  `json:"checkpoint"`
	CostUSD    float64 `json:"cost_usd"`
	Tasks      []struct {
		ID, Kind, Goal, Status, Verification, Reason string
		Tests                                        int
		Said                                         []string
	} `json:"tasks"`
	code   int
	stderr string
}

// prompt submits a prompt and waits for the end of its run, whatever the outcome.
func prompt(t *testing.T, in *choirtest.Instance, text string) prompted {
	t.Helper()
	p, err := tryPrompt(in, text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func tryPrompt(in *choirtest.Instance, text string) (prompted, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var p prompted
	r, err := in.Run(ctx, "prompt", "--wait", "--timeout", "100s", "--json", text)
	if err != nil {
		return p, fmt.Errorf("prompt %q: %w: %s", text, err, r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil {
		return p, fmt.Errorf("prompt %q printed no JSON (code %d, %s): %w", text, r.Code, r.Stderr, err)
	}
	p.code, p.stderr = r.Code, r.Stderr
	return p, nil
}

// submit starts a run and returns its id.
func submit(t *testing.T, in *choirtest.Instance, text string) string {
	t.Helper()
	var p prompted
	in.JSON(t, &p, "prompt", text)
	if p.Run == "" {
		t.Fatalf("prompt %q named no run: %+v", text, p)
	}
	return p.Run
}

func runOf(t *testing.T, in *choirtest.Instance, id string) view.Run {
	t.Helper()
	var r view.Run
	in.JSON(t, &r, "runs", id)
	return r
}

// ended waits for the end of a run.
func ended(t *testing.T, in *choirtest.Instance, id string) view.Run {
	t.Helper()
	var r view.Run
	choirtest.Eventually(t, 180*time.Second, "run "+id+" has ended", func() bool {
		// What it says is asked for below: it may wait for an answer that this test gives meanwhile.
		_, _ = in.Run(t.Context(), "wait", id, "--timeout", "150s")
		r = runOf(t, in, id)
		return r.Status.Ended()
	})
	return r
}

// eventsOf reads the log, or only events of some types.
func eventsOf(t *testing.T, in *choirtest.Instance, types ...string) []contract.Event {
	t.Helper()
	args := []string{"events"}
	for _, typ := range types {
		args = append(args, "--type", typ)
	}
	return eventsSaid(t, in, args...)
}

// eventsSaid returns the events that a command prints.
func eventsSaid(t *testing.T, in *choirtest.Instance, args ...string) []contract.Event {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(in.Must(t, args...)))
	lines.Buffer(nil, 4<<20)
	var out []contract.Event
	for lines.Scan() {
		var e contract.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("an event is not JSON: %v\n%s", err, lines.Bytes())
		}
		out = append(out, e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func data[T any](t *testing.T, e contract.Event) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(e.Data, &v); err != nil {
		t.Fatalf("%s: %v: %s", e.Type, err, e.Data)
	}
	return v
}

// workspaceDir returns the path of the only computer's live tree on the host.
func workspaceDir(t *testing.T, in *choirtest.Instance) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(in.Data, "computers", "*", "workspace"))
	if err != nil || len(all) != 1 {
		t.Fatalf("got %d workspaces (%v); want one", len(all), err)
	}
	return all[0]
}

// git runs stock git as the owner of the machine would.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "-c", "user.name=T", "-c", "user.email=t@example.com"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// put writes a file of the computer as its user.
func put(t *testing.T, in *choirtest.Instance, path, content string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := in.RunInput(ctx, []byte(content), "files", "put", "-", path)
	if err != nil || r.Code != 0 {
		t.Fatalf("put %s: %v %+v", path, err, r)
	}
}

// usable shows that the computer still works.
func usable(t *testing.T, in *choirtest.Instance) {
	t.Helper()
	if out := in.Must(t, "exec", "--", "echo", "still here"); out != "still here\n" {
		t.Errorf("exec said %q", out)
	}
	var r struct{ Equal bool }
	in.JSON(t, &r, "rebuild", "--check")
	if !r.Equal {
		t.Error("rebuild --check found differences")
	}
}
