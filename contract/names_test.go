package contract_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
)

// TestEveryFileHasASubject draws names of any bytes that a file's name can have: each has a subject
// that an event may have, and no two names share one.
func TestEveryFileHasASubject(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) string {
		p := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b/", "\n", "\x7f", "\xff", "é", "\u2028", "%", "%0a", "#", " ", "/", strings.Repeat("x", 240) + "/"}), 1, 30).Draw(t, "parts")
		return strings.TrimLeft(strings.Join(p, ""), "/") // no path begins with a slash
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		if rapid.Bool().Draw(t, "alike") {
			b = a + rapid.SampledFrom([]string{"x", "\n", "\xff", "%0a"}).Draw(t, "end")
		}
		for _, p := range []string{a, b} {
			e := contract.Event{SpecVersion: "1.0", ID: contract.NewID(), Source: "/computers/abcdefgh12345678/user", Type: "file.removed", Time: time.Unix(0, 0), Subject: contract.FileSubject(p), Sequence: 1, Epoch: 1, Computer: "abcdefgh12345678"}
			if err := e.Validate(); err != nil {
				t.Fatalf("%q: %v", p, err)
			}
		}
		if a == "" || b == "" {
			t.Skip("no name")
		}
		if a != b && contract.FileSubject(a) == contract.FileSubject(b) {
			t.Fatalf("%q and %q share %q", a, b, contract.FileSubject(a))
		}
	})
	if got := contract.FileSubject("workspace/50% done #1.txt"); got != "file/workspace/50% done #1.txt" {
		t.Errorf("a plain name has the subject %q", got)
	}
}
