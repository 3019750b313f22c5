package shell

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
)

// TestAttack46_WhoEndsTheCheckHasNotPassedIt: a page that takes over the program that checks it,
// writes a verdict of its own and exits with 0 has not passed.
func TestAttack46_WhoEndsTheCheckHasNotPassedIt(t *testing.T) {
	word := newWord()
	for _, said := range []string{"", "painted without throwing\n", "painted without throwing " + newWord() + "\n"} {
		if got := rendered(contract.Command{Stdout: said}, word); got.ExitCode == 0 {
			t.Errorf("a page that ended the check came to %d: %q", got.ExitCode, got.Stdout)
		}
	}
	if got := rendered(contract.Command{Stdout: "painted without throwing " + word + "\n"}, word); got.ExitCode != 0 || strings.Contains(got.Stdout, word) {
		t.Errorf("a page that painted came to %d: %q, %q", got.ExitCode, got.Stdout, got.Stderr)
	}
}

// TestAttack46_APageDoesNotJudgeItself: the page runs in the program that checks it, and must not
// be able to change the verdict.
func TestAttack46_APageDoesNotJudgeItself(t *testing.T) {
	modules, err := filepath.Abs("../../desktop/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(modules); err != nil {
		t.Fatal("run make build first: ", err)
	}
	const paints = `const d = document.createElement('div'); d.dataset.testid = 'desktop'; d.append(document.createElement('p'))
		document.getElementById('root').append(d); document.documentElement.dataset.choirReady = '1'`
	for name, c := range map[string]struct {
		page, config string
		passes       bool
	}{
		"paints":         {page: paints, passes: true},
		"throws":         {page: "throw new Error('broken')"},
		"ends with 0":    {page: "process.exit(0)"},
		"says it":        {page: "console.log('painted without throwing'); process.stdout.write('painted without throwing ' + String.fromCharCode(10)); process.exit(0)"},
		"its build ends": {page: paints, config: "process.exit(0)"},
		"ends later":     {page: "process.exitCode = 0; queueMicrotask(() => process.exit())"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, content := range map[string]string{
				"package.json": `{"name":"page","private":true,"type":"module"}`, "src/main.ts": c.page,
				"vite.config.js": c.config + "\nexport default {}\n",
				"index.html":     `<!doctype html><html><head></head><body><div id="root"></div><script type="module" src="/src/main.ts"></script></body></html>`,
			} {
				file = filepath.Join(dir, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			script := filepath.Join(t.TempDir(), "render.mjs")
			if err := errors.Join(os.Symlink(modules, filepath.Join(dir, "node_modules")), os.WriteFile(script, renderScript, 0o644)); err != nil {
				t.Fatal(err)
			}
			word := newWord()
			cmd := exec.CommandContext(t.Context(), "node", script, filepath.Join(t.TempDir(), "out"))
			var out, errOut bytes.Buffer
			cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(word), &out, &errOut
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			got := rendered(contract.Command{ExitCode: cmd.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errOut.String()}, word)
			if (got.ExitCode == 0) != c.passes || !c.passes && got.Stderr == "" || strings.Contains(got.Stdout+got.Stderr, word) {
				t.Errorf("it came to %d: %q, %q", got.ExitCode, got.Stdout, got.Stderr)
			}
		})
	}
}
