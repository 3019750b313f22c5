package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	probes["threads"] = probeThreads
	probes["queue"] = probeQueue
	probes["said-of"] = func(args []string) error { return unix.Setxattr(arg(args, 0), "user.said", []byte("x"), 0) }
}

// probeThreads: what: changes for each thread of process 1 but its first what the programs
// inherit that the thread starts; the policy and the disk's class for the first, too.
func probeThreads(args []string) error {
	tasks, err := os.ReadDir("/proc/1/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		switch what := arg(args, 0); {
		case what == "policy":
			err = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH}, 0)
		case what == "disk":
			const idle = 3 << 13
			if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, 1, uintptr(id), idle); errno != 0 {
				err = errno
			}
		case id == 1:
		case what == "nice":
			err = unix.Setpriority(unix.PRIO_PROCESS, id, 5)
		case what == "processor":
			var one unix.CPUSet
			one.Set(0)
			err = unix.SchedSetaffinity(id, &one)
		default:
			return errors.New("nothing to change")
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	fmt.Println("changed")
	return nil
}

// probeQueue leaves a message queue behind.
func probeQueue([]string) error {
	name := []byte("left\x00")
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	fmt.Println("left")
	return unix.Close(int(fd))
}
