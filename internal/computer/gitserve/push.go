package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/document/mirror"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Limits of the refs that the event of a push lists.
const (
	maxRefs      = 100
	maxEventRefs = 64 << 10 // bytes of them in the event
)

// push lets git take a push in an overlay that nobody else sees, then publishes the result.
// Git's answer is held until that is done: nothing is acknowledged that is not published.
// If the client disconnects before, nothing of the push is published, or all of it.
func (s *Server) push(ctx context.Context, c view.GitCall, in io.Reader, out io.Writer) error {
	ordered, err := readOrders(in)
	if err != nil || len(ordered.refs) == 0 {
		return err // without a command, git only asks whether it may push
	}
	if !ordered.understands("report-status") && !ordered.understands("report-status-v2") {
		return fault.New("", fault.Invalid, "Use a newer git.", errors.New("this git does not hear whether a push succeeded"))
	}
	if err := s.options.Room("gitserve.Push"); err != nil {
		return err
	}
	t := newPushReply(out, ordered)
	answer, err := s.take(ctx, c, ordered, &onEndReader{in, t.listen}, t)
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(err, t.end(nil))
		}
		answer = ordered.refused(why(err))
	}
	return t.end(answer)
}

// why is the text of an error for a client.
func why(err error) string {
	text := fault.Text(err)
	if hint := fault.HintOf(err); hint != "" {
		text += ". " + hint
	}
	return text
}

// take carries out a push and returns git's answer, once what it says is true.
func (s *Server) take(ctx context.Context, c view.GitCall, ordered *pushCommands, in io.Reader, t *pushReply) (answer []byte, err error) {
	if c.Repository == "" {
		if err := ordered.checkpoints(); err != nil {
			_, cerr := io.Copy(io.Discard, in) // or the client, still sending, hears that it was cut off
			return nil, errors.Join(err, cerr)
		}
	}
	id := pushed + contract.NewID()
	before, err := s.options.Workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointBefore, Message: "Before a push to " + title(c.Repository)})
	if err != nil {
		return nil, err
	}
	o, err := s.options.Workspace.Begin(ctx, id, before.Commit)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := awake.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if derr := s.options.Workspace.Drop(ctx, o); derr != nil {
			s.options.Logger.Warn("what a push left could not be dropped; it is at the next wake", "error", derr)
		}
	}()
	req := workspace.PushRequest{ID: id, Overlay: o, Repository: c.Repository, Message: "Push to " + title(c.Repository), By: c.By}
	if c.Repository == "" {
		err = s.receiveOwn(ctx, &req, ordered, in, t)
	} else {
		mounts := []sandbox.Mount{{Target: "/computer", Mode: sandbox.Overlay, Lower: o.Lower, Upper: o.Upper}}
		argv := []string{script("/computer/$1", pushRepository), "sh", c.Repository, strconv.FormatInt(s.options.PushBytes, 10)}
		err = s.run(ctx, id, mounts, 0, argv, io.MultiReader(&ordered.raw, in), t)
	}
	if err != nil {
		return nil, err
	}
	said, err := t.answer()
	if err != nil {
		return nil, err
	}
	return said, s.publishAndRecord(ctx, c, req, ordered, said, t)
}

// receiveOwn lets git take a push into the computer's own history, in a temporary
// repository that borrows that history's objects, and passes what git took to the keeper.
func (s *Server) receiveOwn(ctx context.Context, req *workspace.PushRequest, ordered *pushCommands, in io.Reader, t *pushReply) error {
	mounts := []sandbox.Mount{
		{Target: "/computer", Mode: sandbox.Overlay, Lower: req.Overlay.Lower, Upper: req.Overlay.Upper},
		{Source: sandbox.Live(".git"), Target: "/history", Mode: sandbox.ReadOnly},
	}
	base, tip := ordered.refs[0].Old, ordered.refs[0].New
	return s.within(ctx, req.ID, mounts, func(box sandbox.Box) error {
		argv := []string{pushOwn, "sh", base, strconv.FormatInt(s.options.PushBytes, 10)}
		if err := exec(ctx, box, 0, argv, io.MultiReader(&ordered.raw, in), t); err != nil {
			return err
		}
		said, err := t.answer()
		if err != nil {
			return err
		}
		if refs, err := ordered.taken(said); err != nil || len(refs) == 0 {
			return err // git says why
		}
		t.say("Receiving")
		received, err := s.receive(ctx, box, req.Overlay, base, tip)
		req.Received, req.Message = &received, pushMessage(received)
		return err
	})
}

// receive passes what git took in a box to the keeper.
func (s *Server) receive(ctx context.Context, box sandbox.Box, o workspace.Overlay, base, tip string) (workspace.Received, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, to := io.Pipe()
	listed := make(chan error, 1)
	go func() {
		err := exec(ctx, box, 0, []string{listObjects, "sh", base, tip}, nil, to)
		_ = to.CloseWithError(err) // it always succeeds
		listed <- err
	}()
	received, err := s.options.Workspace.Receive(ctx, o, base, tip, s.options.PushBytes, from)
	_ = from.CloseWithError(io.ErrClosedPipe) // it always succeeds; if the keeper stopped reading, the writer stops
	if err != nil {
		cancel()
		<-listed
		return received, err
	}
	return received, <-listed
}

// pushMessage is the message of a push's checkpoint.
func pushMessage(r workspace.Received) string {
	if r.Commits == 1 {
		return "Push: " + r.Subject
	}
	return fmt.Sprintf("Push of %d commits: %s", r.Commits, r.Subject)
}

// publishAndRecord publishes what git took, and appends the event.
func (s *Server) publishAndRecord(ctx context.Context, c view.GitCall, req workspace.PushRequest, ordered *pushCommands, said []byte, t *pushReply) error {
	refs, err := ordered.taken(said)
	if err != nil || len(refs) == 0 {
		return err
	}
	named, more, err := eventRefs(refs)
	if err != nil {
		return err
	}
	crash.At("gitserve.taken")
	t.say("Publishing")
	// Who disconnects, or loses the right to push, before the publish is decided has pushed
	// nothing.
	p, err := s.publish(ctx, c.By, req)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	crash.At("gitserve.published")
	if _, err := s.options.Append(ctx, contract.Draft{
		ID: contract.DeriveID(req.ID, "repository.pushed"), Actor: c.By, Type: "repository.pushed", Subject: contract.FileSubject(c.Repository),
		Data: contract.RepositoryPushed{Path: c.Repository, Publish: p.ID, Commit: p.Commit, Refs: named, More: more},
	}); err != nil {
		return fault.New("", fault.CodeOf(err), "Fetch to see it; choir undo takes it back.", fmt.Errorf("what was pushed is in place, but the log could not be told of it: %w", err))
	}
	if len(p.Conflicts) > 0 {
		return fault.New("", fault.Conflict, "choir undo takes back what was placed; then fetch, and push again.",
			errors.New("somebody wrote to the repository in the very moment, and some of its files stayed as they were"))
	}
	return nil
}

// publish publishes a push into the live tree, with its author.
func (s *Server) publish(ctx context.Context, by contract.Actor, req workspace.PushRequest) (p workspace.Published, err error) {
	err = s.options.Mirror.WithChanges(context.WithoutCancel(ctx), false, func(mirror.Held) (paths []string, _ document.Author, err error) {
		p, err = s.options.Workspace.Push(ctx, req)
		for _, changed := range p.Changed {
			if !slices.ContainsFunc(p.Conflicts, func(k wire.Conflict) bool { return k.Path == changed }) {
				paths = append(paths, string(changed))
			}
		}
		return paths, document.By(by), err
	})
	s.options.Changed()
	return p, err
}
