package attack_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/test/choirtest"
)

const lastRow = 55 // of the list of attacks

const tableFile = "docs/attacks.md"

// TestTableIsTrue compares docs/attacks.md with the registry: every row of the list is tried, tried
// elsewhere by a test that exists, or not applicable for a reason. `CHOIR_ATTACK_WRITE=1 go test
// ./test/attack -run TestTableIsTrue` writes the page anew.
func TestTableIsTrue(t *testing.T) {
	for _, e := range elsewhere {
		if err := testExists(e.File, e.Test); err != nil {
			t.Errorf("row %d: %v", e.Number, err)
		}
	}
	for _, r := range rows() {
		if len(r.Defences) == 0 || r.Run == nil {
			t.Errorf("row %d, %q: no defence is named for it", r.Number, r.Attack)
		}
		if r.Beside != nil {
			if err := besideExists(*r.Beside); err != nil {
				t.Errorf("row %d: %v", r.Number, err)
			}
		}
		for user, key := range r.NotAs {
			if cannot[key] == "" || user != "root" && user != "user" {
				t.Errorf("row %d, %q: %q as %q is no reason of the list", r.Number, r.Attack, key, user)
			}
		}
	}
	for n := 1; n <= lastRow; n++ {
		if !covered(n) {
			t.Errorf("row %d is nowhere", n)
		}
	}
	path := filepath.Join(choirtest.Root(), tableFile)
	want := page()
	if os.Getenv("CHOIR_ATTACK_WRITE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not what the suite says (%v): run CHOIR_ATTACK_WRITE=1 go test ./test/attack -run TestTableIsTrue", tableFile, err)
	}
}

// besideExists looks for a test in its package.
func besideExists(b besideTest) error {
	name, _, _ := strings.Cut(b.name, "/")
	files, err := filepath.Glob(filepath.Join(choirtest.Root(), b.path(), "*_test.go"))
	for _, f := range files {
		if src, rerr := os.ReadFile(f); rerr == nil && strings.Contains(string(src), "func "+name+"(") {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%s has no test %s", b.path(), name), err)
}

func testExists(file, test string) error {
	src, err := os.ReadFile(filepath.Join(choirtest.Root(), file))
	if err != nil {
		return err
	}
	title := "func " + test + "("
	if !strings.HasSuffix(file, ".go") {
		title = "'" + test + "'"
	}
	if !strings.Contains(string(src), title) {
		return fmt.Errorf("%s has no test %q", file, test)
	}
	return nil
}

// TestEveryDefenceIsTried shows that every defence that code can switch off is in a row of the
// matrix, or is listed with the test that fails without it.
func TestEveryDefenceIsTried(t *testing.T) {
	named, asked := map[string]defence.Name{}, map[string]bool{}
	name := regexp.MustCompile(`(\w+)\s+Name\s*=\s*"([^"]+)"`)
	off := regexp.MustCompile(`defence\.(\w+)`) // used directly, or by its place in a list
	for _, top := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(choirtest.Root(), top), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if filepath.Base(filepath.Dir(path)) == "defence" {
				for _, m := range name.FindAllSubmatch(src, -1) {
					named[string(m[1])] = defence.Name(m[2])
				}
				return nil
			}
			for _, m := range off.FindAllSubmatch(src, -1) {
				asked[string(m[1])] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(asked) < 50 {
		t.Fatalf("only %d defences were found in the code", len(asked))
	}
	tried := map[defence.Name]bool{}
	for _, r := range rows() {
		for _, d := range r.Defences {
			tried[d] = true
		}
	}
	for _, o := range otherDefences {
		if tried[o.Name] {
			t.Errorf("%s is in the matrix and in otherDefences", o.Name)
		}
		tried[o.Name] = true
		if err := testExists(o.File, o.Test); err != nil {
			t.Errorf("%s: %v", o.Name, err)
		}
	}
	can := map[defence.Name]bool{}
	for _, d := range slices.Concat(slices.Collect(maps.Keys(scripts)), slices.Collect(maps.Keys(sources))) { // switched by changing what is served
		can[d] = true
		if !tried[d] {
			t.Errorf("nothing tries %s", d)
		}
	}
	for ident := range asked {
		if named[ident] == "" {
			continue // Off, Name
		}
		can[named[ident]] = true
		if !tried[named[ident]] {
			t.Errorf("nothing tries %s: add a row to the matrix, or name its test in otherDefences", ident)
		}
	}
	for d := range tried {
		if !can[d] {
			t.Errorf("%s stands in the suite, and no code asks for it", d)
		}
	}
}

func covered(n int) bool {
	return slices.ContainsFunc(rows(), func(r Row) bool { return r.Number == n }) ||
		slices.ContainsFunc(elsewhere, func(e Elsewhere) bool { return e.Number == n }) ||
		slices.ContainsFunc(inapplicable, func(i Inapplicable) bool { return i.Number == n })
}

// page returns docs/attacks.md.
func page() string {
	var b strings.Builder
	b.WriteString(`# Attacks

<!-- Written by test/attack (TestTableIsTrue); change the registry there, not this page. -->

` + "`make attack`" + ` tries every row below as root and as an ordinary user, in a build
whose defences can be switched off one by one. With *all* the defences that are
named for a row off, the attack works: so the attempt is a real one. With *only
one* of them on, it is stopped: so each of them suffices. With all on, it is
stopped. Where what stops it is a rule of the control plane, the log, the gateway or
a browser, which asks nothing of the machine's user, an ordinary user is tried *with
all on* where root is tried as well. A row for which any of this is otherwise fails the suite
(` + "`TestMatrix`" + `). What people run has no switches
(` + "`TestReleaseHasNoSwitches`, `TestPagesHaveNoSwitches`" + `).

Rows *in a whole computer* go through ` + "`choir up`" + ` in that build, with its boxes and a
scripted model; those in its desktop through Chromium and the console as well.
Rows *in a browser* go through the real control plane, and a computer is played for
it, where that hides nothing of the defence: what is attacked is what the host
answers to another site's page (20, 24, 28, 48), or the dev server has to be more
hostile than Vite can be made (redirects, 103), or the frame has to have forgotten
what it forbids (22), which the console in the program has not.

## The matrix

| row | attack | defences | all off | each alone | all on | root | user |
|---|---|---|---|---|---|---|---|
`)
	var notes []string
	mark := func(r Row, user string) string {
		key := r.NotAs[user]
		switch {
		case key == "" && user == "user" && r.Alike:
			return "with all on"
		case key == "":
			return "tried"
		}
		i := slices.Index(notes, key)
		if i < 0 {
			i, notes = len(notes), append(notes, key)
		}
		return fmt.Sprintf("can't (%d)", i+1)
	}
	for _, r := range rows() {
		var names []string
		for _, d := range r.Defences {
			names = append(names, "`"+string(d)+"`")
		}
		fmt.Fprintf(&b, "| %d | %s | %s | works | stopped | stopped | %s | %s |\n", r.Number, r.Attack, strings.Join(names, ", "), mark(r, "root"), mark(r, "user"))
	}
	b.WriteString("\n")
	for i, key := range notes {
		fmt.Fprintf(&b, "(%d) %s.\n", i+1, cannot[key])
	}
	b.WriteString("\nWhere a machine has not got what a row takes, the suite says so in the table it\nprints, for one of the reasons in `cannot` (test/attack/registry_test.go); any\nother skip fails.\n")
	b.WriteString("\n## Held by other tests\n\nParts of rows that the matrix does not try, and why.\n\n| row | what | test | why it is not in the matrix |\n|---|---|---|---|\n")
	parts := slices.Clone(elsewhere)
	slices.SortStableFunc(parts, func(a, b Elsewhere) int { return a.Number - b.Number })
	for _, e := range parts {
		fmt.Fprintf(&b, "| %d | %s | %s in `%s` | %s |\n", e.Number, e.What, "`"+e.Test+"`", e.File, e.Why)
	}
	if len(otherDefences) > 0 {
		b.WriteString("\nDefences that no row of the matrix names, and the test that fails without each:\n\n| defence | test |\n|---|---|\n")
	}
	for _, o := range otherDefences {
		fmt.Fprintf(&b, "| `%s` | `%s` in `%s` |\n", o.Name, o.Test, o.File)
	}
	b.WriteString("\n## Nothing to attack\n\n`TestNothingToAttack` fails as soon as one of these reasons no longer holds.\n\n| row | why |\n|---|---|\n")
	for _, i := range inapplicable {
		fmt.Fprintf(&b, "| %d | %s |\n", i.Number, i.Why)
	}
	return b.String()
}
