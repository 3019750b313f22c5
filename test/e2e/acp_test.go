package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// startAgents starts a control plane that has been told of agent programs, by TOML.
func startAgents(t *testing.T, s *modelserver.Server, agents string) *choirtest.Instance {
	t.Helper()
	dir := filepath.Join(choirtest.Root(), "test", "acp")
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("[runtime]\nread_only = [%q]\n\n%s", dir, strings.ReplaceAll(agents, "DIR", dir))), 0o600); err != nil {
		t.Fatal(err)
	}
	return choirtest.Start(t, choirtest.Options{Env: append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_CONFIG="+file)})
}

const fakeAgents = "[agents.fake]\ncommand = [\"node\", \"DIR/program.mjs\"]\nenv = [\"FAKE=told\"]\n\n[agents.absent]\ncommand = [\"no-such-program\"]\n"

// byProgram is a task that the fake program does in one of its modes.
func byProgram(mode string, more object) object {
	task := object{"kind": "agent", "program": "fake", "goal": "Write a note. mode: " + mode, "acceptance": []any{"It is short"}, "verify": object{"profile": "none"}}
	for k, v := range more {
		task[k] = v
	}
	return task
}

// TestAnAgentProgramDoesATask in a box, by the Agent Client Protocol: it is told its task, may do in its box what
// it likes, has the model within the task's budget and nothing else, and what it says is told as its words.
func TestAnAgentProgramDoesATask(t *testing.T) {
	t.Parallel()
	s := modelserver.New(modelserver.Script{Turns: append(director(delegate(byProgram("good", nil)), report("done", "Noted.")),
		modelserver.Turn{Match: "the program asks", Text: "The model answers.", Usage: &modelserver.Usage{In: 70, Out: 11}})}).Start()
	t.Cleanup(s.Close)
	in := startAgents(t, s, fakeAgents)
	p := prompt(t, in, "have the program write a note")
	r := runOf(t, in, p.Run)
	if p.Status != "done" || len(r.Tasks) != 1 || r.Tasks[0].Result == nil || r.Tasks[0].Result.Status != contract.ResultOK {
		t.Fatalf("%+v\n%s", p, in.Must(t, "events", "--type", "task.finished"))
	}
	res := r.Tasks[0].Result
	if !strings.HasPrefix(res.Summary, "The note is written.") || res.Usage.ToolCalls != 1 || res.Usage.TokensIn != 70 || res.Usage.TokensOut != 11 || res.Head == "" {
		t.Errorf("the result is %+v", res)
	}
	var found struct {
		May, Asked, Names, Address, Mode, Cwd string
		File, Shell, Told                     int
	}
	b, err := os.ReadFile(filepath.Join(workspaceDir(t, in), "workspace", "note.json"))
	if err != nil || json.Unmarshal(b, &found) != nil {
		t.Fatalf("%v %s", err, b)
	}
	if found.May != "yes" || found.File != -32601 || found.Shell != -32601 || found.Told != 3 || found.Mode != "told" || found.Cwd != "/computer" {
		t.Errorf("the program finds %s", b)
	}
	if found.Asked != "The model answers." || found.Names == "connected" || found.Address == "connected" {
		t.Errorf("the program reaches %s", b)
	}
	var said []string
	for _, e := range eventsOf(t, in, "program.reported") {
		d := data[contract.ProgramReported](t, e)
		said = append(said, fmt.Sprintf("%s %s %s", d.What, d.Status, d.Text))
		if d.Program != "fake" || e.Task != r.Tasks[0].ID {
			t.Errorf("reported %s", e.Data)
		}
	}
	want := "plan  [completed] look\n[in_progress] write\n|said  I look first.|call begun write a note|call done write a note|said  The note is written."
	if got := strings.Join(said, "|"); got != want {
		t.Errorf("it says %q\nwant %q", got, want)
	}
}

// TestWhatIsWrongWithAnAgentProgram fails its task with a sentence that says what, and nothing else.
func TestWhatIsWrongWithAnAgentProgram(t *testing.T) {
	t.Parallel()
	wrong := []struct{ mode, says string }{
		{"garbage", "no message of the protocol: \"Loading the model"}, {"huge", "a line of more than"}, {"calls", "budget of 40 tool calls"},
		{"never", "its budget of 4 seconds is used up"}, {"crash", "it ended with exit code 3. The end of its error stream: out of ideas"},
		{"answers", "answers what was not asked"}, {"refuses", "it declined. Its last words: I had rather not."}, {"absent", "it could not be run"},
	}
	var tasks []any
	for _, w := range wrong {
		more := object{"budget": object{"tool_calls": 40}}
		switch w.mode {
		case "never":
			more = object{"budget": object{"wall_s": 4}}
		case "absent":
			more = object{"program": "absent"}
		}
		tasks = append(tasks, byProgram(w.mode, more))
	}
	s := modelserver.New(modelserver.Script{Turns: director(
		modelserver.Turn{Calls: call("delegate", object{"tasks": []any{byProgram("good", object{"program": "nobody"})}})},
		modelserver.Turn{Match: `allowed: absent, fake`, Calls: call("delegate", object{"tasks": tasks})},
		report("failed", "None of them worked."))}).Start()
	t.Cleanup(s.Close)
	in := startAgents(t, s, fakeAgents)
	p := prompt(t, in, "have programs fail")
	r := runOf(t, in, p.Run)
	if p.Status != "failed" || len(r.Tasks) != len(wrong) {
		t.Fatalf("%+v", p)
	}
	for i, w := range wrong {
		res := r.Tasks[i].Result
		if res == nil || res.Status != contract.ResultFailed || !strings.Contains(res.Summary, w.says) || res.Attempt != 1 {
			t.Errorf("%s: %+v", w.mode, res)
			continue
		}
		if w.mode == "crash" && res.Kept == nil {
			t.Error("what it wrote is not kept")
		}
	}
}

// TestAnAgentProgramRepairsItsWork: what fails its checks goes back to the program, in a new session on the same
// tree that knows what was done and what failed. Whether it is done the checks decide, not its word.
func TestAnAgentProgramRepairsItsWork(t *testing.T) {
	t.Parallel()
	check := object{"verify": object{"profile": "none", "commands": []any{[]any{"bash", "-n", "workspace/a.sh"}}}}
	s := modelserver.New(modelserver.Script{Turns: director(delegate(byProgram("repairs", check)), report("done", "Repaired."))}).Start()
	t.Cleanup(s.Close)
	in := startAgents(t, s, fakeAgents)
	p := prompt(t, in, "have the program repair")
	r := runOf(t, in, p.Run)
	if res := r.Tasks[0].Result; p.Status != "done" || res == nil || res.Status != contract.ResultOK || res.Repairs != 1 || res.Attempt != 1 {
		t.Fatalf("%+v %+v", p, res)
	}
	if b, err := os.ReadFile(filepath.Join(workspaceDir(t, in), "workspace", "a.sh")); err != nil || string(b) != "echo two\n" {
		t.Errorf("%q %v", b, err)
	}
}

// TestAnAgentProgramIsInterrupted by its user's words, and goes on with them in the same session.
func TestAnAgentProgramIsInterrupted(t *testing.T) {
	t.Parallel()
	s := modelserver.New(modelserver.Script{Turns: director(delegate(byProgram("steered", nil)), report("done", "Steered."))}).Start()
	t.Cleanup(s.Close)
	in := startAgents(t, s, fakeAgents)
	var p prompted
	in.JSON(t, &p, "prompt", "--json", "have the program wait")
	choirtest.Eventually(t, 2*time.Minute, "the program waits", func() bool {
		return strings.Contains(in.Must(t, "events", "--type", "program.reported"), `"begun"`)
	})
	in.Must(t, "run", "pause", p.Run)
	in.Must(t, "run", "steer", p.Run, "Write it in verse.")
	in.Must(t, "run", "resume", p.Run)
	if r := ended(t, in, p.Run); r.Status != contract.RunDone {
		t.Fatalf("%+v", r)
	}
	b, err := os.ReadFile(filepath.Join(workspaceDir(t, in), "workspace", "words.txt"))
	if err != nil || !strings.Contains(string(b), "Write it in verse.") || strings.Contains(string(b), "mode:") {
		t.Errorf("it is told %q, %v", b, err)
	}
}

// TestAnAgentProgramOfNpm: an agent program that is not ours, as npm has it, does a task in a box without a
// network. Its model is replayed, reached by the grant of its box, and metered for the task.
func TestAnAgentProgramOfNpm(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob(filepath.Join(choirtest.Root(), "test", "acp", "node_modules", "opencode-linux-*", "bin", "opencode"))
	if err != nil || len(found) == 0 {
		t.Skip("the program is not installed: make test/acp/node_modules/.package-lock.json")
	}
	const model = `{"provider":{"choir":{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"{env:OPENAI_BASE_URL}","apiKey":"{env:OPENAI_API_KEY}"},"models":{"default":{"name":"choir","tool_call":true}}}},"model":"choir/default","autoupdate":false,"share":"disabled","snapshot":false}`
	agents := fmt.Sprintf("[agents.opencode]\ncommand = [%q, \"acp\"]\nenv = ['OPENCODE_CONFIG_CONTENT=%s', 'OPENCODE_DISABLE_MODELS_FETCH=1', 'OPENCODE_DISABLE_DEFAULT_PLUGINS=1', 'OPENCODE_DISABLE_LSP_DOWNLOAD=1']\n", found[0], model)
	use := &modelserver.Usage{In: 50, Out: 5}
	s := modelserver.New(modelserver.Script{Turns: append(director(
		delegate(object{"kind": "agent", "program": "opencode", "goal": "Write the greeting to workspace/hello.txt.", "verify": object{"profile": "none", "commands": []any{[]any{"grep", "-q", "good day", "workspace/hello.txt"}}}}),
		report("done", "Greeted.")),
		modelserver.Turn{Match: `title generator`, Text: "A greeting", Usage: use, Repeat: true},
		modelserver.Turn{Match: `Write the greeting`, Calls: call("write", object{"filePath": "/computer/workspace/hello.txt", "content": "good day\n"}), Usage: use},
		modelserver.Turn{Match: `Write the greeting`, Text: "I have greeted.", Usage: use})}).Start()
	t.Cleanup(s.Close)
	in := startAgents(t, s, agents)
	var p prompted
	in.JSON(t, &p, "prompt", "--json", "have it greet")
	var r view.Run
	choirtest.Eventually(t, 8*time.Minute, "the program has ended", func() bool {
		r = runOf(t, in, p.Run)
		return r.Status.Ended()
	})
	if r.Status != contract.RunDone || len(r.Tasks) != 1 || r.Tasks[0].Result == nil || r.Tasks[0].Result.Status != contract.ResultOK {
		t.Fatalf("%+v (turns left: %v)\n%s\n%s", r, s.Left(), in.Must(t, "events", "--type", "program.reported"), in.Must(t, "events", "--type", "task.finished"))
	}
	res := r.Tasks[0].Result
	if len(res.Verification.Checks) != 1 || res.Verification.Checks[0].Status != contract.VerificationPass || !strings.HasPrefix(res.Summary, "I have greeted.") || len(res.Egress.Allowed) > 0 {
		t.Errorf("the result is %+v", res)
	}
	if b, err := os.ReadFile(filepath.Join(workspaceDir(t, in), "workspace", "hello.txt")); err != nil || string(b) != "good day\n" {
		t.Errorf("%q %v", b, err)
	}
	metered := 0
	for _, e := range eventsOf(t, in, "usage.metered") {
		if e.Task == r.Tasks[0].ID {
			metered++
		}
	}
	if metered < 2 || res.Usage.TokensIn != int64(50*metered) || res.Usage.ToolCalls != 1 {
		t.Errorf("%d calls were metered; used %+v", metered, res.Usage)
	}
}
