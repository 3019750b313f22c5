package publish

import (
	"context"

	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// keepVersion keeps a version of a path that is in no tree, as a commit of its own under
// refs/choir/kept/, and returns the entry that it kept.
func (mv *Mover) keepVersion(ctx context.Context, name string, p wire.Path, file string) (gitstore.Entry, error) {
	en, err := mv.store.StoreFile(ctx, file)
	if err != nil {
		return gitstore.None, err
	}
	return en, mv.keepEntry(ctx, name, p, en)
}

// keepEntry is keepVersion for content that is already stored. The content's id is part of
// the ref's name, so that a later version never replaces an earlier one.
func (mv *Mover) keepEntry(ctx context.Context, name string, p wire.Path, en gitstore.Entry) error {
	tree, err := mv.store.WriteTree(ctx, gitstore.Tree{string(p): en})
	if err != nil {
		return err
	}
	c, err := mv.MakeCommit(ctx, tree, mv.Head, wire.Note{Kind: "kept", Message: "Kept: a version of " + p.Shown() + " that was being written in the very moment of a change"})
	if err != nil {
		return err
	}
	return mv.store.ForceRef(ctx, "refs/choir/kept/"+name+"-"+en.ID[:12], c.Commit)
}
