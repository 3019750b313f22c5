package architecture_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// What is larger is hard to read.
const (
	mostFile     = 600  // lines
	mostFunction = 80   // lines
	mostPackage  = 4000 // lines of what is no test
	sizes        = "## What is larger than it should be"
)

// allowed returns what the page allows to be larger, with its lines: a row's first cell names a
// file, a function (file:name) or a package, the second has the lines, and the third links to the
// ADR with the reason.
func allowed(t *testing.T, text string) map[string]int {
	t.Helper()
	out := map[string]int{}
	_, rest, ok := strings.Cut(text, sizes+"\n")
	if !ok {
		t.Fatalf("the page has no section %q", sizes)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9]+) \\| .*\\]\\((adr/[^)]+)\\) \\|$")
	for _, m := range row.FindAllStringSubmatch(rest, -1) {
		if _, err := os.Stat(filepath.Join("../../docs", m[3])); err != nil {
			t.Errorf("%s: its reason is not there: %v", m[1], err)
		}
		out[m[1]], _ = strconv.Atoi(m[2])
	}
	return out
}

// measured returns the lines of each file, function and package that is too large.
func measured(root string) (map[string]int, error) {
	found, packages := map[string]int{}, map[string]int{}
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && p != root) {
			return filepath.SkipDir
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(set, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		lines := set.File(f.FileStart).LineCount()
		if !strings.HasSuffix(p, "_test.go") {
			packages[filepath.Dir(name)] += lines
		}
		if lines > mostFile {
			found[name] = lines
		}
		for _, decl := range f.Decls {
			// Tests may be long, as they tell a story or a table in order: see adr/0208.
			if fn, ok := decl.(*ast.FuncDecl); ok && !strings.HasSuffix(p, "_test.go") {
				if n := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; n > mostFunction {
					found[name+":"+fn.Name.Name] = n
				}
			}
		}
		return nil
	})
	for name, lines := range packages {
		if lines > mostPackage {
			found[name] = lines
		}
	}
	return found, err
}

// TestSizesAreSeen shows that a file, a function and a package that are too large are found.
func TestSizesAreSeen(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, lines int, test bool) {
		text := "package p\n\nfunc " + name + "() {\n" + strings.Repeat("\t_ = 1\n", lines) + "}\n"
		if test {
			name += "_test"
		}
		if err := os.WriteFile(filepath.Join(dir, name+".go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("small", mostFunction-2, false)
	write("long", mostFunction-1, false)
	write("story", mostFile, true)
	for i := range mostPackage / 500 {
		write(fmt.Sprintf("part%d", i), 500, false)
	}
	found, err := measured(dir)
	if err != nil {
		t.Fatal(err)
	}
	if found["long.go:long"] != mostFunction+1 || found["small.go:small"] != 0 || found["story_test.go"] == 0 || found["."] <= mostPackage || found["story_test.go:story"] != 0 {
		t.Errorf("found %v", found)
	}
}

// TestSizes shows that no file, function or package is larger than allowed, and that those with a
// reason on the page do not grow.
func TestSizes(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	known := allowed(t, string(text))
	found, err := measured("../..")
	if err != nil {
		t.Fatal(err)
	}
	var wrong []string
	for what, lines := range found {
		if most, ok := known[what]; !ok || lines > most {
			wrong = append(wrong, fmt.Sprintf("%s has %d lines: cut it where a part has a name of its own", what, lines))
		}
	}
	for what := range known {
		if _, ok := found[what]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s is not too large any more: take it out of the page's table", what))
		}
	}
	sort.Strings(wrong)
	for _, w := range wrong {
		t.Error(w)
	}
}

// TestAComputerIsWiring bounds the package that makes one awake computer of its parts, which are in
// the packages below it.
func TestAComputerIsWiring(t *testing.T) {
	files, err := filepath.Glob("../../internal/computer/*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(text), "\n")
	}
	if lines == 0 || lines >= 800 {
		t.Errorf("internal/computer has %d lines; it wires, in fewer than 800", lines)
	}
}

// mostBytes is the largest size of a file in the repository, since every clone has it forever.
const mostBytes = 2 << 20

// TestNoLargeFileIsKept shows that no program that was built beside its source is committed.
func TestNoLargeFileIsKept(t *testing.T) {
	if _, err := os.Stat("../../.git"); err != nil {
		t.Skip("this is no clone")
	}
	list, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		st, err := os.Lstat(filepath.Join("../..", name))
		if err != nil {
			continue // the removal is not committed yet
		}
		if st.Size() > mostBytes {
			t.Errorf("%s has %d bytes; at most %d are kept", name, st.Size(), mostBytes)
		}
	}
}
