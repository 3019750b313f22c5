package boxes

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"choir.dev/choiros/test/choirtest"
)

// TestEveryBoxThatCanWriteIsAWriter shows that a box's mounts decide whether it counts as a writer,
// whatever its kind, and that every way to write to the live tree counts.
func TestEveryBoxThatCanWriteIsAWriter(t *testing.T) {
	live, above := sandbox.Live("workspace/p"), sandbox.Written("t-1")
	for _, kind := range contract.BoxKinds {
		for what, m := range map[string]sandbox.Mount{
			"all of it":                  {Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite},
			"a part":                     {Source: live, Target: "/computer", Mode: sandbox.ReadWrite},
			"in a way that is not known": {Source: live, Target: "/computer", Mode: "shared"},
			"as an upper":                {Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{live}, Upper: live},
		} {
			var w writers
			before := w.still()
			ended := w.begin(sandbox.BoxSpec{Kind: kind, Mounts: []sandbox.Mount{{Source: above, Target: "/x", Mode: sandbox.ReadOnly}, m}})
			if kind == contract.BoxKeeper {
				if w.still() != before {
					t.Error("the keeper, which knows what it does, counts as somebody else")
				}
				continue
			}
			want := ""
			if m.Mode == sandbox.ReadWrite {
				want = wire.WritersWatched
			}
			if got := w.still(); got != want {
				t.Errorf("beside a box of kind %s with %s it says %q, want %q", kind, what, got, want)
			}
			also := w.begin(sandbox.BoxSpec{ID: "also", Kind: contract.BoxTerminal, Mounts: []sandbox.Mount{{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}}})
			ended()
			if got := w.still(); got != want {
				t.Errorf("after a box of kind %s with %s, beside a terminal that was there then, it says %q, want %q", kind, what, got, want)
			}
			also()
			ended()
			ended()
			if after := w.still(); after == "" || after == before {
				t.Errorf("after a writer ended it is as still as before: %q, %q", before, after)
			}
		}
		for what, m := range map[string]sandbox.Mount{
			"read-only": {Source: live, Target: "/computer", Mode: sandbox.ReadOnly},
			"a lower":   {Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{live}, Upper: above},
			"another":   {Source: sandbox.Output("o"), Target: "/out", Mode: sandbox.ReadWrite},
		} {
			var w writers
			before := w.still()
			w.begin(sandbox.BoxSpec{Kind: kind, Mounts: []sandbox.Mount{m}})
			if w.still() != before {
				t.Errorf("a box of kind %s with %s counts as one that writes", kind, what)
			}
		}
	}
}

// TestTwoWritersAreTwo shows that the tree does not count as still while one of two writers is
// left.
func TestTwoWritersAreTwo(t *testing.T) {
	var w writers
	spec := sandbox.BoxSpec{ID: "one", Kind: contract.BoxTerminal, Mounts: []sandbox.Mount{{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}}}
	second := spec
	second.ID = "two"
	one, two := w.begin(spec), w.begin(second)
	one()
	if w.still() != wire.WritersWatched {
		t.Error("still, while a terminal is open")
	}
	two()
	var other writers
	if w.still() == "" || w.still() == other.still() {
		t.Error("two wakings name the same stillness")
	}
}

// TestBoxesAreOpenedInOnePlace shows that only Boxes.Open, which registers who can write, opens
// boxes on a driver.
func TestBoxesAreOpenedInOnePlace(t *testing.T) {
	root := choirtest.Root()
	for _, pattern := range []string{"internal/*/*.go", "internal/*/*/*.go", "cmd/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "sandboxtest") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || method.Sel.Name != "Box" || len(call.Args) != 2 {
					return true
				}
				// The shell's options contain Boxes.Open itself.
				if of, ok := method.X.(*ast.SelectorExpr); ok && of.Sel.Name == "opts" {
					return true
				}
				if rel, _ := filepath.Rel(root, file); rel != "internal/computer/boxes/boxes.go" {
					t.Errorf("%s opens a box", rel)
				}
				return true
			})
		}
	}
}

// TestABoxThatRestsDoesNotWrite shows that a terminal's box that waits for its user's next command
// does not count as a writer, and counts as one as soon as something runs in it.
func TestABoxThatRestsDoesNotWrite(t *testing.T) {
	var w writers
	spec := sandbox.BoxSpec{ID: "one", Kind: contract.BoxTerminal, Mounts: []sandbox.Mount{{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}}}
	before := w.still()
	ended := w.begin(spec)
	w.rest("one")
	first := w.still()
	if first == "" || first == before {
		t.Errorf("at rest: %q, before it was there: %q", first, before)
	}
	w.work("one")
	if w.still() != wire.WritersWatched {
		t.Error("still, while a command runs in a box that was kept")
	}
	w.rest("one")
	if again := w.still(); again == "" || again == first {
		t.Errorf("at rest again: %q, the first time: %q", again, first)
	}
	other := spec
	other.ID = "two"
	w.begin(other)
	if w.still() != wire.WritersWatched {
		t.Error("still, while another box has a command")
	}
	w.rest("two")
	w.begin(other) // registered twice, as a box is that could not be ended
	w.rest("two")
	if w.still() != wire.WritersWatched {
		t.Error("of two boxes of one name nobody knows which one rests")
	}
	ended()
	w.work("one")
	w.rest("one")
	if _, there := w.open["one"]; there {
		t.Error("a box that has ended is one that works or rests")
	}
}
