package engine_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestARefusedPutIsNotToldAfterAPowerCut shows that a put that was refused just before it would
// displace a file leaves nothing, also when only the synced part of the keeper's journal is on
// disk.
func TestARefusedPutIsNotToldAfterAPowerCut(t *testing.T) {
	var c *computer
	journal := func(root string) string { return filepath.Join(root, ".git/choir/journal") }
	var synced int64
	faster := false
	c = open(t, func(o *engine.Options) {
		o.Crash = func(point string) {
			switch {
			case point == "journal.synced":
				st, err := os.Stat(journal(o.Root))
				if err != nil {
					t.Error(err)
				}
				synced = st.Size()
			case point == "trash.intended" && faster:
				faster = false
				c.write("a", "a program was faster")
			}
		}
	})
	c.write("a", "first")
	c.checkpoint("first")
	info, err := c.Stat(c.ctx(), "a")
	if err != nil {
		t.Fatal(err)
	}
	faster = true
	if _, err := c.Write(c.ctx(), wire.WriteRequest{Path: "a", If: info.ID}, strings.NewReader("put")); !fault.Is(err, fault.Conflict) || faster {
		t.Fatalf("the put: %v", err)
	}
	opts := c.opts
	opts.Root, opts.Crash = filepath.Join(t.TempDir(), "live"), nil
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", c.opts.Root, opts.Root).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := os.Truncate(journal(opts.Root), synced); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := e.UnloggedOperations(t.Context())
	if err != nil || len(operations) > 0 {
		t.Errorf("told: %+v, %v", operations, err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
