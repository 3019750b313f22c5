package engine_test

import (
	"fmt"
	"os"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/test/choirtest"
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

// TestAStartThatMakesATornPutAgainMayDie kills the start that makes the content of a torn put
// again, when its record names what replaces the torn file and that does not have its name yet.
// The next start goes on.
func TestAStartThatMakesATornPutAgainMayDie(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"a", "new/dir/b"} {
		c := open(t)
		c.write("a", "first")
		puts := putAndDie(t, c, 0, path)
		puts[0].takeBack(t, c)
		must(t, os.WriteFile(puts[0].content(c), []byte("pu"), 0o600))
		for range 2 {
			if !runChild(t, childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: "journal.synced", Nth: 1}) {
				t.Fatal("it was not killed")
			}
		}
		c.reopen()
		if got := c.read(path); got != "put 0" {
			t.Errorf("%s holds %q", path, got)
		}
		if got, err := os.ReadFile(puts[0].content(c)); path == "a" && (err != nil || string(got) != "first") {
			t.Errorf("it displaced %q, %v", got, err)
		}
	}
}

// TestAStartOnAFullDiskLeavesATornPut has the disk be full at each page that a start writes which
// makes the content of a torn put again. It may fail; once there is room the put is there.
func TestAStartOnAFullDiskLeavesATornPut(t *testing.T) {
	if choirtest.SmallDisk(t, smallDisk) == "" {
		return
	}
	failures := 0
	for n := range 12 {
		for _, path := range []string{"a", "new"} {
			c := open(t)
			c.write("a", "first")
			puts := putAndDie(t, c, 3*4096, path)
			want := c.read(path)
			puts[0].takeBack(t, c)
			must(t, os.WriteFile(puts[0].content(c), []byte("pu"), 0o600))
			free := choirtest.FillDisk(t, n)
			e, err := engine.Open(t.Context(), c.opts)
			free()
			if err == nil {
				must(t, e.Close())
			} else if failures++; !fault.NoSpace(err) {
				t.Errorf("with room for %d pages: %v", n, err)
			}
			c.reopen()
			if got := c.read(path); got != want {
				t.Errorf("with room for %d pages at first, %s holds %.20q; the start: %v", n, path, got, err)
			}
			must(t, c.Close())
			c.Engine = nil
		}
	}
	if failures == 0 {
		t.Error("no start failed")
	}
}
