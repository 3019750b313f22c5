package disk

import "golang.org/x/sys/unix"

// Marks of overlayfs in an upper.
const (
	Whiteout = "overlay.whiteout" // an empty file that stands for a removal
	Opaque   = "overlay.opaque"   // a directory that hides what is beneath it
)

// Marked reports whether an open file or directory carries one of overlayfs's marks, in the
// namespace that unprivileged mounts use or the privileged one.
func Marked(fd int, mark string) bool {
	var buf [8]byte
	for _, ns := range []string{"user.", "trusted."} {
		if n, err := unix.Fgetxattr(fd, ns+mark, buf[:]); err == nil && (mark != Opaque || n > 0 && buf[0] == 'y') {
			return true
		}
	}
	return false
}
