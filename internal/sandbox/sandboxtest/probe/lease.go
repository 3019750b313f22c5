package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	probes["lease"] = probeLease
	probes["leased"] = probeLeased
	probes["notices"] = probeNotices
}

// probeLease: path [once]: takes a lease on a file and holds it for as long as the kernel lets
// it, whoever waits for it; with once only until it has been taken.
func probeLease(args []string) error {
	signal.Ignore(syscall.SIGIO) // by which the kernel asks for it back
	f, err := os.Open(arg(args, 0))
	if err != nil {
		return err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return err
	}
	fmt.Println("leased")
	for arg(args, 1) != "once" {
		_ = unix.Pause()
	}
	return f.Close()
}

// probeLeased: path: says whether who opens a file has to wait for somebody's lease.
func probeLeased(args []string) error {
	fd, err := unix.Open(arg(args, 0), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EWOULDBLOCK) {
		fmt.Println("who opens it waits")
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(errors.New("nobody waits"), unix.Close(fd))
}

// dnAccess is DN_ACCESS, which package unix lacks.
const dnAccess = 1

// probeNotices: directory: asks for a signal when a file of the directory is read, says so, and
// says when it came. It gives up after a minute.
func probeNotices(args []string) error {
	came := make(chan os.Signal, 1)
	signal.Notify(came, syscall.SIGIO)
	dir, err := os.Open(arg(args, 0))
	if err != nil {
		return err
	}
	if _, err := unix.FcntlInt(dir.Fd(), unix.F_NOTIFY, dnAccess); err != nil {
		return err
	}
	fmt.Println("waits")
	select {
	case <-came:
		fmt.Println("was told")
		return dir.Close()
	case <-time.After(time.Minute):
		return errors.New("nothing was told")
	}
}
