package engine_test

import (
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestWhatGitRefusesCanBePushed shows that names that git reserves for itself, in every case and as
// other file systems spell them, as a file, a link and a folder, are restored exactly and pass the
// check that servers make of a push.
func TestWhatGitRefusesCanBePushed(t *testing.T) {
	names := []string{
		".gitmodules", ".gitattributes", ".gitignore", ".mailmap", ".GitAttributes", ".gitmodules.choir", ".gitattributes.choir", ".git.choir",
		"git~1", "GIT~1", "git~1. .", "gitmod~1", "GI7EBA~1", "gitatt~2", "gi7d29~1", "maba30~1", ".git\u200cmodules", ".g\u200cit", ".git...", ".git \\x", "x\\.git",
		".git:stream", "x\\git~1", ".choir-hex-2e676974", ".choir-hex-", ".gitmodules ", ".gitattributes::$DATA", ".git\xffx", ".mailmap\xff",
	}
	c := open(t)
	for i, name := range names {
		c.write("as/file/"+name, "[submodule \"x\"]\n\tpath = x\n\turl = -u./payload\n")
		c.write("as/folder/"+name+"/inner", name)
		if err := os.MkdirAll(c.path("as/empty/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(c.path("as/link"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("nowhere", c.path("as/link/"+name)); err != nil {
			t.Fatalf("%d %q: %v", i, name, err)
		}
	}
	want := picture(t, c.opts.Root)
	first := c.checkpoint("all of them")
	if len(first.Left) > 0 {
		t.Errorf("left out: %v", first.Left)
	}
	c.fsck()
	for _, name := range names {
		for _, p := range []string{"as/file/" + name, "as/folder/" + name + "/inner", "as/link/" + name} {
			if _, _, err := c.Show(t.Context(), first.Commit.Commit, p, 0, &strings.Builder{}); err != nil {
				t.Errorf("%q is not shown: %v", p, err)
			}
			if _, err := c.Object(t.Context(), wire.ObjectRequest{Path: wire.Path(p)}); err != nil {
				t.Errorf("%q has no object: %v", p, err)
			}
		}
	}
	if err := os.RemoveAll(c.path("as")); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("none of them")
	c.restore(wire.RestoreRequest{ID: "r", To: first.Commit.Commit})
	samePicture(t, picture(t, c.opts.Root), want)
	d, err := c.Diff(t.Context(), wire.DiffRequest{From: first.Commit.Commit, Paths: []wire.Path{"as/link/.gitattributes", "as/file/git~1", "as/empty/.mailmap"}})
	if err != nil || len(d.Changes) != 0 {
		t.Errorf("after it all came back, there differ %+v, %v", d.Changes, err)
	}
}
