package computer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// newDispatcher puts the dispatcher on the computer's other parts.
func (c *Computer) newDispatcher() (*dispatch.Dispatcher, error) {
	b := c.machine.Config.Budget
	return dispatch.New(dispatch.Options{
		CID: c.cid, Log: c.log, Blobs: c.machine.Blobs, Boxes: taskBoxes{c}, Workspace: &runWorkspace{c}, Documents: runDocuments{c},
		Models: runModels{c}, Egress: c.runEgress, Beyond: c.boxes.Beyond, Logger: c.logger,
		Publish: func(_ context.Context, subject string, data []byte) error {
			return c.machine.Bus.Conn().Publish(subject, data)
		},
		Past:    runPast{c},
		Render:  c.shell,
		Install: c.boxes,
		Budget:  contract.Budget{WallS: b.WallS, ToolCalls: b.ToolCalls, Tokens: int64(b.Tokens), CostUSD: b.CostUSD},
		Turns:   b.Turns,
		Times:   times(c.machine.Config),
	})
}

func times(c config.Config) dispatch.Times {
	t := dispatch.Times{Approval: time.Duration(c.Approvals.WaitS) * time.Second, Silence: time.Duration(c.Runtime.SilenceS) * time.Second}
	t.Beat = min(2*time.Second, t.Silence/4)
	return t
}

// runPast is what the dispatcher asks of the past.
type runPast struct{ c *Computer }

// Unfinished implements dispatch.Past.
func (p runPast) Unfinished(ctx context.Context) ([]string, error) {
	if err := p.c.state.CaughtUp(ctx, p.c.log); err != nil {
		return nil, err
	}
	var out []string
	for before := uint64(0); ; {
		runs, err := p.c.state.Runs(ctx, state.RunFilter{Open: true, Before: before, Limit: state.MaxPage})
		if err != nil {
			return nil, err
		}
		if len(runs) == 0 {
			slices.Reverse(out)
			return out, nil
		}
		for _, r := range runs {
			out, before = append(out, r.ID), r.Seq
		}
	}
}

// RunEvents implements dispatch.Past.
func (p runPast) RunEvents(ctx context.Context, run string, after uint64) ([]contract.Event, uint64, bool, error) {
	page, err := p.c.Events(ctx, view.EventQuery{Run: run, After: after})
	return page.Events, page.Next, page.More, err
}

// runEgress implements dispatch.Egress.
func (c *Computer) runEgress(s dispatch.EgressScope, spec contract.EgressSpec, decided func(string, bool)) (http.Handler, error) {
	approved, err := egress.ParseRules(s.Approved)
	if err != nil {
		return nil, err
	}
	return c.boxes.Way(c.ctx, egress.Scope{Run: s.Run, Task: s.Task, Box: s.Box, Kind: s.Kind}, spec, decided, approved...), nil
}

// runModels answers the loops' model turns.
type runModels struct{ c *Computer }

func (m runModels) Handler(s dispatch.ModelScope) http.Handler {
	return m.c.machine.Gateway.Handler(gateway.Scope{
		CID: m.c.cid, Run: s.Run, Task: s.Task, Role: string(s.Role), Model: s.Model, Budget: s.Budget, TaskBudget: s.TaskBudget,
	})
}

// Forget implements dispatch.Models.
func (m runModels) Forget(run string) { m.c.machine.Gateway.Forget(m.c.cid, run) }

func (m runModels) Resolve(ctx context.Context, _ contract.ActorKind, model string) (provider, name string, err error) {
	return m.c.machine.Gateway.Resolve(ctx, model)
}

// runDocuments keeps the runs' living documents.
type runDocuments struct{ c *Computer }

// director is whose hand writes the document of a run.
func director(run string) document.Author {
	return document.Author{Name: string(contract.KindDirector), By: contract.DirectorOf(run), Run: run}
}

func (d runDocuments) StartRun(ctx context.Context, id, run, title, path string, v document.RunView) error {
	_, err := d.Get(ctx, id)
	if fault.Is(err, fault.NotFound) {
		_, err = d.c.documents.Create(ctx, id, title, path, document.RenderRun(title, v), director(run))
	}
	return err
}

func (d runDocuments) Get(ctx context.Context, id string) (dispatch.Document, error) {
	if err := d.c.state.CaughtUp(ctx, d.c.log); err != nil {
		return dispatch.Document{}, err
	}
	r, err := d.c.documents.Get(ctx, id)
	if err != nil {
		return dispatch.Document{}, err
	}
	return dispatch.Document{Title: r.Title, Body: r.Body, Revision: r.Revision}, nil
}

func (d runDocuments) UpdateRun(ctx context.Context, id, run string, v document.RunView) error {
	_, err := d.c.documents.UpdateRun(ctx, id, v, director(run))
	return err
}

// setAside moves what tasks left out of the way, unread.
func (c *Computer) setAside() error {
	boxes := c.path("boxes")
	if _, err := os.Lstat(boxes); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fault.Wrap("computer.setAside", os.Rename(boxes, c.path(fmt.Sprintf("boxes.aside-%d", time.Now().UnixNano()))))
}

// giveUpTasks has every run that was interrupted cancelled when it is taken up.
func (c *Computer) giveUpTasks(ctx context.Context) error {
	open, err := runPast{c}.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, run := range open {
		_, err := c.log.Append(ctx, contract.Draft{
			Actor: contract.Person(""), Type: "run.commanded", Run: run, Data: contract.RunCommanded{Command: contract.CommandCancel},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
