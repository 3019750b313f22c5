package gitstore

import (
	"context"
	"maps"
	"slices"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Step is one path in what turns one tree into another: the file or link that is there
// afterwards, a directory (wire.ModeEmptyDir) where there was none, or nothing (None),
// which also stands for everything that was beneath.
type Step struct {
	Path  string
	Entry Entry
}

// Between lists what turns the tree from (empty if "") into the tree to: each directory's
// files together, and a directory before its content. It reads only directories that
// differ.
func (s *Store) Between(ctx context.Context, from, to string) ([]Step, error) {
	c := comparer{store: s, ctx: ctx}
	if from == to {
		return nil, nil
	}
	if err := c.compare(".", from, to); err != nil {
		return nil, fault.Wrap("keeper.between", err)
	}
	return c.steps, nil
}

type comparer struct {
	store *Store
	ctx   context.Context
	steps []Step
}

// child is one name in a directory: a file or link, or a directory with its tree.
type child struct {
	entry Entry
	dir   string
}

func (c *comparer) compare(at, from, to string) error {
	was, err := c.read(from)
	if err != nil {
		return err
	}
	is, err := c.read(to)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, there := is[name]; !there {
			c.steps = append(c.steps, Step{Path: wire.JoinPath(at, name)})
		}
	}
	names := slices.Sorted(maps.Keys(is))
	for _, name := range names {
		if n := is[name]; n.dir == "" && n != was[name] {
			c.steps = append(c.steps, Step{Path: wire.JoinPath(at, name), Entry: n.entry})
		}
	}
	for _, name := range names {
		n, before := is[name], was[name].dir
		if n.dir == "" || n.dir == before {
			continue
		}
		p := wire.JoinPath(at, name)
		if before == "" {
			c.steps = append(c.steps, Step{Path: p, Entry: Entry{Mode: wire.ModeEmptyDir}})
		}
		if err := c.compare(p, before, n.dir); err != nil {
			return err
		}
	}
	return nil
}

// read reads one directory, with the names of the live tree. The marker of an empty
// directory is left out.
func (c *comparer) read(tree string) (map[string]child, error) {
	if tree == "" {
		return nil, nil
	}
	items, err := c.store.tree(c.ctx, tree)
	if err != nil {
		return nil, err
	}
	out := make(map[string]child, len(items))
	for _, it := range items {
		name, n := names.Unescape(it.Name), child{dir: it.ID}
		if it.Mode != modeFolder {
			n.dir = ""
			if name, n.entry, err = entryOf(tree, it.Name, it); err != nil {
				return nil, err
			}
			if n.entry.Mode == wire.ModeEmptyDir {
				continue
			}
		}
		if _, twice := out[name]; twice {
			return nil, notOurs(tree, it.Name, "which stands there twice")
		}
		out[name] = n
	}
	return out, nil
}
