package service

import (
	"context"
	"encoding/json"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// methods lists what can be asked for.
func (s *Services) methods() map[string]method {
	return map[string]method{
		"action":             {quick, act, true},
		"log.read":           {quick, logRead, false},
		"state.snapshot":     {quick, snapshot, false},
		"run.get":            {quick, runGet, false},
		"run.undo":           {slow, runUndo, true},
		"document.get":       {quick, documentGet, false},
		"proposal.list":      {quick, proposalList, false},
		"proposal.get":       {quick, proposalGet, false},
		"proposal.accept":    {quick, proposalAccept, true},
		"proposal.dismiss":   {quick, proposalDismiss, true},
		"checkpoint.list":    {quick, checkpointList, false},
		"checkpoint.create":  {slow, checkpointCreate, true},
		"checkpoint.diff":    {slow, checkpointDiff, false},
		"checkpoint.restore": {slow, checkpointRestore, true},
		"checkpoint.undo":    {slow, checkpointUndo, true},
		"files.list":         {quick, filesList, false},
		"exec.run":           {quick, s.commands.run, true},
		"exec.output":        {quick, s.commands.output, false},
		"exec.stop":          {quick, s.commands.stop, false},
	}
}

// decode reads a request strictly.
func decode(c call, in any) error {
	if err := contract.DecodeStrict(c.data, maxRequest, in); err != nil {
		if contract.AsFieldError(err) != nil {
			return err
		}
		return &contract.FieldError{Field: "request", Reason: err.Error()}
	}
	return nil
}

// bounded is a page's size: what was asked for, within 1 and max.
func bounded(asked, max int) int {
	if asked <= 0 || asked > max {
		return max
	}
	return asked
}

// act takes a person's intention.
func act(ctx context.Context, c call) (any, error) {
	var in struct {
		ID      string          `json:"id"`
		Type    string          `json:"type"`
		Subject string          `json:"subject"`
		Run     string          `json:"run"`
		Data    json.RawMessage `json:"data"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if info, ok := contract.Lookup(in.Type); !ok || !info.Browser {
		return nil, &contract.FieldError{Field: "type", Reason: "is not something a desktop can say"}
	}
	data, err := contract.DecodeData(in.Type, in.Data)
	if err != nil {
		return nil, err
	}
	a := view.Action{ID: in.ID, Type: in.Type, Subject: in.Subject, Run: in.Run, User: c.user, Data: data}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	done, err := c.c.Act(ctx, a.About())
	return done, err
}

type eventPage struct {
	Events []contract.Event `json:"events"`
	Last   *uint64          `json:"last,omitempty"`
	More   *bool            `json:"more,omitempty"`
}

// fit cuts a list so that it stays within an answer, and says whether it did.
func fit[T any](list []T) ([]T, bool, error) {
	size := 0
	for i := range list {
		b, err := json.Marshal(list[i])
		if err != nil {
			return nil, false, err
		}
		if size += len(b) + 1; size > maxAnswer-16<<10 && i > 0 {
			return list[:i], true, nil
		}
	}
	if list == nil {
		list = []T{}
	}
	return list, false, nil
}

func logRead(ctx context.Context, c call) (any, error) {
	var in struct {
		After uint64 `json:"after"`
		Limit int    `json:"limit"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	page, err := c.c.Events(ctx, view.EventQuery{After: in.After, Limit: bounded(in.Limit, maxEvents)})
	if err != nil {
		return nil, err
	}
	events, _, err := fit(page.Events)
	return eventPage{Events: events, Last: &page.Last}, err
}

func runGet(ctx context.Context, c call) (any, error) {
	var in struct {
		Run   string `json:"run"`
		After uint64 `json:"after"`
		Limit int    `json:"limit"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := contract.ValidID("run", in.Run); err != nil {
		return nil, err
	}
	page, err := c.c.Events(ctx, view.EventQuery{Run: in.Run, After: in.After, Limit: bounded(in.Limit, maxEvents)})
	if err != nil {
		return nil, err
	}
	events, cut, err := fit(page.Events)
	more := page.More || cut
	return eventPage{Events: events, More: &more}, err
}

func documentGet(ctx context.Context, c call) (any, error) {
	var in struct {
		Document string `json:"document"`
		Revision int    `json:"revision"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if err := contract.ValidID("document", in.Document); err != nil {
		return nil, err
	}
	if in.Revision < 0 {
		return nil, &contract.FieldError{Field: "revision", Reason: "is negative"}
	}
	d, err := c.c.Document(ctx, in.Document, in.Revision)
	if err != nil {
		return nil, err
	}
	return struct {
		documentHead
		Author string `json:"author"`
		Body   string `json:"body"`
	}{headOf(d), d.Author, d.Body}, nil
}

type documentHead struct {
	Document string    `json:"document"`
	Title    string    `json:"title"`
	Path     string    `json:"path"`
	Revision int       `json:"revision"`
	Time     time.Time `json:"time"`
}

func headOf(d view.Document) documentHead {
	return documentHead{d.ID, d.Title, d.Path, d.Revision, d.Time}
}

// checkpoint is checkpoint.created's data with where it stands in the log.
type checkpoint struct {
	contract.CheckpointCreated
	Sequence uint64        `json:"sequence"`
	Time     time.Time     `json:"time"`
	Author   contract.Role `json:"author"`
	Run      string        `json:"run,omitempty"`
	Task     string        `json:"task,omitempty"`
}

// A desktop shows the first of what a checkpoint left out, and how much there is.
const (
	maxShownSkipped = 20
	maxShownIgnored = 10
)

func checkpointsOf(list []view.Checkpoint) []checkpoint {
	out := make([]checkpoint, 0, len(list))
	for _, k := range list {
		out = append(out, checkpoint{
			CheckpointCreated: contract.CheckpointCreated{Commit: k.ID, Parent: k.Parent, Tree: k.Tree, Kind: k.Kind, Message: k.Message,
				Seq: k.Seq, Verified: k.Verified, Files: k.Files, Skipped: k.Skipped[:min(len(k.Skipped), maxShownSkipped)], Left: k.Left,
				Ignored: k.Ignored[:min(len(k.Ignored), maxShownIgnored)], Outside: k.Outside},
			Sequence: k.Sequence, Time: k.Time, Author: k.Author, Run: k.Run, Task: k.Task,
		})
	}
	return out
}

func checkpointList(ctx context.Context, c call) (any, error) {
	var in struct {
		Before uint64 `json:"before"`
		Limit  int    `json:"limit"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	list, more, err := c.c.Checkpoints(ctx, in.Before, bounded(in.Limit, maxHistory))
	if err != nil {
		return nil, err
	}
	page, cut, err := fit(checkpointsOf(list))
	return struct {
		Checkpoints []checkpoint `json:"checkpoints"`
		More        bool         `json:"more"`
	}{page, more || cut}, err
}

func checkpointCreate(ctx context.Context, c call) (any, error) {
	var in struct {
		Message string `json:"message"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if len(in.Message) > 4096 {
		return nil, &contract.FieldError{Field: "message", Reason: "is longer than 4096 bytes"}
	}
	done, err := c.c.Checkpoint(ctx, c.user, in.Message)
	return struct {
		Commit   string      `json:"commit"`
		Sequence uint64      `json:"sequence"`
		Created  bool        `json:"created"`
		Unkept   view.Unkept `json:"unkept"`
	}{done.ID, done.Sequence, done.Created, done.Unkept}, err
}

func checkpointDiff(ctx context.Context, c call) (any, error) {
	var in struct {
		From string `json:"from"`
		To   string `json:"to"`
		Path string `json:"path"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	r := view.DiffRequest{From: in.From, To: in.To, Path: in.Path}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	d, err := c.c.Diff(ctx, r)
	if err != nil {
		return nil, err
	}
	return cutDiff(d)
}

// maxFiles is how many entries of a folder one answer lists.
const maxFiles = 1000

func filesList(ctx context.Context, c call) (any, error) {
	var in struct {
		Path  string `json:"path"`
		After string `json:"after"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	if in.Path != "" {
		if err := contract.ValidPath("path", in.Path); err != nil {
			return nil, err
		}
	}
	list, err := c.c.ListFiles(ctx, in.Path, in.After, maxFiles)
	if err != nil {
		return nil, err
	}
	page, cut, err := fit(list)
	return struct {
		Files []view.File `json:"files"`
		More  bool        `json:"more"`
	}{page, cut || len(list) >= maxFiles}, err
}

// cutDiff makes a diff fit into an answer: its list of changes first.
func cutDiff(d view.Diff) (view.Diff, error) {
	changes, cut, err := fit(d.Changes)
	if err != nil {
		return d, err
	}
	d.Changes, d.Truncated = changes, d.Truncated || cut
	if d.Changes == nil {
		d.Changes = []contract.Change{}
	}
	for limit := maxDiffText; ; limit /= 2 {
		if len(d.Diff) > limit {
			d.Diff, d.Truncated = lines(d.Diff[:limit]), true
		}
		b, err := json.Marshal(d)
		if err != nil || len(b) <= maxAnswer || limit < 1024 {
			return d, err
		}
	}
}

// lines drops the last, incomplete line.
func lines(s string) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '\n' {
			return s[:i+1]
		}
	}
	return ""
}

func checkpointRestore(ctx context.Context, c call) (any, error) {
	var in struct {
		To     string   `json:"to"`
		Paths  []string `json:"paths"`
		DryRun bool     `json:"dry_run"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return restore(ctx, c, view.RestoreRequest{To: in.To, Paths: in.Paths, DryRun: in.DryRun})
}

func checkpointUndo(ctx context.Context, c call) (any, error) {
	var in struct {
		DryRun bool `json:"dry_run"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return restore(ctx, c, view.RestoreRequest{Undo: true, DryRun: in.DryRun})
}

func runUndo(ctx context.Context, c call) (any, error) {
	var in struct {
		Run    string `json:"run"`
		DryRun bool   `json:"dry_run"`
	}
	if err := decode(c, &in); err != nil {
		return nil, err
	}
	return restore(ctx, c, view.RestoreRequest{Run: in.Run, DryRun: in.DryRun})
}

func restore(ctx context.Context, c call, r view.RestoreRequest) (any, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r.User = c.user
	done, err := c.c.Restore(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		changes, cut, err := fit(done.Changes)
		return struct {
			To        string            `json:"to"`
			Changes   []contract.Change `json:"changes"`
			Kept      []view.Kept       `json:"kept"`
			Unkept    view.Unkept       `json:"unkept"`
			Truncated bool              `json:"truncated,omitempty"`
		}{done.To, changes, shown(done.Kept), done.Unkept, cut}, err
	}
	return struct {
		To         string      `json:"to"`
		Safety     string      `json:"safety"`
		Checkpoint string      `json:"checkpoint"`
		Sequence   uint64      `json:"sequence"`
		Kept       []view.Kept `json:"kept"`
	}{done.To, done.Safety, done.Checkpoint, done.Sequence, shown(done.Kept)}, nil
}

// shown is as much of a list as a desktop shows.
func shown(list []view.Kept) []view.Kept { return list[:min(len(list), 50)] }
