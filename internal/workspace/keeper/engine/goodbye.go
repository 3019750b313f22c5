package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// The file .git/choir/open says how it stands between the engine and the disk:
//
//	{boot}          an engine is at work, or was when it ended
//	closed {boot}   the last one said goodbye: all that was written was synced
//
// {boot} names the boot of the machine. Without the file nothing is known, which
// is never taken for a goodbye.

// ending is how the engine before this one ended.
type ending int

const (
	endUnknown ending = iota // without a goodbye, and with the machine; or nobody knows
	endClean                 // with a goodbye
	endApart                 // with a goodbye; the machine's end came later
	endKilled                // without a goodbye, and the machine goes on
)

const closedMark = "closed "

// begun notes that the engine is at work, and how the last one ended.
func (e *Engine) begun() error {
	boot, err := disk.BootID()
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(e.store.Work("open"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	was, closed := strings.CutPrefix(string(raw), closedMark)
	switch {
	case err != nil || was == "":
		e.end = endUnknown
	case closed && was == boot:
		e.end = endClean
	case closed:
		e.end = endApart
	case was == boot:
		e.end = endKilled
	default:
		e.end = endUnknown
	}
	return disk.WriteDurably(e.store.Work("open"), []byte(boot))
}

// Goodbye ends the engine's work: what was written is synced and that is noted,
// so that the next one need not look for damage. Nothing is changed after it. It
// is to be said when no program is at work in the tree any more.
func (e *Engine) Goodbye(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fault.Wrap("keeper.Goodbye", e.goodbye(ctx))
}

func (e *Engine) goodbye(ctx context.Context) error {
	if e.parted {
		return nil
	}
	defer func() { e.parted = true }()
	if e.end != endClean || e.damaged != nil {
		return e.saveStats() // what is not looked at yet is looked at by the next one
	}
	boot, err := disk.BootID()
	if err != nil {
		return err
	}
	if err := errors.Join(e.settleTree(ctx), e.saveStats()); err != nil {
		return err
	}
	return disk.WriteDurably(e.store.Work("open"), []byte(closedMark+boot))
}
