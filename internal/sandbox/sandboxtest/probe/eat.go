package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	probes["fill"] = func(args []string) error { // path megabytes
		n, _ := strconv.Atoi(arg(args, 1))
		f, err := os.Create(arg(args, 0))
		if err != nil {
			return err
		}
		defer f.Close()
		return fill(f, n)
	}
	probes["fill-many"] = func(args []string) error { // dir megabytes, in files of 8 MB
		n, _ := strconv.Atoi(arg(args, 1))
		for i := 0; i < n; i += 8 {
			f, err := os.Create(filepath.Join(arg(args, 0), "f"+strconv.Itoa(i)))
			if err != nil {
				return err
			}
			if err := errors.Join(fill(f, 8), f.Close()); err != nil {
				return err
			}
		}
		return nil
	}
	probes["fill-unlinked"] = func(args []string) error { // dir megabytes, then waits
		n, _ := strconv.Atoi(arg(args, 1))
		for i := 0; i < n; i += 8 {
			path := filepath.Join(arg(args, 0), "gone"+strconv.Itoa(i))
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			if err := os.Remove(path); err != nil {
				return err
			}
			if err := fill(f, 8); err != nil {
				return err
			}
			kept = append(kept, f)
		}
		time.Sleep(time.Hour)
		return nil
	}
	probes["terminals"] = func(args []string) error { // count
		n, _ := strconv.Atoi(arg(args, 0))
		for i := range n {
			f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
			if err != nil {
				return fmt.Errorf("after %d: %w", i, err)
			}
			kept = append(kept, f)
		}
		fmt.Println("opened", n)
		return nil
	}
	probes["watchers"] = func(args []string) error { // count
		n, _ := strconv.Atoi(arg(args, 0))
		for i := range n {
			if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
				return fmt.Errorf("after %d: %w", i, err)
			}
		}
		fmt.Println("opened", n)
		return nil
	}
	probes["inodes"] = func(args []string) error { // dir count
		n, _ := strconv.Atoi(arg(args, 1))
		for i := range n {
			if err := os.WriteFile(filepath.Join(arg(args, 0), "i"+strconv.Itoa(i)), nil, 0o644); err != nil {
				return err
			}
		}
		fmt.Println("made", n)
		return nil
	}
	probes["eat"] = func(args []string) error { // megabytes of memory
		n, _ := strconv.Atoi(arg(args, 0))
		for range n {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			eaten = append(eaten, b)
		}
		fmt.Println("ate", n)
		return nil
	}
	probes["forks"] = func(args []string) error { // count: processes that stay
		n, _ := strconv.Atoi(arg(args, 0))
		made := 0
		defer func() { fmt.Println("made", made) }()
		var all []*exec.Cmd
		defer func() {
			for _, c := range all {
				_ = c.Process.Kill()
				_ = c.Wait()
			}
		}()
		for range n {
			cmd := exec.Command("/bin/sleep", "60")
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				return err
			}
			all = append(all, cmd)
			made++
		}
		return nil
	}
	probes["spin"] = func([]string) error {
		for n := 0; ; n++ { // until it is killed
			_ = n
		}
	}
	probes["long-line"] = func(args []string) error { // megabytes without a line end
		n, _ := strconv.Atoi(arg(args, 0))
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = 'x'
		}
		for range n {
			if _, err := os.Stdout.Write(b); err != nil {
				return err
			}
		}
		return nil
	}
}

var (
	eaten [][]byte
	kept  []*os.File
)

func fill(f *os.File, megabytes int) error {
	b := make([]byte, 1<<20)
	for range megabytes {
		if _, err := f.Write(b); err != nil {
			return err
		}
	}
	return nil
}
