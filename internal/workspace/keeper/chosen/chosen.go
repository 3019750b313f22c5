package chosen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Of returns those of what is changed that are chosen, of a file of which only hunks are chosen what they
// make of it. Errors: fault.Conflict when what is chosen is not among the changes, fault.Invalid when
// it can't be chosen alone.
func (b Change) Of(ctx context.Context, only []wire.Choice) ([]gitstore.Change, error) {
	if err := bounded(only); err != nil {
		return nil, err
	}
	taken := map[string]gitstore.Change{}
	for _, choice := range only {
		at, found := string(choice.Path), false
		// What is listed as changed is taken by itself, a folder with what is in it.
		exact := slices.ContainsFunc(b.Paths, func(c gitstore.Change) bool { return c.Path == at })
		for _, c := range b.Paths {
			if c.Path != at && (exact || !strings.HasPrefix(c.Path, at+"/")) {
				continue
			}
			found = true
			if _, twice := taken[c.Path]; twice {
				return nil, fault.New("keeper.choose", fault.Invalid, "Choose each file once.", fmt.Errorf("%q is chosen twice", wire.Short(c.Path)))
			}
			if len(choice.Hunks) > 0 {
				if c.Path != at {
					return nil, notThere(choice.Path)
				}
				var err error
				if c, err = b.part(ctx, c, choice.Hunks); err != nil {
					return nil, err
				}
			}
			taken[c.Path] = c
		}
		if !found {
			return nil, notThere(choice.Path)
		}
	}
	for _, c := range b.Paths {
		if _, ok := taken[c.Path]; !ok && emptied(c) && slices.ContainsFunc(slices.Collect(maps.Values(taken)), func(t gitstore.Change) bool { return t.To.Exists() && strings.HasPrefix(t.Path, c.Path+"/") }) {
			taken[c.Path] = c // it is not empty any more
		}
	}
	var out []gitstore.Change
	for _, c := range b.Paths {
		if t, ok := taken[c.Path]; ok {
			if t.From != t.To {
				out = append(out, t)
			}
		} else if err := alone(c, taken); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func notThere(p wire.Path) error {
	return fault.New("keeper.choose", fault.Conflict, "Look again at what was changed.", fmt.Errorf("what was chosen of %q is not among the changes", wire.Short(string(p))))
}

func bounded(only []wire.Choice) error {
	n := 0
	for _, c := range only {
		n += len(c.Hunks)
		if err := wire.CheckPath(string(c.Path), false); err != nil {
			return fault.New("keeper.choose", fault.Invalid, "", fmt.Errorf("path %q %w", wire.Short(string(c.Path)), err))
		}
	}
	if len(only) == 0 || len(only) > wire.MaxChoices || n > wire.MaxHunks {
		return fault.New("keeper.choose", fault.Invalid, "Choose folders, or whole files.", fmt.Errorf("%d paths and %d hunks are chosen; 1 to %d and at most %d are allowed", len(only), n, wire.MaxChoices, wire.MaxHunks))
	}
	return nil
}

// alone reports as an error that a change which was not chosen makes room for one that was, or
// the other way round: a file that became a folder changes with what is in it.
func alone(left gitstore.Change, taken map[string]gitstore.Change) error {
	if left.From.Mode == wire.ModeEmptyDir || left.To.Mode == wire.ModeEmptyDir {
		return nil // a folder is there as long as something is in it
	}
	for _, c := range taken {
		if emptied(c) {
			continue // it is a folder still
		}
		if strings.HasPrefix(c.Path, left.Path+"/") || strings.HasPrefix(left.Path, c.Path+"/") {
			return fault.New("keeper.choose", fault.Invalid, "Choose both or neither.",
				fmt.Errorf("%q can't be changed without %q", wire.Short(c.Path), wire.Short(left.Path)))
		}
	}
	return nil
}

// part returns the change that some hunks of a change make. All of them make the whole change;
// of a file whose mode was changed, too, some leave the mode as it was.
func (b Change) part(ctx context.Context, c gitstore.Change, ids []string) (gitstore.Change, error) {
	whole := plain(c) != ""
	var d difference
	if !whole {
		var why string
		var err error
		if d, why, err = b.compare(ctx, c); err != nil {
			return c, err
		}
		whole = why != ""
	}
	if whole {
		return c, fault.New("keeper.choose", fault.Invalid, "Choose the whole file.", fmt.Errorf("%q has no parts to choose from", wire.Short(c.Path)))
	}
	var content []byte
	at, took := 0, 0
	for _, h := range d.hunks {
		content = append(content, bytes.Join(d.from[at:h.old], nil)...)
		if at = h.oldEnd; slices.Contains(ids, h.id) {
			took++
			content = append(content, bytes.Join(d.to[h.new:h.newEnd], nil)...)
		} else {
			content = append(content, bytes.Join(d.from[h.old:h.oldEnd], nil)...)
		}
	}
	content = append(content, bytes.Join(d.from[at:], nil)...)
	if named := slices.Sorted(slices.Values(ids)); took != len(slices.Compact(named)) {
		return c, notThere(wire.Path(c.Path))
	}
	if took == len(d.hunks) {
		return c, nil
	}
	if !c.From.Exists() || !c.To.Exists() {
		return c, fault.New("keeper.choose", fault.Internal, "", errors.New("a file that was added or deleted has one hunk"))
	}
	written, err := b.Store.Write(ctx, []objects.Object{{Kind: "blob", Content: content}})
	if err != nil {
		return c, err
	}
	c.To = gitstore.Entry{Mode: c.From.Mode, ID: written[0]}
	return c, nil
}
