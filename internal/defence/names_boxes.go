package defence

// The proxy that lets boxes out (internal/egress).
const (
	EgressRules      Name = "egress.rules"       // rows 1, 5: a box reaches, and has resolved, what a rule allows
	EgressCharacters Name = "egress.characters"  // row 2: a host has no byte that another reader would stop at
	EgressNames      Name = "egress.names"       // row 2: a host is a valid name
	EgressServerName Name = "egress.server-name" // row 3: the TLS server name is the host that was asked for
	EgressHello      Name = "egress.hidden-name" // row 3: a ClientHello that hides the server's name is refused
	EgressTLS        Name = "egress.tls"         // row 3: what is not TLS is refused where no rule says tcp://
	EgressAddresses  Name = "egress.addresses"   // row 6: names that resolve to private addresses are refused
	EgressSpelling   Name = "egress.spelling"    // row 6: an address has one spelling
	EgressFailed     Name = "egress.failed"      // row 9: a policy that could not be loaded denies
	EgressKinds      Name = "egress.kinds"       // row 9: kinds of box that have no network get none, whatever the policy
	EgressSuffix     Name = "egress.suffix"      // row 10: a suffix begins at a dot
	EgressPorts      Name = "egress.ports"       // row 10: a rule is for one port
	EgressMethod     Name = "egress.method"      // row 8: nothing but CONNECT is served
)

// What a box is (internal/sandbox/local) and its first process (internal/guest).
const (
	BoxNetwork       Name = "box.network"       // rows 5, 8, 17: a network namespace of its own
	GuestEnvironment Name = "guest.environment" // row 17: commands get the variables that the guest lists
	BoxEnvironment   Name = "box.environment"   // row 17: no variable of the host
	BoxUsers         Name = "box.users"         // row 17: no further user namespaces (seccomp)
	BoxCalls         Name = "box.calls"         // row 17: system calls that nothing in a box needs (seccomp)
	BoxFamilies      Name = "box.families"      // row 17: only the socket families and protocols that programs need (seccomp)
	BoxClone3        Name = "box.clone3"        // row 17: no processes by a call that the filter can't look into (seccomp)
	BoxRings         Name = "box.rings"         // row 17: no rings of calls that the filter can't look into, io_uring (seccomp)
	BoxAIO           Name = "box.aio"           // row 13: no contexts of asynchronous I/O, of which a machine has so many (seccomp)
	BoxTerminals     Name = "box.terminals"     // row 13: how many terminals a box may open
	BoxWatchers      Name = "box.watchers"      // row 13: how many file watchers a box may open
	BoxPending       Name = "box.pending"       // row 13: how many signals and timers of a box wait
	BoxQueues        Name = "box.queues"        // row 13: how much a box holds in message queues
	BoxLeases        Name = "box.leases"        // row 13: no box but a keeper's takes leases on files, by which others wait (seccomp)
	BoxNotices       Name = "box.notices"       // row 13: no box is told of what happens in a folder by F_NOTIFY, through which all go who read there (seccomp)
	BoxNewCalls      Name = "box.new-calls"     // row 17: no system call that is newer than the filter (seccomp)
	BoxEpoll         Name = "box.epoll"         // row 13: a box that uses up the host user's epoll watches is ended
	BoxFiles         Name = "box.files"         // row 13: a box that opens nearly all files that the machine can is ended
	BoxSockets       Name = "box.sockets"       // row 13: how much the kernel holds for a box's network sockets, where control groups count it apart
	BoxAllSockets    Name = "box.all-sockets"   // row 13: a box that uses up the machine's memory for TCP or UDP is ended
	BoxNetlink       Name = "box.netlink"       // row 13: a box that leaves very much in netlink sockets, which is nobody's memory, is ended
	BoxUnderWay      Name = "box.under-way"     // row 13: a box that leaves so many descriptors under way in sockets that no other can pass any is ended
	BoxLocks         Name = "box.locks"         // row 13: a box that holds so many locks on files that everybody waits who closes one is ended
	BoxFilters       Name = "box.filters"       // row 13: no filters of calls and sockets of its own, which the kernel translates, and has so much room for (seccomp)
	BoxTyping        Name = "box.typing"        // row 17: nobody types into a terminal by ioctl (seccomp)
	BoxProc          Name = "box.proc"          // row 17: the kernel's own files are covered
	BoxKernelModes   Name = "box.kernel-modes"  // row 17: no mode of a device or of the kernel's own files is changed
	BoxMountTable    Name = "box.mounttable"    // row 17: the box's root is in no mount namespace, so no list of mounts has any
	BoxMemory        Name = "box.memory"        // row 13: the memory of all its processes
	BoxProcesses     Name = "box.processes"     // row 13: how many processes
	BoxDisk          Name = "box.disk"          // row 13: what it writes, sampled
	BoxFileSize      Name = "box.file-size"     // row 13: the size of one file
	BoxWallTime      Name = "box.wall-time"     // row 13: how long it lives
	GuestUndumpable  Name = "guest.undumpable"  // row 14: no process of the box reads or writes the guest
	GuestDescriptors Name = "guest.descriptors" // row 14: commands inherit none of the guest's descriptors
	GuestClear       Name = "guest.clear"       // row 17: nothing of a command runs on in a box that is kept for the next
	GuestFresh       Name = "guest.fresh"       // row 17: a box in which a command left something is not kept
	GuestBeneath     Name = "guest.beneath"     // row 11: files are opened beneath the root, whatever links are there
)

// The pipe between a box and the host (internal/tether).
const (
	TetherToken Name = "tether.token" // row 15: a token opens one session
	TetherProof Name = "tether.proof" // row 15: each end proves its role with the token
	TetherPings Name = "tether.pings" // row 15: pings are counted
	TetherOpens Name = "tether.opens" // row 15: how fast streams are opened
)

// The boxes that wait for a run (internal/computer/runspace).
const (
	SpareNobodys Name = "spare.nobodys" // row 15: a box that waits has no run's answers
	SpareSilent  Name = "spare.silent"  // row 15: a box that asks for something before a run has it is ended
	SpareOnce    Name = "spare.once"    // row 14: a box is one run's
	SpareSame    Name = "spare.same"    // row 9: a box that was opened for other limits, or another view, is nobody's
)
