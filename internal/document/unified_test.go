package document_test

import (
	"fmt"
	"strings"
	"testing"

	"choir.dev/choiros/internal/document"
)

func TestUnified(t *testing.T) {
	a := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16"
	b := "1\n2\nx\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n"
	got, cut := document.Unified("artifacts/x.md", a, b, 1<<20)
	want := `--- a/artifacts/x.md
+++ b/artifacts/x.md
@@ -1,6 +1,6 @@
 1
 2
-3
+x
 4
 5
 6
@@ -13,4 +13,4 @@
 13
 14
 15
-16
\ No newline at end of file
+16
`
	if got != want || cut {
		t.Errorf("%v\n%s", cut, got)
	}
	if got, cut := document.Unified("x", a, a, 10); got != "" || cut {
		t.Errorf("equal texts: %q %v", got, cut)
	}
	if got, cut := document.Unified("x", "", "new\n", 1<<10); got != "--- a/x\n+++ b/x\n@@ -0,0 +1,1 @@\n+new\n" || cut {
		t.Errorf("from nothing: %q %v", got, cut)
	}
	for limit := range len(want) {
		part, cut := document.Unified("artifacts/x.md", a, b, limit)
		if !cut || !strings.HasPrefix(want, part) || part != "" && !strings.HasSuffix(part, "\n") {
			t.Fatalf("within %d bytes: %v %q", limit, cut, part)
		}
	}
}

// FuzzUnified applies the diff to the first text, which must give the second.
func FuzzUnified(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nB\nc\n")
	f.Add("", "x")
	f.Add("x", "")
	f.Add("1\n2\n3\n4\n5\n6\n7\n8\n9", "2\n3\n4\n5\n6\n7\n8\n\n9\n10\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		text, cut := document.Unified("f", a, b, 64<<20)
		if cut {
			t.Fatal("cut")
		}
		if text == "" {
			if a != b {
				t.Fatalf("%q and %q do not differ", a, b)
			}
			return
		}
		old := strings.SplitAfter(a, "\n")
		var out strings.Builder
		at := 0
		rest := strings.SplitAfter(text, "\n")[2:]
		for i := 0; i < len(rest) && rest[i] != ""; i++ {
			var from, n, to, m int
			if _, err := fmt.Sscanf(rest[i], "@@ -%d,%d +%d,%d @@\n", &from, &n, &to, &m); err != nil {
				t.Fatalf("%v in %q of %q", err, rest[i], text)
			}
			if n > 0 {
				from--
			}
			for ; at < from; at++ {
				out.WriteString(old[at])
			}
			for n > 0 || m > 0 {
				i++
				mark, line := rest[i][0], rest[i][1:]
				if i+1 < len(rest) && strings.HasPrefix(rest[i+1], "\\ ") {
					line = strings.TrimSuffix(line, "\n")
					i++
				}
				if mark != '+' {
					if old[at] != line {
						t.Fatalf("line %d is %q, the diff says %q\n%s", at, old[at], line, text)
					}
					at, n = at+1, n-1
				}
				if mark != '-' {
					out.WriteString(line)
					m--
				}
			}
		}
		out.WriteString(strings.Join(old[at:], ""))
		if out.String() != b {
			t.Fatalf("applied: %q, want %q\n%s", out.String(), b, text)
		}
	})
}
