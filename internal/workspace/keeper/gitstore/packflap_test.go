package gitstore_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestManyFilesAndOneThatGoesOnChanging shows that one file that becomes the same as another while it is read doesn't
// keep a checkpoint of a lot from being written: what is written one by one goes into one entry of the journal, as a whole
// in memory, and an entry is bounded.
func TestManyFilesAndOneThatGoesOnChanging(t *testing.T) {
	limits := wire.Limits{FileBytes: 2 << 20}.WithDefaults()
	s := gitstore.NewStore(gitstore.StoreOptions{Root: t.TempDir(), Git: "git", Limits: limits, Crash: func(string) {}})
	if _, err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	noise := make([]byte, 950_000)
	rand.Read(noise)
	first := [][]string{{string(noise), "2"}} // so that all that were left out for it are written after all
	for range 150 {
		first = append(first, []string{string(noise)})
	}
	var each [][]string // one more becomes the same in each try
	for n := range 12 {
		var reads []string
		for try := range 12 {
			reads = append(reads, fmt.Sprint("own ", n, " ", try), map[bool]string{true: "same", false: fmt.Sprint("own ", n, " ", try)}[try >= n])
		}
		each = append(each, append(reads, "end"))
	}
	for name, odd := range map[string][][]string{
		"still":               {{"1"}, {"2"}},
		"unsettled":           {{"1"}, {"2", "1", "2", "1", "2", "1", "1"}},
		"the first of many":   first,
		"ever more unsettled": each,
	} {
		contents := odd
		for i := range 150 {
			b := make([]byte, 950_000)
			rand.Read(b)
			contents = append(contents, []string{fmt.Sprint(i, string(b))})
		}
		if _, err := s.Write(t.Context(), files(t, s, contents)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
