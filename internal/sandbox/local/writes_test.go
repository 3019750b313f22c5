package local

import (
	"testing"

	"choir.dev/choiros/internal/sandbox"
)

// TestOnlyWhatCanBeWrittenIsMeasured: a box that has nothing on a disk to write to needs nobody who looks at it,
// and every other one has somebody.
func TestOnlyWhatCanBeWrittenIsMeasured(t *testing.T) {
	seen := func(m ...sandbox.Mode) *box {
		b := &box{}
		for _, mode := range m {
			b.mounts = append(b.mounts, mount{Mode: mode})
		}
		return b
	}
	counted := &box{}
	counted.limits.Counted = []sandbox.Volume{sandbox.Live("")}
	for name, c := range map[string]struct {
		box  *box
		want bool
	}{
		"nothing": {seen(), false}, "what is read": {seen(sandbox.ReadOnly), false}, "memory": {seen(sandbox.Tmpfs), false},
		"the live tree": {seen(sandbox.ReadOnly, sandbox.ReadWrite), true}, "an overlay": {seen(sandbox.Overlay), true}, "a counted place": {counted, true},
	} {
		if got := c.box.writesDisk(); got != c.want {
			t.Errorf("a box that sees %s: %v", name, got)
		}
	}
}
