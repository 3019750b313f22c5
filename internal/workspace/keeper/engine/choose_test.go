package engine_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

func (k *task) hunks() wire.HunksReply {
	k.c.t.Helper()
	r, err := k.c.Hunks(k.c.t.Context(), wire.HunksRequest{Base: k.base, Tree: k.tree().Commit})
	if err != nil {
		k.c.t.Fatal(err)
	}
	return r
}

func (k *task) choose(only ...wire.Choice) (wire.TreeReply, error) {
	return k.c.Choose(k.c.t.Context(), wire.ChooseRequest{ID: k.id, Base: k.base, Tree: k.tree().Commit, Only: only})
}

func (c *computer) in(commit, p string) string {
	c.t.Helper()
	var b strings.Builder
	if _, _, err := c.Show(c.ctx(), commit, p, -1, &b); err != nil {
		return "error: " + string(fault.CodeOf(err))
	}
	return b.String()
}

// What a person chose of a task's work is in the tree, and nothing else of it.
func TestOnlyWhatWasChosenIsInTheTree(t *testing.T) {
	c := open(t)
	var long strings.Builder
	for i := range 40 {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	c.write("workspace/long.txt", long.String())
	c.write("workspace/gone.txt", "x\n")
	c.write("workspace/bin", "a\x00b")
	c.write("workspace/type", "a file\n")
	k := c.begin("t1")
	k.write("workspace/long.txt", strings.ReplaceAll(strings.ReplaceAll(long.String(), "line 3\n", "THREE\n"), "line 30\n", "THIRTY"))
	k.write("workspace/new/a.txt", "a\n")
	k.write("workspace/new/b.txt", "b\n")
	k.write("workspace/bin", "a\x00c")
	k.write("workspace/type/inside", "now a directory\n")
	k.whiteout("workspace/gone.txt")

	found := k.hunks()
	var got []string
	ids := map[string][]string{}
	for _, f := range found.Files {
		got = append(got, fmt.Sprintf("%s %s %s %d", f.Path, f.Op, f.Plain, len(f.Hunks)))
		for _, h := range f.Hunks {
			ids[string(f.Path)] = append(ids[string(f.Path)], h.ID)
		}
	}
	want := []string{"workspace/bin modified binary 0", "workspace/gone.txt deleted  1", "workspace/long.txt modified  2", "workspace/new/a.txt added  1", "workspace/new/b.txt added  1",
		"workspace/type deleted  1", "workspace/type/inside added  1"}
	if !slices.Equal(got, want) {
		t.Fatalf("the changes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	second := found.Files[2].Hunks[1]
	if second.Old != 28 || !strings.Contains(second.Text, "-line 30\n+THIRTYline 31\n") && !strings.Contains(second.Text, "+THIRTY") {
		t.Errorf("the second hunk is %+v", second)
	}
	tree, err := k.choose(wire.Choice{Path: "workspace/long.txt", Hunks: ids["workspace/long.txt"][1:]}, wire.Choice{Path: "workspace/new/b.txt"}, wire.Choice{Path: "workspace/gone.txt"})
	if err != nil {
		t.Fatal(err)
	}
	for p, content := range map[string]string{
		"workspace/long.txt": strings.ReplaceAll(long.String(), "line 30\n", "THIRTY"), "workspace/new/b.txt": "b\n", "workspace/bin": "a\x00b", "workspace/type": "a file\n",
		"workspace/new/a.txt": "error: not_found", "workspace/gone.txt": "error: not_found",
	} {
		if is := c.in(tree.Commit, p); is != content {
			t.Errorf("%s is %q, want %q", p, is, content)
		}
	}
	if len(tree.Changes) != 3 {
		t.Errorf("it says that it changes %+v", tree.Changes)
	}
	for name, only := range map[string][]wire.Choice{
		"nothing":              {},
		"another path":         {{Path: "workspace/other"}},
		"another hunk":         {{Path: "workspace/long.txt", Hunks: []string{"0123456789abcdef"}}},
		"a hunk of a folder":   {{Path: "workspace/new", Hunks: ids["workspace/new/a.txt"]}},
		"a hunk of a binary":   {{Path: "workspace/bin", Hunks: []string{"0123456789abcdef"}}},
		"twice":                {{Path: "workspace/new"}, {Path: "workspace/new/a.txt"}},
		"half of another type": {{Path: "workspace/type/inside"}},
		"outside":              {{Path: "../x"}},
	} {
		if r, err := k.choose(only...); err == nil {
			t.Errorf("%s was chosen: %+v", name, r.Changes)
		}
	}
	if r, err := k.choose(wire.Choice{Path: "workspace/type"}); err == nil {
		t.Errorf("a file was taken away without what is in its place: %+v", r.Changes)
	}
	if r, err := k.choose(wire.Choice{Path: "workspace/type"}, wire.Choice{Path: "workspace/type/inside"}); err != nil || c.in(r.Commit, "workspace/type/inside") != "now a directory\n" {
		t.Errorf("the new folder was not chosen whole: %+v, %v", r, err)
	}
}

// A folder that was empty is none any more where one of the new files is taken, and only that one is there; what
// was shown stays whole beside what was chosen of it.
func TestAnEmptyFolderIsFilledByWhatIsTaken(t *testing.T) {
	c := open(t)
	c.write("workspace/x", "x\n")
	if err := os.MkdirAll(c.path("workspace/docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := c.begin("t1")
	k.write("workspace/docs/wanted", "yes\n")
	k.write("workspace/docs/secret", "no\n")
	var got []string
	for _, f := range k.hunks().Files {
		got = append(got, string(f.Path))
	}
	if !slices.Equal(got, []string{"workspace/docs/secret", "workspace/docs/wanted"}) {
		t.Fatalf("the changes are %q", got)
	}
	work := k.tree().Commit
	r, err := c.Choose(t.Context(), wire.ChooseRequest{ID: k.id, Base: k.base, Tree: work, Only: []wire.Choice{{Path: "workspace/docs/wanted"}}})
	if err != nil || c.in(r.Commit, "workspace/docs/wanted") != "yes\n" || c.in(r.Commit, "workspace/docs/secret") != "error: not_found" {
		t.Fatalf("%+v, %v", r, err)
	}
	refs, err := exec.Command("git", "--git-dir", c.path(".git"), "for-each-ref", "--format=%(objectname)", "refs/choir/task").Output()
	if err != nil || !strings.Contains(string(refs), work) || !strings.Contains(string(refs), r.Commit) {
		t.Errorf("the refs of the task name %s, %v; want %s and %s", refs, err, work, r.Commit)
	}
}

// All hunks of a file make what the task made of it, none what it was, and each of the others
// stays the same wherever some are left out.
func TestHunksMakeWhatTheySay(t *testing.T) {
	c := open(t)
	c.write("workspace/f", "")
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n", "d\r\n", "@@ -1 +1 @@\n", "\\ No newline at end of file\n", "-x\n"}), 0, 60)
	end := rapid.SampledFrom([]string{"", "last"})
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		was := strings.Join(lines.Draw(r, "was"), "") + end.Draw(r, "end")
		is := strings.Join(lines.Draw(r, "is"), "") + end.Draw(r, "new end")
		n++
		c.write("workspace/f", was)
		k := c.begin(fmt.Sprintf("t%d", n))
		k.write("workspace/f", is)
		defer os.RemoveAll(k.path("."))
		files := k.hunks().Files
		if was == is {
			if len(files) > 0 {
				r.Fatalf("nothing was changed, and %+v is listed", files)
			}
			return
		}
		hunks := files[0].Hunks
		chosen := make([]bool, len(hunks))
		var ids []string
		for i, h := range hunks {
			if chosen[i] = rapid.Bool().Draw(r, "chosen"); chosen[i] {
				ids = append(ids, h.ID)
			}
		}
		if len(ids) == 0 {
			return
		}
		tree, err := k.choose(wire.Choice{Path: "workspace/f", Hunks: ids})
		if err != nil {
			r.Fatal(err)
		}
		// What the hunks themselves say, line by line.
		var want strings.Builder
		old, at := strings.SplitAfter(was, "\n"), 0
		for i, h := range hunks {
			from := h.Old - 1
			if h.OldLines == 0 {
				from = h.Old
			}
			want.WriteString(strings.Join(old[at:from], ""))
			at = from + h.OldLines
			if chosen[i] {
				begin := h.New - 1
				if h.NewLines == 0 {
					begin = h.New
				}
				want.WriteString(strings.Join(strings.SplitAfter(is, "\n")[begin:begin+h.NewLines], ""))
			} else {
				want.WriteString(strings.Join(old[from:at], ""))
			}
		}
		want.WriteString(strings.Join(old[at:], ""))
		if len(ids) == len(hunks) && want.String() != is {
			r.Fatalf("the hunks do not say what was changed: %q, want %q", want.String(), is)
		}
		if got := c.in(tree.Commit, "workspace/f"); got != want.String() {
			r.Fatalf("%q became %q of %q, want %q", was, got, is, want.String())
		}
	})
}
