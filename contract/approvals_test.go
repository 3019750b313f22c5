package contract_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"choir.dev/choiros/contract"
)

// TestActDigest shows that everything that identifies an act is in its digest, because an approval
// is for one act.
func TestActDigest(t *testing.T) {
	act := contract.Act{Kind: contract.ApprovalEgress, Run: contract.NewID(), Host: "a.example", Port: 443}
	first, err := act.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]contract.Act{
		"run":  {Kind: act.Kind, Run: contract.NewID(), Host: act.Host, Port: act.Port},
		"host": {Kind: act.Kind, Run: act.Run, Host: "b.example", Port: act.Port},
		"port": {Kind: act.Kind, Run: act.Run, Host: act.Host, Port: 444},
		"kind": {Kind: "deploy", Run: act.Run, Host: act.Host, Port: act.Port},
		"url":  {Kind: act.Kind, Run: act.Run, Host: act.Host, Port: act.Port, URL: "https://a.example/"},
	} {
		if d, err := other.Digest(); err != nil || d == first {
			t.Errorf("another %s has the same digest (%v)", name, err)
		}
	}
	if again, _ := act.Digest(); again != first {
		t.Error("the digest of one act changes")
	}
}

// TestClaim shows that an agent's text can't reorder, hide or fake what is shown around it.
func TestClaim(t *testing.T) {
	for in, want := range map[string]string{
		"plain words":               "plain words",
		"  two\n\n lines\t":         "two lines",
		"bell\a and \x1b[31mred":    "bell and [31mred",
		"reversed \u202eabc\u202c!": "reversed abc!",
		"zero\u200bwidth\ufeff":     "zerowidth",
		"bad \xff byte":             "bad \uFFFD byte",
		"":                          "",
	} {
		if got := contract.Claim(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	long := contract.Claim(strings.Repeat("wörd ", 300))
	if n := utf8.RuneCountInString(long); n > contract.MaxClaim || !strings.HasSuffix(long, "…") {
		t.Errorf("a long claim has %d characters and ends with %q", n, long[len(long)-5:])
	}
	if contract.Claim(long) != long {
		t.Error("a claim that was made plain changes again")
	}
}
