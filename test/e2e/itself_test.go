package e2e_test

import (
	"context"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// What the unit tests are at least, so that no run of nothing passes for one of all.
const (
	leastGo      = 2000
	leastDesktop = 150
)

// TestChoirOSInChoirOS shows that this repository can be worked on in a computer: it is cloned by the computer
// itself, a cassette changes a line of Go and one of the desktop, and make build and the unit tests pass in the
// task's box, whose dependencies come from the registries that this machine's package managers are configured
// with. What is cloned is the last commit, not what is changed since.
func TestChoirOSInChoirOS(t *testing.T) {
	t.Parallel()
	served := t.TempDir()
	repo := filepath.Join(served, "choiros.git")
	git(t, served, "init", "-q", "--bare", "-b", "main", repo)
	git(t, repo, "fetch", "-q", "--no-tags", "--update-shallow", choirtest.Root(), "HEAD:refs/heads/main")
	head := strings.TrimSpace(git(t, repo, "rev-parse", "main"))
	srv, certificate := gitServer(t, served)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, certificate, 0o644); err != nil {
		t.Fatal(err)
	}
	env := append(play(t, "itself"), "CHOIR_EGRESS_CA_FILE="+ca, "CHOIR_BUDGET_WALL_S=3600", "CHOIR_BUDGET_TURNS=200",
		"CHOIR_EGRESS_ALLOW_PRIVATE="+strings.Join(append(registries(t), srv.Listener.Addr().String()), ","))
	// Gigabytes are downloaded and built, which are not for memory.
	in := choirtest.Start(t, choirtest.Options{Data: filepath.Join(t.TempDir(), "data"), Env: env})

	var added view.Added
	in.JSON(t, &added, "add", srv.URL+"/choiros.git")
	if added.ID != "workspace/choiros" || added.Commit != head {
		t.Fatalf("added %+v; want commit %s", added, head)
	}
	var p prompted
	in.JSON(t, &p, "prompt", "Have choir --version say that it was made in choir, and test it")
	began := time.Now()
	var r view.Run
	choirtest.Eventually(t, 55*time.Minute, "the run has ended", func() bool {
		r = runOf(t, in, p.Run)
		return r.Status.Ended()
	})
	t.Logf("the run took %s", time.Since(began).Round(time.Second))
	if r.Status != contract.RunDone || len(r.Tasks) != 1 || r.Tasks[0].Result == nil || r.Tasks[0].Result.Status != contract.ResultOK {
		t.Fatalf("%+v\n%s\n%s", r, in.Must(t, "events", "--type", "tool.returned"), in.Must(t, "events", "--type", "task.finished"))
	}
	itsCommands(t, r.Tasks[0].Result)
	itsChange(t, in, r.Tasks[0].Result)
}

// itsCommands checks what the commands in the task's box, and the host's own in another, said.
func itsCommands(t *testing.T, res *contract.AssociateResult) {
	t.Helper()
	var said strings.Builder
	for _, c := range res.Commands {
		said.WriteString(c.Stdout)
	}
	number := func(line string) int {
		m := regexp.MustCompile(`(?m)` + line).FindStringSubmatch(said.String())
		if m == nil {
			t.Errorf("no command said %q:\n%s", line, &said)
			return -1
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if !regexp.MustCompile(`(?m)^choir [0-9a-f]{7,}(-dirty)?, made in choir \(`).MatchString(said.String()) {
		t.Errorf("the built program does not say its version as it was changed:\n%s", &said)
	}
	passed, skipped, desktop := number(`^go pass (\d+)$`), number(`^go skip (\d+)$`), number(`^ +Tests +(\d+) passed`)
	t.Logf("in the box %d tests of Go passed in %d packages and %d were skipped; %d of the desktop passed", passed, number(`^packages (\d+)$`), skipped, desktop)
	if passed < leastGo || desktop < leastDesktop || number(`^go fail (\d+)$`) != 0 {
		t.Errorf("%d tests of Go and %d of the desktop passed, want at least %d and %d", passed, desktop, leastGo, leastDesktop)
	}
	// No profile, so it does not count as verified, but the host has made its check.
	if v := res.Verification; v.Status != contract.VerificationUnknown || len(v.Checks) != 1 || v.Checks[0].Status != contract.VerificationPass {
		t.Errorf("verification: %+v", v)
	}
	if len(res.Egress.Denied) > 0 {
		t.Errorf("denied were %v", res.Egress.Denied)
	}
}

// itsChange checks that the change is live and in a checkpoint, and nothing of what was built.
func itsChange(t *testing.T, in *choirtest.Instance, res *contract.AssociateResult) {
	t.Helper()
	var paths []string
	for _, c := range res.Changes {
		paths = append(paths, c.Path)
		if c.Added != 1 || c.Removed != 1 {
			t.Errorf("%s: %d lines more and %d less", c.Path, c.Added, c.Removed)
		}
	}
	version, words, test := "workspace/choiros/internal/cli/version.go", "workspace/choiros/desktop/src/apps/timetravel/words.ts", "workspace/choiros/desktop/test/text.test.ts"
	if want := []string{words, test, version}; !slices.Equal(paths, want) {
		t.Errorf("changed are %v, want %v", paths, want)
	}
	ws := workspaceDir(t, in)
	for path, line := range map[string]string{version: "choir %s, made in choir (", words: "Nothing would be changed: ", test: "Nothing would be changed'"} {
		if got := in.Must(t, "files", "cat", path); !strings.Contains(got, line) {
			t.Errorf("%s has no %q", path, line)
		}
		if got := git(t, ws, "show", res.Head+":"+path); !strings.Contains(got, line) {
			t.Errorf("%s of the checkpoint has no %q", path, line)
		}
	}
	in.Must(t, "undo")
	if got := in.Must(t, "files", "cat", version); strings.Contains(got, "made in choir") {
		t.Errorf("undone, it is still %q", got)
	}
}

// play serves a cassette of testdata, and returns the environment of a choir whose model it is.
func play(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tape, err := cassette.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	player := cassette.NewPlayer()
	player.Put(name, tape)
	s := httptest.NewServer(player)
	t.Cleanup(s.Close)
	return []string{"ANTHROPIC_API_KEY=" + newKey(), "ANTHROPIC_BASE_URL=" + s.URL, "CHOIR_MODEL=anthropic/" + cassette.Prefix + name, "CHOIR_MODELS_PATIENCE_S=6", "CHOIR_LOOPS_DIRECT_WORDS=0",
		"CHOIR_BUDGET_COST_USD=0", "CHOIR_BUDGET_DAY_COST_USD=0"} // a cassette has no price
}

// registries returns the addresses and ports of the registries that npm and go are configured with here: they
// may be a network's own, which boxes reach only if it is said (egress.allow_private).
func registries(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, ask := range [][]string{{"npm", "config", "get", "registry"}, {"go", "env", "GOPROXY"}} {
		cmd := exec.CommandContext(t.Context(), ask[0], ask[1:]...)
		cmd.Dir = "/"
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", ask, err)
		}
		for _, s := range strings.FieldsFunc(string(said), func(r rune) bool { return r == ',' || r == '|' || r == '\n' }) {
			u, err := url.Parse(s)
			if err != nil || u.Scheme != "https" {
				continue // direct, off
			}
			port := u.Port()
			if port == "" {
				port = "443"
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			found, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
			cancel()
			if err != nil {
				t.Fatalf("the registry that %s is configured with is needed: %v", ask[0], err)
			}
			for _, a := range found {
				out = append(out, net.JoinHostPort(a, port))
			}
		}
	}
	return out
}
