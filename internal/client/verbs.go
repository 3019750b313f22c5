package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Health asks whether the control plane is up. It needs no token.
func (c *Client) Health(ctx context.Context) (h view.Health, err error) {
	res, err := c.do(ctx, request{method: http.MethodGet, path: healthPath})
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if err := rpc.Decode(res.Body, &h); err != nil {
		return h, fault.Wrap("client.Health", transportError(ctx, c.base, err))
	}
	return h, nil
}

// Account returns the account of this token.
func (c *Client) Account(ctx context.Context) (view.Account, error) {
	return Call(ctx, c, rpc.AccountGet, rpc.Nothing{})
}

// Link makes a one-time sign-in link for a browser.
func (c *Client) Link(ctx context.Context) (view.Link, error) {
	return Call(ctx, c, rpc.AccountLink, rpc.LinkRequest{})
}

// Computers lists the account's computers, oldest first.
func (c *Client) Computers(ctx context.Context) ([]view.Computer, error) {
	l, err := Call(ctx, c, rpc.ComputerList, rpc.Nothing{})
	return l.Items, err
}

// Create makes a computer and returns it once it is awake. id may be empty; the
// same one again is the same computer.
func (c *Client) Create(ctx context.Context, id contract.CID, name string) (view.Computer, error) {
	in := rpc.CreateRequest{}
	in.Body.ID, in.Body.Name = id, name
	return Call(ctx, c, rpc.ComputerCreate, in)
}

// Fork makes a computer with the files and documents of a checkpoint of the client's
// computer (empty: one made first), and returns it once it is awake.
func (c *Client) Fork(ctx context.Context, id contract.CID, name, checkpoint string) (view.Computer, error) {
	in := rpc.ForkRequest{}
	in.Body.ID, in.Body.Name, in.Body.Checkpoint = id, name, checkpoint
	return Call(ctx, c, rpc.ComputerFork, in)
}

// RemoveComputer removes the client's computer; for a week PutComputerBack undoes that.
func (c *Client) RemoveComputer(ctx context.Context) (view.Computer, error) {
	return Call(ctx, c, rpc.ComputerRemove, rpc.Of{})
}

// PutComputerBack puts the client's computer back, which was removed.
func (c *Client) PutComputerBack(ctx context.Context) (view.Computer, error) {
	return Call(ctx, c, rpc.ComputerPutBack, rpc.Of{})
}

// RemovedComputers lists the account's computers that were removed and can be put back.
func (c *Client) RemovedComputers(ctx context.Context) ([]view.Computer, error) {
	l, err := Call(ctx, c, rpc.ComputerRemoved, rpc.Nothing{})
	return l.Items, err
}

// Info returns the client's computer.
func (c *Client) Info(ctx context.Context) (view.Computer, error) {
	return Call(ctx, c, rpc.ComputerGet, rpc.Of{})
}

// Wake tries again to wake the computer if it does not wake, and returns it once it is
// awake, or the reason why it is not.
func (c *Client) Wake(ctx context.Context, r view.WakeRequest) (view.Computer, error) {
	if _, err := Call(ctx, c, rpc.ComputerWake, rpc.WakeRequest{Body: r}); err != nil {
		return view.Computer{}, err
	}
	for {
		all, err := c.Computers(ctx)
		if err != nil {
			return view.Computer{}, err
		}
		for _, info := range all {
			if string(info.ID) != c.computer && (c.computer != Only || len(all) > 1) {
				continue
			}
			if info.State != view.StateWaking && (info.State != view.StateAsleep || info.Trouble != nil) {
				return info, nil
			}
		}
		select {
		case <-ctx.Done():
			return view.Computer{}, fault.Wrap("client.Wake", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Export writes a tar archive of the computer's files and events, also of one
// that does not wake.
func (c *Client) Export(ctx context.Context, w io.Writer) (int64, error) {
	res, err := c.stream(ctx, stream(rpc.ComputerExport, c, rpc.Of{}), nil, "")
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(w, &codedBody{res.Body, ctx, c.base})
	return n, errors.Join(err, res.Body.Close())
}

// Rename gives the computer another name.
func (c *Client) Rename(ctx context.Context, name string) (view.Acted, error) {
	in := rpc.RenameRequest{}
	in.Body.Name = name
	return Call(ctx, c, rpc.ComputerRename, in)
}

// Prompt submits an intention. The answer names its run.
func (c *Client) Prompt(ctx context.Context, p view.Prompt) (view.Acted, error) {
	return Call(ctx, c, rpc.PromptSubmit, rpc.PromptRequest{Body: p})
}

// Runs lists runs with Sequence < before (0: from the newest), newest first,
// and says whether there are more.
func (c *Client) Runs(ctx context.Context, before uint64, limit int) (runs []view.Run, more bool, err error) {
	l, err := Call(ctx, c, rpc.RunList, rpc.RunsRequest{Paged: rpc.Paged{Before: before, Limit: limit}})
	return l.Items, l.More, err
}

// Run returns one run with its tasks.
func (c *Client) Run(ctx context.Context, run string) (view.Run, error) {
	return Call(ctx, c, rpc.RunShow, rpc.ShowRunRequest{OnRun: rpc.OnRun{Run: run}})
}

// Trace returns what took time in a run.
func (c *Client) Trace(ctx context.Context, run string) (view.Trace, error) {
	return Call(ctx, c, rpc.RunTrace, rpc.TraceRequest{OnRun: rpc.OnRun{Run: run}})
}

// Wait returns the run as soon as it has ended or asks something, or when ctx
// ends, with ctx's error and the run as it last was.
func (c *Client) Wait(ctx context.Context, run string) (view.Run, error) {
	var last view.Run
	for {
		r, err := Call(ctx, c, rpc.RunShow, rpc.ShowRunRequest{OnRun: rpc.OnRun{Run: run}, Wait: 60})
		if err != nil {
			return last, err
		}
		if last = r; r.Status.Ended() || r.Status == contract.RunWaiting && len(r.Questions)+len(r.Approvals)+len(r.Reviews) > 0 {
			return r, nil
		}
	}
}

// Approvals lists approvals that wait for a person, newest first, with all also answered
// ones, and says whether there are more.
func (c *Client) Approvals(ctx context.Context, all bool, before uint64, limit int) (list []view.Approval, more bool, err error) {
	l, err := Call(ctx, c, rpc.ApprovalList, rpc.ApprovalsRequest{Paged: rpc.Paged{Before: before, Limit: limit}, All: all})
	return l.Items, l.More, err
}

// Decide answers an approval; the digest is that of the act that was shown.
func (c *Client) Decide(ctx context.Context, id string, d view.Decision) (view.Acted, error) {
	return Call(ctx, c, rpc.ApprovalAnswer, rpc.DecideRequest{OnApproval: rpc.OnApproval{Approval: id}, Body: d})
}

// Reviews lists work that waits until a person has looked at it, newest first.
func (c *Client) Reviews(ctx context.Context, all bool, before uint64, limit int) (list []view.Review, more bool, err error) {
	l, err := Call(ctx, c, rpc.ReviewList, rpc.ReviewsRequest{Paged: rpc.Paged{Before: before, Limit: limit}, All: all})
	return l.Items, l.More, err
}

// Review shows what a task made that waits to be looked at, hunk by hunk.
func (c *Client) Review(ctx context.Context, run, task string) (view.Review, error) {
	return Call(ctx, c, rpc.ReviewShow, onReview(run, task))
}

// Looked answers a review.
func (c *Client) Looked(ctx context.Context, run, task string, l view.Looked) (view.Acted, error) {
	return Call(ctx, c, rpc.ReviewAnswer, rpc.LookedRequest{OnReview: onReview(run, task), Body: l})
}

func onReview(run, task string) rpc.OnReview {
	return rpc.OnReview{OnRun: rpc.OnRun{Run: run}, Task: task}
}

// Egress sums up what passed the tunnels to each host, of a run or, when run is
// empty, of all boxes.
func (c *Client) Egress(ctx context.Context, run string) ([]view.Traffic, error) {
	l, err := Call(ctx, c, rpc.EgressList, rpc.EgressRequest{Run: run})
	return l.Items, err
}

// Command pauses, resumes or cancels a run.
func (c *Client) Command(ctx context.Context, run string, cmd contract.RunCommand) (view.Acted, error) {
	m := map[contract.RunCommand]*rpc.Method[rpc.OnRun, view.Acted]{
		contract.CommandCancel: rpc.RunCancel, contract.CommandPause: rpc.RunPause, contract.CommandResume: rpc.RunResume,
	}[cmd]
	if m == nil {
		return view.Acted{}, fault.New("client.Command", fault.Invalid, "", fmt.Errorf("%q is no command to a run", cmd))
	}
	return Call(ctx, c, m, rpc.OnRun{Run: run})
}

// Steer says something to a run.
func (c *Client) Steer(ctx context.Context, run, text string) (view.Acted, error) {
	in := rpc.SteerRequest{OnRun: rpc.OnRun{Run: run}}
	in.Body.Text = text
	return Call(ctx, c, rpc.RunSteer, in)
}

// SwitchModel has a run go on with another model.
func (c *Client) SwitchModel(ctx context.Context, run, model string) (view.Acted, error) {
	in := rpc.SwitchModelRequest{OnRun: rpc.OnRun{Run: run}}
	in.Body.Model = model
	return Call(ctx, c, rpc.RunModel, in)
}

// Answer answers a run's question.
func (c *Client) Answer(ctx context.Context, run string, a view.Answer) (view.Acted, error) {
	return Call(ctx, c, rpc.RunAnswer, rpc.AnswerRequest{OnRun: rpc.OnRun{Run: run}, Body: a})
}

// Document returns a revision of a living document; 0 is the newest.
func (c *Client) Document(ctx context.Context, id string, revision int) (view.Document, error) {
	return Call(ctx, c, rpc.DocumentGet, rpc.DocumentRequest{OnDocument: rpc.OnDocument{Document: id}, Revision: revision})
}

// Revisions lists a document's revisions before a number (0: from the newest) with
// their text, newest first, and says whether there are more.
func (c *Client) Revisions(ctx context.Context, document string, before, limit int) (list []view.Document, more bool, err error) {
	l, err := Call(ctx, c, rpc.RevisionList, rpc.RevisionsRequest{OnDocument: rpc.OnDocument{Document: document}, Before: before, Limit: limit})
	return l.Items, l.More, err
}

// Revise writes a document's next revision.
func (c *Client) Revise(ctx context.Context, document string, r view.Revise) (view.Revised, error) {
	return Call(ctx, c, rpc.DocumentRevise, rpc.ReviseRequest{OnDocument: rpc.OnDocument{Document: document}, Body: r})
}

// Proposals lists a document's proposals with Sequence < before (0: from the
// newest), newest first, without their text, and says whether there are more;
// with all, those that were resolved, too.
func (c *Client) Proposals(ctx context.Context, document string, all bool, before uint64, limit int) (list []view.Proposal, more bool, err error) {
	l, err := Call(ctx, c, rpc.ProposalList, rpc.ProposalsRequest{OnDocument: rpc.OnDocument{Document: document}, Paged: rpc.Paged{Before: before, Limit: limit}, All: all})
	return l.Items, l.More, err
}

// Proposal returns one with its text and what accepting it would change.
func (c *Client) Proposal(ctx context.Context, document, id string) (view.Proposal, error) {
	return Call(ctx, c, rpc.ProposalGet, onProposal(document, id))
}

// Resolve accepts or dismisses a proposal.
func (c *Client) Resolve(ctx context.Context, document, id string, accept bool) (view.Resolved, error) {
	m := rpc.ProposalDismiss
	if accept {
		m = rpc.ProposalAccept
	}
	return Call(ctx, c, m, onProposal(document, id))
}

func onProposal(document, id string) rpc.OnProposal {
	return rpc.OnProposal{OnDocument: rpc.OnDocument{Document: document}, Proposal: id}
}

// Checkpoints lists checkpoints with Sequence < before (0: from the newest),
// newest first, and says whether there are more.
func (c *Client) Checkpoints(ctx context.Context, before uint64, limit int) (list []view.Checkpoint, more bool, err error) {
	l, err := Call(ctx, c, rpc.CheckpointList, rpc.CheckpointsRequest{Paged: rpc.Paged{Before: before, Limit: limit}})
	return l.Items, l.More, err
}

// ShowCheckpoint returns the checkpoint whose id begins with id.
func (c *Client) ShowCheckpoint(ctx context.Context, id string) (view.Checkpoint, error) {
	return Call(ctx, c, rpc.CheckpointGet, rpc.ShowCheckpointRequest{ID: id})
}

// Checkpoint commits the workspace if it changed.
func (c *Client) Checkpoint(ctx context.Context, message string) (view.Checkpointed, error) {
	in := rpc.CheckpointRequest{}
	in.Body.Message = message
	return Call(ctx, c, rpc.CheckpointCreate, in)
}

// Diff compares two checkpoints.
func (c *Client) Diff(ctx context.Context, r view.DiffRequest) (view.Diff, error) {
	return Call(ctx, c, rpc.CheckpointDiff, rpc.DiffRequest{DiffRequest: r})
}

// Restore goes back in time.
func (c *Client) Restore(ctx context.Context, r view.RestoreRequest) (view.Restored, error) {
	return Call(ctx, c, rpc.CheckpointRestore, rpc.RestoreRequest{Body: r})
}

// Undo undoes the last thing that was done, an undo too.
func (c *Client) Undo(ctx context.Context, dryRun bool) (view.Restored, error) {
	in := rpc.UndoRequest{}
	in.Body.DryRun = dryRun
	return Call(ctx, c, rpc.CheckpointUndo, in)
}

// Files lists a folder, or the one entry of a file.
func (c *Client) Files(ctx context.Context, path string) ([]view.File, error) {
	all := []view.File{}
	for after := ""; ; {
		part, err := Call(ctx, c, rpc.FilesList, rpc.FilesRequest{Path: path, After: after})
		if err != nil {
			return nil, err
		}
		all = append(all, part.Items...)
		if !part.More || len(part.Items) == 0 {
			return all, nil
		}
		after = part.Items[len(part.Items)-1].ID
	}
}

// Get streams a file's content, which the caller closes, and returns the file's size and
// mode. An error while reading means that the content is not complete.
func (c *Client) Get(ctx context.Context, path string) (io.ReadCloser, view.File, error) {
	res, err := c.stream(ctx, stream(rpc.FilesGet, c, rpc.OnPath{Path: path}), nil, "")
	if err != nil {
		return nil, view.File{}, err
	}
	f := view.File{ID: path, Kind: view.FileRegular, Size: res.ContentLength, Mode: res.Header.Get("Choir-Mode"), Version: strings.Trim(res.Header.Get("ETag"), `"`)}
	return &codedBody{res.Body, ctx, c.base}, f, nil
}

// codedBody is an answer's body. If the connection is cut, reading it fails with a coded
// fault, like every other error of the client.
type codedBody struct {
	io.ReadCloser
	ctx  context.Context
	base string
}

func (l *codedBody) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = fault.Wrap("client.Get", transportError(l.ctx, l.base, err))
	}
	return n, err
}

// Put replaces or makes a file.
func (c *Client) Put(ctx context.Context, put view.Put, content io.Reader) (view.File, error) {
	return upload[view.File](ctx, c, stream(rpc.FilesPut, c, rpc.PutRequest{OnPath: rpc.OnPath{Path: put.Path}, Conditions: rpc.OnlyOn(put.If), Mode: put.Mode}), content, "application/octet-stream")
}

// Remove removes a file, or a folder with recursive; only is the version that it must have,
// "" for any (see rpc.OnlyOn).
func (c *Client) Remove(ctx context.Context, path, only string, recursive bool) error {
	_, err := Call(ctx, c, rpc.FilesRemove, rpc.RemoveRequest{OnPath: rpc.OnPath{Path: path}, Conditions: rpc.OnlyOn(only), Recursive: recursive})
	return err
}

// Move renames a file or folder; nothing may have the new name yet.
func (c *Client) Move(ctx context.Context, from, to string) (view.File, error) {
	return Call(ctx, c, rpc.FilesMove, rpc.MoveRequest{Body: view.MoveRequest{From: from, To: to}})
}

// Trash lists what was removed or overwritten in the last week, newest first.
func (c *Client) Trash(ctx context.Context) ([]view.Trashed, error) {
	all := []view.Trashed{}
	for before := ""; ; {
		part, err := Call(ctx, c, rpc.TrashList, rpc.TrashRequest{Before: before})
		if err != nil {
			return nil, err
		}
		all = append(all, part.Items...)
		if !part.More || len(part.Items) == 0 {
			return all, nil
		}
		before = part.Items[len(part.Items)-1].ID
	}
}

// PutBack brings something back from the trash, where it was when to is empty.
func (c *Client) PutBack(ctx context.Context, id, to string) (view.File, error) {
	return Call(ctx, c, rpc.TrashPutBack, rpc.PutBackRequest{Entry: id, Body: view.PutBackRequest{To: to}})
}

// AddURL brings a repository into workspace/.
func (c *Client) AddURL(ctx context.Context, r view.AddRequest) (view.Added, error) {
	return Call(ctx, c, rpc.FilesAddURL, rpc.AddRequest{Body: r})
}

// AddTar brings a tar stream into workspace/{name}.
func (c *Client) AddTar(ctx context.Context, name, origin string, tar io.Reader) (view.Added, error) {
	return upload[view.Added](ctx, c, stream(rpc.FilesAddTar, c, rpc.AddTarRequest{Name: name, Origin: origin}), tar, "application/x-tar")
}

// Secrets lists the names of the stored secrets.
func (c *Client) Secrets(ctx context.Context) ([]view.Secret, error) {
	l, err := Call(ctx, c, rpc.SecretList, rpc.Nothing{})
	return l.Items, err
}

// SetSecret stores a secret.
func (c *Client) SetSecret(ctx context.Context, name, value string) error {
	in := rpc.SetSecretRequest{OnSecret: rpc.OnSecret{Name: name}}
	in.Body.Value = value
	_, err := Call(ctx, c, rpc.SecretSet, in)
	return err
}

// RemoveSecret removes a secret.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	_, err := Call(ctx, c, rpc.SecretRemove, rpc.OnSecret{Name: name})
	return err
}

// Models lists the models that can be used.
func (c *Client) Models(ctx context.Context) ([]view.Model, error) {
	l, err := Call(ctx, c, rpc.ModelList, rpc.Nothing{})
	return l.Items, err
}

// TestModel sends a model a minimal request; "" is the default model.
func (c *Client) TestModel(ctx context.Context, model string) (view.ModelTest, error) {
	in := rpc.TestModelRequest{}
	in.Body.Model = model
	return Call(ctx, c, rpc.ModelTest, in)
}

// Rebuild replays the log into a new state file; with check it only compares.
func (c *Client) Rebuild(ctx context.Context, check bool) (view.Rebuilt, error) {
	in := rpc.RebuildRequest{}
	in.Body.Check = check
	return Call(ctx, c, rpc.ComputerRebuild, in)
}

// Status says how the machine and the caller's computers are.
func (c *Client) Status(ctx context.Context) (view.Status, error) {
	return Call(ctx, c, rpc.SystemStatus, rpc.Nothing{})
}

// Doctor checks what the machine provides.
func (c *Client) Doctor(ctx context.Context) ([]view.Finding, error) {
	l, err := Call(ctx, c, rpc.Doctor, rpc.Nothing{})
	return l.Items, err
}

// Frame is what the console shows around the desktop.
func (c *Client) Frame(ctx context.Context) (view.Frame, error) {
	return Call(ctx, c, rpc.FrameGet, rpc.Of{})
}

// Healthy waits until the control plane answers or ctx ends.
func (c *Client) Healthy(ctx context.Context) error {
	for {
		_, err := c.Health(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.Wrap("client.Healthy", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
