package boxtools_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestVariablesStayWhatTheyWere: what one command exports the next one has, byte by byte, whatever the locale and the mode of the
// shell are.
func TestVariablesStayWhatTheyWere(t *testing.T) {
	b := newBox(t)
	pieces := rapid.SampledFrom([]string{"a", " ", "'", `"`, `\`, "$", "`", "\n", "\t", "\x01", "\x7f", "\xff", "ü", "\u2028", "😀", "=", "!", "$'", "declare -x B=\"b\"\n", "(", "]"})
	rapid.Check(t, func(r *rapid.T) {
		value := strings.Join(rapid.SliceOfN(pieces, 0, 12).Draw(r, "pieces"), "")
		b.put("in", value, 0o644)
		locale := rapid.SampledFrom([]string{"C", "C.UTF-8", "no_such"}).Draw(r, "locale")
		posix := rapid.SampledFrom([]string{"", "set -o posix; "}).Draw(r, "mode")
		b.call("bash", m{"command": posix + "export LC_ALL=" + locale + ` V="$(cat in; printf x)"; V=${V%x}; export W=1 UNSET; G=(1 "two
lines"); declare -A H=([k]='v)'); export G H; declare -rx R=r`})
		b.call("bash", m{"command": `printf %s "$V" >out; env -0 >all; printf %s "$W$R${G-none}${UNSET-none}" >rest`})
		if got := read(t, b.root, "out"); got != value {
			r.Fatalf("%q became %q", value, got)
		}
		if got := read(t, b.root, "rest"); got != "1rnonenone" {
			r.Fatalf("the others are %q", got)
		}
		for kv := range strings.SplitSeq(read(t, b.root, "all"), "\x00") {
			if name, _, _ := strings.Cut(kv, "="); name == "B" || name == "G" {
				r.Fatalf("%q is there, too", kv)
			}
		}
		b.call("bash", m{"command": ":", "fresh": true})
	})
}

// TestAVariableWithAnotherName: a variable of the box that bash has no name for, and functions, are passed on as well.
func TestAVariableWithAnotherName(t *testing.T) {
	t.Setenv("a-b.c", "kept")
	b := newBox(t)
	b.call("bash", m{"command": "export A=1"})
	has(t, "the next", b.call("bash", m{"command": `env | grep -e '^a-b.c=' -e ^A=; f() { echo called; }; export -f f`}), true, "a-b.c=kept\n", "A=1\n")
	has(t, "with a function", b.call("bash", m{"command": "f; env | grep '^a-b.c='; unset -f f"}), true, "called\na-b.c=kept\n")
	has(t, "without it", b.call("bash", m{"command": "type f; env | grep -e '^a-b.c=' -e BASH_FUNC"}), true, "f: not found", "a-b.c=kept\n")
	// Where bash writes something else than its list, what was there stays.
	has(t, "where no list is made", b.call("bash", m{"command": "export C=3; enable -n export"}), true, "could not be read")
	has(t, "afterwards", b.call("bash", m{"command": "echo $A$C"}), true, "\n1\n")
}

// TestAVariableThatNamesAnother: programs get what such a variable says, and so does the next command.
func TestAVariableThatNamesAnother(t *testing.T) {
	b := newBox(t)
	has(t, "a program", b.call("bash", m{"command": "export V=1; declare -nx N=V; env | grep ^N="}), true, "\nN=V\n")
	has(t, "the next", b.call("bash", m{"command": "env | grep ^N="}), true, "\nN=V\n")
}

// TestWhatACommandWritesInPlaceOfItsVariablesBreaksNoOther: a command can find the file to which its variables are written, and
// write something there that no program can be started with.
func TestWhatACommandWritesInPlaceOfItsVariablesBreaksNoOther(t *testing.T) {
	b := newBox(t)
	for _, value := range []string{`"a\0b"`, `$'"'"'a\0b'"'"'`} {
		b.call("bash", m{"command": `f=$(trap -p EXIT | grep -o "/[^ '\\]*after[^ '\\]*" | head -n 1); trap - EXIT; printf "$PWD"'\0bash\0declare -x A=` + value + `\n' >"$f"`})
		has(t, "the next", b.call("bash", m{"command": "echo well"}), true, "exit code 0", "well")
	}
}

// TestAFunctionsOwnVariablesHideNoOthers: a command may end within a function, whose variables that are not set hide from bash's list, and not
// from programs, those of the same name.
func TestAFunctionsOwnVariablesHideNoOthers(t *testing.T) {
	for _, command := range []string{
		`f() { local A; exit 0; }; f`, `f() { local -x A; exit 0; }; f`, `f() { local A=2; unset A; exit 0; }; f`, `set -e; f() { local A; false; }; f`, `set -u; f() { local A; echo $B; }; f`,
	} {
		b := newBox(t)
		b.call("bash", m{"command": `export A=1; ` + command})
		has(t, command, b.call("bash", m{"command": `echo "<$A>"`}), true, "<1>")
	}
}

// TestATrapOfEachCommandIsNotForOurs: what it says in front of each command says nothing in front of those that list the variables, beyond
// the first of them.
func TestATrapOfEachCommandIsNotForOurs(t *testing.T) {
	b := newBox(t)
	if got := b.call("bash", m{"command": "trap 'echo next' DEBUG; export A=1"}).Output; strings.Count(got, "next") != 2 {
		t.Errorf("the command says %q", got)
	}
	has(t, "the next", b.call("bash", m{"command": `echo "<$A>"`}), true, "<1>")
}

// TestALocaleDoesNotChangeHowTheListIsRead: there are locales whose letters have the bytes of quotes and backslashes in them.
func TestALocaleDoesNotChangeHowTheListIsRead(t *testing.T) {
	locales := t.TempDir()
	if out, err := exec.Command("localedef", "-i", "zh_TW", "-f", "BIG5", filepath.Join(locales, "zh_TW.BIG5")).CombinedOutput(); err != nil {
		t.Skipf("there is no locale to try: %v: %s", err, out)
	}
	b := newBox(t)
	b.call("bash", m{"command": "export LOCPATH=" + locales})
	b.call("bash", m{"command": `export LC_ALL=zh_TW.BIG5 V=$'\xa5\x5c' W=$'\xa5\x5c"; x'`})
	b.call("bash", m{"command": `printf '%s|%s|%s' "$V" "$W" "$LC_ALL" >out`})
	if got, want := read(t, b.root, "out"), "\xa5\x5c|\xa5\x5c\"; x|zh_TW.BIG5"; got != want {
		t.Errorf("%q became %q", want, got)
	}
}

// TestHowLongTheListIsDoesNotMatter: what is kept is bounded by what the next command gets, not by how bash writes it.
func TestHowLongTheListIsDoesNotMatter(t *testing.T) {
	b := newBox(t)
	b.put("in", strings.Repeat("ü", 30_000), 0o644)
	for name, command := range map[string]string{
		"bytes that can't be shown": `export LC_ALL=C V="$(cat in)"`,
		"an array":                  `export V="$(cat in)"; L=({1..30000}); export L`,
	} {
		has(t, name, b.call("bash", m{"command": command, "fresh": true}), true)
		has(t, "after "+name, b.call("bash", m{"command": `printf %s "$V" | cmp - in && echo same`}), true, "same")
	}
	has(t, "too much", b.call("bash", m{"command": `export W="$(cat in in)"; export X="$W"`, "fresh": true}), true, "is larger than")
	has(t, "after too much", b.call("bash", m{"command": `echo "<$W>"`}), true, "<>")
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
