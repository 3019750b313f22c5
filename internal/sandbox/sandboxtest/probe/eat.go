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
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	probes["fill"] = probeFill
	probes["fill-many"] = probeFillMany
	probes["fill-unlinked"] = probeFillUnlinked
	probes["terminals"] = probeTerminals
	probes["watches"] = probeWatches
	probes["watches-hidden"] = probeWatchesHidden
	probes["pipes"] = probePipes
	probes["pressure"] = probePressure
	probes["files"] = probeFiles
	probes["watchers"] = probeWatchers
	probes["timers"] = probeTimers
	probes["queues"] = probeQueues
	probes["sysv"] = probeSysv
	probes["inodes"] = probeInodes
	probes["eat"] = probeEat
	probes["forks"] = probeForks
	probes["spin"] = probeSpin
	probes["long-line"] = probeLongLine
}

// probeFill: path megabytes.
func probeFill(args []string) error {
	n, _ := strconv.Atoi(arg(args, 1))
	f, err := os.Create(arg(args, 0))
	if err != nil {
		return err
	}
	defer f.Close()
	return fill(f, n)
}

// probeFillMany: dir megabytes, in files of 8 MB.
func probeFillMany(args []string) error {
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

// probeFillUnlinked: dir megabytes, then waits.
func probeFillUnlinked(args []string) error {
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

// probeTerminals: count.
func probeTerminals(args []string) error {
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

// probeWatches: count; 0: all there are, in two processes.
func probeWatches(args []string) error {
	n, _ := strconv.Atoi(arg(args, 0))
	if n == 0 && arg(args, 1) == "" {
		other := exec.Command("/proc/self/exe", "watches", "0", "again")
		other.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := other.Start(); err != nil {
			return err
		}
	}
	fmt.Println("holding", watches(n))
	time.Sleep(time.Hour)
	return nil
}

// probeWatchesHidden: count; in an epoll instance that is under way in a socket.
func probeWatchesHidden(args []string) error {
	n, _ := strconv.Atoi(arg(args, 0))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	first := watches(n)
	for _, fd := range epolls {
		if err := errors.Join(unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fd), nil, 0), unix.Close(fd)); err != nil {
			return err
		}
	}
	fmt.Println("holding", first)
	time.Sleep(time.Hour)
	return nil
}

// probePipes: count.
func probePipes(args []string) error {
	n, _ := strconv.Atoi(arg(args, 0))
	for range n {
		if err := unix.Pipe(make([]int, 2)); err != nil {
			return err
		}
	}
	fmt.Println("holding")
	time.Sleep(time.Hour)
	return nil
}

// probePressure: be told when the machine's memory gets short.
func probePressure([]string) error {
	var got int
	for _, of := range []string{"memory", "cpu", "io"} {
		f, err := os.OpenFile("/proc/pressure/"+of, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if _, err := f.WriteString("some 500000 2000000"); err == nil {
			got++
		}
		kept = append(kept, f)
	}
	if got == 0 {
		return errors.New("none")
	}
	fmt.Println("watching", got)
	return nil
}

// probeFiles: count; in processes of 1,000.
func probeFiles(args []string) error {
	n, _ := strconv.Atoi(arg(args, 0))
	for range min(n, 1000) {
		f, err := os.Open("/dev/null")
		if err != nil {
			return err
		}
		kept = append(kept, f)
	}
	if n > 1000 {
		other := exec.Command("/proc/self/exe", "files", strconv.Itoa(n-1000))
		other.SysProcAttr, other.Stdout = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, os.Stdout
		if err := other.Start(); err != nil {
			return err
		}
	} else {
		fmt.Println("holding")
	}
	time.Sleep(time.Hour)
	return nil
}

// probeWatchers: count.
func probeWatchers(args []string) error {
	n, _ := strconv.Atoi(arg(args, 0))
	for i := range n {
		if _, err := unix.InotifyInit1(unix.IN_CLOEXEC); err != nil {
			return fmt.Errorf("after %d: %w", i, err)
		}
	}
	fmt.Println("opened", n)
	return nil
}

// probeTimers: count.
func probeTimers(args []string) error {
	n, _ := strconv.Atoi(arg(args, 0))
	for i := range n {
		var id int32
		if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&id))); errno != 0 {
			return fmt.Errorf("after %d: %w", i, errno)
		}
	}
	fmt.Println("made", n)
	return nil
}

// probeQueues: count: message queues of 80 KiB.
func probeQueues(args []string) error {
	n, _ := strconv.Atoi(arg(args, 0))
	for i := range n {
		name := []byte(fmt.Sprint("probe", i, "\x00"))
		attr := [8]int64{1: 10, 2: 8192}
		fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, uintptr(unsafe.Pointer(&attr[0])), 0, 0)
		if errno != 0 {
			return fmt.Errorf("after %d: %w", i, errno)
		}
		kept = append(kept, os.NewFile(fd, "queue"))
		// It lives until it is closed.
		if _, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0); errno != 0 {
			return errno
		}
	}
	fmt.Println("made", n)
	return nil
}

// probeSysv: key: one of each kind of System V.
func probeSysv(args []string) error {
	key, _ := strconv.Atoi(arg(args, 0))
	for what, call := range map[string][4]uintptr{"shm": {unix.SYS_SHMGET, 4096, 0o1600}, "sem": {unix.SYS_SEMGET, 1, 0o1600}, "msg": {unix.SYS_MSGGET, 0o1600}} {
		if _, _, errno := unix.Syscall(call[0], uintptr(key), call[1], call[2]); errno != 0 {
			return fmt.Errorf("%s: %w", what, errno)
		}
	}
	fmt.Println("made")
	return nil
}

// probeInodes: dir count.
func probeInodes(args []string) error {
	n, _ := strconv.Atoi(arg(args, 1))
	for i := range n {
		if err := os.WriteFile(filepath.Join(arg(args, 0), "i"+strconv.Itoa(i)), nil, 0o644); err != nil {
			return err
		}
	}
	fmt.Println("made", n)
	return nil
}

// probeEat: megabytes of memory.
func probeEat(args []string) error {
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

// probeForks: count: processes that stay.
func probeForks(args []string) error {
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

func probeSpin([]string) error {
	for n := 0; ; n++ { // until it is killed
		_ = n
	}
}

// probeLongLine: megabytes without a line end.
func probeLongLine(args []string) error {
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

var epolls []int

// watches makes epoll instances that watch the same 1,000 things, until there are n
// watches, or no more when n is 0, and returns how many there are.
func watches(n int) int {
	var watched []int
	for range 1000 {
		fd, err := unix.Eventfd(0, 0)
		if err != nil {
			break
		}
		watched = append(watched, fd)
	}
	made := 0
	for {
		ep, err := unix.EpollCreate1(0)
		if err != nil {
			return made
		}
		epolls = append(epolls, ep)
		for _, fd := range watched {
			if made == n && n > 0 || unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}) != nil {
				return made
			}
			made++
		}
	}
}
