package workspace

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// ScrubBudget bounds one slice of a scrub; what is 0 has the keeper's default.
type ScrubBudget struct {
	Objects int
	Bytes   int64
	Time    time.Duration
	Restart bool // begin at the newest checkpoint again
}

// ScrubReport is what a slice found. Done says that it ended a pass over
// everything that the history reaches; until then the next call goes on where
// this one ended.
type ScrubReport struct {
	Done    bool
	Objects int   // of the pass so far
	Bytes   int64 // likewise
	Damaged []Damage
	More    int // damaged objects beyond those listed
	Aside   []Aside
}

// Aside is the record of a publish that could not be followed and was set aside.
type Aside struct{ name, Publish string }

// Part says where it is among the computer's files.
func (a Aside) Part() string { return "workspace/.git/choir/unreadable/" + a.name }

// Text says it in a line.
func (a Aside) Text() string {
	return "the record of publish " + a.Publish + " could not be followed, so that publish may not have taken effect, or only in part"
}

// Kept says what became of what it was about.
func (a Aside) Kept() string {
	return "set aside; what it had displaced is in the trash (choir files trash), and the publish can be asked for again"
}

// Damage is something of the history that is not what it was.
type Damage struct {
	Object, Kind string // its name; commit, tree, blob, manifest or chunk
	Commit       string // the newest checkpoint in which it was met
	Path         string // where in it; "" for the commit itself or its root
	Reason       string
	Healed       string // what it was made again from; "" when nothing holds it
}

// Part says what it is among the computer's files.
func (d Damage) Part() string {
	if d.Kind == "chunk" {
		return "workspace/.git/choir/chunks/" + d.Object[:min(2, len(d.Object))] + "/" + d.Object
	}
	return "workspace/.git object " + d.Object
}

// Text says it in a line.
func (d Damage) Text() string {
	what := "checkpoint " + d.Commit[:min(12, len(d.Commit))]
	if d.Path != "" {
		what = d.Path + " in " + what
	}
	end := "nothing else holds it"
	if d.Healed != "" {
		end = "made again from " + d.Healed
	}
	return fmt.Sprintf("%s: its %s %s; %s", what, d.Kind, d.Reason, end)
}

// Scrub reads a slice of the history's objects, compares each with its name, and
// makes again what is damaged where the live tree, a snapshot or the trash still
// holds it. It changes nothing else, and work goes on beside it.
func (w *Workspace) Scrub(ctx context.Context, budget ScrubBudget) (ScrubReport, error) {
	const op = "workspace.Scrub"
	var reply wire.ScrubReply
	err := w.opts.Keeper.Call(ctx, "scrub", wire.ScrubRequest{
		Objects: budget.Objects, Bytes: budget.Bytes, Millis: budget.Time.Milliseconds(), Restart: budget.Restart,
	}, &reply)
	out := ScrubReport{Done: reply.Done, Objects: reply.Objects, Bytes: reply.Bytes, More: reply.More}
	for _, d := range reply.Damaged {
		out.Damaged = append(out.Damaged, Damage{d.ID, d.Kind, d.Commit, strings.ReplaceAll(d.Path.Shown(), "\x00", ""), d.Reason, d.Healed})
	}
	for _, a := range reply.Aside {
		out.Aside = append(out.Aside, Aside{strings.ReplaceAll(a.Name, "\x00", ""), a.Publish})
	}
	return out, fault.Wrap(op, err)
}

// repair goes on after the newest checkpoint was found damaged. Nothing is
// removed: see keeper.Repair.
func (w *Workspace) repair(ctx context.Context, why error) error {
	w.opts.Logger.ErrorContext(ctx, "the newest checkpoint is damaged; going on from the last whole one", "computer", w.opts.CID, "error", why)
	var reply wire.RepairReply
	return w.opts.Keeper.Call(ctx, "repair", wire.RepairRequest{Seq: w.opts.Seq()}, &reply)
}

// Found is where a content that the host lost is still to be had.
type Found struct {
	Ref   contract.BlobRef
	Where string // in words
	at    wire.Found
}

// Find looks for contents in the live files, the trash and the history, within
// the keeper's bounds, at most 200 at once. Open gives each.
func (w *Workspace) Find(ctx context.Context, refs []contract.BlobRef) ([]Found, error) {
	const op = "workspace.Find"
	var req wire.FindRequest
	for _, ref := range refs {
		req.SHA256 = append(req.SHA256, ref.Hex())
	}
	var reply wire.FindReply
	if err := w.opts.Keeper.Call(ctx, "find", req, &reply); err != nil {
		return nil, fault.Wrap(op, err)
	}
	var out []Found
	for _, f := range reply.Found {
		ref := contract.BlobRef("sha256:" + f.SHA256)
		if !slices.Contains(refs, ref) {
			continue
		}
		where := "the trash"
		switch {
		case f.Path != "":
			where = "the file " + strings.ReplaceAll(f.Path.Shown(), "\x00", "")
		case f.Object != "":
			where = "a checkpoint"
		}
		out = append(out, Found{ref, where, f})
	}
	return out, nil
}

// Open streams what was found, which may be something else by now. The caller
// closes it.
func (w *Workspace) Open(ctx context.Context, f Found) (io.ReadCloser, error) {
	resp, err := w.opts.Keeper.Stream(ctx, "found", f.at, nil)
	if err != nil {
		return nil, fault.Wrap("workspace.Open", err)
	}
	return resp.Body, nil
}
