package e2e_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// fixtureFiles is a small project whose test fails, and which needs a dependency that git ignores.
var fixtureFiles = map[string]string{
	"package.json": `{"name":"sum","version":"1.0.0","private":true,"scripts":{"test":"node test.js"}}` + "\n",
	"sum.js":       "'use strict';\n\nexports.add = (a, b) => a - b;\n",
	"test.js":      "'use strict';\nconst same = require('same');\nconst { add } = require('./sum.js');\nrequire('node:test')('adds', () => {\n  same(add(2, 3), 5);\n  console.log('all is well');\n});\n",
	".gitignore":   "node_modules/\n",
	"README.md":    "# sum\r\n",

	"node_modules/same/package.json": `{"name":"same","version":"1.0.0","main":"index.js"}` + "\n",
	"node_modules/same/index.js":     "module.exports = (got, want) => { if (got !== want) throw new Error(`got ${got}, want ${want}`); };\n",
}

// makeFixture makes the project as a repository with a history: two commits, a branch, a tag, a
// staged file and an untracked one.
func makeFixture(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sum")
	for name, content := range fixtureFiles {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "add", "package.json", "sum.js", ".gitignore")
	git(t, dir, "commit", "-q", "-m", "first")
	git(t, dir, "branch", "old")
	git(t, dir, "add", "test.js")
	git(t, dir, "commit", "-q", "-m", "second")
	git(t, dir, "tag", "-a", "-m", "a tag", "v1")
	git(t, dir, "add", "README.md") // staged, not committed
	if err := os.WriteFile(filepath.Join(dir, "untracked.txt"), []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tree reads every file below a folder.
func tree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		out[rel], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const fixPrompt = "fix the failing test of sum"

// fixScript is how a competent model would fix it.
func fixScript() []modelserver.Turn {
	director := turnsOf("director", fixPrompt,
		modelserver.Turn{Text: "First the plan.", Calls: call("revise_plan", object{"objective": "The test of sum passes",
			"plan": []any{object{"text": "Find and correct the fault", "status": "active"}}})},
		delegate(object{"kind": "agent", "goal": "Make the test of workspace/sum pass.", "acceptance": []any{"npm test exits with 0"},
			"tools": []any{"read", "edit", "bash"}, "verify": object{"profile": "standard"}, "want": object{"diff": true, "logs": true}}),
		report("done", "The test of sum passes again: add subtracted."),
	)
	associate := turnsOf("associate", "",
		modelserver.Turn{Calls: call("bash", object{"command": "npm test --silent", "cwd": "workspace/sum"})},
		modelserver.Turn{Text: "It subtracts?", Match: "got -1, want 5", Calls: call("read", object{"path": "workspace/sum/sum.js"})},
		modelserver.Turn{Match: `a - b`, Calls: call("edit", object{"path": "workspace/sum/sum.js", "old": "a - b", "new": "a + b"})},
		modelserver.Turn{Calls: call("bash", object{"command": "npm test --silent", "cwd": "workspace/sum"})},
		modelserver.Turn{Match: "all is well", Calls: call("finish", object{"status": "ok", "summary": "add adds now"})},
	)
	return append(director, associate...)
}

func TestAModelFixesAFailingTest(t *testing.T) {
	t.Parallel()
	for _, wire := range []modelserver.Wire{modelserver.Anthropic, modelserver.OpenAI} {
		t.Run(string(wire), func(t *testing.T) {
			t.Parallel()
			in, s := startModel(t, wire, modelserver.Script{Turns: fixScript()})
			fixture := makeFixture(t)
			history := tree(t, filepath.Join(fixture, ".git"))
			in.Must(t, "add", fixture)

			p := prompt(t, in, fixPrompt)
			if p.code != 0 || p.Status != "done" || len(p.Tasks) != 1 || p.Checkpoint == "" || p.Document == "" {
				t.Fatalf("prompt: %+v (turns left: %v)", p, s.Left())
			}
			if task := p.Tasks[0]; task.Kind != "agent" || task.Status != "ok" || task.Verification != "pass" {
				t.Errorf("task: %+v", task)
			}
			if left := s.Left(); len(left) != 0 {
				t.Errorf("turns %v were not asked for", left)
			}
			t.Run("result", func(t *testing.T) { checkFixResult(t, in, p) })
			t.Run("live tree", func(t *testing.T) { checkFixTree(t, in, fixture, history) })
			t.Run("metering", func(t *testing.T) { checkMetering(t, in, s, p.Run, p.CostUSD) })
			t.Run("back and forth", func(t *testing.T) {
				in.Must(t, "restore", runOf(t, in, p.Run).Tasks[0].Result.Base)
				if got := in.Must(t, "files", "cat", "workspace/sum/sum.js"); got != fixtureFiles["sum.js"] {
					t.Errorf("restored %q", got)
				}
				in.Must(t, "undo")
				checkFixTree(t, in, fixture, history)
			})
			usable(t, in)
		})
	}
}

func checkFixResult(t *testing.T, in *choirtest.Instance, p prompted) {
	r := runOf(t, in, p.Run)
	if r.Verified != contract.VerificationPass || r.Objective != "The test of sum passes" || len(r.Plan) != 1 || len(r.Tasks) != 1 || r.Tasks[0].Result == nil {
		t.Fatalf("run: %+v", r)
	}
	res := r.Tasks[0].Result
	want := []struct {
		script string
		code   int
		output string
	}{{"npm test --silent", 1, "got -1, want 5"}, {"npm test --silent", 0, "all is well"}}
	if len(res.Commands) != len(want) {
		t.Fatalf("got %d commands: %+v", len(res.Commands), res.Commands)
	}
	for i, w := range want {
		c := res.Commands[i]
		if !slices.Equal(c.Argv, []string{"bash", "-c", w.script}) || c.ExitCode != w.code || !strings.Contains(c.Stdout+c.Stderr, w.output) {
			t.Errorf("command %d: %+v; want %+v", i, c, w)
		}
	}
	if len(res.Changes) != 1 || res.Changes[0] != (contract.Change{Path: "workspace/sum/sum.js", Op: contract.ChangeModified, Added: 1, Removed: 1}) {
		t.Errorf("changes: %+v", res.Changes)
	}
	if !strings.Contains(res.Diff, "-exports.add = (a, b) => a - b;\n+exports.add = (a, b) => a + b;\n") {
		t.Errorf("diff: %q", res.Diff)
	}
	v := res.Verification
	if v.Status != contract.VerificationPass || v.Profile != contract.VerifyStandard || len(v.Checks) != 1 || v.Tree == "" {
		t.Fatalf("verification: %+v", v)
	}
	if v.Tests != 1 || v.Checks[0].Runner != "node:test" || v.Checks[0].Ran != 1 {
		t.Errorf("%d tests, of which %d by %s", v.Tests, v.Checks[0].Ran, v.Checks[0].Runner)
	}
	if c := v.Checks[0]; c.Status != contract.VerificationPass || c.Command.ExitCode != 0 || !strings.Contains(c.Command.Stdout, "all is well") {
		t.Errorf("check: %+v", c)
	}
	if res.Head != p.Checkpoint || res.Base == "" || res.Base == res.Head {
		t.Errorf("base %s, head %s, checkpoint %s", res.Base, res.Head, p.Checkpoint)
	}

	// What was verified is what was published. The check ran in another box than the task's.
	ws := workspaceDir(t, in)
	if got := strings.TrimSpace(git(t, ws, "rev-parse", res.Head+"^{tree}")); got != v.Tree {
		t.Errorf("the checkpoint's tree is %s; verified was %s", got, v.Tree)
	}
	if got := git(t, ws, "log", "-1", "--format=%(trailers)", res.Head); !strings.Contains(got, "Choir-Verified: pass") || !strings.Contains(got, "Choir-Run: "+p.Run) {
		t.Errorf("trailers: %s", got)
	}
	kinds := map[contract.BoxKind]int{}
	reported := eventsOf(t, in, "run.reported")
	for _, e := range eventsOf(t, in, "box.opened") {
		if len(reported) == 1 && e.Sequence < reported[0].Sequence { // one of each loop is opened for the next run
			kinds[data[contract.BoxOpened](t, e).Kind]++
		}
	}
	// The Director looks at the tree in a second box of the kind task.
	if kinds[contract.BoxTask] != 2 || kinds[contract.BoxVerify] == 0 || kinds[contract.BoxAssociate] != 1 || kinds[contract.BoxDirector] != 1 {
		t.Errorf("boxes: %v", kinds)
	}
	if doc := in.Get(t, "/api/computers/-/documents/"+p.Document); !bytes.Contains(doc, []byte("The test of sum passes again")) {
		t.Errorf("the run's document: %s", doc)
	}
}

func checkFixTree(t *testing.T, in *choirtest.Instance, fixture string, history map[string][]byte) {
	ws := workspaceDir(t, in)
	live := filepath.Join(ws, "workspace", "sum")
	if got, err := os.ReadFile(filepath.Join(live, "sum.js")); err != nil || !strings.Contains(string(got), "a + b") {
		t.Errorf("live has %q, %v", got, err)
	}
	for _, same := range []string{"README.md", "untracked.txt", "test.js", "node_modules/same/index.js"} {
		want, err := os.ReadFile(filepath.Join(fixture, same))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(live, same)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", same, got, err, want)
		}
	}
	// In the nested repository, every byte of refs, HEAD and index is unchanged, and so is every
	// object.
	now := tree(t, filepath.Join(live, ".git"))
	for name, want := range history {
		if strings.HasPrefix(name, "objects/") || strings.HasPrefix(name, "hooks/") || name == "config" || name == "description" {
			continue
		}
		if !bytes.Equal(now[name], want) {
			t.Errorf("the nested repository's %s changed", name)
		}
	}
	if want, got := git(t, fixture, "for-each-ref"), git(t, live, "for-each-ref"); got != want {
		t.Errorf("refs were\n%sand are\n%s", want, got)
	}
	if want, got := git(t, fixture, "rev-list", "--all", "--objects"), git(t, live, "rev-list", "--all", "--objects"); got != want {
		t.Errorf("the history differs:\n%s\n%s", want, got)
	}
	git(t, live, "fsck", "--strict", "--no-dangling")
	status := git(t, live, "status", "--porcelain")
	for _, line := range []string{"A  README.md", " M sum.js", "?? untracked.txt"} {
		if !strings.Contains(status, line+"\n") {
			t.Errorf("git status of the nested repository lacks %q:\n%s", line, status)
		}
	}
	// No checkpoint ever contained the ignored folder, and the newest one contains the fix.
	if all := git(t, ws, "log", "--all", "--name-only", "--format="); strings.Contains(all, "node_modules") || !strings.Contains(all, "workspace/sum/sum.js") {
		t.Errorf("the history of the workspace names:\n%s", all)
	}
}

// checkMetering compares the metered calls with the requests that the server got.
func checkMetering(t *testing.T, in *choirtest.Instance, s *modelserver.Server, run string, cost float64) {
	t.Helper()
	var calls, retries int
	var sum contract.Usage
	seen := map[string]bool{}
	for _, e := range eventsOf(t, in, "usage.metered") {
		if e.Run != run {
			continue
		}
		m := data[contract.UsageMetered](t, e)
		if seen[m.Call] {
			t.Errorf("call %s was metered twice", m.Call)
		}
		seen[m.Call] = true
		calls++
		retries += m.Retries
		sum = sum.Add(m.Usage)
	}
	if requests := len(s.Requests()); calls+retries != requests {
		t.Errorf("%d calls with %d retries were metered; the server had %d requests", calls, retries, requests)
	}
	if sum.CostUSD <= 0 || sum.TokensIn <= 0 || sum.TokensOut <= 0 {
		t.Errorf("metered: %+v", sum)
	}
	if diff := cost - sum.CostUSD; diff > 1e-9 || diff < -1e-9 {
		t.Errorf("the run shows %v USD; metered were %v", cost, sum.CostUSD)
	}
}
