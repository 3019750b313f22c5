package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/view"
)

// uses says how much a data directory takes in all, and each computer of it. A part that could not be measured in time is
// left out, which is said.
func uses(ctx context.Context, data string) ([]view.Finding, error) {
	computers, err := os.ReadDir(filepath.Join(data, "computers"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ctx, cancel := awake.WithTimeout(ctx, spaceWait)
	defer cancel()
	top, err := hostfs.Open(data)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	all, whole := int64(0), true
	measure := func(name string) (int64, error) {
		dir, err := top.Dir(name)
		if errors.Is(err, os.ErrNotExist) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		var t hostfs.Tally
		err = errors.Join(t.Add(ctx, dir), dir.Close())
		if ctx.Err() != nil || errors.Is(err, hostfs.ErrMoved) {
			whole, err = whole && ctx.Err() == nil, nil
		}
		return t.Bytes, err
	}
	var out []view.Finding
	for _, c := range computers {
		name := filepath.Join("computers", c.Name())
		n, err := measure(name)
		if err != nil {
			return nil, err
		}
		history, err := measure(name + "/workspace/.git")
		if err != nil {
			return nil, err
		}
		all += n
		out = append(out, view.Finding{ID: "storage " + c.Name(), Status: "ok", Detail: fmt.Sprintf("%d MB, of which %d MB are the history of its files", n>>20, history>>20)})
	}
	for _, name := range []string{"nats", "blobs", "cache", "aside"} {
		n, err := measure(name)
		if err != nil {
			return nil, err
		}
		all += n
	}
	total := view.Finding{ID: "storage", Status: "ok", Detail: fmt.Sprintf("%d MB are used, with the log and what all computers share", all>>20)}
	if !whole {
		total.Detail += "; not all of it could be measured in time"
	}
	return append([]view.Finding{total}, out...), nil
}
