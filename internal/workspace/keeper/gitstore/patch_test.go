package gitstore_test

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestAPatchIsTheTree shows over random pairs of trees that the folders that differ say the same as
// the whole trees do, and that the tree that they make of the other one is equal to it.
func TestAPatchIsTheTree(t *testing.T) {
	s, _ := newStore(t)
	ctx := t.Context()
	ids, err := s.Write(ctx, []objects.Object{{Kind: "blob", Content: []byte("a")}, {Kind: "blob", Content: []byte("b")}})
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	write := func(tree gitstore.Tree) string {
		t.Helper()
		id, err := s.WriteTree(ctx, tree)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for range 60 {
		a := randomTree(ids, r)
		b := randomTree(ids, r)
		if r.IntN(3) > 0 { // most of it stays as it was
			for p := range b {
				if r.IntN(4) > 0 {
					delete(b, p)
				}
			}
			for p, en := range a {
				clash := r.IntN(6) == 0
				for q := range b {
					clash = clash || q == p || strings.HasPrefix(q, p+"/") || strings.HasPrefix(p, q+"/")
				}
				if !clash {
					b[p] = en
				}
			}
		}
		if p := "r/large"; r.IntN(2) == 0 {
			b[p] = gitstore.Entry{Mode: wire.ModeFile, ID: ids[0], Chunked: r.IntN(2) == 0}
			a[p] = gitstore.Entry{Mode: wire.ModeFile, ID: ids[0], Chunked: r.IntN(2) == 0}
		}
		from, to := write(a), write(b)
		changes, err := s.Differences(ctx, from, to)
		if err != nil {
			t.Fatal(err)
		}
		if want := gitstore.DiffTrees(a, b); len(want)+len(changes) > 0 && !reflect.DeepEqual(changes, want) {
			t.Fatalf("differences are\n%v\nwant\n%v", changes, want)
		}
		if got, err := s.Patch(ctx, from, changes); err != nil || got != to {
			t.Fatalf("the patch is %s, %v; want %s of %v by %v", got, err, to, maps.Clone(a), changes)
		}
		l := s.Lazy(ctx, from)
		for p, en := range a {
			if got := l.At(p); got != en || l.Folder(p) {
				t.Fatalf("at %q is %v; want %v", p, got, en)
			}
		}
		for d := range gitstore.Directories(a) {
			n := 0
			l.Each(d, func(string) bool { n++; return true })
			want := 0
			for p := range a {
				if strings.HasPrefix(p, d+"/") {
					want++
				}
			}
			if !l.Folder(d) || n != want || l.At(d).Exists() {
				t.Fatalf("folder %q has %d paths; want %d", d, n, want)
			}
		}
		if l.At("r/nowhere/x").Exists() || l.Folder("r/nowhere") || l.Err() != nil {
			t.Fatalf("something is nowhere: %v", l.Err())
		}
	}
}
