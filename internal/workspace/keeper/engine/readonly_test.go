package engine_test

import (
	"bytes"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"choir.dev/choiros/test/choirtest"
	"golang.org/x/sys/unix"
)

// TestADiskThatIsMountedReadOnlyIsNoClosedFolder shows that with such a disk every request that
// writes is answered with the read-only disk and not with advice to change a mode, that files can
// be read, and that everything works again when the disk can be written to.
func TestADiskThatIsMountedReadOnlyIsNoClosedFolder(t *testing.T) {
	if !choirtest.OwnMounts(t) {
		return
	}
	c := open(t)
	c.write("workspace/a", "one")
	c.checkpoint("one")
	// The engine reaches its own directories by their names, as in its box.
	own := c.path(".git/choir")
	if err := unix.Mount(own, own, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", own, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, write := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/a"}, bytes.NewReader([]byte("two")))
	_, remove := c.Remove(t.Context(), wire.RemoveRequest{Path: "workspace/a"})
	_, look := c.Checkpoint(t.Context(), wire.CheckpointRequest{Note: wire.Note{Kind: "manual", Message: "two"}})
	for door, err := range map[string]error{"write": write, "remove": remove, "checkpoint": look} {
		if fault.CodeOf(err) != fault.Unavailable || fault.HintOf(err) != fault.Unwritable {
			t.Errorf("%s: %v: code %s, hint %q", door, err, fault.CodeOf(err), fault.HintOf(err))
		}
	}
	if got := c.read("workspace/a"); got != "one" {
		t.Errorf("the file holds %q", got)
	}
	if err := unix.Unmount(own, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/a"}, bytes.NewReader([]byte("two"))); err != nil {
		t.Error(err)
	}
}
