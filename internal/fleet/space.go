package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/view"
)

const (
	spaceWait = 10 * time.Second // for measuring
	spaceMost = 8                // how many parts are named
)

// Space says how much is free for a data directory, and which of its parts take
// most: the log, blobs, caches, what recoveries kept aside, and of each computer
// its files with their history and trash, snapshots, what boxes wrote, and what was installed for checks.
func Space(ctx context.Context, data string, free datadir.Room) (view.Finding, error) {
	f := view.Finding{ID: "space", Status: "ok", Detail: free.String()}
	if !free.Scarce() {
		return f, nil
	}
	f.Status = "warn"
	f.Hint = "Free some space on that disk: what recoveries kept in aside/ can go, and cache/ and computers/*/dependencies/ while choir is stopped; a file that is removed stays in the history and the trash."
	type part struct {
		name  string
		size  int64
		files int64
	}
	var parts []part
	ctx, cancel := awake.WithTimeout(ctx, spaceWait)
	defer cancel()
	names := []string{"nats", "blobs", "cache", "aside"}
	computers, err := os.ReadDir(filepath.Join(data, "computers"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	for _, c := range computers {
		for _, sub := range []string{"workspace", "workspace/.git", "snapshots", "boxes", "dependencies"} {
			names = append(names, filepath.Join("computers", c.Name(), sub))
		}
	}
	top, err := hostfs.Open(data)
	if err != nil {
		return f, err
	}
	defer top.Close()
	for _, name := range names {
		dir, err := top.Dir(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return f, err
		}
		var t hostfs.Tally
		err = errors.Join(t.Add(ctx, dir), dir.Close())
		if ctx.Err() != nil {
			f.Detail += "; not all of it could be measured in time"
			break
		}
		if err != nil && !errors.Is(err, hostfs.ErrMoved) {
			return f, err
		}
		if t.Bytes >= 1<<20 || free.Files < datadir.FilesLow && t.Inodes > 0 {
			parts = append(parts, part{name, t.Bytes, t.Inodes})
		}
	}
	slices.SortFunc(parts, func(a, b part) int {
		if free.Files < datadir.FilesLow {
			return cmp.Compare(b.files, a.files)
		}
		return cmp.Compare(b.size, a.size)
	})
	var most []string
	for _, p := range parts[:min(len(parts), spaceMost)] {
		text := fmt.Sprintf("%s %d MB", p.name, p.size>>20)
		if free.Files < datadir.FilesLow {
			text += fmt.Sprintf(" in %d files", p.files)
		}
		most = append(most, text)
	}
	if len(most) > 0 {
		f.Detail += "; it takes: " + strings.Join(most, ", ")
	}
	return f, nil
}
