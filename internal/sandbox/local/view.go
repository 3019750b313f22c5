package local

import "slices"

// View returns the bubblewrap program and the arguments that make what every
// box sees, without the filter and the reports that only the driver can feed:
// what a benchmark runs to learn how much of a box's start is bubblewrap's own.
func (d *Driver) View() (program string, args []string) {
	args = slices.Clone(d.layout)
	for _, flag := range []string{"--seccomp", "--info-fd"} {
		if i := slices.Index(args, flag); i >= 0 {
			args = slices.Delete(args, i, i+2)
		}
	}
	return d.bwrap, append(args, "--tmpfs", "/tmp")
}
