package attack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/defence"
)

// gitHTTPRows are attacks on git over HTTP: with a token for git, from a page, or by somebody who
// can write to a repository.
var gitHTTPRows = []Row{
	beside(23, "a token for git is used for another repository, or another computer", "control", "TestGitIsLetIn", `a token reaches .*`, defence.GitScope),
	beside(23, "a token for git that only reads is used to push", "control", "TestGitIsLetIn", `a token that reads pushes: .*`, defence.GitWrite),
	beside(24, "a page uses what the browser remembers of a token for git", "control", "TestGitIsLetIn", `a page uses git: .*`, defence.GitPages),
	beside(30, "a token for git is used after its end", "identity", "TestTokensForGit", `a token for git is good after its end: .*`, defence.GitExpiry),
	inWhole(12, "a repository whose packs are another one's shows that to who may read the first", func(t *testing.T, w *whole) Verdict {
		dir := w.twoRepositories(t)
		at := w.gitAt(t, dir+"/mine")
		w.Must(t, "exec", "--", "sh", "-c", "cd workspace/"+dir+" && git -C theirs gc -q && rm -rf mine/.git/objects/pack && ln -s /computer/workspace/"+dir+"/theirs/.git/objects/pack mine/.git/objects/pack"+
			" && cp theirs/.git/packed-refs mine/.git/packed-refs && git -C mine symbolic-ref HEAD refs/heads/theirs")
		to := filepath.Join(t.TempDir(), "clone")
		out := w.git(t, "clone", "-q", "--branch", "theirs", at, to)
		b, _ := os.ReadFile(filepath.Join(to, "secret.txt"))
		return Verdict{strings.Contains(string(b), "theirs alone"), out + string(b)}
	}, defence.GitAlone, defence.GitPlain),
	inWhole(12, "a repository's branches are a link to another one's, and who pushes to the first is told that it was taken", func(t *testing.T, w *whole) Verdict {
		dir := w.twoRepositories(t)
		at := w.gitAt(t, dir+"/mine")
		w.Must(t, "exec", "--", "sh", "-c", "cd workspace/"+dir+" && mkdir theirs/.git/refs/heads/x && ln -s ../../../../theirs/.git/refs/heads/x mine/.git/refs/heads/x")
		from := t.TempDir()
		out := w.git(t, "clone", "-q", at, from)
		out += w.git(t, "-C", from, "push", "origin", "HEAD:refs/heads/x/pushed")
		return Verdict{strings.Contains(out, "[new branch]"), out}
	}, defence.GitBeneath, defence.GitPlain),
}

// twoRepositories makes a folder with two repositories, mine and theirs.
func (w *whole) twoRepositories(t *testing.T) string {
	dir := w.dir()
	w.Must(t, "exec", "--", "sh", "-c", `mkdir -p workspace/`+dir+` && cd workspace/`+dir+` && git config --global user.name me && git config --global user.email me@example.org
for r in mine theirs; do git init -q -b $r $r && echo "$r alone" > $r/secret.txt && git -C $r add . && git -C $r commit -qm $r; done`)
	return dir
}

// gitAt returns the address of a repository below workspace, with a token that may push.
func (w *whole) gitAt(t *testing.T, at string) string {
	var got struct {
		URL   string
		Token struct{ Secret string }
	}
	must(t, json.Unmarshal([]byte(w.Must(t, "git", "url", "workspace/"+at, "--write", "--json")), &got))
	return strings.Replace(got.URL, "://", "://me:"+got.Token.Secret+"@", 1)
}

// git runs stock git and returns its output.
func (w *whole) git(t *testing.T, args ...string) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s%v\n", out, err)
}
