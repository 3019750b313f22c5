package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

const lastRow = 54 // of the list of attacks

const tableFile = "docs/attacks.md"

// TestTableIsTrue holds docs/attacks.md against the registry: every row of the
// list is tried, tried elsewhere by a test that exists, or not applicable for a
// reason. `CHOIR_ATTACK_WRITE=1 go test ./test/attack -run TestTableIsTrue`
// writes the page anew.
func TestTableIsTrue(t *testing.T) {
	for _, e := range elsewhere {
		src, err := os.ReadFile(filepath.Join(choirtest.Root(), e.File))
		if err != nil {
			t.Errorf("row %d: %v", e.Number, err)
			continue
		}
		title := "func " + e.Test + "("
		if strings.HasSuffix(e.File, ".mjs") {
			title = "'" + e.Test + "'"
		}
		if !strings.Contains(string(src), title) {
			t.Errorf("row %d: %s has no test %q", e.Number, e.File, e.Test)
		}
	}
	for _, r := range rows() {
		if len(r.Defences) == 0 || r.Run == nil {
			t.Errorf("row %d, %q: no defence is named for it", r.Number, r.Attack)
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

func covered(n int) bool {
	return slices.ContainsFunc(rows(), func(r Row) bool { return r.Number == n }) ||
		slices.ContainsFunc(elsewhere, func(e Elsewhere) bool { return e.Number == n }) ||
		slices.ContainsFunc(inapplicable, func(i Inapplicable) bool { return i.Number == n }) ||
		unwritten[n] != ""
}

// page is docs/attacks.md.
func page() string {
	var b strings.Builder
	b.WriteString(`# Attacks

<!-- Written by test/attack (TestTableIsTrue); change the registry there, not this page. -->

` + "`make attack`" + ` tries every row below as root and as an ordinary user, in a build
whose defences can be switched off one by one. With *all* the defences that are
named for a row off, the attack works: so the attempt is a real one. With *only
one* of them on, it is stopped: so each of them suffices. With all on, it is
stopped. A row for which any of this is otherwise fails the suite
(` + "`TestMatrix`" + `). What people run has no switches
(` + "`TestReleaseHasNoSwitches`" + `).

## The matrix

| row | attack | defences | all off | each alone | all on | root | user |
|---|---|---|---|---|---|---|---|
`)
	var notes []string
	mark := func(r Row, user string) string {
		key := r.NotAs[user]
		if key == "" {
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
	b.WriteString("\n## Nothing to attack\n\n| row | why |\n|---|---|\n")
	for _, i := range inapplicable {
		fmt.Fprintf(&b, "| %d | %s |\n", i.Number, i.Why)
	}
	if len(unwritten) > 0 {
		b.WriteString("\n## Not tried\n\nThese apply, and nothing in the suite tries them yet.\n\n| row | what is missing |\n|---|---|\n")
		for n := 1; n <= lastRow; n++ {
			if why := unwritten[n]; why != "" {
				fmt.Fprintf(&b, "| %d | %s |\n", n, why)
			}
		}
	}
	return b.String()
}
