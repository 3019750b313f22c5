package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	// Fills sockets that nobody reads: pairs of TCP that get much at once (tcp) or single
	// bytes (tcp-small), sockets of UDP (udp), or answers of the kernel's (netlink); then waits.
	probes["sockets"] = func(args []string) error { // kind count
		n, _ := strconv.Atoi(arg(args, 1))
		fill := map[string]func() error{
			"tcp":       func() error { return fillPair(make([]byte, 1<<20), 0) },
			"tcp-small": func() error { return fillPair([]byte{0}, unix.MSG_EOR) },
			"udp":       fillDatagrams,
			"netlink":   func() error { return fillNetlink(400) },

			"netlink-empty": func() error { return fillNetlink(0) },
		}[arg(args, 0)]
		for i := range n {
			if err := fill(); err != nil {
				return fmt.Errorf("after %d: %w", i, err)
			}
		}
		fmt.Println("holding", n)
		time.Sleep(time.Hour)
		return nil
	}
}

// stuffed says whether a socket takes no more data, for whatever reason.
func stuffed(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// fillPair writes the same piece into both ends of a connection until neither takes more.
func fillPair(piece []byte, flags int) error {
	near, far, err := tcpPair()
	if err != nil {
		return err
	}
	for _, fd := range []int{near, far} {
		if err := errors.Join(unix.SetNonblock(fd, true), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)); err != nil {
			return err
		}
		for {
			if _, err := unix.SendmsgN(fd, piece, nil, nil, flags); stuffed(err) {
				break
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

func tcpPair() (near, far int, err error) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(l)
	if err := errors.Join(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(l, 1)); err != nil {
		return 0, 0, err
	}
	at, err := unix.Getsockname(l)
	if err != nil {
		return 0, 0, err
	}
	if near, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
		return 0, 0, err
	}
	if err := unix.Connect(near, at); err != nil {
		return 0, 0, err
	}
	far, _, err = unix.Accept(l)
	return near, far, err
}

// fillDatagrams sends a socket itself as much as it takes.
func fillDatagrams() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	for range 16 {
		if err := unix.Sendto(fd, make([]byte, 32<<10), 0, at); err != nil && !stuffed(err) {
			return err
		}
	}
	return nil
}

// fillNetlink asks the kernel so often about an interface, or until the socket takes no more answers.
func fillNetlink(times int) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20)); err != nil {
		return err
	}
	ask := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	binary.NativeEndian.PutUint16(ask[4:], unix.RTM_GETLINK)
	binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(ask[unix.SizeofNlMsghdr+4:], 1) // the interface's number
	for range times {
		if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); stuffed(err) {
			break
		} else if err != nil {
			return err
		}
	}
	return nil
}
