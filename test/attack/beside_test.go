package attack_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
	"choir.dev/choiros/test/choirtest"
)

// Some attacks need both ends played in a way that only the defending package can: their tests are
// in that package. A row of such a test runs it in the build with the switches. The attack works if
// the test fails with the given words, and is stopped if the test passes. A test that is skipped,
// does not exist or fails with other words is neither, and fails the row.

// besideTest is a test in the package that defends. Name may have parts of subtests.
type besideTest struct {
	pkg, name string // pkg is below internal/, or below cmd/
	says      string // what the test prints when the attack works, a regular expression
	// tries is how often an attack that depends on chance is tried, with all defences off, until it
	// works.
	tries    int
	defences []defence.Name
}

// beside makes a row of the matrix of a test in another package.
func beside(number int, attack, pkg, test, says string, defences ...defence.Name) Row {
	b := besideTest{pkg: pkg, name: test, says: says, tries: 1, defences: defences}
	return Row{Number: number, Attack: attack, Defences: defences, Beside: &b, Run: b.run}
}

// byChance is a row of a test in which the attack works more often than not, but not always.
func byChance(r Row) Row {
	r.Beside.tries = 5
	r.Run = r.Beside.run
	return r
}

// path returns the package's path in the repository.
func (b besideTest) path() string { return besidePath(b.pkg) }

func besidePath(pkg string) string {
	if strings.HasPrefix(pkg, "cmd/") {
		return pkg
	}
	return "internal/" + pkg
}

// lacking is a row that can't be tried on a machine for which lacks returns a reason.
func lacking(r Row, lacks func(t *testing.T) string) Row {
	r.Lacks = lacks
	return r
}

func (b besideTest) run(t *testing.T) Verdict {
	v := b.once(t)
	for i := 1; i < b.tries && !v.Worked && !slices.ContainsFunc(b.defences, func(d defence.Name) bool { return !defence.Off(d) }); i++ {
		v = b.once(t)
	}
	return v
}

func (b besideTest) once(t *testing.T) Verdict {
	dir := besidePrograms(t, b.pkg)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, filepath.Base(b.pkg)+".test"),
		"-test.v", "-test.count=1", "-test.timeout=100s", "-test.run=^"+strings.ReplaceAll(regexp.QuoteMeta(b.name), "/", "$/^")+"$")
	cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second // an ordinary user may be unable to read the sources
	cmd.Env = append(os.Environ(), "CHOIR_TEST_BIN="+filepath.Dir(sandboxtest.BareGuest(t)))
	b2, err := cmd.CombinedOutput()
	out := string(b2)
	if strings.Contains(out, "--- SKIP") || !strings.Contains(out, "=== RUN   "+b.name+"\n") {
		t.Fatalf("%s of %s was not run: %s", b.name, b.path(), clip(out))
	}
	if err == nil {
		return Verdict{false, "the test passes"}
	}
	said := regexp.MustCompile(b.says).FindString(out)
	if said == "" {
		t.Fatalf("%s of %s fails (%v), and not because the attack works: %s", b.name, b.path(), err, clip(out))
	}
	return Verdict{true, clip(said)}
}

// programs are the test programs of packages that were built so far.
var programs struct {
	sync.Mutex
	built []string
}

// besidePrograms builds the test programs of packages that were not built yet, and returns their
// directory.
func besidePrograms(t *testing.T, pkgs ...string) string {
	t.Helper()
	dir := filepath.Dir(sandboxtest.BareGuest(t))
	if os.Getenv("CHOIR_TEST_BIN") != "" {
		return dir // built before
	}
	sandboxtest.Probe(t)
	sandboxtest.BadGuest(t)
	sandboxtest.Guest(t)
	programs.Lock()
	defer programs.Unlock()
	args := []string{"test", "-c", "-tags=" + defence.Tag, "-o", dir + "/"}
	before := len(args)
	for _, p := range pkgs {
		if !slices.Contains(programs.built, p) {
			args = append(args, "choir.dev/choiros/"+besidePath(p))
			programs.built = append(programs.built, p)
		}
	}
	if len(args) == before {
		return dir
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = choirtest.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the tests beside the code: %v\n%s", err, out)
	}
	return dir
}
