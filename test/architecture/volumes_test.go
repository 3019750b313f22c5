package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// volumeFolders are the folders of a computer's directory in which the local driver keeps what
// boxes see. They are to be read through sandbox.Volumes, or by the keeper.
var volumeFolders = []string{"workspace", "snapshots", "boxes"}

// lookedInto are the files, or folders of files, with code that uses paths of the host into these
// folders, and the reasons. Apart from the driver's and the keeper's, the code is about computers
// that are not awake.
var lookedInto = map[string]string{
	"internal/sandbox/local":        "the driver, which keeps them",
	"internal/sandbox/sandboxtest":  "tests of the driver",
	"internal/datadir/parts.go":     "which parts of a data directory have to be there, before anything is opened",
	"internal/recovery":             "puts right what does not open",
	"internal/fleet/export.go":      "works where nothing else does",
	"internal/computer/computer.go": "moves what tasks left out of the way, unread, before the driver is opened",
}

// pathsOf returns the calls in a file that make a path into such a folder, or use one.
func pathsOf(file *ast.File) []token.Pos {
	var out []token.Pos
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !makesPath(call.Fun) {
			return true
		}
		for _, arg := range call.Args {
			lit, ok := arg.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				continue
			}
			text, err := strconv.Unquote(lit.Value)
			first, _, _ := strings.Cut(text, "/")
			if text == "computers" {
				continue // this is the directory that contains them
			}
			if err == nil && slices.Contains(volumeFolders, first) {
				out = append(out, lit.Pos())
			}
			break // the rest of the path lies in it
		}
		return true
	})
	return out
}

// makesPath reports whether a call may make a path of the host: functions of os and filepath, and
// methods that name a place in a computer's directory.
func makesPath(f ast.Expr) bool {
	sel, ok := f.(*ast.SelectorExpr)
	if !ok {
		id, ok := f.(*ast.Ident)
		return ok && id.Name == "rel"
	}
	of, _ := sel.X.(*ast.Ident)
	return of != nil && (of.Name == "os" || of.Name == "filepath") || slices.Contains([]string{"path", "at", "Path", "Computer", "Mkdir"}, sel.Sel.Name)
}

// TestVolumesAreLookedIntoByTheirDriver shows that no code of the host uses a path into a
// computer's volumes, except what is listed above.
func TestVolumesAreLookedIntoByTheirDriver(t *testing.T) {
	used := map[string]bool{}
	for _, top := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join("../..", top), func(name string, d fs.DirEntry, err error) error {
			rel := strings.TrimPrefix(filepath.ToSlash(name), "../../")
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(rel, "internal/workspace/keeper/") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				return err
			}
			for _, at := range pathsOf(file) {
				allowed := false
				for p := range lookedInto {
					if rel == p || strings.HasPrefix(rel, p+"/") {
						allowed, used[p] = true, true
					}
				}
				if !allowed {
					t.Errorf("%s:%d goes into a volume by a path of the host; ask sandbox.Volumes or the keeper", rel, set.Position(at).Line)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for p := range lookedInto {
		if !used[p] {
			t.Errorf("%s goes into no volume any more: take it off the list", p)
		}
	}
}

// TestPathsIntoVolumesAreSeen shows that the test above would find such code.
func TestPathsIntoVolumesAreSeen(t *testing.T) {
	for text, want := range map[string]int{
		`os.OpenRoot(c.at("workspace"))`:           1,
		`filepath.Join(dir, "workspace/.git")`:     1,
		`os.Lstat("boxes/x")`:                      1,
		`c.path("snapshots", name)`:                1,
		`v.Exists(ctx, sandbox.Live("workspace"))`: 0,
		`filepath.Join("computers", cid, "boxes")`: 1,
		`dir.Path("cache", "boxes")`:               0,
		`fmt.Errorf("workspace")`:                  0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc f() { "+text+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(pathsOf(file)); got != want {
			t.Errorf("%s: %d paths, want %d", text, got, want)
		}
	}
}
