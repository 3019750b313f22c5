package engine_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"choir.dev/choiros/test/choirtest"
)

// TestAPushOntoAFullDisk fills the disk at each page that a push writes and at each file that it
// creates, whether it is kept as files or as a pack. The answer must be that the disk is full. What
// was not decided by then is not there and has left nothing; with room it can be pushed, and what was
// decided is there.
func TestAPushOntoAFullDisk(t *testing.T) {
	if choirtest.SmallDisk(t, "size=48m,nr_inodes=20000") == "" {
		return
	}
	c, _ := pushes(t)
	sub := strings.TrimSpace(c.git("rev-parse", "HEAD:sub"))
	failed := map[string]int{}
	for n := range 84 {
		left, what, fill := n/4, "pages", choirtest.FillDisk
		if n%2 == 1 {
			what, fill = "files", filesTo
		}
		files := 2
		if n%4 > 1 { // 48 objects and more become a pack
			files, left = 60, left*5
		}
		content := fmt.Sprintf("push %d\n", n)
		b := &brought{base: c.Head()}
		names := []string{"100644 a", b.file(content)}
		for i := range files {
			names = append(names, fmt.Sprintf("100644 f%03d", i), b.file(fmt.Sprint(content, i)))
		}
		b.commit(b.tree(append(names, "40000 sub", sub)...), content, b.base)
		at := ""
		push := func(id string) error {
			at = "receive"
			_, err := c.Pushes().Receive(c.ctx(), wire.ReceiveRequest{ID: id, Base: b.base, Tip: b.tip, Most: 64 << 20}, bytes.NewReader(b.list.Bytes()))
			if err != nil {
				return err
			}
			at = "prepare"
			req := preparedPush(b.base, b.tip)
			req.ID, req.Received = "publish-"+id, id
			if p, err := c.Prepare(c.ctx(), req); err != nil || len(p.Conflicts) > 0 {
				return fmt.Errorf("%v, %w", p.Conflicts, err)
			}
			at = "begin"
			if err := c.Begin(c.ctx(), req.ID); err != nil {
				return err
			}
			at = "apply"
			_, err = c.Apply(c.ctx(), req.ID)
			return err
		}
		free := fill(t, left)
		err := push(fmt.Sprintf("push-%d", n))
		if err != nil && (fault.CodeOf(err) != fault.DiskFull || fault.HintOf(err) != fault.FreeSpace) {
			t.Errorf("%s of %d files with %d %s: %s: %v", at, files, left, what, fault.CodeOf(err), err)
		}
		free()
		if derr := c.Drop(c.ctx(), fmt.Sprintf("push-%d", n)); derr != nil {
			t.Errorf("drop after %s of %d files with %d %s: %v", at, files, left, what, derr)
		}
		if err != nil {
			failed[at]++
			if n%3 == 0 {
				c.reopen()
			}
			if err := push(fmt.Sprintf("again-%d", n)); err != nil {
				t.Errorf("with room, after %s of %d files with %d %s: %s: %v", at, files, left, what, at, err)
			}
		}
		if beside := c.besideStore(); len(beside) > 0 {
			t.Errorf("after %d files with %d %s there is %v", files, left, what, beside)
		}
		if raw, err := os.ReadFile(c.path("a")); err != nil || string(raw) != content {
			t.Errorf("after %d files with %d %s the computer has %q, %v", files, left, what, raw, err)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("failed at %v", failed)
	for _, at := range []string{"receive", "prepare", "apply"} {
		if failed[at] == 0 {
			t.Errorf("the disk was never full at %s", at)
		}
	}
	stockGit(t, c.opts.Root, "fsck", "--full", "--strict")
}
