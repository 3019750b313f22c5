// Package fault defines the project's error value: an operation, a cause, a code by which
// callers decide, and a hint that tells a person what to do.
//
// Errors are returned, not logged; they are logged or shown once, where nothing more can be
// done with them.
package fault

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Code classifies an error for callers that decide on it.
type Code string

// These are the codes. An error without a code counts as Internal.
const (
	Internal    Code = "internal"
	Invalid     Code = "invalid"     // the caller's input is wrong
	NotFound    Code = "not_found"   // what was named does not exist
	Conflict    Code = "conflict"    // it changed meanwhile, or exists already
	Denied      Code = "denied"      // not allowed
	Exhausted   Code = "exhausted"   // a limit, quota or budget was reached
	DiskFull    Code = "disk_full"   // no space left
	InUse       Code = "in_use"      // held by another process
	Newer       Code = "newer"       // data of a newer version
	Damaged     Code = "damaged"     // what is stored is not what was stored; nothing was written over it
	Missing     Code = "missing"     // something the machine must provide is not there
	Unavailable Code = "unavailable" // try again later
	Cancelled   Code = "cancelled"
	Timeout     Code = "timeout"
	NeedsInput  Code = "needs_input"
	Unreachable Code = "unreachable" // no control plane answers there
)

// Codes returns every code that an error can have for its receiver; an error with Internal,
// or with none of these, is shown without a code.
func Codes() []Code {
	return []Code{Invalid, NotFound, Conflict, Denied, Exhausted, DiskFull, InUse, Newer, Damaged, Missing, Unavailable, Cancelled, Timeout, NeedsInput, Unreachable}
}

// Error is a failed operation. Hint is one sentence that tells a person what to do next.
type Error struct {
	Op   string
	Code Code
	Hint string
	Err  error
}

// New returns an Error; any of code, hint and err may be zero.
func New(op string, code Code, hint string, err error) *Error {
	return &Error{Op: op, Code: code, Hint: hint, Err: err}
}

// Wrap adds an operation to err and keeps its code and hint. It returns nil for nil.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Err: err}
}

func (e *Error) Error() string {
	var parts []string
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	} else if e.Code != "" {
		parts = append(parts, string(e.Code))
	}
	return strings.Join(parts, ": ")
}

func (e *Error) Unwrap() error { return e.Err }

// each calls f with every Error in err's tree, outermost first, until f
// returns true. It looks into joined errors too.
func each(err error, f func(*Error) bool) bool {
	if e, ok := err.(*Error); ok && f(e) {
		return true
	}
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		return each(x.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, e := range x.Unwrap() {
			if each(e, f) {
				return true
			}
		}
	}
	return false
}

// FreeSpace is the hint for a full disk.
const FreeSpace = "Free some space, or remove files where it can hold no more of them, on the disk that holds the data directory (choir doctor says what takes it); nothing has to be started again."

// NoSpace reports whether err contains the errno for a disk without space, or for a quota
// that is used up, which is the same for the writer.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// NoSpaceText reports the same of the text of an error. C's texts begin with a capital
// letter.
func NoSpaceText(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, syscall.ENOSPC.Error()) || strings.Contains(text, syscall.EDQUOT.Error())
}

// full reports whether err is an operating system's or a database's error for a lack of
// space or a used-up quota, so that callers need not translate it.
func full(err error) bool {
	if NoSpace(err) {
		return true
	}
	// SQLite reports this when the shared-memory file of its write-ahead log could not
	// grow.
	const sqliteFull, sqliteShmSize = 13, 10 | 19<<8
	var sqlite interface {
		error
		Code() int
	}
	if !errors.As(err, &sqlite) {
		return false
	}
	text := sqlite.Error()
	return sqlite.Code()&0xff == sqliteFull && strings.Contains(text, "disk is full") || sqlite.Code() == sqliteShmSize && strings.Contains(text, "disk I/O error")
}

// scarce is the hint when a process has reached a limit of its resources.
const scarce = "Give choir more open files, processes or memory (ulimit, or the service's limits), or let others have less; what is stored is not touched by it."

// exhausted reports whether err is an operating system's error for a lack of resources,
// which says nothing about the file that was to be opened.
func exhausted(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// Unwritable is the hint for a disk that is mounted read-only. Usually the operating system
// does that because the disk failed.
const Unwritable = "The disk that holds the data directory can only be read now: see what the system's log says of it, have it checked and mounted for writing again, and start choir again. What is stored can still be read and copied."

// unwritable reports whether err means that a disk is mounted read-only, which says nothing
// about the file's permissions.
func unwritable(err error) bool { return errors.Is(err, syscall.EROFS) }

// CodeOf returns the first code in err's tree. Without one, a lack of space is DiskFull; a
// lack of files, processes or memory, and a read-only disk, are Unavailable; context errors
// are Cancelled and Timeout; all others are Internal.
func CodeOf(err error) Code {
	code := Internal
	if each(err, func(e *Error) bool {
		if e.Code != "" {
			code = e.Code
		}
		return e.Code != ""
	}) {
		return code
	}
	switch {
	case full(err):
		return DiskFull
	case exhausted(err), unwritable(err):
		return Unavailable
	case errors.Is(err, context.Canceled):
		return Cancelled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return Internal
}

// HintOf returns the first hint in err's tree. Without one it returns the hint for a full
// or read-only disk or a lack of resources if err is that, and otherwise "".
func HintOf(err error) (hint string) {
	each(err, func(e *Error) bool {
		hint = e.Hint
		return hint != ""
	})
	switch {
	case hint != "":
	case Is(err, DiskFull):
		hint = FreeSpace
	case exhausted(err):
		hint = scarce
	case unwritable(err):
		hint = Unwritable
	}
	return hint
}

// Text returns err's text without the names of operations, which are for the log; the rest
// is for whoever asked.
func Text(err error) string {
	switch e := err.(type) {
	case *Error:
		if e.Err == nil {
			return string(e.Code)
		}
		return Text(e.Err)
	case interface{ Unwrap() []error }:
		// These are joined errors, unless err has a text of its own around them.
		var whole, texts []string
		for _, one := range e.Unwrap() {
			whole, texts = append(whole, one.Error()), append(texts, Text(one))
		}
		if strings.Join(whole, "\n") == err.Error() {
			return strings.Join(texts, "\n")
		}
	case *fs.PathError:
		if full(e) {
			return e.Err.Error() // without the path of our file
		}
	case *os.LinkError:
		if full(e) {
			return e.Err.Error()
		}
	case interface{ Unwrap() error }:
		// The text in front of such an error is kept.
		if inner := e.Unwrap(); inner != nil && full(inner) {
			if before, ok := strings.CutSuffix(err.Error(), inner.Error()); ok {
				return before + Text(inner)
			}
		}
	}
	return err.Error()
}

// Answer returns what to tell the other side of a connection within the computer: Text, or
// for an Internal error the whole text, because it ends up in our own log.
func Answer(err error) string {
	if CodeOf(err) == Internal {
		return err.Error()
	}
	return Text(err)
}

// Told returns Text and the hint, for a loop, its model, and whoever reads what they make of it: the paths of
// files and sockets of the host are none of theirs.
func Told(err error) string {
	text, paths := Text(err), hostPaths(err)
	slices.SortFunc(paths, func(a, b string) int { return len(b) - len(a) })
	for _, p := range paths {
		text = strings.ReplaceAll(text, p, "a file of the host")
	}
	if hint := HintOf(err); hint != "" {
		text = strings.TrimSuffix(text, ".") + ". " + hint
	}
	return text
}

// hostPaths returns the absolute paths that the errors of the operating system in err's tree name.
func hostPaths(err error) (paths []string) {
	switch e := err.(type) {
	case *fs.PathError:
		paths = append(paths, e.Path)
	case *os.LinkError:
		paths = append(paths, e.Old, e.New)
	case *net.OpError:
		if e.Addr != nil {
			paths = append(paths, e.Addr.String())
		}
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return !filepath.IsAbs(p) })
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		paths = append(paths, hostPaths(x.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, e := range x.Unwrap() {
			paths = append(paths, hostPaths(e)...)
		}
	}
	return paths
}

// Is reports whether err has the code.
func Is(err error, code Code) bool { return err != nil && CodeOf(err) == code }
