package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	x32Bit    = 0
)

var inotify = []uint32{unix.SYS_INOTIFY_INIT1}

var refusedHere []uint32
