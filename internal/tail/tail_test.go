package tail_test

import (
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/tail"
)

// TestTheEndIsKept: whatever is written, in whatever pieces and either way, the last bytes of it are kept.
func TestTheEndIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &tail.Writer{Max: rapid.IntRange(1, 40).Draw(t, "max")}
		var all string
		for _, piece := range rapid.SliceOf(rapid.StringN(0, 60, 2000)).Draw(t, "pieces") {
			all += piece
			if rapid.Bool().Draw(t, "read") {
				if n, err := io.Copy(w, io.MultiReader(strings.NewReader(piece))); err != nil || n != int64(len(piece)) {
					t.Fatalf("%d of %d bytes were read: %v", n, len(piece), err)
				}
			} else if n, err := w.Write([]byte(piece)); err != nil || n != len(piece) {
				t.Fatalf("%d of %d bytes were written: %v", n, len(piece), err)
			}
			if want := all[max(0, len(all)-w.Max):]; w.String() != want {
				t.Fatalf("%q is kept of %q", w, all)
			}
		}
	})
}
