package architecture_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNothingIsLeftToNobody shows that the tests that make test leaves out exist, that make proofs
// runs them by the same names, and that CI runs make test, attacks, kills, and each part of make
// proofs, which includes damage, in its turn.
func TestNothingIsLeftToNobody(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	makefile, ci := read("Makefile"), read(".ci/run")
	value := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindStringSubmatch(makefile)
		if m == nil {
			t.Fatalf("the Makefile has no %s", name)
		}
		return m[1]
	}
	recipe := func(target string) string {
		m := regexp.MustCompile(`(?m)^` + target + `:.*\n((?:\t.*\n)+)`).FindStringSubmatch(makefile)
		if m == nil {
			t.Fatalf("the Makefile has no %s", target)
		}
		return m[1]
	}
	var whole strings.Builder
	files, err := filepath.Glob("../../test/e2e/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	evaluations, err := filepath.Glob("../../eval/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, evaluations...)
	faults, err := filepath.Glob("../../internal/gateway/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, faults...)
	for _, of := range []string{"workspace/keeper/engine", "dispatch"} {
		more, err := filepath.Glob("../../internal/" + of + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, f := range files {
		whole.WriteString(read(strings.TrimPrefix(f, "../../")))
	}
	tests := regexp.MustCompile(`Test\w+`).FindAllString(value("PROOFS")+value("FILE_PROOFS")+value("KEEPER_PROOFS")+value("ITSELF"), -1)
	for _, name := range tests {
		if !strings.Contains(whole.String(), "func "+name+"(") {
			t.Errorf("make proofs is to run %s, which is no test of test/e2e, eval, internal/gateway, internal/dispatch or the keeper's engine", name)
		}
	}
	pages := strings.Fields(value("PROOF_PAGES"))
	for _, name := range pages {
		if _, err := os.Stat(filepath.Join("../../test/browser", name)); err != nil {
			t.Errorf("make proofs is to run %s: %v", name, err)
		}
	}
	if len(tests) == 0 || len(pages) == 0 {
		t.Error("nothing is left out: take make proofs away")
	}
	for target, wants := range map[string][]string{
		"test-go":          {"-skip '$(PROOFS)|$(FILE_PROOFS)|$(KEEPER_PROOFS)|$(ITSELF)'", " ./internal/... ", " ./test/... ", "/test/(damage|chaos)$$"},
		"test-browser":     {"$(filter-out $(PROOF_PAGES),"},
		"proofs-computers": {"-run '$(PROOFS)' ./test/e2e ./eval ./internal/gateway"},
		"proofs-files":     {"-run '$(FILE_PROOFS)' ./test/e2e"},
		"proofs-keeper":    {"-run '$(KEEPER_PROOFS)' ./internal/workspace/keeper/engine ./internal/dispatch", " ./test/chaos"},
		"proofs-pages":     {" $(PROOF_PAGES)", "$(MAKE) --no-print-directory damage"},
		"proofs-itself":    {"-run '$(ITSELF)' -v ./test/e2e"},
		"damage":           {" ./test/damage"},
		"kills":            {"'^TestRandomKills$$'", " ./test/chaos", "'^TestALongTaskSurvivesKills$$' -v ./test/e2e"},
	} {
		for _, want := range wants {
			if !strings.Contains(recipe(target), want) {
				t.Errorf("make %s does not say %s any more", target, want)
			}
		}
	}
	if !strings.Contains(makefile, "\nproofs: proofs-computers proofs-files proofs-keeper proofs-pages proofs-itself\n") {
		t.Error("make proofs does not run all of its parts any more")
	}
	for _, want := range []string{"parts=(computers files keeper pages itself)\n", "stage make test\n", "stage make attack\n", "stage make kills CHAOS=5m\n", "stage make \"proofs-$part\"\n"} {
		if !strings.Contains(ci, want) {
			t.Errorf(".ci/run does not run %s", want)
		}
	}
}
