package workspace_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/workspace"
)

// TestNamesTellWhatReadingTheTreesWould shows that for plain paths the names in a commit say which kind of
// project the files belong to just as the files themselves do, and that no answer is given from
// names where the files could say more.
func TestNamesTellWhatReadingTheTreesWould(t *testing.T) {
	h := newHost(t)
	live := filepath.Join(h.dir, "workspace")
	for p, text := range map[string]string{
		"workspace/notes/a.txt": "a\n", "workspace/notes/deep/b.md": "b\n", "workspace/notes/c.sh": "true\n",
		"workspace/go/go.mod": "module m\n", "workspace/go/in/read.me": "r\n", "workspace/make/Makefile/x.txt": "a folder of that name\n",
		"workspace/tests/d.txt": "d\n", "workspace/repo/HEAD": "h\n", "workspace/hooks/x": "x\n", "workspace/package.json.choir": "{}\n",
	} {
		h.write(p, text)
	}
	if err := os.Mkdir(filepath.Join(live, "workspace/empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.txt", filepath.Join(live, "workspace/notes/link.txt")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("notes", filepath.Join(live, "workspace/to")); err != nil {
		t.Fatal(err)
	}
	k, err := h.Checkpoint(t.Context(), workspace.CheckpointRequest{Kind: contract.CheckpointManual, Message: "all"})
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(live)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	told := 0
	for paths, tells := range map[string]bool{
		"workspace/notes/a.txt": true, "workspace/notes/a.txt workspace/notes/deep/b.md workspace/notes/gone": true, "workspace/gone/too": true, "a": true,
		"workspace/notes/c.sh": false, "workspace/go/in/read.me": false, "workspace/go/new": false, "workspace/notes/a.txt workspace/go/new": false,
		"workspace/make/Makefile/x.txt": false, "workspace/make/y": false, "workspace/notes/link.txt": false, "workspace/to/a.txt": false, "workspace/notes": false,
		"workspace/tests/d.txt": false, "workspace/repo/HEAD": false, "workspace/hooks/x": false, "workspace/notes/.git/config": false, "choiros/app.tsx": true,
		contract.ThemePath: false, "workspace/notes/a.txt/": true,
		"workspace/ workspace/notes/new": true, "workspace/gone/": true, "workspace/empty/ a": true, "workspace/go/empty/": false, "workspace/to/": false, "workspace/make/Makefile/": false,
		"workspace/repo/HEAD/": false, "workspace/notes//": false, "/": false, "workspace/../": false,
	} {
		list := strings.Fields(paths)
		names, ok := verify.Plain(list)
		var there [][]bool
		if ok {
			if there, err = h.Contains(t.Context(), []string{k.Commit, k.Commit}, list, names); err != nil {
				t.Fatal(err)
			}
		}
		if (there != nil) != tells {
			t.Errorf("names tell all of %q: %v, %v", paths, ok, there)
		}
		if there == nil {
			continue
		}
		told++
		want, err := verify.Gather(root, list)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range there {
			if got := verify.Loose(list, got); !reflect.DeepEqual(got, want) {
				t.Errorf("of %q names tell %+v, the facts %+v", paths, got, want)
			}
		}
	}
	if told == 0 {
		t.Error("nothing was told by names alone")
	}
	if there, err := h.Contains(t.Context(), []string{strings.Repeat("1", 40)}, []string{"a"}, nil); err == nil {
		t.Errorf("a commit that is not there says %v", there)
	}
	if there, err := h.Contains(t.Context(), []string{k.Commit}, make([]string, 65), nil); err != nil || there != nil {
		t.Errorf("of 65 paths it says %v, %v", there, err)
	}
}
