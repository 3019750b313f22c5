package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// stock runs stock git in a folder.
func stock(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestGitStatusInARepositoryIsNoConflict shows that a git status in a nested repository, which rewrites
// its index without changing what it says, does not keep a commit from elsewhere out. What somebody
// staged there meanwhile is a conflict, and stays.
func TestGitStatusInARepositoryIsNoConflict(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "4"} {
			for _, staged := range []bool{false, true} {
				name := format + " " + version
				if staged {
					name += " and something staged"
				}
				t.Run(name, func(t *testing.T) {
					c := open(t)
					c.write("r/a", "a\n")
					c.write("r/b", "b\n")
					stock(t, c.path("r"), "init", "-q", "-b", "main", "--object-format="+format)
					stock(t, c.path("r"), "config", "index.version", version)
					stock(t, c.path("r"), "add", ".")
					stock(t, c.path("r"), "update-index", "--index-version", version)
					stock(t, c.path("r"), "commit", "-q", "-m", "one")
					k := c.begin("k")
					theirs := filepath.Join(t.TempDir(), "r")
					if out, err := exec.CommandContext(t.Context(), "cp", "-a", c.path("r"), theirs).CombinedOutput(); err != nil {
						t.Fatalf("%v %s", err, out)
					}
					if err := os.WriteFile(filepath.Join(theirs, "b"), []byte("theirs\n"), 0o644); err != nil {
						t.Fatal(err)
					}
					stock(t, theirs, "commit", "-q", "-a", "-m", "two")
					if err := os.MkdirAll(k.path("r"), 0o755); err != nil {
						t.Fatal(err)
					}
					if out, err := exec.CommandContext(t.Context(), "cp", "-a", theirs+"/.", k.path("r")).CombinedOutput(); err != nil {
						t.Fatalf("%v %s", err, out)
					}
					before := c.read("r/.git/index")
					later := time.Now().Add(-time.Hour)
					if err := os.Chtimes(c.path("r/a"), later, later); err != nil {
						t.Fatal(err)
					}
					if stock(t, c.path("r"), "status", "--porcelain"); c.read("r/.git/index") == before {
						t.Fatal("git status wrote no index")
					}
					if staged {
						c.write("r/a", "mine\n")
						stock(t, c.path("r"), "add", "a")
					}
					r, err := c.publish(wire.PrepareRequest{ID: "p", Base: k.base, Tree: k.tree().Commit, Task: k.id, Note: wire.Note{Message: "two"}})
					if err != nil {
						t.Fatal(err)
					}
					head := strings.TrimSpace(stock(t, c.path("r"), "log", "-1", "--format=%s"))
					if staged != (len(r.Conflicts) > 0) || staged != (head == "one") {
						t.Errorf("the repository's newest commit is %q, conflicts %+v", head, r.Conflicts)
					}
					if got := stock(t, c.path("r"), "status", "--porcelain"); !staged && got != "" || staged && !strings.Contains(got, "M  a") {
						t.Errorf("git status says %q", got)
					}
				})
			}
		}
	}
}
