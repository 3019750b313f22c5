package computer

import (
	"context"
	"io"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/gitserve"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// newGit makes what answers git's requests.
func (c *Computer) newGit() *gitserve.Server {
	return gitserve.New(gitserve.Options{
		Boxes: c.boxes, Workspace: c.workspace, Publish: c.publishPush, Append: c.log.Append, Room: c.machine.Reserve.Check,
		PushBytes: int64(c.machine.Config.Storage.AddMB) << 20, Logger: c.logger,
	})
}

// publishPush brings a push into the live tree.
func (c *Computer) publishPush(ctx context.Context, by contract.Actor, req workspace.PushRequest) (p workspace.Published, err error) {
	err = c.mirror.Around(ctx, false, func(mirror.Held) (paths []string, _ document.Author, err error) {
		p, err = c.workspace.Push(ctx, req)
		for _, changed := range p.Changed {
			if !slices.ContainsFunc(p.Conflicts, func(k wire.Conflict) bool { return k.Path == changed }) {
				paths = append(paths, string(changed))
			}
		}
		return paths, document.By(by), err
	})
	c.shell.Changed()
	return p, err
}

// Repository implements control.Streams.
func (c *Computer) Repository(ctx context.Context, name string) (string, error) {
	return c.git.Find(ctx, name)
}

// Git implements control.Streams.
func (c *Computer) Git(ctx context.Context, call view.GitCall, in io.Reader, out io.Writer) error {
	return c.git.Answer(ctx, call, in, out)
}
