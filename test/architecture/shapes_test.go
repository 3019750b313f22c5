package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shapesPage names every struct that stands for one of the nouns, and says why.
const shapesPage = "../../docs/adr/0230-three-shapes-of-a-noun.md"

// fieldsOf are the fields by which structs of a noun are recognised, whatever their names: a struct
// with four of them stands for the noun.
var fieldsOf = map[string][]string{
	"checkpoint": {"Parent", "Tree", "Message", "Verified", "Files", "Skipped", "Left", "Ignored", "Outside"},
	"run":        {"Prompt", "Objective", "Plan", "Summary", "Verified", "Provider", "Model", "Usage", "Report", "Questions", "Status", "Document", "Checkpoint", "Tasks"},
	"task":       {"Goal", "Attempt", "Verification", "Summary", "Result", "Head", "Kind", "Status"},
	"document":   {"Document", "Title", "Path", "Revision", "Author", "SHA256", "Body"},
	"proposal":   {"Proposal", "Document", "Base", "Author", "SHA256", "Body", "Successor", "Resolved"},
	"file":       {"Path", "Kind", "Size", "Mode", "Modified", "Target", "Unkept", "Beneath"},
	"publish":    {"Publish", "Commit", "Base", "Live", "Paths", "Conflicts", "Inverted"},
}

var (
	nounPattern   = regexp.MustCompile(`(?:^|[a-z0-9])(Checkpoint|Checkpoints|Checkpointed|Commit|Run|Runs|Task|Tasks|Document|Documents|Revision|Revisions|Proposal|Proposals|File|Files|Entry|Publish|Published)(?:[A-Z0-9]|$)`)
	scriptPattern = regexp.MustCompile(`(?m)^(?:export )?(?:interface (\w+)|type (\w+) = (?:\{|Omit<|Pick<|Partial<|\w+ & ))`)
	shapePattern  = regexp.MustCompile("`([a-z0-9/]+\\.[A-Za-z]\\w*)`")
)

// named reports whether a type is named after a noun.
func named(name string) bool {
	return nounPattern.MatchString(strings.ToUpper(name[:1]) + name[1:])
}

// shaped reports whether a struct has the fields of a noun.
func shaped(s *ast.StructType) bool {
	have := map[string]bool{}
	for _, f := range s.Fields.List {
		for _, n := range f.Names {
			have[n.Name] = true
		}
	}
	for _, fields := range fieldsOf {
		n := 0
		for _, f := range fields {
			if have[f] {
				n++
			}
		}
		if n >= 4 {
			return true
		}
	}
	return false
}

// shapes returns the structs of the product that stand for a noun, as package.Type.
func shapes(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	walk := func(root string, ends []string, each func(path string)) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				if d != nil && d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules") {
					return filepath.SkipDir
				}
				return err
			}
			if slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(path, end) }) {
				each(path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, root := range []string{"contract", "internal", "cmd", "bench", "console", "desktop"} {
		walk(filepath.Join("../..", root), []string{".go"}, func(path string) {
			if strings.HasSuffix(path, "_test.go") {
				return
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			pkg := filepath.Base(filepath.Dir(path))
			ast.Inspect(file, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok {
					if s, ok := spec.Type.(*ast.StructType); ok && (named(spec.Name.Name) || shaped(s)) {
						out[pkg+"."+spec.Name.Name] = true
					}
				}
				return true
			})
		})
	}
	// Files that are generated from the contract and the methods repeat these structs.
	generated := []string{"desktop/src/contract/contract.ts", "desktop/src/link/services.ts"}
	walk("../../desktop/src", []string{".ts", ".tsx"}, func(path string) {
		if slices.ContainsFunc(generated, func(g string) bool { return strings.HasSuffix(filepath.ToSlash(path), g) }) {
			return
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range scriptPattern.FindAllStringSubmatch(string(b), -1) {
			if name := m[1] + m[2]; named(name) || slices.ContainsFunc([]string{"RunView", "DocumentView"}, func(n string) bool { return n == name }) {
				out["desktop/"+filepath.Base(filepath.Dir(path))+"."+name] = true
			}
		}
	})
	return out
}

// TestShapes shows that each noun is stored, projected and shown in one form each, and that every
// other struct that stands for it is on the page with a reason, so that none is added unnoticed.
func TestShapes(t *testing.T) {
	b, err := os.ReadFile(shapesPage)
	if err != nil {
		t.Fatal(err)
	}
	listed, rows := map[string]bool{}, 0
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 2 {
			continue
		}
		rows++
		if len(cells) == 4 { // noun, stored, projected, shown
			for i, packages := range [][]string{1: {"contract."}, 2: {"state.", "run."}, 3: {"view."}} {
				for _, m := range shapePattern.FindAllStringSubmatch(cells[i], -1) {
					if !slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(m[1], p) }) {
						t.Errorf("%s is in a column of %v", m[1], packages)
					}
				}
			}
		} else if len(strings.TrimSpace(cells[len(cells)-1])) < 20 && !strings.Contains(cells[0], "---") && strings.TrimSpace(cells[0]) != "shape" {
			t.Errorf("no reason stands beside %s", cells[0])
		}
		for _, m := range shapePattern.FindAllStringSubmatch(line, -1) {
			if listed[m[1]] {
				t.Errorf("%s stands there twice", m[1])
			}
			listed[m[1]] = true
		}
	}
	found := shapes(t)
	if rows < 10 || len(found) < 40 {
		t.Fatalf("%d rows and %d structs: the page or the code is not where it was", rows, len(found))
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !listed[name] {
			t.Errorf("%s stands for a noun that has its three shapes: use one of them, or embed it; %s says what else there is, and why", name, filepath.Base(shapesPage))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !found[name] {
			t.Errorf("there is no %s any more, which %s names", name, filepath.Base(shapesPage))
		}
	}
}
