package gitstore_test

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// files returns an object for each content; the last that is given for one stays.
func files(t *testing.T, s *gitstore.Store, contents [][]string) []objects.Object {
	out := make([]objects.Object, len(contents))
	entries := make([]gitstore.Entry, len(contents))
	for i, reads := range contents {
		out[i] = s.ContentObject(t.Context(), &entries[i], new(error), func() (io.ReadCloser, disk.Stat, error) {
			now := reads[0]
			if len(reads) > 1 {
				reads = reads[1:]
			}
			if now == "gone" {
				return nil, disk.Stat{}, disk.ErrGone
			}
			return io.NopCloser(strings.NewReader(now)), disk.Stat{Mode: unix.S_IFREG | 0o644, Size: int64(len(now))}, nil
		})
	}
	return out
}

// TestAPackHasEachObjectOnce shows that of files with the same content, a pack has one: git takes a
// pack that has an object twice, and then says of its index of packs that it is damaged.
func TestAPackHasEachObjectOnce(t *testing.T) {
	large := strings.Repeat("large", 300_000)
	changed := "L" + large[1:]
	chunked := strings.Repeat("chunk", 500_000)
	for name, odd := range map[string][][]string{
		"empty":                         {{""}, {""}, {""}},
		"small":                         {{"same"}, {"same"}},
		"large":                         {{large}, {changed}, {large}, {large}},
		"in chunks":                     {{chunked}, {chunked}},
		"gone":                          {{"gone"}, {"gone"}, {""}},
		"gone when it is written":       {{"was", "gone"}, {"was"}, {"is"}},
		"changed to what another is":    {{"1"}, {"2", "1"}},
		"changed and was what it wrote": {{"1", "2"}, {"1"}},
		"goes on to change":             {{"1"}, {"2", "1", "2", "1", "2", "1", "1"}},
		"large and changed":             {{large}, {large + "!", large}},
		"large and shrunk":              {{large}, {large + "!", "1"}, {"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			limits := wire.Limits{FileBytes: 2 << 20}.WithDefaults()
			s := gitstore.NewStore(gitstore.StoreOptions{Root: root, Git: "git", Limits: limits, Crash: func(string) {}})
			if _, err := s.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			contents := odd
			for i := range 60 {
				contents = append(contents, []string{fmt.Sprint("file ", i)})
			}
			ids, err := s.Write(t.Context(), files(t, s, contents))
			if err != nil {
				t.Fatal(err)
			}
			for i, id := range ids {
				want := contents[i][len(contents[i])-1]
				if (id == "") != (want == "gone") {
					t.Errorf("file %d has the id %q", i, id)
				}
				if id == "" || len(want) > 2<<20 {
					continue
				}
				if got, err := s.Blob(t.Context(), id, 4<<20); err != nil || !slices.Contains(contents[i], string(got)) {
					t.Errorf("file %d is %.20q, which it never was: %v", i, got, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			packs, err := filepath.Glob(filepath.Join(root, ".git/objects/pack/*.pack"))
			if err != nil || len(packs) != 1 {
				t.Errorf("%d packs were written: %v", len(packs), err)
			}
			for _, p := range packs {
				out, err := exec.CommandContext(t.Context(), "git", "-C", root, "verify-pack", "-v", p).CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				seen := map[string]bool{}
				for line := range strings.Lines(string(out)) {
					if id, _, ok := strings.Cut(line, " "); ok && len(id) == 40 {
						if seen[id] {
							t.Errorf("%s has %s twice", filepath.Base(p), id)
						}
						seen[id] = true
					}
				}
			}
		})
	}
}
