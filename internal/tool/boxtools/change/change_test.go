package change_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/tool/boxtools/change"
)

func TestAnEditIsExactFirst(t *testing.T) {
	for name, c := range map[string]struct {
		text, old, fresh string
		all              bool
		want             string // the text afterwards, or after ! a part of the error
	}{
		"one place":                   {"a\nb\n", "b", "c", false, "a\nc\n"},
		"two places":                  {"b\na\nb\n", "b", "c", false, "!2 times, at lines 1, 3"},
		"two that overlap":            {"aaa\n", "aa", "c", false, "!2 times, at lines 1, 1"},
		"all":                         {"b\na\nb\n", "b", "c", true, "c\na\nc\n"},
		"exact beside a loose one":    {"\tx = 1\nx = 1\n", "\tx = 1\n", "\ty\n", false, "\ty\nx = 1\n"},
		"plain ends in a CRLF file":   {"a\r\nb\r\nc\r\n", "a\nb", "x\ny", false, "x\r\ny\r\nc\r\n"},
		"one line in a CRLF file":     {"a\r\nb\r\n", "b", "x\ny", false, "a\r\nx\r\ny\r\n"},
		"CRLF in a plain file":        {"a\nb\nc\n", "a\r\nb", "x\r\ny", false, "x\ny\nc\n"},
		"CRLF twice":                  {"a\r\nb\r\na\r\nb\r\n", "a\nb", "x", false, "!2 times, at lines 1, 3"},
		"CRLF, all":                   {"a\r\nb\r\na\r\nb\r\n", "a\nb\n", "x\n", true, "x\r\nx\r\n"},
		"less indentation":            {"if x {\n\t\ta()\n\t\tb()\n}\n", "a()\nb()", "a()\n\tc()\n\nb()", false, "if x {\n\t\ta()\n\t\t\tc()\n\n\t\tb()\n}\n"},
		"more indentation":            {"a()\nb()\n", "    a()\n    b()\n", "    c()\n      d()\n", false, "c()\n  d()\n"},
		"blanks for tabs":             {"f {\n\tif x {\n\t\ta()\n\t}\n}\n", "  if x {\n    a()\n  }", "  if x {\n    a()\n    if y {\n      b()\n    }\n  }", false, "f {\n\tif x {\n\t\ta()\n\t\tif y {\n\t\t\tb()\n\t\t}\n\t}\n}\n"},
		"tabs for blanks":             {"f:\n    if x:\n        a()\n", "\tif x:\n\t\ta()", "\tif x:\n\t\tb()", false, "f:\n    if x:\n        b()\n"},
		"trailing blanks":             {"a  \nb\t\nc\n", "a\nb\n", "x\n", false, "x\nc\n"},
		"trailing blanks and CRLF":    {"a  \r\nb\r\n", "a\nb", "x\ny", false, "x\r\ny\r\n"},
		"lines removed":               {"a\n  b \nc\n", "b\n", "", false, "a\nc\n"},
		"no end at the end":           {"a\n  b ", "b\n", "c\n", false, "a\n  c"},
		"two but for white space":     {"\ta\n  a\n", "a \n", "b\n", false, "!2 times, at lines 1, 2"},
		"all is exact":                {"  a b\n", "a  b", "x", true, "!to the byte"},
		"blank lines alone":           {"a\n \nb\n", "\n\n", "x", false, "!old is not there"},
		"indentation nobody can tell": {"  a\n      b\n", "a\nb\n", "c\n", false, "!how to indent"},
		"white space inside":          {"a  b\n", "a b", "c", false, "!nearest lines:\n     1\ta  b"},
		"nearest":                     {"one\nfunc add(a, b int) int {\n\treturn a - b\n}\n", "func add(a, b int) int {\n\treturn a + b\n}", "x", false, "!     2\tfunc add(a, b int) int {\n     3\t\treturn a - b\n     4\t}"},
		"nothing near":                {"one\n", "zzzzzzz", "x", false, "!no line is near it"},
		"the same":                    {"a", "a", "a", false, "!are the same"},
	} {
		got, _, err := change.Edit{Old: c.old, New: c.fresh, All: c.all}.Apply(c.text)
		if want, bad := strings.CutPrefix(c.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q %v, want %q", name, got, err, want)
			}
		} else if err != nil || got != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

func TestAPatchIsPlacedByItsLines(t *testing.T) {
	const twice = "func a() {\n\tx()\n}\n\nfunc b() {\n\tx()\n}\n\nfunc c() {\n\tx()\n}\n"
	env := func(body string) string { return "*** Begin Patch\n*** Update File: f\n" + body + "*** End Patch\n" }
	uni := func(body string) string { return "--- a/f\n+++ b/f\n" + body }
	for name, c := range map[string]struct{ text, patch, want string }{
		"unified":                       {"1\n2\n3\n", uni("@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"), "1\ntwo\n3\n"},
		"wrong numbers and counts":      {"0\n0\n1\n2\n3\n", uni("@@ -77,9 +70,1 @@ func x\n 1\n-2\n+two\n 3\n"), "0\n0\n1\ntwo\n3\n"},
		"a number between two places":   {"x\ny\nx\ny\n", uni("@@ -2,1 +2,1 @@\n-x\n+z\n"), "!2 times, at lines 1, 3"},
		"the number of one of two":      {"x\ny\nx\ny\n", uni("@@ -3,1 +3,1 @@\n-x\n+z\n"), "x\ny\nz\ny\n"},
		"two hunks":                     {"1\n2\n3\n4\n5\n", uni("@@ -1,2 +1,3 @@\n 1\n+new\n 2\n@@ -4,2 +5,1 @@\n-4\n 5\n"), "1\nnew\n2\n3\n5\n"},
		"hunks that overlap":            {"1\n2\n3\n", uni("@@ -1,2 +1,1 @@\n 1\n-2\n@@ -2,2 +1,1 @@\n-2\n 3\n"), "!the same lines"},
		"no context":                    {"1\n2\n", uni("@@ -1,0 +2,1 @@\n+x\n"), "!no line of context"},
		"CRLF":                          {"1\r\n2\r\n", uni("@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"), "1\r\n3\r\n"},
		"no end at the end":             {"1\n2", uni("@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+3\n\\ No newline at end of file\n"), "1\n3"},
		"an end where none was":         {"1\n2", uni("@@ -1,2 +1,3 @@\n 1\n 2\n+3\n"), "1\n2\n3\n"},
		"lines that look like names":    {"-- a\nb\n", uni("@@ -1,2 +1,2 @@\n--- a\n+++ a\n b\n"), "++ a\nb\n"},
		"an empty line of context":      {"1\n\n2\n", uni("@@ -1,3 +1,3 @@\n 1\n\n-2\n+3\n"), "1\n\n3\n"},
		"indented otherwise":            {"\tif x {\n\t\ty()\n\t}\n", uni("@@ -1,3 +1,4 @@\n     if x {\n         y()\n+        z()\n     }\n"), "\tif x {\n\t\ty()\n\t\tz()\n\t}\n"},
		"envelope":                      {"1\n2\n3\n", env("@@\n 1\n-2\n+two\n 3\n"), "1\ntwo\n3\n"},
		"envelope, two places":          {twice, env("@@\n-\tx()\n+\ty()\n"), "!3 times, at lines 2, 6, 10"},
		"envelope, under its heading":   {twice, env("@@ func b() {\n-\tx()\n+\ty()\n"), strings.Replace(twice, "func b() {\n\tx()", "func b() {\n\ty()", 1)},
		"envelope, at the file's end":   {"a\nb\na\n", env("@@\n-a\n+c\n*** End of File\n"), "a\nb\nc\n"},
		"envelope, only adds":           {"a\n", env("@@\n+c\n"), "!no line of context"},
		"envelope, adds at the end":     {"a\n", env("@@\n+c\n*** End of File\n"), "a\nc\n"},
		"envelope, adds under its head": {"a\nb\n", env("@@ a\n+c\n"), "a\nc\nb\n"},
		"not there":                     {"one more\ntwo\n", uni("@@ -1,2 +1,2 @@\n one more\n-zwei\n+2\n"), "!hunk 1 of 1: its lines are not there. The nearest lines:\n     1\tone more\n     2\ttwo"},
		"cut off":                       {"1\n", "*** Begin Patch\n*** Update File: f\n-1\n", "!cut off"},
		"nothing":                       {"1\n", "hello\n", "!neither a unified diff"},
		"nothing of a file":             {"1\n", env(""), "!changes nothing in f"},
		"two names":                     {"1\n", "--- a/f\n+++ b/g\n@@ -1 +1 @@\n-1\n+2\n", "!differ"},
		"binary":                        {"1\n", "diff --git a/f b/f\nindex 1..2\nGIT binary patch\n", "!can't be patched"},
		"a link":                        {"1\n", "diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+/etc\n", "!only files of text"},
	} {
		files, err := change.Parse(c.patch)
		got := ""
		if err == nil {
			got, err = files[0].Apply(c.text)
		}
		if want, bad := strings.CutPrefix(c.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q %v, want %q", name, got, err, want)
			}
		} else if err != nil || got != want || len(files) != 1 || files[0].Path != "f" {
			t.Errorf("%s: %q %v %+v", name, got, err, files)
		}
	}
}

func TestAPatchOfSeveralFiles(t *testing.T) {
	x := true
	for name, c := range map[string]struct {
		patch string
		want  []change.Change
	}{
		"envelope": {"*** Begin Patch\n*** Add File: n\n+1\n*** Delete File: d\n*** Update File: u\n*** Move to: v\n@@\n-1\n+2\n\n*** End Patch", []change.Change{
			{Kind: change.Add, Path: "n"}, {Kind: change.Delete, Path: "d"}, {Kind: change.Update, Path: "u", To: "v"}}},
		"git": {"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\ndiff --git a/e b/e\nnew file mode 100755\nindex 0000000..e69de29\ndiff --git a/d b/d\ndeleted file mode 100644\n--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n" +
			"diff --git \"a/gr\\303\\266\" \"b/gr\\303\\266\"\n--- \"a/gr\\303\\266\"\t2026\n+++ \"b/gr\\303\\266\"\n@@ -1 +1 @@\n-1\n+2\n-- \n2.1\n", []change.Change{
			{Kind: change.Update, Path: "x", To: "y"}, {Kind: change.Add, Path: "e", Executable: &x}, {Kind: change.Delete, Path: "d"}, {Kind: change.Update, Path: "grö"}}},
	} {
		got, err := change.Parse(c.patch)
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%s: %+v %v", name, got, err)
			continue
		}
		for i, w := range c.want {
			g := got[i]
			if g.Kind != w.Kind || g.Path != w.Path || g.To != w.To || (w.Executable != nil) != (g.Executable != nil && *g.Executable) {
				t.Errorf("%s: %+v, want %+v", name, g, w)
			}
		}
	}
}

// someText makes texts in which the same lines come again and again, with other white space.
func someText() *rapid.Generator[string] {
	l := rapid.SampledFrom([]string{"a", "b", "  a", "\ta", "a ", "", " ", "}", "c"})
	end := rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n", ""})
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(1, 12).Draw(t, "lines") {
			b.WriteString(l.Draw(t, "line"))
			b.WriteString(end.Draw(t, "end"))
		}
		return b.String()
	})
}

// trimmed are the lines of s without white space at their ends.
func trimmed(s string) []string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return lines
}

func places(lines, want []string) (n int) {
	for i := 0; i+len(want) <= len(lines); i++ {
		if strings.Join(lines[i:i+len(want)], "\n") == strings.Join(want, "\n") {
			n++
		}
	}
	return n
}

// An edit changes one place and nothing beside it, and of two places neither.
func TestAnEditNeverGuesses(t *testing.T) {
	const mark = "NEW"
	rapid.Check(t, func(t *rapid.T) {
		text := someText().Draw(t, "text")
		old := someText().Draw(t, "old")
		if rapid.Bool().Draw(t, "of the text") { // lines of it, with other white space
			lines := strings.SplitAfter(text, "\n")
			from := rapid.IntRange(0, len(lines)-1).Draw(t, "from")
			to := rapid.IntRange(from+1, min(len(lines), from+3)).Draw(t, "to")
			old = ""
			for _, l := range lines[from:to] {
				old += rapid.SampledFrom([]string{"", "  ", "\t"}).Draw(t, "indent") + strings.TrimLeft(l, " \t")
			}
		}
		got, done, err := change.Edit{Old: old, New: mark}.Apply(text)
		if err != nil || old == "" {
			return
		}
		before, after, ok := strings.Cut(got, mark)
		if !ok || !strings.HasPrefix(text, strings.TrimRight(before, " \t")) || !strings.HasSuffix(text, after) {
			t.Fatalf("%q with %q gives %q: it changed more than a place", text, old, got)
		}
		exact := 0
		for i := range text {
			if strings.HasPrefix(text[i:], old) {
				exact++
			}
		}
		loose := places(trimmed(text), trimmed(old))
		switch {
		case exact > 1, exact == 0 && done.Loose && loose != 1:
			t.Fatalf("%q with %q gives %q: it chose one of %d places, or %d but for white space", text, old, got, exact, loose)
		case exact == 0 && !done.Loose:
			if n := strings.Count(strings.ReplaceAll(text, "\r\n", "\n"), strings.ReplaceAll(old, "\r\n", "\n")); n != 1 {
				t.Fatalf("%q with %q gives %q: it chose one of %d places but for line ends", text, old, got, n)
			}
		}
		if done.Loose {
			gone := text[len(strings.TrimRight(before, " \t")) : len(text)-len(after)]
			for _, c := range []string{"a", "b", "c", "}"} {
				if strings.Count(gone, c) != strings.Count(old, c) {
					t.Fatalf("%q with %q gives %q: %q went", text, old, got, gone)
				}
			}
		}
	})
}

// A patch with any numbers replaces its lines where they are, if that is one place or the one that its
// number names, and nothing else.
func TestAPatchNeverGuesses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "  a", "}", "", "c"}), 1, 12).Draw(t, "lines")
		from := rapid.IntRange(0, len(lines)-1).Draw(t, "from")
		to := rapid.IntRange(from+1, len(lines)).Draw(t, "to")
		cut := rapid.IntRange(from, to-1).Draw(t, "cut")
		at := rapid.IntRange(0, 14).Draw(t, "at")
		h := change.Hunk{At: at}
		for i := from; i < to; i++ {
			if i == cut {
				h.Lines = append(h.Lines, change.Line{Op: '-', Text: lines[i]}, change.Line{Op: '+', Text: "NEW"})
				continue
			}
			h.Lines = append(h.Lines, change.Line{Op: ' ', Text: lines[i]})
		}
		text := strings.Join(lines, "\n") + "\n"
		got, err := change.Change{Kind: change.Update, Path: "f", Hunks: []change.Hunk{h}}.Apply(text)
		where := from
		if n := places(lines, lines[from:to]); n > 1 {
			named := at > 0 && at-1+to-from <= len(lines) && places(lines[at-1:at-1+to-from], lines[from:to]) == 1
			if (err == nil) != named {
				t.Fatalf("%q is there %d times, and line %d named: %v; it gives %q %v", lines[from:to], n, at, named, got, err)
			}
			if !named {
				return
			}
			where = at - 1
		}
		want := append([]string(nil), lines...)
		want[where+cut-from] = "NEW"
		if err != nil || got != strings.Join(want, "\n")+"\n" {
			t.Fatalf("%q became %q %v, want %q", text, got, err, want)
		}
	})
}

// Whatever a patch is, reading it ends, and what can be read can be applied or refused.
func TestAnyPatchIsReadOrRefused(t *testing.T) {
	part := rapid.SampledFrom([]string{"*** Begin Patch\n", "*** End Patch\n", "*** Update File: f\n", "*** Add File: g\n", "*** Delete File: h\n", "*** Move to: i\n", "*** End of File\n",
		"@@\n", "@@ a\n", "@@ -1,2 +1 @@\n", "@@ -x\n", "--- a/f\n", "+++ b/f\n", "+++ /dev/null\n", "diff --git a/f b/f\n", "rename from f\n", "rename to g\n", "new file mode 100644\n", "\\ No newline\n", " a\n", "-b\n", "+c\n", "\n", "-- \n", "x"})
	rapid.Check(t, func(t *rapid.T) {
		patch := strings.Join(rapid.SliceOfN(part, 0, 14).Draw(t, "parts"), "")
		files, err := change.Parse(patch)
		if err != nil {
			return
		}
		for _, f := range files {
			_, _ = f.Apply("a\nb\n")
			if f.Path == "" {
				t.Fatalf("%q names no file: %+v", patch, f)
			}
		}
	})
}
