package gitstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

func newStore(t *testing.T) (*gitstore.Store, string) {
	t.Helper()
	root := t.TempDir()
	s := gitstore.NewStore(gitstore.StoreOptions{Root: root, Git: "git", Limits: wire.Limits{}.WithDefaults(), Crash: func(string) {}})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, root
}

// randomTree has files, links, executables and empty folders, under names that git quotes, refuses
// and sorts in its own way.
func randomTree(blobs []string, r *rand.Rand) gitstore.Tree {
	names := []string{"a", "a.b", "a0", "a-", "ab", "é", "tab\there", "line\nbreak", `quo"te\`, "x\xff", ".gitattributes", ".git", "z.chunks"}
	tree := gitstore.Tree{}
	for range 25 {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = names[r.IntN(len(names))]
		}
		p := "r/" + strings.Join(parts, "/")
		clash := false
		for q := range tree {
			clash = clash || q == p || strings.HasPrefix(q, p+"/") || strings.HasPrefix(p, q+"/")
		}
		if clash {
			continue
		}
		en := gitstore.Entry{Mode: []wire.Mode{wire.ModeFile, wire.ModeFile, wire.ModeExec, wire.ModeSymlink, wire.ModeEmptyDir}[r.IntN(5)]}
		if en.Mode != wire.ModeEmptyDir {
			en.ID = blobs[r.IntN(len(blobs))]
		}
		tree[p] = en
	}
	return tree
}

// TestDiffIsGits compares what is listed as different with what git lists, and what is read of a
// tree with what was written.
func TestDiffIsGits(t *testing.T) {
	s, root := newStore(t)
	r := rand.New(rand.NewPCG(7, 7))
	var contents []objects.Object
	for i := range 12 {
		contents = append(contents, objects.Object{Kind: "blob", Content: []byte(strings.Repeat("line\n", i/3) + fmt.Sprint(i%3))})
	}
	blobs, err := s.Write(t.Context(), contents)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 15 {
		a, b := randomTree(blobs, r), randomTree(blobs, r)
		for p, en := range a { // much stays as it was
			if r.IntN(2) == 0 {
				continue
			}
			clash := false
			for q := range b {
				clash = clash || q == p || strings.HasPrefix(q, p+"/") || strings.HasPrefix(p, q+"/")
			}
			if !clash {
				b[p] = en
			}
		}
		ids := [2]string{}
		for i, tree := range []gitstore.Tree{a, b} {
			var err error
			if ids[i], err = s.WriteTree(t.Context(), tree); err != nil {
				t.Fatal(err)
			}
			if got, err := s.ReadTree(t.Context(), ids[i], false); err != nil || fmt.Sprint(got) != fmt.Sprint(tree) {
				t.Fatalf("round %d: read\n%v\nwritten\n%v (%v)", round, got, tree, err)
			}
		}
		got, err := s.Diff(t.Context(), ids[0], ids[1], wire.DiffRequest{MaxBytes: -1, Metadata: true})
		if err != nil {
			t.Fatal(err)
		}
		want := gitsDiff(t, root, ids[0], ids[1])
		for _, c := range gitstore.DiffTrees(a, b) {
			i := slices.IndexFunc(got.Changes, func(g wire.Change) bool { return strings.TrimSuffix(string(g.Path), "/") == c.Path })
			if i < 0 {
				t.Errorf("round %d: %q is not listed", round, c.Path)
				continue
			}
			if c.From.IsRegular() && c.To.IsRegular() {
				if counts := fmt.Sprintf("%d %d", got.Changes[i].Added, got.Changes[i].Removed); want[names.Ways(c.Path)[0]] != counts && c.From.Holds() != c.To.Holds() {
					t.Errorf("round %d: %q has %s lines, git says %q", round, c.Path, counts, want[names.Ways(c.Path)[0]])
				}
			}
		}
		if got.More > 0 || len(got.Changes) != len(want) {
			t.Errorf("round %d: %d changes, git lists %d", round, len(got.Changes), len(want))
		}
	}
}

// gitsDiff returns how many lines git counts, by path in the commit.
func gitsDiff(t *testing.T, root, a, b string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "diff-tree", "-r", "-z", "--no-renames", "--numstat", a, b)
	cmd.Dir = filepath.Join(root, ".git")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for f := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if part := strings.SplitN(f, "\t", 3); len(part) == 3 {
			lines[part[2]] = part[0] + " " + part[1]
		}
	}
	return lines
}

// TestAForgedTreeIsDamage shows that an object whose content does not match its name is not read as
// a tree, although git would read it.
func TestAForgedTreeIsDamage(t *testing.T) {
	s, root := newStore(t)
	blob, err := s.Write(t.Context(), []objects.Object{{Kind: "blob", Content: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, name := range []string{"one", "two"} {
		id, err := s.WriteTree(t.Context(), gitstore.Tree{name: {Mode: wire.ModeFile, ID: blob[0]}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	at := func(id string) string { return filepath.Join(root, ".git/objects", id[:2], id[2:]) }
	if err := os.Rename(at(ids[1]), at(ids[0])); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadTree(context.Background(), ids[0], false); !fault.Is(err, fault.Damaged) {
		t.Errorf("a tree under another's name is read: %v", err)
	}
	if _, err := s.ReadTree(context.Background(), ids[1], false); !fault.Is(err, fault.NotFound) {
		t.Errorf("a tree that is gone: %v", err)
	}
}
