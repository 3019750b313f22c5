package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	x32Bit    = 0x40000000 // set in the number of every x32 call
)

var inotify = []uint32{unix.SYS_INOTIFY_INIT, unix.SYS_INOTIFY_INIT1}

var refusedHere = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE}
