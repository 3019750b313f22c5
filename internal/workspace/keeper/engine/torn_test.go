package engine_test

import (
	"fmt"
	"os"
	"testing"
)

// TestAPutWhoseContentAPowerCutTookIsThere: a put syncs its content and its entry of the journal
// side by side, so a power cut may leave the entry whole and the content with zeroes, cut off or
// empty. The next start makes the put with the journal's bytes, and never with those.
func TestAPutWhoseContentAPowerCutTookIsThere(t *testing.T) {
	t.Parallel()
	for what, torn := range map[string]string{"zeroes": "\x00\x00\x00\x00\x00", "cut off": "pu", "empty": ""} {
		for _, path := range []string{"a", "new/dir/b"} {
			t.Run(fmt.Sprintf("%s, %s", path, what), func(t *testing.T) {
				c := open(t)
				c.write("a", "first")
				puts := putAndDie(t, c, 0, path)
				if len(puts) != 1 {
					t.Fatalf("%d puts are not known to be on disk", len(puts))
				}
				puts[0].takeBack(t, c)
				must(t, os.WriteFile(puts[0].content(c), []byte(torn), 0o600)) // the file stays the same one
				for range 2 {
					c.reopen()
					if got := c.read(path); got != "put 0" {
						t.Errorf("it holds %q", got)
					}
				}
				if got, err := os.ReadFile(puts[0].content(c)); path == "a" && (err != nil || string(got) != "first") {
					t.Errorf("it displaced %q, %v", got, err)
				}
			})
		}
	}
}
