package sandbox

import (
	"context"
	"net/http"
	"syscall"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tether"
)

// Driver makes computers' boxes with one kind of isolation.
type Driver interface {
	// Name is the driver's name in the configuration, such as "local".
	Name() string
	// Doctor lists what this machine lacks or weakens; the worst first. An empty list means
	// that everything the driver can enforce is enforced.
	Doctor(ctx context.Context) []Finding
	// Open prepares a computer's place for boxes and ends what an earlier
	// process left there. Errors: fault.Missing with a hint when the machine
	// can't isolate, fault.InUse when boxes of another process still live.
	Open(ctx context.Context, spec ComputerSpec) (Computer, error)
}

// ComputerSpec names a computer and its directory (DATA/computers/{cid}).
type ComputerSpec struct {
	CID contract.CID
	Dir string
	// Caches are the names with which its VolumeCache may begin.
	Caches []string
}

// Computer makes the boxes of one computer.
type Computer interface {
	// Box starts a box and returns when its guest answers. Errors:
	// fault.InUse (an id or lock that is held), fault.Invalid, fault.Missing,
	// fault.Timeout.
	Box(ctx context.Context, spec BoxSpec) (Box, error)
	// Volumes are the trees that its boxes see.
	Volumes() Volumes
	// Boxes lists those that live.
	Boxes() []Box
	// Notes lists the limits that this machine can't enforce for these boxes.
	Notes() []Finding
	// Pause stops every process of every box; Resume continues them.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Close kills every box and waits for it.
	Close() error
}

// Box is one running box.
type Box interface {
	ID() string
	Kind() contract.BoxKind
	// PID is the process of the box's guest, as the host numbers it; 0: it has none that the host
	// knows of.
	PID() int
	// Tether is the connection to the box's guest.
	Tether() *tether.Session
	// Signal sends a signal to every process the box started, not to its guest.
	Signal(ctx context.Context, sig syscall.Signal) error
	Usage(ctx context.Context) (Usage, error)
	// Kill ends everything in the box, at once, and returns when nothing of it
	// is left and its lock is free. Safe to call again. An error that says that it
	// is not gone yet wraps the *Ended that it is to end with.
	Kill() error
	// Done is closed when nothing of the box is left.
	Done() <-chan struct{}
	// Err says why the box ended: an *Ended after Done, nil before.
	Err() error
}

// BoxSpec describes a box. ID is unique among the computer's living boxes:
// [A-Za-z0-9._-], at most 64 characters.
type BoxSpec struct {
	ID     string
	Kind   contract.BoxKind
	Mounts []Mount
	// Root is where the box's tree is inside; commands start there. Default
	// /computer when something is mounted there, else /home/choir.
	Root string
	// Env is added to the environment of what runs in the box. The host's own
	// environment is never passed on.
	Env map[string]string
	// Handler serves what the box asks of the host. nil refuses everything.
	Handler http.Handler
	// Proxy starts the loopback proxy, which turns HTTP CONNECT and SOCKS5 into CONNECT
	// requests to Handler. Without it no program in the box can reach Handler.
	Proxy bool
	// ModelToken has the guest serve the model to the box's programs, which it asks of Handler
	// below /model/, and is what they ask with. It is in the box's environment.
	ModelToken string
	// Lock names a volume, Live or an overlay, that at most one box can hold: another box
	// that asks for it is refused while any process of the first lives.
	Lock   Volume
	Limits Limits
	// TetherLimits bound what the guest can make the host hold.
	TetherLimits tether.Limits
}

// Mode says how a mount is made.
type Mode string

// Modes of a mount.
const (
	ReadOnly  Mode = "ro" // Source, or the merged view of Lower
	ReadWrite Mode = "rw"
	Overlay   Mode = "overlay" // Lower (topmost first), Upper; whiteouts as overlayfs with userxattr leaves them
	Tmpfs     Mode = "tmpfs"   // SizeBytes
)

// Mount puts a volume, an overlay of several or an empty tmpfs at Target, an
// absolute path in the box. Mounts are made in order; a later one may lie in an
// earlier. An Overlay whose Upper (of kind VolumeOverlay) is zero gets a throwaway
// one that ends with the box.
type Mount struct {
	Target    string
	Mode      Mode
	Source    Volume
	Lower     []Volume
	Upper     Volume
	SizeBytes int64
	// Optional leaves a mount out whose Source is not there or is a link, and
	// one inside another mount whose Target has a link on its way. An Overlay
	// goes without such a Lower as long as there is another.
	Optional bool
}

// Limits of a box. Zero means the driver's default for the box's kind; for
// WallTime and the Disk limits zero means none.
type Limits struct {
	MemoryBytes int64
	Pids        int
	CPUPercent  int   // 100 is one core
	TmpBytes    int64 // size of /tmp
	// DiskBytes and DiskInodes limit what is in the writable places: every throwaway upper,
	// every Upper, and Counted. They count growth since the box began.
	DiskBytes  int64
	DiskInodes int64
	Counted    []Volume
	// DiskFree ends a box that has grown when less than this is free where its
	// writable places are, before the disk is full for everyone.
	DiskFree int64
	WallTime time.Duration
}

// Usage is what a box has used so far; a value is zero if the machine doesn't count it.
type Usage struct {
	CPU         time.Duration
	MemoryBytes int64
	MemoryPeak  int64
	Pids        int
	OOMKills    int64
	DiskBytes   int64 // growth, when DiskBytes or DiskInodes is limited
	DiskInodes  int64
	Wall        time.Duration
}

// Reason says why a box ended.
type Reason string

// Reasons.
const (
	Killed   Reason = "killed"  // by Kill or Close
	Crashed  Reason = "crashed" // its guest ended
	DiskFull Reason = "disk"
	Memory   Reason = "memory"
	TimedOut Reason = "timeout" // WallTime
	Tampered Reason = "tether"  // it broke the rules of the tether
	Shared   Reason = "shared"  // it used up what all programs of the machine or its user share
)

// EndedError is the error of a box that ended. Detail is for a person.
type EndedError struct {
	Box    string
	Reason Reason
	Detail string
}

func (e *EndedError) Error() string {
	s := "box " + e.Box + " ended: " + string(e.Reason)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Code maps the reason to a fault code.
func (e *EndedError) Code() fault.Code {
	switch e.Reason {
	case Killed:
		return fault.Cancelled
	case DiskFull, Memory, Shared:
		return fault.Exhausted
	case TimedOut:
		return fault.Timeout
	case Tampered:
		return fault.Denied
	}
	return fault.Unavailable
}

// Severity of a finding.
type Severity string

// Severities: Fatal means that no box can be opened.
const (
	Note  Severity = "note"
	Weak  Severity = "weak"
	Fatal Severity = "fatal"
)

// NoWatches is the ID of the finding that no more files can be watched, so that programs in
// boxes can't be notified of changes.
const NoWatches = "inotify-left"

// Finding is one thing about this machine that a person should know. Hint says
// what to do.
type Finding struct {
	ID       string // stable, such as "cgroup-memory"
	Severity Severity
	Text     string
	Hint     string
}

// NoWatchesHint returns the hint about file watchers if the findings contain NoWatches,
// otherwise "".
func NoWatchesHint(findings []Finding) string {
	for _, f := range findings {
		if f.ID == NoWatches {
			return f.Hint
		}
	}
	return ""
}
