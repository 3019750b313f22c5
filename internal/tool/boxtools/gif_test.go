package boxtools_test

import (
	"strings"
	"testing"
)

// TestTextThatBeginsLikeAPictureIsRead shows that a text file is read as before, whatever its first letters are.
func TestTextThatBeginsLikeAPictureIsRead(t *testing.T) {
	b := newBox(t)
	b.put("notes.md", "GIF89a is the format of 1989.\nA second line.\n", 0o644)
	has(t, "a text about GIF", b.call("read", m{"path": "notes.md"}), true, "A second line.")
	b.put("long.md", "GIF87a is the format of 1987.\n"+strings.Repeat("Another line.\n", 300_000), 0o644)
	has(t, "a long text about GIF", b.call("read", m{"path": "long.md", "offset": 2}), true, "Another line.")
}
