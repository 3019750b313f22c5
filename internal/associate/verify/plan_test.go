package verify_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/verify"
)

func tree(t *testing.T, files map[string]string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestPlan(t *testing.T) {
	shell := map[string]string{"choiros/package.json": `{"scripts":{"typecheck":"tsc","build":"vite build"}}`}
	for name, c := range map[string]struct {
		files   map[string]string
		touched []string
		profile contract.VerifyProfile
		want    []string
	}{
		"node, tests come before the type check": {map[string]string{"workspace/p/package.json": `{"scripts":{"typecheck":"tsc","test":"node --test"}}`}, []string{"workspace/p/a.ts"}, "smoke",
			[]string{"node:test: npm run --silent test @workspace/p", "exit code: npm run --silent typecheck @workspace/p"}},
		"vitest":                            {map[string]string{"p/package.json": `{"scripts":{"test":"tsc && npx vitest run --x"}}`}, []string{"p/a.ts"}, "smoke", []string{"vitest: npm run --silent test @p"}},
		"jest":                              {map[string]string{"p/package.json": `{"scripts":{"test":"jest"}}`}, []string{"p/a.ts"}, "smoke", []string{"jest: npm run --silent test @p"}},
		"a runner whose end is hidden":      {map[string]string{"p/package.json": `{"scripts":{"test":"vitest run | cat"}}`}, []string{"p/a.ts"}, "smoke", []string{"node:test: npm run --silent test @p"}},
		"node, npm's default script":        {map[string]string{"p/package.json": `{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}`}, []string{"p/a.js"}, "smoke", nil},
		"node, invalid manifest":            {map[string]string{"p/package.json": `{`}, []string{"p/a.js"}, "strict", nil},
		"go, all of it":                     {map[string]string{"m/go.mod": "module m"}, []string{"m/a/b.go", "m/d.go"}, "smoke", []string{"go test: go test -json ./... @m"}},
		"go, strict":                        {map[string]string{"m/go.mod": "module m"}, []string{"m/a.go"}, "strict", []string{"go test: go test -json ./... @m", "exit code: go vet ./... @m", "exit code: go build ./... @m"}},
		"cargo":                             {map[string]string{"c/Cargo.toml": ""}, []string{"c/src/a.rs"}, "smoke", []string{"cargo test: cargo test --offline @c"}},
		"pytest":                            {map[string]string{"y/pyproject.toml": "[tool.pytest]", "y/a.py": ""}, []string{"y/a.py"}, "smoke", []string{"python: python3 pytest @y", "exit code: python3 -c"}},
		"python without a manifest":         {map[string]string{"y/a.py": "", "y/test_a.py": ""}, []string{"y/a.py"}, "smoke", []string{"python: python3 @y", "exit code: python3 -c"}},
		"a package's tests, beside it":      {map[string]string{"y/pkg/__init__.py": "", "y/pkg/sub/__init__.py": "", "y/pkg/sub/a.py": "", "y/pkg/sub/test_a.py": ""}, []string{"y/pkg/sub/a.py"}, "smoke", []string{"python: python3 in:pkg/sub @y", "exit code: python3 -c"}},
		"a package's tests, in a project":   {map[string]string{"y/setup.py": "", "y/src/pkg/__init__.py": "", "y/src/pkg/a.py": "", "y/src/pkg/tests/test_a.py": ""}, []string{"y/src/pkg/a.py"}, "smoke", []string{"python: python3 in:src/pkg from:src @y", "exit code: python3 -c", "exit code: python3 -c"}},
		"a folder's tests, in a project":    {map[string]string{"y/setup.py": "", "y/.venv/bin/python3": "", "y/pkg/a.py": "", "y/pkg/test_a.py": ""}, []string{"y/pkg/a.py"}, "smoke", []string{"python: python3 from:.. @y/pkg", "exit code: python3 -c", "exit code: python3 -c"}},
		"a package's own interpreter":       {map[string]string{"y/setup.py": "", "y/.venv/bin/python3": "", "y/pkg/__init__.py": "", "y/pkg/test_a.py": ""}, []string{"y/pkg/test_a.py"}, "smoke", []string{"python: .venv/bin/python3 in:pkg @y", "exit code: python3 -c", "exit code: python3 -c"}},
		"make":                              {map[string]string{"k/Makefile": "test: x\n\ttrue\nVAR := 1\n"}, []string{"k/x.c"}, "standard", []string{"exit code: make --silent test @k"}},
		"a nearer manifest hides nothing":   {map[string]string{"go.mod": "module r", "in/package.json": `{"scripts":{"test":"true"}}`}, []string{"in/a.js"}, "smoke", []string{"go test: go test -json ./... @.", "node:test: npm run --silent test @in"}},
		"the shell":                         {shell, []string{"choiros/src/App.tsx"}, "smoke", []string{"exit code: npm run --silent typecheck @choiros", "exit code: npm run --silent build @choiros"}},
		"the theme":                         {map[string]string{"artifacts/system/theme.json": "{}"}, []string{"artifacts/system/theme.json"}, "smoke", []string{"theme"}},
		"loose scripts":                     {map[string]string{"a.sh": "", "b.py": ""}, []string{"a.sh", "b.py", "gone.sh"}, "smoke", []string{"exit code: bash -c", "exit code: python3 -c"}},
		"notes have no check":               {map[string]string{"workspace/notes.md": ""}, []string{"workspace/notes.md"}, "strict", nil},
		"none asked for":                    {shell, []string{"choiros/src/App.tsx"}, "none", nil},
		"inside a nested repository's data": {map[string]string{"n/.git/package.json": `{"scripts":{"test":"t"}}`}, []string{"n/.git/a"}, "smoke", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := verify.Gather(tree(t, c.files), c.touched)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			plan, cut := verify.Plan(f, c.profile)
			if cut {
				t.Error("cut")
			}
			for _, k := range plan {
				s := string(k.Runner) + ": " + strings.Join(k.Argv, " ") + " @" + k.Cwd
				if k.Theme != "" {
					s = "theme"
				}
				got = append(got, s)
			}
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

func TestMoreChecksThanAreRunIsSaid(t *testing.T) {
	files, touched := map[string]string{}, []string{}
	for _, d := range strings.Split("a b c d e f g h i j k l m n o p q r s t u v w x y z", " ") {
		files[d+"/go.mod"] = "module m"
		touched = append(touched, d+"/x.go")
	}
	f, err := verify.Gather(tree(t, files), touched)
	if err != nil {
		t.Fatal(err)
	}
	if plan, cut := verify.Plan(f, "smoke"); !cut || len(plan) > 24 {
		t.Fatalf("%d checks, cut %v", len(plan), cut)
	}
}

// TestWhatAChecksScriptsRunJudges shows that what a check's scripts run, also through other
// scripts, counts as a judge; a program that another script starts, or that is no script, does not.
func TestWhatAChecksScriptsRunJudges(t *testing.T) {
	f, err := verify.Gather(tree(t, map[string]string{
		"p/package.json": `{"scripts":{"start":"node server.js","test":"npm run unit && run-p 'part:*' && concurrently npm:late npm:more-*","pretest":"sh ci/before","unit":"bash ci/run.sh","part:a":"node ci/a.js","late":"node ci/late.js","more-b":"node ci/b.js"}}`,
		"p/ci/a.js":      "", "p/ci/late.js": "", "p/ci/b.js": "",
		"p/server.js": "", "p/ci/before": "#!/bin/sh\n", "p/ci/run.sh": ". ./lib.sh\nnode server.js\n. ci/more.sh\n", "p/ci/lib.sh": ". ci/run.sh\n", "p/ci/more.sh": "",
	}), []string{"p/server.js"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.Projects[0].RunFiles, " "); got != "p/ci/a.js p/ci/b.js p/ci/before p/ci/late.js p/ci/lib.sh p/ci/more.sh p/ci/run.sh" {
		t.Errorf("%s", got)
	}
}
