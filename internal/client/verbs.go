package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Health asks whether the control plane is up. It needs no token.
func (c *Client) Health(ctx context.Context) (view.Health, error) {
	return get[view.Health](ctx, c, healthPath, nil)
}

// Account says whose token this is.
func (c *Client) Account(ctx context.Context) (view.Account, error) {
	return get[view.Account](ctx, c, "/account", nil)
}

// Link makes a one-time sign-in link for a browser.
func (c *Client) Link(ctx context.Context) (view.Link, error) {
	return send[view.Link](ctx, c, http.MethodPost, "/links", nil, nil)
}

// Computers lists the account's computers, oldest first.
func (c *Client) Computers(ctx context.Context) ([]view.Computer, error) {
	return get[[]view.Computer](ctx, c, "/computers", nil)
}

// Info returns the client's computer.
func (c *Client) Info(ctx context.Context) (view.Computer, error) {
	return get[view.Computer](ctx, c, c.at(""), nil)
}

// Wake tries again to wake the computer if it does not, and returns it once it
// is awake, or says why it is not.
func (c *Client) Wake(ctx context.Context, r view.WakeRequest) (view.Computer, error) {
	if _, err := c.call(ctx, http.MethodPost, c.at("/wake"), nil, r, nil); err != nil {
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
	res, err := c.do(ctx, request{method: http.MethodGet, path: c.at("/export")})
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(w, &lossy{res.Body, ctx, c.base})
	return n, errors.Join(err, res.Body.Close())
}

// Rename gives the computer another name.
func (c *Client) Rename(ctx context.Context, name string) (view.Acted, error) {
	return send[view.Acted](ctx, c, http.MethodPatch, c.at(""), nil, map[string]string{"name": name})
}

// Prompt submits an intention. The answer names its run.
func (c *Client) Prompt(ctx context.Context, p view.Prompt) (view.Acted, error) {
	return send[view.Acted](ctx, c, http.MethodPost, c.at("/prompts"), nil, p)
}

// Runs lists runs with Sequence < before (0: from the newest), newest first,
// and says whether there are more.
func (c *Client) Runs(ctx context.Context, before uint64, limit int) (runs []view.Run, more bool, err error) {
	more, err = c.call(ctx, http.MethodGet, c.at("/runs"), paged(before, limit), nil, &runs)
	return runs, more, err
}

// Run returns one run with its tasks.
func (c *Client) Run(ctx context.Context, run string) (view.Run, error) {
	return get[view.Run](ctx, c, c.at("/runs/"+url.PathEscape(run)), nil)
}

// Wait returns the run as soon as it has ended or asks something, or when ctx
// ends, with ctx's error and the run as it last was.
func (c *Client) Wait(ctx context.Context, run string) (view.Run, error) {
	var last view.Run
	for {
		r, err := get[view.Run](ctx, c, c.at("/runs/"+url.PathEscape(run)), url.Values{"wait": {"60"}})
		if err != nil {
			return last, err
		}
		if last = r; r.Status.Ended() || r.Status == contract.RunWaiting && len(r.Questions)+len(r.Approvals) > 0 {
			return r, nil
		}
	}
}

// Approvals lists what waits for a person, newest first, or with all what did,
// and says whether there is more.
func (c *Client) Approvals(ctx context.Context, all bool, before uint64, limit int) (list []view.Approval, more bool, err error) {
	q := paged(before, limit)
	if all {
		q.Set("all", "true")
	}
	more, err = c.call(ctx, http.MethodGet, c.at("/approvals"), q, nil, &list)
	return list, more, err
}

// Decide answers an approval; the digest is that of the act that was shown.
func (c *Client) Decide(ctx context.Context, id string, d view.Decision) (view.Acted, error) {
	return send[view.Acted](ctx, c, http.MethodPost, c.at("/approvals/"+url.PathEscape(id)), nil, d)
}

// Egress sums up what passed the tunnels to each host, of a run or, when run is
// empty, of all boxes.
func (c *Client) Egress(ctx context.Context, run string) ([]view.Traffic, error) {
	q := url.Values{}
	if run != "" {
		q.Set("run", run)
	}
	return get[[]view.Traffic](ctx, c, c.at("/egress"), q)
}

// Command pauses, resumes or cancels a run.
func (c *Client) Command(ctx context.Context, run string, cmd contract.RunCommand) (view.Acted, error) {
	return send[view.Acted](ctx, c, http.MethodPost, c.at("/runs/"+url.PathEscape(run)+"/"+string(cmd)), nil, nil)
}

// Steer says something to a run.
func (c *Client) Steer(ctx context.Context, run, text string) (view.Acted, error) {
	return send[view.Acted](ctx, c, http.MethodPost, c.at("/runs/"+url.PathEscape(run)+"/steer"), nil, map[string]string{"text": text})
}

// Answer answers a run's question.
func (c *Client) Answer(ctx context.Context, run string, a view.Answer) (view.Acted, error) {
	return send[view.Acted](ctx, c, http.MethodPost, c.at("/runs/"+url.PathEscape(run)+"/answer"), nil, a)
}

// Document returns a revision of a living document; 0 is the newest.
func (c *Client) Document(ctx context.Context, id string, revision int) (view.Document, error) {
	return get[view.Document](ctx, c, c.at("/documents/"+url.PathEscape(id)), url.Values{"revision": {strconv.Itoa(revision)}})
}

// Proposals lists a document's proposals with Sequence < before (0: from the
// newest), newest first, without their text, and says whether there are more;
// with all, those that were resolved, too.
func (c *Client) Proposals(ctx context.Context, document string, all bool, before uint64, limit int) (list []view.Proposal, more bool, err error) {
	q := paged(before, limit)
	q.Set("all", strconv.FormatBool(all))
	more, err = c.call(ctx, http.MethodGet, c.at("/documents/"+url.PathEscape(document)+"/proposals"), q, nil, &list)
	return list, more, err
}

// Proposal returns one with its text and what accepting it would change.
func (c *Client) Proposal(ctx context.Context, document, id string) (view.Proposal, error) {
	return get[view.Proposal](ctx, c, c.at("/documents/"+url.PathEscape(document)+"/proposals/"+url.PathEscape(id)), nil)
}

// Resolve accepts or dismisses a proposal.
func (c *Client) Resolve(ctx context.Context, document, id string, accept bool) (view.Resolved, error) {
	verb := "dismiss"
	if accept {
		verb = "accept"
	}
	return send[view.Resolved](ctx, c, http.MethodPost, c.at("/documents/"+url.PathEscape(document)+"/proposals/"+url.PathEscape(id)+"/"+verb), nil, nil)
}

// Checkpoints lists checkpoints with Sequence < before (0: from the newest),
// newest first, and says whether there are more.
func (c *Client) Checkpoints(ctx context.Context, before uint64, limit int) (list []view.Checkpoint, more bool, err error) {
	more, err = c.call(ctx, http.MethodGet, c.at("/checkpoints"), paged(before, limit), nil, &list)
	return list, more, err
}

// ShowCheckpoint returns the checkpoint whose id begins with id.
func (c *Client) ShowCheckpoint(ctx context.Context, id string) (view.Checkpoint, error) {
	return send[view.Checkpoint](ctx, c, http.MethodGet, c.at("/checkpoints/"+url.PathEscape(id)), nil, nil)
}

// Checkpoint commits the workspace if it changed.
func (c *Client) Checkpoint(ctx context.Context, message string) (view.Checkpointed, error) {
	return send[view.Checkpointed](ctx, c, http.MethodPost, c.at("/checkpoints"), nil, map[string]string{"message": message})
}

// Diff compares two checkpoints.
func (c *Client) Diff(ctx context.Context, r view.DiffRequest) (view.Diff, error) {
	return get[view.Diff](ctx, c, c.at("/diff"), url.Values{"from": {r.From}, "to": {r.To}, "path": {r.Path}})
}

// Restore goes back in time.
func (c *Client) Restore(ctx context.Context, r view.RestoreRequest) (view.Restored, error) {
	return send[view.Restored](ctx, c, http.MethodPost, c.at("/restore"), nil, r)
}

// Undo undoes the last restore, the undo too.
func (c *Client) Undo(ctx context.Context, dryRun bool) (view.Restored, error) {
	return send[view.Restored](ctx, c, http.MethodPost, c.at("/undo"), nil, map[string]bool{"dry_run": dryRun})
}

// Files lists a folder, or the one entry of a file.
func (c *Client) Files(ctx context.Context, path string) ([]view.File, error) {
	all := []view.File{}
	for after := ""; ; {
		var part []view.File
		more, err := c.call(ctx, http.MethodGet, c.at("/files"), url.Values{"path": {path}, "after": {after}}, nil, &part)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		if !more || len(part) == 0 {
			return all, nil
		}
		after = part[len(part)-1].ID
	}
}

// Get streams a file's content; the caller closes it. An error while reading
// means that it is not whole.
func (c *Client) Get(ctx context.Context, path string) (io.ReadCloser, int64, error) {
	res, err := c.do(ctx, request{method: http.MethodGet, path: c.at("/content"), query: url.Values{"path": {path}}})
	if err != nil {
		return nil, 0, err
	}
	return &lossy{res.Body, ctx, c.base}, res.ContentLength, nil
}

// lossy codes the errors of a body that was cut off.
type lossy struct {
	io.ReadCloser
	ctx  context.Context
	base string
}

func (l *lossy) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = fault.Wrap("client.Get", transportError(l.ctx, l.base, err))
	}
	return n, err
}

// Put replaces or makes a file.
func (c *Client) Put(ctx context.Context, path string, content io.Reader) (view.File, error) {
	return upload[view.File](ctx, c, request{
		method: http.MethodPut, path: c.at("/content"), query: url.Values{"path": {path}}, body: content, content: "application/octet-stream",
	})
}

// Remove removes a file, or a folder with recursive.
func (c *Client) Remove(ctx context.Context, path string, recursive bool) error {
	_, err := c.call(ctx, http.MethodDelete, c.at("/content"), url.Values{"path": {path}, "recursive": {strconv.FormatBool(recursive)}}, nil, nil)
	return err
}

// Move gives a file or folder another name, where nothing is.
func (c *Client) Move(ctx context.Context, from, to string) (view.File, error) {
	return send[view.File](ctx, c, http.MethodPost, c.at("/files/move"), nil, view.MoveRequest{From: from, To: to})
}

// Trash lists what was removed or overwritten in the last week, newest first.
func (c *Client) Trash(ctx context.Context) ([]view.Trashed, error) {
	all := []view.Trashed{}
	for before := ""; ; {
		var part []view.Trashed
		more, err := c.call(ctx, http.MethodGet, c.at("/trash"), url.Values{"before": {before}}, nil, &part)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		if !more || len(part) == 0 {
			return all, nil
		}
		before = part[len(part)-1].ID
	}
}

// PutBack brings something back from the trash, where it was when to is empty.
func (c *Client) PutBack(ctx context.Context, id, to string) (view.File, error) {
	return send[view.File](ctx, c, http.MethodPost, c.at("/trash/"+url.PathEscape(id)+"/put-back"), nil, view.PutBackRequest{To: to})
}

// AddURL brings a repository into workspace/.
func (c *Client) AddURL(ctx context.Context, r view.AddRequest) (view.Added, error) {
	return send[view.Added](ctx, c, http.MethodPost, c.at("/add"), nil, r)
}

// AddTar brings a tar stream into workspace/{name}.
func (c *Client) AddTar(ctx context.Context, name, origin string, tar io.Reader) (view.Added, error) {
	return upload[view.Added](ctx, c, request{
		method: http.MethodPost, path: c.at("/add/tar"), query: url.Values{"name": {name}, "origin": {origin}}, body: tar, content: "application/x-tar",
	})
}

// Secrets lists the names of the stored secrets.
func (c *Client) Secrets(ctx context.Context) ([]view.Secret, error) {
	return get[[]view.Secret](ctx, c, "/secrets", nil)
}

// SetSecret stores a secret.
func (c *Client) SetSecret(ctx context.Context, name, value string) error {
	_, err := c.call(ctx, http.MethodPut, "/secrets/"+url.PathEscape(name), nil, map[string]string{"value": value}, nil)
	return err
}

// RemoveSecret removes a secret.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	_, err := c.call(ctx, http.MethodDelete, "/secrets/"+url.PathEscape(name), nil, nil, nil)
	return err
}

// Models lists what can be asked for.
func (c *Client) Models(ctx context.Context) ([]view.Model, error) {
	return get[[]view.Model](ctx, c, "/models", nil)
}

// TestModel asks a model for a word; "" is the default.
func (c *Client) TestModel(ctx context.Context, model string) (view.ModelTest, error) {
	return send[view.ModelTest](ctx, c, http.MethodPost, "/models/test", nil, map[string]string{"model": model})
}

// Rebuild replays the log into a new state file; with check it only compares.
func (c *Client) Rebuild(ctx context.Context, check bool) (view.Rebuilt, error) {
	return send[view.Rebuilt](ctx, c, http.MethodPost, c.at("/rebuild"), nil, map[string]bool{"check": check})
}

// Doctor looks at what the machine provides.
func (c *Client) Doctor(ctx context.Context) ([]view.Finding, error) {
	return get[[]view.Finding](ctx, c, "/doctor", nil)
}

// Frame is what the console shows around the desktop.
func (c *Client) Frame(ctx context.Context) (view.Frame, error) {
	return get[view.Frame](ctx, c, c.at("/frame"), nil)
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

func paged(before uint64, limit int) url.Values {
	q := url.Values{}
	if before > 0 {
		q.Set("before", strconv.FormatUint(before, 10))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return q
}
