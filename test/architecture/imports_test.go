// Package architecture_test checks that the code is as docs/architecture.md says.
package architecture_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	module = "choir.dev/choiros"
	page   = "../../docs/architecture.md"
	rules  = "## What never imports what"
)

// rule is one row of the page's table.
type rule struct {
	who, but []string
	bounded  bool     // whether most bounds which of our packages may be reached
	most     []string // our packages that may be reached
	never    []string
}

var quoted = regexp.MustCompile("`([^`]+)`")

func patterns(cell string) []string {
	var out []string
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

// readRules reads the table of the page. A row without a rule is an error, because it could not be
// broken.
func readRules(text string) ([]rule, error) {
	_, rest, ok := strings.Cut(text, rules+"\n")
	if !ok {
		return nil, fmt.Errorf("the page has no section %q", rules)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var out []rule
	for _, line := range strings.Split(rest, "\n") {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| who") || strings.HasPrefix(line, "|---") {
			continue
		}
		if len(cells) != 3 {
			return nil, fmt.Errorf("%d cells, not 3: %s", len(cells), line)
		}
		who, but, _ := strings.Cut(cells[0], " but ")
		most := strings.TrimSpace(cells[1])
		r := rule{who: patterns(who), but: patterns(but), bounded: most != "", most: patterns(most), never: patterns(cells[2])}
		if len(r.who) == 0 || r.bounded && len(r.most) == 0 && most != "nothing" || !r.bounded && len(r.never) == 0 {
			return nil, fmt.Errorf("says nothing that can be broken: %s", line)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, errors.New("the table has no rows")
	}
	return out, nil
}

// matches reports whether one of the patterns names a package.
func matches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		all, deep := strings.CutSuffix(p, "/...")
		return pkg == all || deep && strings.HasPrefix(pkg, all+"/")
	})
}

// graph holds the imports of packages, without those of tests. Our packages are named from the
// module's root.
type graph struct {
	imports map[string][]string
	ours    map[string]bool
}

// name returns a package's name in the table, and whether it is ours. The standard library has an
// internal/ too.
func name(pkg string) (name string, ours bool) {
	if name, ok := strings.CutPrefix(pkg, module+"/"); ok {
		return name, true
	}
	if strings.HasPrefix(pkg, "internal/") {
		return "std/" + pkg, false
	}
	return pkg, false
}

func readGraph() (graph, error) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}\t{{.Dir}}\t{{join .Imports \" \"}}", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		return graph{}, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	g := graph{map[string][]string{}, map[string]bool{}}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		f := strings.Split(line, "\t")
		pkg, our := name(f[0])
		g.ours[pkg], g.imports[pkg] = our, nil
		for _, dir := range []string{f[1], filepath.Dir(f[1])} {
			// Reading the directory makes go test depend on it, so that it does not keep an old
			// result.
			if _, err := os.ReadDir(dir); our && err != nil {
				return graph{}, err
			}
		}
		for _, to := range strings.Fields(f[2]) {
			to, _ = name(to)
			g.imports[pkg] = append(g.imports[pkg], to)
		}
	}
	return g, nil
}

// reached returns the packages that a package reaches, each with the one that imports it.
func (g graph) reached(from string) map[string]string {
	by := map[string]string{}
	next := []string{from}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		for _, to := range g.imports[at] {
			if _, seen := by[to]; !seen && to != from {
				by[to] = at
				next = append(next, to)
			}
		}
	}
	return by
}

// way returns the chain of imports by which a package is reached.
func way(by map[string]string, from, to string) string {
	path := []string{to}
	for at := to; at != from; at = by[at] {
		path = append(path, by[at])
	}
	slices.Reverse(path)
	return strings.Join(path, " → ")
}

// broken returns what in a graph is against the rules.
func broken(g graph, rs []rule) []string {
	var out []string
	for _, r := range rs {
		for _, p := range slices.Concat(r.who, r.but, r.most, r.never) {
			found := false
			for pkg := range g.imports {
				found = found || matches([]string{p}, pkg)
			}
			if !found {
				out = append(out, fmt.Sprintf("a rule names %s, which is nothing", p))
			}
		}
		for pkg := range g.imports {
			if !matches(r.who, pkg) || matches(r.but, pkg) {
				continue
			}
			by := g.reached(pkg)
			for to := range by {
				if matches(r.never, to) && !matches(r.never, pkg) || r.bounded && g.ours[to] && !matches(r.most, to) {
					out = append(out, way(by, pkg, to))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestImports(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := readRules(string(b))
	if err != nil {
		t.Fatal(err)
	}
	g, err := readGraph()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken(g, rs) {
		t.Error(b)
	}
}

// TestImportsAreSeen changes a word in each column of the table, and shows that this is noticed.
func TestImportsAreSeen(t *testing.T) {
	const head = rules + "\n\n| who | of ours reaches at most | never reaches |\n|---|---|---|\n"
	g := graph{
		map[string][]string{"contract": {"fmt"}, "internal/a": {"contract", "internal/b"}, "internal/b": {"net/http"}, "fmt": nil, "net/http": {"fmt"}},
		map[string]bool{"contract": true, "internal/a": true, "internal/b": true},
	}
	for row, want := range map[string]string{
		"| `contract` | nothing | `net/http` |":                  "",
		"| `internal/...` | `contract` `internal/b` | |":         "",
		"| `internal/...` but `internal/a` | nothing | |":        "",
		"| `contract` | nothing | `fmt` |":                       "contract → fmt",
		"| `internal/...` | `contract` | |":                      "internal/a → internal/b",
		"| `internal/a` | | `net/http` |":                        "internal/a → internal/b → net/http",
		"| `internal/a` | | `internal/c` |":                      "a rule names internal/c, which is nothing",
		"| `internal/...` but `internal/c/...` | | `net/smtp` |": "a rule names internal/c/..., which is nothing",
	} {
		rs, err := readRules(head + row)
		if err != nil {
			t.Fatal(row, err)
		}
		if got := broken(g, rs); (want == "") != (len(got) == 0) || want != "" && !slices.Contains(got, want) {
			t.Errorf("%s: %q, want %q", row, got, want)
		}
	}
	for _, bad := range []string{"", head, head + "| `contract` | | |", head + "| contract | nothing | |", head + "| `contract` | none | |", head + "| `contract` | nothing |"} {
		if _, err := readRules(bad); err == nil {
			t.Errorf("it was taken for a table: %q", bad)
		}
	}
}
