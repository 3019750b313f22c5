package config

import "testing"

// TestABoxMayTakeHalfOfTheMachine and no less than most programs need, nor more than a compiler does.
func TestABoxMayTakeHalfOfTheMachine(t *testing.T) {
	for _, c := range []struct {
		machine uint64
		want    int
	}{{1 << 30, 2048}, {4 << 30, 2048}, {6 << 30, 3072}, {8 << 30, 4096}, {64 << 30, 4096}} {
		if got := halfMB(c.machine); got != c.want {
			t.Errorf("of %d bytes a box may take %d MiB, want %d", c.machine, got, c.want)
		}
	}
	if got := Default().Runtime.MemoryMB; got < leastMemoryMB || got > mostMemoryMB {
		t.Errorf("here it may take %d MiB", got)
	}
}
