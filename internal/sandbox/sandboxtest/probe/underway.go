package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	probes["unseen"] = func(args []string) error { // what another probe does, forbidding everybody to look
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
		return probes[arg(args, 0)](args[1:])
	}
	// Leaves descriptors under way in sockets: so many, or all that may be (0), in sockets of its
	// own (seen), in one that is under way itself (hidden), or in connections to a socket where
	// another box listens (elsewhere); then waits. One passes one, listen does nothing but that.
	probes["under-way"] = func(args []string) error { // seen|hidden|elsewhere|listen|one count [path]
		n, _ := strconv.Atoi(arg(args, 1))
		leave := map[string]func(int) (int, error){
			"seen": leaveSeen, "hidden": leaveHidden, "one": passOne,
			"elsewhere": func(n int) (int, error) { return leaveElsewhere(n, arg(args, 2)) },
			"listen":    func(int) (int, error) { return 1, listen(arg(args, 2)) },
		}[arg(args, 0)]
		n, err := leave(n)
		if err != nil && (n == 0 || !errors.Is(err, unix.ETOOMANYREFS)) {
			return err
		}
		fmt.Println("holding", n, err)
		if arg(args, 0) != "one" {
			time.Sleep(time.Hour)
		}
		return nil
	}
}

func pair() (near, far int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	return fds[0], fds[1], err
}

func leaveSeen(n int) (left int, err error) {
	for left < n || n == 0 {
		near, _, err := pair()
		if err != nil {
			return left, err
		}
		some := 200
		if n > 0 {
			some = min(some, n-left)
		}
		if err := unix.Sendmsg(near, []byte{0}, unix.UnixRights(make([]int, some)...), nil, 0); err != nil {
			return left, err
		}
		left += some
	}
	return left, nil
}

func leaveHidden(n int) (left int, err error) {
	near, far, err := pair()
	if err != nil {
		return 0, err
	}
	for ; left < n; left += 200 {
		if err := unix.Sendmsg(near, []byte{0}, unix.UnixRights(make([]int, 200)...), nil, 0); err != nil {
			return left, err
		}
	}
	out, _, err := pair()
	if err != nil {
		return left, err
	}
	if err := errors.Join(unix.Sendmsg(out, []byte{0}, unix.UnixRights(far), nil, 0), unix.Close(far)); err != nil {
		return 0, err
	}
	return left, nil
}

// leaveElsewhere leaves n in a connection that is accepted, and n in one that waits.
func leaveElsewhere(n int, path string) (left int, err error) {
	for range 2 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return left, err
		}
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			return left, err
		}
		for range n / 200 {
			if err := unix.Sendmsg(fd, []byte{0}, unix.UnixRights(make([]int, 200)...), nil, 0); err != nil {
				return left, err
			}
			left += 200
		}
	}
	return left, nil
}

// listen accepts one connection, and lets the others wait.
func listen(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 10)); err != nil {
		return err
	}
	go func() { _, _, _ = unix.Accept(fd) }()
	return nil
}

func passOne(int) (int, error) {
	near, far, err := pair()
	if err != nil {
		return 0, err
	}
	if err := unix.Sendmsg(near, []byte{0}, unix.UnixRights(near), nil, 0); err != nil {
		return 0, err
	}
	_, n, _, _, err := unix.Recvmsg(far, make([]byte, 1), make([]byte, unix.CmsgSpace(4)), 0)
	if err == nil && n == 0 {
		err = errors.New("nothing came")
	}
	return 1, err
}
