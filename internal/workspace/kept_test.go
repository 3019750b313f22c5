package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestATaskGoesOnFromAKeptTree shows that an overlay on a kept tree holds what was kept and is compared and
// merged with what the kept tree began from, and that its base shows nothing of what was kept.
func TestATaskGoesOnFromAKeptTree(t *testing.T) {
	h := newHost(t)
	first, err := h.Begin(t.Context(), "task-1", "")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(h.at(first.Upper), "workspace/b"), "half\n")
	kept, err := h.Keep(t.Context(), first, "kept", "", "")
	if err != nil || kept.Paths != 1 {
		t.Fatalf("%+v, %v", kept, err)
	}
	if err := h.Drop(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	h.write("workspace/user", "meanwhile\n")
	o, err := h.BeginFrom(t.Context(), "task-2", first.Base, kept.Commit)
	if err != nil {
		t.Fatal(err)
	}
	has := func(layers []sandbox.Volume) bool {
		_, err := os.Stat(inLayers(h.at, layers, "workspace/b"))
		return err == nil
	}
	if o.Base != first.Base || o.From != kept.Commit || !has(o.Lower) || has(o.BaseLower) {
		t.Fatalf("the overlay is %+v; what was kept is in it: %v, in its base: %v", o, has(o.Lower), has(o.BaseLower))
	}
	write(t, filepath.Join(h.at(o.Upper), "workspace/c"), "the rest\n")
	tree, err := h.Tree(t.Context(), o, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := h.Publish(t.Context(), workspace.PublishRequest{ID: contract.NewID(), Overlay: o, Tree: tree.Commit})
	if err != nil || len(p.Changed) != 2 || len(p.Conflicts) != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	for name, want := range map[string]string{"b": "half\n", "c": "the rest\n", "user": "meanwhile\n", "a": "a\n"} {
		if got := h.live("workspace/" + name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if again, err := h.Keep(t.Context(), o, "kept", "", ""); err != nil || again.Paths != 2 {
		t.Errorf("what is kept of both: %+v, %v", again, err)
	}
}

// TestKeptTreesAreBounded shows that the newest kept trees stay, that an old one goes, and that what does not
// differ is not kept.
func TestKeptTreesAreBounded(t *testing.T) {
	h := newHost(t)
	h.bound = 2
	h.restart()
	keep := func(id, content string) workspace.KeptTree {
		o, err := h.Begin(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		if content != "" {
			write(t, filepath.Join(h.at(o.Upper), "workspace/b"), content)
		}
		k, err := h.Keep(t.Context(), o, "kept", "", "")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	names := func() string {
		list, err := h.KeptTrees(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, k := range list {
			out = append(out, k.Overlay)
		}
		return strings.Join(out, " ")
	}
	for _, id := range []string{"t-1", "t-2", "t-3"} {
		keep(id, id)
	}
	if got := names(); got != "t-3 t-2" {
		t.Errorf("kept: %q", got)
	}
	if k := keep("t-4", ""); k.Commit != "" || names() != "t-3 t-2" {
		t.Errorf("what does not differ: %+v, kept: %q", k, names())
	}
	var reply wire.KeptReply
	if err := wire.NewClient(toServer{h.server}, nil).Call(t.Context(), "kept", wire.KeptRequest{Before: time.Now().Add(time.Hour).Unix(), But: "t-2"}, &reply); err != nil {
		t.Fatal(err)
	}
	if got := names(); got != "t-2" || len(reply.Removed) != 1 || reply.Removed[0] != "t-3" {
		t.Errorf("after the old ones went: %q, %+v", got, reply)
	}
}
