package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestATokenDoesWhatItWasMadeFor shows that a token with the one capability that a verb requires
// allows everything that the verb does, including its events and checkpoints, and that without it
// the verb is refused with an explanation and changes nothing.
func TestATokenDoesWhatItWasMadeFor(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	lent := func(may ...string) *choirtest.Instance {
		t.Helper()
		args := []string{"tokens", "create", strings.Join(may, "-"), "--days", "1"}
		for _, word := range may {
			args = append(args, "--may", word)
		}
		var k view.Token
		in.JSON(t, &k, args...)
		if len(k.May) != len(may) || k.Expires == nil {
			t.Errorf("made for %v: %+v", may, k)
		}
		out := *in
		out.Token = k.Secret
		return &out
	}
	file := filepath.Join(t.TempDir(), "note")
	if err := os.WriteFile(file, []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tokens := map[string]*choirtest.Instance{}
	for _, word := range []string{"read", "prompt", "write", "exec", "restore", "self"} {
		tokens[word] = lent(word)
	}
	for _, c := range []struct {
		takes string
		args  []string
	}{
		{"write", []string{"files", "put", file, "workspace/note"}},
		{"write", []string{"files", "put", file, "workspace/other"}},
		{"read", []string{"files", "cat", "workspace/note"}},
		{"read", []string{"events", "--limit", "3"}},
		{"restore", []string{"checkpoint"}},
		{"exec", []string{"exec", "--", "sh", "-c", "echo more >>workspace/note"}},
		{"write", []string{"files", "rm", "workspace/other"}},
		{"restore", []string{"undo"}},
		{"self", []string{"tokens"}},
	} {
		for word, who := range tokens {
			if word == c.takes {
				continue
			}
			if r, err := who.Run(t.Context(), c.args...); err != nil || r.Code == 0 || !strings.Contains(r.Stderr, "takes the capability \""+c.takes) {
				t.Errorf("a token for %s: choir %s: %v, %+v", word, strings.Join(c.args, " "), err, r)
			}
		}
		if r, err := tokens[c.takes].Run(t.Context(), c.args...); err != nil || r.Code != 0 {
			t.Errorf("a token for %s: choir %s: %v, %+v", c.takes, strings.Join(c.args, " "), err, r)
		}
	}
	if got := in.Must(t, "files", "cat", "workspace/note") + in.Must(t, "files", "cat", "workspace/other"); got != "text\nmore\ntext\n" {
		t.Errorf("after all that the files say %q", got)
	}
	if r, err := tokens["read"].Run(t.Context(), "prompt", "say hello"); err != nil || r.Code == 0 || !strings.Contains(r.Stderr, "takes the capability \"prompt") {
		t.Errorf("a token for reading prompts: %v, %+v", err, r)
	}
	if r, err := lent("read", "prompt").Run(t.Context(), "prompt", "say hello"); err != nil || r.Code != 0 {
		t.Errorf("a token for prompting: %v, %+v", err, r)
	}
}
