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
		"node, typecheck is fastest":        {map[string]string{"workspace/p/package.json": `{"scripts":{"typecheck":"tsc","test":"t"}}`}, []string{"workspace/p/a.ts"}, "smoke", []string{"npm run --silent typecheck @workspace/p"}},
		"node, only tests":                  {map[string]string{"workspace/p/package.json": `{"scripts":{"test":"t"}}`}, []string{"workspace/p/x/y/a.js"}, "smoke", []string{"npm run --silent test @workspace/p"}},
		"node, npm's default script":        {map[string]string{"p/package.json": `{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}`}, []string{"p/a.js"}, "smoke", nil},
		"node, invalid manifest":            {map[string]string{"p/package.json": `{`}, []string{"p/a.js"}, "strict", nil},
		"go, touched packages":              {map[string]string{"m/go.mod": "module m"}, []string{"m/a/b.go", "m/a/c.go", "m/d.go", "m/e/testdata/x"}, "smoke", []string{"go test . ./a ./e @m"}},
		"go, a text file only":              {map[string]string{"m/go.mod": "module m", "m/Makefile": "check:\n\ttrue\n"}, []string{"m/README"}, "smoke", []string{"make --silent check @m"}},
		"go, standard":                      {map[string]string{"m/go.mod": "module m"}, []string{"m/a.go"}, "standard", []string{"go test ./... @m"}},
		"go, strict":                        {map[string]string{"m/go.mod": "module m"}, []string{"m/a.go"}, "strict", []string{"go test ./... @m", "go vet ./... @m", "go build ./... @m"}},
		"cargo":                             {map[string]string{"c/Cargo.toml": ""}, []string{"c/src/a.rs"}, "smoke", []string{"cargo check --quiet --offline @c"}},
		"pytest":                            {map[string]string{"y/pyproject.toml": "[tool.pytest]"}, []string{"y/a.py"}, "smoke", []string{"python3 -m pytest -q @y"}},
		"make":                              {map[string]string{"k/Makefile": "test: x\n\ttrue\nVAR := 1\n"}, []string{"k/x.c"}, "standard", []string{"make --silent test @k"}},
		"the nearest project counts":        {map[string]string{"go.mod": "module r", "in/package.json": `{"scripts":{"test":"t"}}`}, []string{"in/a.js"}, "smoke", []string{"npm run --silent test @in"}},
		"the shell":                         {shell, []string{"choiros/src/App.tsx"}, "smoke", []string{"npm run --silent typecheck @choiros", "npm run --silent build @choiros"}},
		"the theme":                         {map[string]string{"artifacts/system/theme.json": "{}"}, []string{"artifacts/system/theme.json"}, "smoke", []string{"theme"}},
		"loose scripts":                     {map[string]string{"a.sh": "", "b.py": ""}, []string{"a.sh", "b.py", "gone.sh"}, "smoke", []string{"bash -c", "python3 -m py_compile ./b.py @."}},
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
			for _, k := range verify.Plan(f, contract.VerifySpec{Profile: c.profile}) {
				s := strings.Join(k.Argv, " ") + " @" + k.Cwd
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

func TestAManifestTheTaskChangedIsNamed(t *testing.T) {
	f, err := verify.Gather(tree(t, map[string]string{"p/package.json": `{"scripts":{"test":"true"}}`}), []string{"p/package.json"})
	if err != nil {
		t.Fatal(err)
	}
	if c := verify.Plan(f, contract.VerifySpec{Profile: "smoke"}); len(c) != 1 || c[0].Changed != "p/package.json" {
		t.Fatalf("%+v", c)
	}
}

func TestJudge(t *testing.T) {
	check := func(code int) contract.Check { return verify.JudgeCheck("c", contract.Command{ExitCode: code}) }
	for _, c := range []struct {
		codes []int
		want  contract.VerificationStatus
	}{
		{nil, "unknown"}, {[]int{0}, "pass"}, {[]int{0, 1}, "fail"}, {[]int{127}, "unknown"}, {[]int{-1, 0}, "unknown"}, {[]int{-1, 1}, "fail"}, {[]int{1, -1}, "fail"}, {[]int{137}, "fail"},
	} {
		var checks []contract.Check
		for _, n := range c.codes {
			checks = append(checks, check(n))
		}
		v := verify.Judge("smoke", "t", checks)
		if v.Status != c.want || v.Status == "unknown" && v.Reason == "" {
			t.Errorf("%v: %+v", c.codes, v)
		}
	}
}
