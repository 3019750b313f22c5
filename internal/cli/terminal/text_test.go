package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"choir.dev/choiros/test/choirtest"
)

// hostile contains what a terminal would obey, in every spelling: escape sequences of two bytes and
// of one that set the window's title and the clipboard, a carriage return, deletions, and marks of
// direction.
const hostile = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x1b\\\u009d0;owned\u009c\x1b[2Ja\rb\x7f\x08\u202eeslaf\u2066\u2028c"

// obeys returns what a terminal would obey in a program's output.
func obeys(out string) (bad []string) {
	for _, r := range out {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028') {
			bad = append(bad, fmt.Sprintf("%U", r))
		}
	}
	return bad
}

// TestAttack26_WhatIsPrintedIsTextToATerminal plays a control plane that passes on texts of models,
// boxes and providers to the real binary.
func TestAttack26_WhatIsPrintedIsTextToATerminal(t *testing.T) {
	answer := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	run := map[string]any{"id": "r", "status": "waiting", "prompt": hostile, "summary": hostile, "reason": hostile, "error": hostile, "model": hostile, "provider": hostile,
		"questions": []map[string]any{{"id": "q", "text": hostile, "choices": []string{hostile}}}, "tasks": []map[string]any{{"goal": hostile}}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p := r.URL.Path; {
		case strings.HasSuffix(p, "/runs/r"):
			_, _ = w.Write(answer(run))
		case strings.HasSuffix(p, "/files"):
			_, _ = w.Write(answer([]map[string]any{{"id": hostile, "kind": "file"}}))
		case strings.HasSuffix(p, "/models"):
			_, _ = w.Write(answer([]map[string]any{{"id": hostile, "note": hostile, "aliases": []string{hostile}}}))
		case strings.HasSuffix(p, "/checkpoints"):
			_, _ = w.Write(answer([]map[string]any{{"id": hostile, "kind": hostile, "message": hostile}}))
		default:
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write(answer(map[string]any{"code": "conflict", "detail": hostile, "hint": hostile}))
		}
	}))
	defer srv.Close()
	for _, args := range [][]string{{"runs", "r"}, {"files", "ls"}, {"models"}, {"checkpoints"}, {"undo"}, {"events"}} {
		for _, more := range [][]string{nil, {"--json"}} {
			if args[0] == "events" && more != nil {
				continue
			}
			args := append(append([]string{}, args...), more...)
			cmd := exec.Command(choirtest.Binary(t), args...)
			cmd.Env = append(os.Environ(), "CHOIR_URL="+srv.URL, "CHOIR_TOKEN=choir_of-this-test-only-0000")
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if !strings.Contains(string(out), "owned") {
				t.Errorf("choir %v shows nothing of what was said: %q", args, out)
			}
			if bad := obeys(string(out)); len(bad) > 0 {
				t.Errorf("choir %v prints what a terminal obeys: %v in %q", args, bad, out)
			}
		}
	}
}

// TestNoCellEndsItsLine shows that each entry of a list is one line, whatever is in it.
func TestNoCellEndsItsLine(t *testing.T) {
	var b bytes.Buffer
	err := Table(&b, func(w io.Writer) {
		Row(w, "one", "a\n✓\tforged\v\f", errors.New("b\x1b[31m"))
		fmt.Fprint(w, "whatever a verb writes\x1b[2J\n")
	})
	if err != nil || strings.Count(b.String(), "\n") != 2 || len(obeys(b.String())) > 0 {
		t.Errorf("%v, %q", err, b.String())
	}
}

// TestJSONHoldsTheSameValues shows that escaping does not change the values that a program decodes.
func TestJSONHoldsTheSameValues(t *testing.T) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]string{hostile: hostile + "<ä😀>"}); err != nil {
		t.Fatal(err)
	}
	safe := SafeJSON(b.Bytes())
	var back map[string]string
	if err := json.Unmarshal(safe, &back); err != nil || back[hostile] != hostile+"<ä😀>" {
		t.Errorf("%v: %q became %q", err, b.String(), safe)
	}
	if bad := obeys(string(safe)); len(bad) > 0 {
		t.Errorf("%v in %q", bad, safe)
	}
	if plain := []byte("{\"a\": \"ä😀\"}\n"); !bytes.Equal(SafeJSON(plain), plain) {
		t.Errorf("%q was changed", plain)
	}
}

// TestAScreenShowsColoursAndText shows that colours and text pass the filter, however the input is
// cut.
func TestAScreenShowsColoursAndText(t *testing.T) {
	const in = "ä\x1b[1;31mred\x1b[0m\n\tok\r\x1b]0;owned\x07\x1b[2J\x1b[6n\u009b2Jx\x1b[3\xff\x1b[1"
	const want = "ä\x1b[1;31mred\x1b[0m\n\tok\r^[]0;owned^G^[[2J^[[6n<U+009B>2Jx^[[3\ufffd^[[1"
	for size := 1; size <= len(in); size++ {
		var b bytes.Buffer
		s := &screen{w: &b}
		for at := 0; at < len(in); at += size {
			if _, err := s.Write([]byte(in[at:min(at+size, len(in))])); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.flush(); err != nil || b.String() != want {
			t.Fatalf("by %d: %v, %q, not %q", size, err, b.String(), want)
		}
	}
}

// TestAPipeGetsEveryByte shows that output is filtered for terminals only.
func TestAPipeGetsEveryByte(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	to, done := OnScreen(w)
	if _, err = io.WriteString(to, hostile+"\xff"); err == nil {
		err = errors.Join(done(), w.Close())
	}
	if got, rerr := io.ReadAll(r); err != nil || rerr != nil || string(got) != hostile+"\xff" {
		t.Errorf("%v %v: %q", err, rerr, got)
	}
}

// TestAttack26_AnEscapeIsNotHiddenByWhatATerminalSkips: terminals continue an escape sequence after
// control characters and after bytes that they ignore.
func TestAttack26_AnEscapeIsNotHiddenByWhatATerminalSkips(t *testing.T) {
	for _, between := range []string{"\x00", "\r", "\n\t", "\x07", "\x7f", "\xc2", "\x9d", "\xff", "\u00a3", "\x05\x1b\x00"} {
		var out bytes.Buffer
		if _, err := (&Drawing{To: &out}).Write([]byte("a\x1b" + between + "]52;c;b3du\x07b")); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Contains(got, "52;") || !strings.HasSuffix(got, "b") {
			t.Errorf("%q: %q", between, got)
		}
	}
	var out bytes.Buffer
	if _, err := (&Drawing{To: &out}).Write([]byte("a\x1bkowned\x1b\\b\x1b\r[1m")); err != nil || out.String() != "ab\r\x1b[1m" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestADrawnTerminalIsNotSpokenTo shows that what a program draws passes the filter, however it is
// cut, and that strings addressed to the terminal itself do not.
func TestADrawnTerminalIsNotSpokenTo(t *testing.T) {
	const in = "a\x1b[1;5Hb\x1b]0;title\x07c\x1b]52;c;b3du\x1b\\d\x1bPq1\x1b\\e\u00a3\u009d2;x\u009cf\x1b_x\x18g\x1bM\x1b\x1b[Ah\xff\xc2"
	const want = "a\x1b[1;5Hbcde\u00a3fg\x1bM\x1b\x1b[Ah\xff"
	for n := 1; n <= len(in); n++ {
		var out bytes.Buffer
		d := &Drawing{To: &out}
		for rest := []byte(in); len(rest) > 0; rest = rest[min(n, len(rest)):] {
			if _, err := d.Write(rest[:min(n, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Fatalf("%d bytes at a time: %q, want %q", n, out.String(), want)
		}
	}
}
