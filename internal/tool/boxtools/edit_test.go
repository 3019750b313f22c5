package boxtools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// has fails unless the call went as wanted and its words contain all of the parts.
func has(t *testing.T, what string, got result, ok bool, parts ...string) {
	t.Helper()
	if got.OK != ok {
		t.Errorf("%s: ok %v: %s", what, got.OK, got.Output)
	}
	for _, p := range parts {
		if !strings.Contains(got.Output, p) {
			t.Errorf("%s: %q is not in %q", what, p, got.Output)
		}
	}
}

func TestReadSaysWhichLinesTheseAre(t *testing.T) {
	b := newBox(t)
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "this is line %d of the file\n", i+1)
	}
	b.put("long.txt", text.String(), 0o644)
	// Read on as the answers say until the end: every line is there, and none is cut out.
	var lines []string
	for next, calls := 1, 0; next > 0; calls++ {
		r := b.call("read", m{"path": "long.txt", "offset": next})
		if !r.OK || calls > 100 || len(r.Output) > 16<<10 || strings.Contains(r.Output, "left out") {
			t.Fatalf("%d: %+v", calls, r)
		}
		got := strings.Split(strings.TrimSuffix(r.Output, "\n"), "\n")
		last := got[len(got)-1]
		lines = append(lines, got[:len(got)-1]...)
		var from, to, of int
		if _, err := fmt.Sscanf(last, "(lines %d to %d of %d", &from, &to, &of); err != nil || from != next || of != 3000 || to-from+2 != len(got) {
			t.Fatalf("%q %v", last, err)
		}
		if next = to + 1; strings.Contains(last, "the last one") {
			next = 0
		} else if !strings.Contains(last, fmt.Sprintf("read on with offset %d", next)) {
			t.Fatalf("%q", last)
		}
	}
	for i, l := range lines {
		if l != fmt.Sprintf("%6d\tthis is line %d of the file", i+1, i+1) {
			t.Fatalf("line %d is %q", i+1, l)
		}
	}
	if len(lines) != 3000 {
		t.Errorf("%d lines", len(lines))
	}
	b.put("short", "one\r\ntwo\r\n", 0o644)
	has(t, "a short file", b.call("read", m{"path": "short"}), true, "     2\ttwo\n", "(all 2 lines, which end in CRLF)")
	b.put("wide", strings.Repeat("é", 3000)+"\nend\n", 0o644)
	has(t, "a wide line", b.call("read", m{"path": "wide"}), true, "(4000 more bytes of this line are not shown; bash with cut -b 2001- shows them)", "     2\tend\n", "(all 2 lines)")
	b.put("bin", "a\x00b", 0o644)
	has(t, "a binary file", b.call("read", m{"path": "bin"}), false, "bin is binary (3 bytes)")
	picture := b.call("read", m{"path": "shot.png"})
	has(t, "no picture", picture, false, "shot.png")
	b.put("shot.png", "\x89PNG\x0D\x0A\x1A\x0A\x00rest", 0o644)
	picture = b.call("read", m{"path": "shot.png"})
	has(t, "a picture", picture, true, "(a picture: shot.png, image/png, 13 bytes)")
	if len(picture.Pictures) != 1 || string(picture.Pictures[0]) != b.get("shot.png") {
		t.Errorf("%d pictures", len(picture.Pictures))
	}
	has(t, "a picture that was read", b.call("write", m{"path": "shot.png", "content": "other"}), true)
	b.put("large.png", "\x89PNG\x0D\x0A\x1A\x0A\x00"+strings.Repeat("x", 3_000_000), 0o644)
	has(t, "a large picture", b.call("read", m{"path": "large.png"}), false, "at most 3000000 are shown")
	has(t, "behind the end", b.call("read", m{"path": "short", "offset": 3}), false, "short has 2 lines; there is no line 3")
}

func TestEditSaysWhereItCouldBe(t *testing.T) {
	b := newBox(t)
	b.put("a.go", "package a\n\nfunc f() {\n\treturn x - y\n}\n\nfunc g() {\n\treturn x - y\n}\n", 0o644)
	has(t, "two places", b.call("edit", m{"path": "a.go", "old": "return x - y", "new": "return x + y"}), false, "a.go: old is there 2 times, at lines 4, 8")
	has(t, "nowhere", b.call("edit", m{"path": "a.go", "old": "func g() {\n\treturn y - x\n", "new": ""}), false, "The nearest lines:\n     7\tfunc g() {\n     8\t\treturn x - y")
	has(t, "but for white space", b.call("edit", m{"path": "a.go", "old": "func g() {\n    return x - y\n}", "new": "func g() {\n    return x + y\n}"}), true, "at line 7", "but for white space")
	if got := b.get("a.go"); got != "package a\n\nfunc f() {\n\treturn x - y\n}\n\nfunc g() {\n\treturn x + y\n}\n" {
		t.Errorf("%q", got)
	}
}

func TestMultiEditIsAllOrNothing(t *testing.T) {
	b := newBox(t)
	const text = "one\ntwo\nthree\n"
	b.put("a", text, 0o640)
	has(t, "one does not fit", b.call("multi_edit", m{"path": "a", "edits": []m{{"old": "one", "new": "1"}, {"old": "four", "new": "4"}}}), false, "edit 2 of 2, and so nothing was changed: old is not there")
	if got := b.get("a"); got != text {
		t.Fatalf("%q", got)
	}
	has(t, "all fit", b.call("multi_edit", m{"path": "a", "edits": []m{{"old": "one", "new": "1"}, {"old": "1\ntwo", "new": "1\n2"}}}), true)
	if got := b.get("a"); got != "1\n2\nthree\n" {
		t.Fatalf("%q", got)
	}
	if info, _ := os.Stat(filepath.Join(b.root, "a")); info.Mode().Perm() != 0o640 {
		t.Error(info.Mode())
	}
}

func TestApplyPatchIsAllOrNothing(t *testing.T) {
	b := newBox(t)
	start := func() {
		for _, name := range []string{"new", "moved", "sub"} {
			_ = os.RemoveAll(filepath.Join(b.root, name))
		}
		b.put("a", "1\n2\n3\n", 0o755)
		b.put("b", "x\n", 0o644)
		b.put("c", "gone\n", 0o644)
	}
	start()
	patch := "*** Begin Patch\n*** Update File: a\n@@\n 1\n-2\n+two\n*** Add File: sub/new\n+hi\n*** Delete File: c\n*** Update File: b\n*** Move to: moved\n@@\n-x\n+y\n*** End Patch\n"
	has(t, "four files", b.call("apply_patch", m{"patch": patch}), true, "patched a: 1 hunks\ncreated sub/new (3 bytes)\nremoved c\nmoved b to moved, 1 hunks\n")
	if b.get("a") != "1\ntwo\n3\n" || b.get("sub/new") != "hi\n" || b.get("moved") != "y\n" {
		t.Error("not as patched")
	}
	for _, name := range []string{"b", "c"} {
		if _, err := os.Lstat(filepath.Join(b.root, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if info, _ := os.Stat(filepath.Join(b.root, "a")); info.Mode().Perm() != 0o755 {
		t.Error(info.Mode())
	}
	start()
	for what, bad := range map[string]string{
		"lines that are not there": "*** Update File: b\n@@\n-z\n+y\n", "a file that exists": "*** Add File: b\n+y\n", "a file that is not there": "*** Delete File: nope\n",
		"a file twice": "*** Update File: a\n@@\n-3\n+4\n", "outside": "*** Add File: ../evil\n+y\n", ".git": "*** Add File: .git/hooks/x\n+y\n", "a folder": "*** Update File: .\n@@\n-3\n+4\n",
	} {
		has(t, what, b.call("apply_patch", m{"patch": "*** Begin Patch\n*** Update File: a\n@@\n-1\n+one\n*** Add File: new\n+hi\n" + bad + "*** End Patch\n"}), false)
		if _, err := os.Lstat(filepath.Join(b.root, "new")); err == nil || b.get("a") != "1\n2\n3\n" {
			t.Errorf("%s: something was changed", what)
		}
	}
	// What can't be written at last is found only then: what was written before is taken back.
	b.put("ro/f", "1\n", 0o644)
	if err := os.Chmod(filepath.Join(b.root, "ro"), 0o555); err != nil {
		t.Fatal(err)
	}
	// Nobody but root could remove it as it is.
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(b.root, "ro"), 0o755) })
	if os.Getuid() != 0 { // nothing is refused to root
		has(t, "a folder that is read-only", b.call("apply_patch", m{"patch": "*** Begin Patch\n*** Update File: a\n@@\n-1\n+one\n*** Update File: ro/f\n@@\n-1\n+2\n*** End Patch\n"}), false)
	}
	if b.get("a") != "1\n2\n3\n" {
		t.Error("half a patch stays")
	}
}

// TestChangedFilesAreReadAgain: what somebody else wrote since a task's tools saw a file is not
// overwritten unread.
func TestChangedFilesAreReadAgain(t *testing.T) {
	calls := map[string]m{
		"edit":        {"path": "a", "old": "one", "new": "1"},
		"multi_edit":  {"path": "a", "edits": []m{{"old": "one", "new": "1"}}},
		"write":       {"path": "a", "content": "1\n"},
		"apply_patch": {"patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+1\n"},
	}
	for name, args := range calls {
		b := newBox(t)
		b.put("a", "one\n", 0o644)
		// Of a file that was never read, an edit says what it expects; a whole file does not.
		first := b.call(name, args)
		has(t, name+" unread", first, name != "write")
		if name == "write" {
			has(t, name+" unread", first, false, "a exists and you have not read it; read it first")
			args["overwrite"] = true
			has(t, name+" with overwrite", b.call(name, args), true)
			delete(args, "overwrite")
		}
		b.put("a", "one\n", 0o644)
		b.call("read", m{"path": "a"})
		has(t, name+" as it was read", b.call(name, args), true)
		b.put("a", "one\nmore\n", 0o644)
		for _, overwrite := range []bool{false, true} {
			if name == "write" {
				args["overwrite"] = overwrite
			}
			has(t, name+" of what was changed", b.call(name, args), false, "a has been changed by somebody else since you last read or wrote it; read it again")
		}
		delete(args, "overwrite")
		if b.get("a") != "one\nmore\n" {
			t.Errorf("%s overwrote it", name)
		}
		b.call("read", m{"path": "a"})
		has(t, "a command", b.call("bash", m{"command": "echo one >a"}), true, "(changed since you read or wrote them, so read them again before you edit them: a)")
		has(t, name+" of what a command changed", b.call(name, args), false, "changed by a command")
		b.call("read", m{"path": "a"})
		has(t, "touched", b.call("bash", m{"command": "touch -d 2020-01-01 a; cat a"}), true, "one\n")
		has(t, name+" of what is the same", b.call(name, args), true)
		has(t, "removed", b.call("bash", m{"command": "rm a"}), true, "a (removed)")
		has(t, "written anew", b.call("write", m{"path": "a", "content": "new\n"}), true, "created a")
	}
	b := newBox(t)
	b.put("empty", "", 0o644)
	has(t, "an empty file", b.call("write", m{"path": "empty", "content": "x"}), true)
	// The steps of a task know what its commands do to files.
	b.put("a", "one\n", 0o644)
	b.call("write", m{"path": "a", "content": "one\n", "overwrite": true})
	has(t, "a step", b.call("run", m{"argv": []string{"sed", "-i", "s/one/two/", "a"}}), true)
	has(t, "the next step", b.call("apply_patch", m{"patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-two\n+2\n"}), true)
}
