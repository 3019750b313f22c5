package local

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

const (
	socketsPart = 8       // a box's sockets may use one part in this many of its memory, and of the machine's memory for sockets
	perByte     = 1 << 10 // what the kernel may hold for one byte that was sent by itself
	mayHold     = 4       // a box that may hold one part in this many of the total, in small pieces, can have used it up
	tooMany     = 1 << 40 // the memory that is assumed for a box with more sockets than are looked at
)

// socketMemory is how many bytes all sockets of TCP or UDP may use before the kernel limits
// them; 0 if unknown.
func socketMemory(protocol string) int64 { return triple(protocol+"_mem", 1) * int64(os.Getpagesize()) }

// triple returns one of the three numbers of a kernel setting.
func triple(setting string, i int) int64 {
	data, err := os.ReadFile("/proc/sys/net/ipv4/" + setting)
	f := strings.Fields(string(data))
	if err != nil || len(f) != 3 {
		return 0
	}
	n, _ := strconv.ParseInt(f[i], 10, 64) // the kernel's own
	return n
}

// socketLimit is the memory that the sockets of a box may use; eight boxes together leave
// something for everybody else.
func socketLimit(memory int64) int64 {
	most := memory / socketsPart
	if all := socketMemory("tcp"); all > 0 {
		most = min(most, all/socketsPart)
	}
	return most
}

// socketsHold is the memory that all sockets of a protocol use on the whole machine.
func socketsHold(protocol string) int64 {
	data, err := os.ReadFile("/proc/self/net/sockstat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != strings.ToUpper(protocol)+":" {
			continue
		}
		for i := 1; i+1 < len(f); i += 2 {
			if f[i] == "mem" {
				n, _ := strconv.ParseInt(f[i+1], 10, 64) // the kernel's own
				return n * int64(os.Getpagesize())
			}
		}
	}
	return 0
}

func noSocketMemory(protocol string) func(int64) bool {
	return func(limit int64) bool { return socketsHold(protocol) > limit }
}

// heldBySockets returns a function that says how much a box's sockets of a protocol hold:
// from its cgroup if that counts it (TCP and UDP together), otherwise from what waits in
// them.
func heldBySockets(protocol string) func(b *box) int64 {
	return func(b *box) int64 {
		if n, ok := b.group.Sockets(); ok {
			return n
		}
		guest := b.PID()
		if guest == 0 {
			return 0
		}
		var holds, may int64
		for _, version := range []string{"", "6"} {
			h, m := waiting("/proc/" + strconv.Itoa(guest) + "/net/" + protocol + version)
			holds, may = holds+h, may+m
		}
		if protocol == "udp" { // for UDP the kernel lists the memory, not the bytes sent
			return holds
		}
		return max(holds, may/mayHold)
	}
}

// waiting adds up the data that waits in the sockets of a list of the kernel's: its bytes,
// and how much memory the kernel may hold for it. A socket to which programs send single
// bytes can hold a thousand times what waits in it, but not more than its limit.
func waiting(list string) (bytes, held int64) {
	f, err := os.Open(list)
	if err != nil {
		return 0, 0 // the process has ended, or the kernel lacks that protocol version
	}
	defer f.Close()
	send, receive := triple("tcp_wmem", 2), triple("tcp_rmem", 2)
	lines := bufio.NewScanner(f)
	lines.Scan() // the names of the columns
	for n := 0; lines.Scan(); n++ {
		if n > maxLooked {
			return tooMany, tooMany
		}
		f := strings.Fields(lines.Text())
		if len(f) < 5 || f[3] == listening { // in a listening socket, connections wait
			continue
		}
		out, in, _ := strings.Cut(f[4], ":")
		sent, err := strconv.ParseInt(out, 16, 64)
		came, err2 := strconv.ParseInt(in, 16, 64)
		if err != nil || err2 != nil {
			continue
		}
		bytes += sent + came
		held += max(sent, min(sent*perByte, send)) + max(came, min(came*perByte, receive))
	}
	return bytes, held
}

const listening = "0A" // a socket's state in the kernel's lists

// mostNetlink is how many bytes may wait in the netlink sockets of all boxes. Programs ask the
// kernel there which interfaces there are, and read some KB at once. What waits counts for
// nobody, not as the box's memory either: 500 sockets that nobody reads hold 500 MB.
// Of so many sockets it is looked at, for the list is read at each look.
const mostNetlink, mostNetlinkSockets = 64 << 20, 4096

// netlinkFull says whether more than limit waits there.
func (g *guard) netlinkFull(limit int64) bool {
	for _, b := range g.boxes() {
		limit -= heldByNetlink(b)
	}
	return limit < 0
}

// heldByNetlink is how much waits in the netlink sockets of a box's network namespace, which
// are listed wherever their descriptors are.
func heldByNetlink(b *box) (bytes int64) {
	f, err := os.Open("/proc/" + strconv.Itoa(b.PID()) + "/net/netlink")
	if err != nil {
		return 0 // the process has ended, or not begun
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan() // the names of the columns
	for n := 0; lines.Scan() && bytes < tooMany; n++ {
		// sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
		if f := strings.Fields(lines.Text()); len(f) > 5 {
			in, _ := strconv.ParseInt(f[4], 10, 64) // the kernel's own
			bytes += in
		}
		if n > mostNetlinkSockets {
			bytes = tooMany
		}
	}
	return bytes
}
