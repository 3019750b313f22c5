package keeper

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// unreadable says whether an error of loadPlan or loadResult is about what is
// stored, and not about this moment: it is no JSON of that shape, or the disk
// does not give it.
func unreadable(err error) bool {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return false
	}
	var no unix.Errno
	if !errors.As(err, &no) {
		return true
	}
	return no == unix.EIO || no == unix.EISDIR || no == unix.ELOOP || no == unix.EBADMSG || no == unix.EUCLEAN
}

// setLostPlansAside sets plans aside that can't be read any more: nobody can say
// how to finish one, or what a finished one still has to tell, and while one is
// there nothing else can be changed. What it had moved out of the live tree goes
// to the trash; what it had put there stays, and is asked for again by whoever
// wanted it. The plan itself is kept as it is under a name of its own.
func (e *Engine) setLostPlansAside() error {
	ids, err := e.plans()
	if err != nil {
		return err
	}
	for _, id := range ids {
		p, perr := e.loadPlan(id)
		_, _, rerr := e.loadResult(id)
		if !unreadable(perr) && !unreadable(rerr) {
			continue // what may pass is told by who needs it
		}
		entries, err := os.ReadDir(e.planDir(id, "aside"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, en := range entries {
			at := Path("recovered/" + id + "-" + en.Name())
			if n, err := strconv.Atoi(en.Name()); perr == nil && err == nil && n >= 0 && n < len(p.Ops) {
				at = p.Ops[n].Path
			}
			if _, err := e.toTrash(unix.AT_FDCWD, e.planDir(id, "aside", en.Name()), trashMeta{Trashed: Trashed{Path: at}, Op: "merge"}); err != nil {
				return err
			}
		}
		lost := e.work("lost-publish-" + id)
		if err := errors.Join(removeTree(lost), os.Rename(e.planDir(id), lost), syncDir(e.work("publish")), syncDir(e.work())); err != nil {
			return err
		}
		e.opts.Logger.Error("what a publish or restore had begun, or how it ended, can't be read any more; what it had replaced is in the trash",
			"publish", id, "kept", lost, "replaced", len(entries), "error", errors.Join(perr, rerr))
	}
	return nil
}
