package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func init() {
	// A chain of directories, without ever naming it as a whole.
	probes["deep"] = func(args []string) error { // dir levels
		n, _ := strconv.Atoi(arg(args, 1))
		fd, err := unix.Open(arg(args, 0), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		for i := 0; i < n && err == nil; i++ {
			if err = unix.Mkdirat(fd, "d", 0o755); err == nil {
				var next int
				next, err = unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				_ = unix.Close(fd)
				fd = next
			}
		}
		return err
	}
	// Directories that nobody may enter, change or read, with things in them.
	probes["closed"] = func(args []string) error { // dir
		var errs []error
		for name, mode := range map[string]os.FileMode{"none": 0, "read": 0o444, "enter": 0o111, "no-write": 0o555} {
			dir := filepath.Join(arg(args, 0), name, strings.Repeat("n", 255))
			errs = append(errs, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "file"), nil, 0o400),
				os.Chmod(dir, mode), os.Chmod(filepath.Dir(dir), mode))
		}
		return errors.Join(errs...)
	}
}
