package awake_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wall lists functions, among those that a task depends on, that wait by the wall clock, and says
// why their wait may end although choir was stopped meanwhile.
var wall = map[string]string{
	"fleet/sleep.go awake":                   "a request's: who asks has a clock of their own",
	"fleet/places.go Wake":                   "a request's",
	"fleet/remove.go still":                  "a request's",
	"fleet/apart.go History":                 "a request's",
	"computer/upkeep/counter.go CountAsleep": "what is not counted now is when somebody asks",
	"computer/computer.go projectRest":       "what is not projected now is at the next wake",
}

// TestWhatATaskWaitsForIsTimeInWhichItRan shows that the waits on which a task depends, for a box
// or an installation, do not expire because choir was stopped meanwhile.
func TestWhatATaskWaitsForIsTimeInWhichItRan(t *testing.T) {
	found := map[string]string{}
	for _, dir := range []string{"fleet", "computer", "shell", "document", "dispatch", "harness", "associate", "sandbox/local"} {
		err := filepath.WalkDir(filepath.Join("..", filepath.FromSlash(dir)), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			for _, decl := range file.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(fn, func(n ast.Node) bool {
					sel, ok := n.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					if x, ok := sel.X.(*ast.Ident); ok && x.Name == "context" && (strings.HasPrefix(sel.Sel.Name, "WithTimeout") || strings.HasPrefix(sel.Sel.Name, "WithDeadline")) {
						where := strings.TrimPrefix(filepath.ToSlash(name), "../") + " " + fn.Name.Name
						found[where] = fmt.Sprint("context.", sel.Sel.Name)
					}
					return true
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, where := range slices.Sorted(maps.Keys(found)) {
		if wall[where] == "" {
			t.Errorf("%s uses %s: awake has the same in time in which choir ran", where, found[where])
		}
	}
	for where := range wall {
		if found[where] == "" {
			t.Errorf("%s does not wait by the clock of the wall any more", where)
		}
	}
}
