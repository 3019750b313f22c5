package architecture_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// cutID is an id that is cut short where it is drawn.
var cutID = regexp.MustCompile(`NewID\(\)\[[^\]]*:[^\]]*\]`)

// TestNoIDIsCutShort: an id begins with the time, so what is left of one that was cut is drawn twice in the same moment. contract.Nonce
// is for short names.
func TestNoIDIsCutShort(t *testing.T) {
	for _, dir := range []string{"cmd", "contract", "internal"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(p string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
				return err
			}
			text, err := os.ReadFile(p)
			if at := cutID.FindIndex(text); at != nil {
				t.Errorf("%s:%d cuts an id short", p, 1+strings.Count(string(text[:at[0]]), "\n"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !cutID.MatchString("contract.NewID()[:12]") {
		t.Error("a cut id is not seen")
	}
}
