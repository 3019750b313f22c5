package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// UnderWay as the only argument of a launcher makes it answer, until its input ends,
// questions about how many descriptors are in flight (sent over Unix sockets and not
// received) for its user: for each number of four bytes that it reads it writes whether
// there are more than that, or that it can't tell.
const UnderWay = "under-way"

// The answers.
const (
	More    = 'y'
	NotMore = 'n'
	Unknown = 'e'
)

// underWay finds out by sending a descriptor to itself: the kernel refuses that to a
// process whose limit of open files is below the number of its user's descriptors in
// flight. So the process sets its own limit to the number in question.
func underWay() error {
	runtime.LockOSThread() // capabilities are a thread's
	if err := dropExempting(); err != nil {
		return fmt.Errorf("give up what exempts from the bound: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	for {
		var ask [4]byte
		if _, err := io.ReadFull(os.Stdin, ask[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answer := more(pair, uint64(binary.LittleEndian.Uint32(ask[:])))
		if _, err := os.Stdout.Write([]byte{answer}); err != nil {
			return err
		}
	}
}

func more(pair [2]int, than uint64) byte {
	var was unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was) != nil {
		return Unknown
	}
	if unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(than, was.Max), Max: was.Max}, nil) != nil {
		return Unknown
	}
	switch err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(int(os.Stdin.Fd())), nil, 0); {
	case errors.Is(err, unix.ETOOMANYREFS):
		return More
	case err != nil:
		return Unknown
	}
	// There is no room for the descriptor in the message, so the kernel closes it.
	if _, _, _, _, err := unix.Recvmsg(pair[1], make([]byte, 1), nil, unix.MSG_DONTWAIT); err != nil {
		return Unknown
	}
	return NotMore
}

// dropExempting drops the capabilities that exempt a process from that limit.
func dropExempting() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var set [2]unix.CapUserData
	if err := unix.Capget(&head, &set[0]); err != nil {
		return err
	}
	for _, c := range []int{unix.CAP_SYS_RESOURCE, unix.CAP_SYS_ADMIN} {
		set[c/32].Effective &^= 1 << (c % 32)
		set[c/32].Permitted &^= 1 << (c % 32)
	}
	return unix.Capset(&head, &set[0])
}
