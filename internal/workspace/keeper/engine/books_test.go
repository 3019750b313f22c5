package engine_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestADamagedRecordOfAPublishIsSetAside damages each of the keeper's files about one publish in
// each way. That record must be set aside, and files, history and the next publish must be as if it
// had been undamaged.
func TestADamagedRecordOfAPublishIsSetAside(t *testing.T) {
	t.Parallel()
	ways := map[string]func(string) error{
		"gone":    os.Remove,
		"empty":   func(f string) error { return os.Truncate(f, 0) },
		"garbage": func(f string) error { return os.WriteFile(f, []byte("{\"x"), 0o600) },
		"folder":  func(f string) error { return errors.Join(os.Remove(f), os.Mkdir(f, 0o700)) },
		"link":    func(f string) error { return errors.Join(os.Remove(f), os.Symlink("/nowhere/at/all", f)) },
		"fifo":    func(f string) error { return errors.Join(os.Remove(f), unix.Mkfifo(f, 0o600)) },
		"endless": func(f string) error { return errors.Join(os.Remove(f), os.Symlink("/dev/zero", f)) },
	}
	for name, way := range ways {
		for _, file := range []string{"result.json", "plan.json"} {
			t.Run(name+" "+file, func(t *testing.T) {
				c := open(t)
				c.write("workspace/mine", "one\n")
				k := c.begin("a")
				k.write("workspace/mine", "two\n")
				k.publish()
				c.write("workspace/later", "later\n")
				newest := c.checkpoint("later").Commit.Commit
				if err := way(c.path(".git/choir/publish/p-a/" + file)); err != nil {
					t.Fatal(err)
				}
				c.reopen()
				if _, err := c.Unlogged(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.write("workspace/last", "last\n")
				last := c.checkpoint("last")
				for f, want := range map[string]string{"mine": "two\n", "later": "later\n", "last": "last\n"} {
					if got := c.read("workspace/" + f); got != want {
						t.Errorf("%s is %q", f, got)
					}
				}
				k = c.begin("b")
				k.write("workspace/mine", "three\n")
				k.publish()
				if got := c.read("workspace/mine"); got != "three\n" {
					t.Errorf("after the next publish it is %q", got)
				}
				list, err := c.List(t.Context(), wire.ListRequest{})
				if err != nil {
					t.Fatal(err)
				}
				found := map[string]bool{}
				for _, l := range list {
					found[l.Commit] = true
				}
				if !found[newest] || !found[last.Commit.Commit] {
					t.Errorf("the history is %v", list)
				}
				c.fsck()
			})
		}
	}
}
