package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	probes["locks"] = probeLocks
	probes["lock-inherited"] = func(args []string) error { // count: locks the descriptors from 3 on
		n, err := strconv.Atoi(arg(args, 0))
		for fd := 3; err == nil && fd < 3+n; fd++ {
			err = unix.Flock(fd, unix.LOCK_SH)
		}
		return err
	}
}

// locksOfAFile is how many locks the probe has on one file: with more the kernel takes long.
const locksOfAFile = 500

// probeLocks: process|file|mapped count directory: takes so many locks, on parts of files for the
// process or for an open file, or on files of which only mappings are left, by processes that have
// ended; then waits.
func probeLocks(args []string) error {
	n, err := strconv.Atoi(arg(args, 1))
	if err != nil {
		return err
	}
	command := map[string]int{"process": unix.F_SETLK, "file": unix.F_OFD_SETLK}[arg(args, 0)]
	for held := 0; held < n && err == nil; held += locksOfAFile {
		path := filepath.Join(arg(args, 2), fmt.Sprint("locked", held))
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			return err
		}
		if command == 0 {
			err = lockMapped(path)
		} else {
			err = lockParts(path, command)
		}
		if held == 0 && err == nil {
			fmt.Println("holding", n, "soon") // who takes many may be ended before it has them
		}
	}
	if err != nil {
		return err
	}
	time.Sleep(time.Hour)
	return nil
}

func lockParts(path string, command int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for i := range int64(locksOfAFile) {
		if err == nil {
			err = unix.FcntlFlock(uintptr(fd), command, &unix.Flock_t{Type: unix.F_RDLCK, Start: 2 * i, Len: 1})
		}
	}
	return err
}

func lockMapped(path string) error {
	var files []*os.File
	for range locksOfAFile {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ, unix.MAP_SHARED); err != nil {
			return err
		}
		files = append(files, f)
	}
	cmd := exec.Command("/proc/self/exe", "lock-inherited", strconv.Itoa(len(files)))
	cmd.ExtraFiles = files
	return cmd.Run()
}
