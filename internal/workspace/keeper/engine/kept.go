package engine

import (
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"context"
)

// keepVersion keeps a version of a path that is in no tree as a commit of its
// own under refs/choir/kept/, and returns what it kept.
func (e *Engine) keepVersion(ctx context.Context, name string, p wire.Path, file string) (gitstore.Entry, error) {
	en, err := e.store.StoreFile(ctx, file)
	if err != nil {
		return gitstore.None, err
	}
	return en, e.keepEntry(ctx, name, p, en)
}

// keepEntry is keepVersion of what is stored already. The ref's name says what
// it holds, so that a later version never takes the place of an earlier one.
func (e *Engine) keepEntry(ctx context.Context, name string, p wire.Path, en gitstore.Entry) error {
	tree, err := e.store.WriteTree(ctx, gitstore.Tree{string(p): en})
	if err != nil {
		return err
	}
	c, err := e.makeCommit(ctx, tree, e.head, wire.Note{Kind: "kept", Message: "Kept: a version of " + p.Shown() + " that was being written in the very moment of a change"})
	if err != nil {
		return err
	}
	return e.store.ForceRef(ctx, "refs/choir/kept/"+name+"-"+en.ID[:12], c.Commit)
}
