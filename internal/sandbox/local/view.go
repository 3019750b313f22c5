package local

import "slices"

// View returns the bubblewrap program and the arguments for the part of a box's view that
// is the same for all, without the filter and the reports that only the driver can feed. A
// benchmark runs it to measure how much of a box's start is bubblewrap's own.
func (d *Driver) View() (program string, args []string) {
	args = slices.Clone(d.layout)
	for _, flag := range []string{"--seccomp", "--info-fd"} {
		if i := slices.Index(args, flag); i >= 0 {
			args = slices.Delete(args, i, i+2)
		}
	}
	return d.bwrap, append(args, "--tmpfs", "/tmp")
}
