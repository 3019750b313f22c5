package computer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/control/api"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
)

const (
	// spaceLow is how little free space is worth a warning.
	spaceLow  = 1 << 30
	spaceWait = 10 * time.Second // for measuring
	spaceMost = 8                // parts that are named
)

// Space says how much is free for a data directory, and which of its parts take
// most: the log, blobs, caches, what recoveries kept aside, and of each computer
// its files with their history and trash, snapshots, what boxes wrote, and what was installed for checks.
func Space(ctx context.Context, data string, free int64) (api.Finding, error) {
	f := api.Finding{ID: "space", Status: "ok", Detail: fmt.Sprintf("%d MB are free for the data directory", free>>20)}
	if free >= spaceLow {
		return f, nil
	}
	f.Status = "warn"
	f.Hint = "Free some space on that disk: what recoveries kept in aside/ can go, and cache/ and computers/*/dependencies/ while choir is stopped; a file that is removed stays in the history and the trash."
	type part struct {
		name string
		size int64
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
		if t.Bytes >= 1<<20 {
			parts = append(parts, part{name, t.Bytes})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return int((b.size - a.size) >> 10) })
	var most []string
	for _, p := range parts[:min(len(parts), spaceMost)] {
		most = append(most, fmt.Sprintf("%s %d MB", p.name, p.size>>20))
	}
	if len(most) > 0 {
		f.Detail += "; it takes: " + strings.Join(most, ", ")
	}
	return f, nil
}
