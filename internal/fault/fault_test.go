package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"choir.dev/choiros/internal/fault"
)

func TestCodeAndHintAreFoundInTheTree(t *testing.T) {
	full := fault.New("open", fault.DiskFull, "Free some space.", errors.New("x"))
	for name, err := range map[string]error{
		"itself":       full,
		"wrapped":      fault.Wrap("outer", fmt.Errorf("more: %w", full)),
		"joined":       errors.Join(errors.New("close"), full),
		"joined first": fault.Wrap("outer", errors.Join(full, errors.New("close"))),
	} {
		if fault.CodeOf(err) != fault.DiskFull || fault.HintOf(err) != "Free some space." || !fault.Is(err, fault.DiskFull) {
			t.Errorf("%s: code %s, hint %q", name, fault.CodeOf(err), fault.HintOf(err))
		}
	}
	outer := fault.New("outer", fault.NotFound, "", full)
	if fault.CodeOf(outer) != fault.NotFound || fault.HintOf(outer) != "Free some space." {
		t.Errorf("the outer code should win and the inner hint be found: %s %q", fault.CodeOf(outer), fault.HintOf(outer))
	}
	for err, want := range map[error]fault.Code{
		context.Canceled: fault.Cancelled, context.DeadlineExceeded: fault.Timeout, errors.New("x"): fault.Internal,
	} {
		if got := fault.CodeOf(fault.Wrap("op", err)); got != want {
			t.Errorf("%v has code %s, want %s", err, got, want)
		}
	}
	if fault.Is(nil, fault.Internal) || fault.HintOf(nil) != "" || fault.Wrap("op", nil) != nil {
		t.Error("nil is no error")
	}
}

// sqlite is a database's error code.
type sqlite int

func (s sqlite) Code() int { return int(s) }
func (s sqlite) Error() string {
	text := "database or disk is full"
	if s&0xff == 10 {
		text = "disk I/O error"
	}
	return fmt.Sprintf("%s (%d)", text, int(s))
}

// TestAFullDiskNeedsNoTranslation shows that an error for which no space is left has the code
// disk_full and a hint on what to do, through whatever it was passed on.
func TestAFullDiskNeedsNoTranslation(t *testing.T) {
	path := func(errno syscall.Errno) error {
		return &fs.PathError{Op: "write", Path: "/somewhere/secret", Err: errno}
	}
	for name, err := range map[string]error{
		"no space":  path(syscall.ENOSPC),
		"a quota":   path(syscall.EDQUOT),
		"SQLite":    sqlite(13),
		"extended":  sqlite(13 | 1<<8),
		"its index": sqlite(4874),
		"two ways":  errors.Join(errors.New("close"), path(syscall.ENOSPC)),
		"a rename":  &os.LinkError{Op: "rename", Old: "/somewhere/secret", New: "b", Err: syscall.ENOSPC},
		"formatted": fmt.Errorf("in the middle: %w", path(syscall.ENOSPC)),
	} {
		err = fault.Wrap("outer", err)
		if fault.CodeOf(err) != fault.DiskFull || fault.HintOf(err) != fault.FreeSpace {
			t.Errorf("%s: code %s, hint %q", name, fault.CodeOf(err), fault.HintOf(err))
		}
		if text := fault.Text(err); strings.Contains(text, "secret") {
			t.Errorf("%s: it says which of our files it was: %q", name, text)
		}
	}
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		err := fault.Wrap("outer", path(errno))
		if !fault.NoSpace(err) || !fault.NoSpaceText("JetStream failed: "+err.Error()) {
			t.Errorf("%v is not taken for want of space", errno)
		}
	}
	for _, said := range []string{"fatal: write error: No space left on device", "Disk quota exceeded"} { // as C programs say it
		if !fault.NoSpaceText(said) {
			t.Errorf("%q is not taken for want of space", said)
		}
	}
	if err := path(syscall.EIO); fault.NoSpace(err) || fault.NoSpaceText(err.Error()) {
		t.Errorf("%v is taken for want of space", err)
	}
	if got := fault.Text(fault.Wrap("outer", path(syscall.ENOSPC))); got != syscall.ENOSPC.Error() {
		t.Errorf("it says %q", got)
	}
	for name, err := range map[string]error{"another error": path(syscall.EIO), "another of SQLite's": sqlite(5), "another I/O error": sqlite(10), "a code": fault.New("", fault.Unavailable, "", path(syscall.ENOSPC))} {
		if fault.Is(err, fault.DiskFull) || fault.HintOf(err) == fault.FreeSpace {
			t.Errorf("%s is taken for a full disk", name)
		}
	}
}

// TestWhatIsScarceIsUnavailable: that no more files can be opened says nothing about the file.
func TestWhatIsScarceIsUnavailable(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN} {
		err := fault.Wrap("outer", &fs.PathError{Op: "open", Path: "/secret", Err: errno})
		if fault.CodeOf(err) != fault.Unavailable || !strings.Contains(fault.HintOf(err), "ulimit") {
			t.Errorf("%v: code %s, hint %q", errno, fault.CodeOf(err), fault.HintOf(err))
		}
	}
	if err := (&fs.PathError{Op: "open", Path: "/x", Err: syscall.EIO}); fault.CodeOf(err) != fault.Internal || fault.HintOf(err) != "" {
		t.Errorf("a disk that can't read: %s, %q", fault.CodeOf(err), fault.HintOf(err))
	}
}

// TestADiskThatCantBeWrittenToIsSaid: that the system made a disk read-only says nothing about a
// file's permissions.
func TestADiskThatCantBeWrittenToIsSaid(t *testing.T) {
	err := fault.Wrap("outer", &fs.PathError{Op: "open", Path: "/x", Err: syscall.EROFS})
	if fault.CodeOf(err) != fault.Unavailable || fault.HintOf(err) != fault.Unwritable {
		t.Errorf("code %s, hint %q", fault.CodeOf(err), fault.HintOf(err))
	}
}

func TestTextLeavesOutWhatLedToIt(t *testing.T) {
	cause := errors.New("the disk is full")
	for name, err := range map[string]error{
		"plain":        cause,
		"coded":        fault.New("open", fault.DiskFull, "", cause),
		"wrapped":      fault.Wrap("client POST /x", fault.Wrap("keeper.Restore", fault.New("", fault.DiskFull, "", cause))),
		"joined":       errors.Join(nil, fault.Wrap("open", cause)),
		"code only":    fault.New("open", "the disk is full", "", nil),
		"to a process": errors.New(fault.Answer(fault.Wrap("keeper.Restore", fault.New("", fault.DiskFull, "", cause)))),
	} {
		if got := fault.Text(err); got != "the disk is full" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := fault.Text(fmt.Errorf("file a: %w", fault.Wrap("op", cause))); got != "file a: op: the disk is full" {
		t.Errorf("what someone wrote around it stays: %q", got)
	}
	if got := fault.Text(fmt.Errorf("%w, after: %w", fault.Wrap("op", cause), cause)); got != "op: the disk is full, after: the disk is full" {
		t.Errorf("nor is a sentence of two errors taken apart: %q", got)
	}
	if got := fault.Answer(fault.Wrap("keeper.Restore", cause)); got != "keeper.Restore: the disk is full" {
		t.Errorf("a fault of ours is told whole: %q", got)
	}
}

// TestToldNamesNoFileOfTheHost shows that what a loop is told of an error has the hint that people get, and no path of a
// file or socket of the host, however it is wrapped.
func TestToldNamesNoFileOfTheHost(t *testing.T) {
	const file = "/data/blobs/.tmp/put-1"
	for want, err := range map[string]error{
		"no space left on device. " + fault.FreeSpace:                             fault.Wrap("blob.Put", &fs.PathError{Op: "write", Path: file, Err: syscall.ENOSPC}),
		"kept: read a file of the host: input/output error":                       fault.Wrap("op", fmt.Errorf("kept: %w", &fs.PathError{Op: "read", Path: file, Err: syscall.EIO})),
		"close\nrename a file of the host a file of the host: input/output error": errors.Join(errors.New("close"), &os.LinkError{Op: "rename", Old: file, New: file + "2", Err: syscall.EIO}),
		"dial unix a file of the host: connection refused":                        fault.New("op", fault.Unavailable, "", &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: file, Net: "unix"}, Err: syscall.ECONNREFUSED}),
		"open workspace/a.txt: file exists":                                       &fs.PathError{Op: "open", Path: "workspace/a.txt", Err: syscall.EEXIST},
		"It is taken. Take another.":                                              fault.New("op", fault.Conflict, "Take another.", errors.New("It is taken.")),
	} {
		if got := fault.Told(err); got != want {
			t.Errorf("%v is told as %q, want %q", err, got, want)
		}
	}
}
