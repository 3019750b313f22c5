package gateway

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
)

// TestStreamedTextNeverShowsAKey cuts texts that contain keys at every place, as a stream could,
// and checks what was shown.
func TestStreamedTextNeverShowsAKey(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		key := rapid.StringMatching(`[A-Za-z0-9_-]{6,30}`).Draw(r, "key")
		spelling := rapid.SampledFrom([]string{key, hex.EncodeToString([]byte(key)), base64.StdEncoding.EncodeToString([]byte(key)), base64.RawURLEncoding.EncodeToString([]byte(key)), key[:len(key)-1], "ünïcode", "😀"})
		var text string
		for range rapid.IntRange(1, 6).Draw(r, "n") {
			text += rapid.StringN(0, 8, 20).Draw(r, "between") + spelling.Draw(r, "part")
		}
		c := newCollector(Limits{}.withDefaults(), newRedactor(key), nil, "anthropic", contract.TurnRequest{})
		var shown strings.Builder
		c.onDelta = func(s string) {
			if !utf8.ValidString(s) {
				r.Fatalf("a delta cuts a character in two: %q", s)
			}
			shown.WriteString(s)
		}
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(r, "cut")
			if err := c.Text(rest[:n]); err != nil {
				r.Fatal(err)
			}
			rest = rest[n:]
		}
		m := c.message()
		whole := ""
		for _, p := range m.Parts {
			whole += p.Text
		}
		if shown.String() != whole {
			r.Fatalf("shown %q, kept %q", shown.String(), whole)
		}
		for _, k := range newRedactor(key).spellings {
			if strings.Contains(whole, k) {
				r.Fatalf("%q is in %q", k, whole)
			}
		}
		if want := clean(newRedactor(key).secrets(text)); !strings.Contains(want, redacted) && whole != want {
			r.Fatalf("text without a key was changed: %q, want %q", whole, want)
		}
	})
}

func TestErrorsFromOutsideAreFitToShow(t *testing.T) {
	r := newRedactor("hunter2hunter2")
	for in, want := range map[string]string{
		"bad key hunter2hunter2\nline two\x1b[31m":              "bad key [key] line two [31m",
		"Authorization: Bearer abcdefgh12345678 was refused":    "Authorization: [key] was refused",
		"Incorrect API key provided: sk-pro****************abc": "Incorrect API key provided: [key]",
	} {
		if got := r.text(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := r.text(strings.Repeat("ä", 5000)); len(got) > maxMessage+8 || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
}

// TestAModelMayThinkForFiveMinutes without a word, and with signs of life only.
func TestAModelMayThinkForFiveMinutes(t *testing.T) {
	if l := (Limits{}).withDefaults(); min(l.FirstByte, l.Idle, l.Stall) <= 5*time.Minute || l.Wall <= l.Stall || l.Patience < 10*time.Minute {
		t.Errorf("%+v", l)
	}
}
