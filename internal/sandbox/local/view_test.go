package local_test

import (
	"os/exec"
	"testing"
)

// BenchmarkBubblewrapSameView is bubblewrap alone with the mounts of a box,
// running true: what of a box's start is bubblewrap's.
func BenchmarkBubblewrapSameView(b *testing.B) {
	program, args := open(b).View()
	args = append(args, "--bind", b.TempDir(), "/computer", "--remount-ro", "/", "/bin/true")
	for b.Loop() {
		if err := exec.Command(program, args...).Run(); err != nil {
			b.Fatal(err)
		}
	}
}
