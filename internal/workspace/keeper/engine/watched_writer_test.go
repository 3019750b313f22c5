package engine_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// meanwhile is a context that runs do once, when it is asked for the nth time whether it has ended,
// which a scan asks at each directory.
type meanwhile struct {
	context.Context
	n  int
	do func()
}

func (m *meanwhile) Err() error {
	if m.n--; m.n == 0 {
		m.do()
	}
	return m.Context.Err()
}

// TestAWriterThatBeganDuringAScanIsScannedFor shows that what is written during a scan is found,
// although the stillness that the request names ended meanwhile and the file was written through
// another name in a folder that is not watched yet, which no event tells.
func TestAWriterThatBeganDuringAScanIsScannedFor(t *testing.T) {
	c := open(t)
	const trials = 10
	for i := range trials {
		c.write(fmt.Sprintf("workspace/a/f%d", i), fmt.Sprint("file ", i))
	}
	believed(t)
	c.underStill("first")
	ran := 0
	for i := range trials {
		victim, folder := fmt.Sprintf("workspace/a/f%d", i), fmt.Sprintf("workspace/new%d", i)
		c.write(folder+"/other", "other")
		ctx := &meanwhile{t.Context(), i + 1, func() {
			ran++
			throughLink(t, c, victim, folder+"/alias", true)
		}}
		_, err := c.Checkpoint(scan.WithStill(ctx, fmt.Sprint("before ", i)), wire.CheckpointRequest{Note: wire.Note{Kind: "before"}})
		must(t, err)
		r := c.underStill(fmt.Sprint("after ", i))
		got, err := os.ReadFile(c.path(victim))
		must(t, err)
		if held := stockGit(t, c.opts.Root, "show", "HEAD:"+victim); held != string(got) {
			t.Errorf("%d: the checkpoint has %q where the file holds %q", i, held, got)
		}
		c.whole(fmt.Sprint(i), r)
	}
	if ran < trials/2 {
		t.Errorf("only %d of the scans were met", ran)
	}
}
