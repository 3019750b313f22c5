package main

import (
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	probes["socket-filter"] = func([]string) error {
		s, _, err := pair()
		if err != nil {
			return err
		}
		return unix.SetsockoptSockFprog(s, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, longFilter())
	}
	probes["call-filter"] = func(args []string) error { // seccomp|prctl
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		filter := longFilter()
		defer runtime.KeepAlive(filter)
		program := uintptr(unsafe.Pointer(filter))
		if arg(args, 0) == "prctl" {
			return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, program, 0, 0)
		}
		if _, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, program); errno != 0 {
			return errno
		}
		return nil
	}
}

// longFilter lets everything pass, and is as long as the kernel takes one.
func longFilter() *unix.SockFprog {
	program := slices.Repeat([]unix.SockFilter{{Code: unix.BPF_ALU | unix.BPF_DIV | unix.BPF_K, K: 3}}, 4096)
	program[len(program)-1] = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	return &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
}
