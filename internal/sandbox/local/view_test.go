package local_test

import (
	"os/exec"
	"testing"
)

// BenchmarkBubblewrapSameView runs true in bubblewrap alone with the mounts of a box, which shows
// how much of a box's start is bubblewrap's.
func BenchmarkBubblewrapSameView(b *testing.B) {
	program, args := open(b).View()
	args = append(args, "--bind", b.TempDir(), "/computer", "--remount-ro", "/", "/bin/true")
	for b.Loop() {
		if err := exec.Command(program, args...).Run(); err != nil {
			b.Fatal(err)
		}
	}
}
