package computer

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/computer/tracing"
	"choir.dev/choiros/internal/dispatch"
)

// newDispatcher makes the dispatcher from the computer's other parts.
func (c *Computer) newDispatcher() (*dispatch.Dispatcher, error) {
	b := c.machine.Config.Budget
	opens := runspace.Boxes{Boxes: c.boxes, Mounts: c.mounts, Awake: c.ctx, Once: c.parts.Task, Logger: c.logger, Pool: runspace.NewPool(c.boxes, c.parts.Task, c.logger)}
	c.parts.Own("spare boxes", opens.Pool.Keep)
	return dispatch.New(dispatch.Options{
		CID: c.cid, Log: c.log, Blobs: c.machine.Blobs, Boxes: opens, Workspace: c.runWorkspace(),
		Documents: runspace.Documents{Log: c.log, State: c.state, Documents: c.documents},
		Models:    runspace.ModelsOf(c.cid, c.machine.Gateway, c.machine.Config.Models, c.machine.Blobs), Egress: opens.Way, BeyondGrant: c.boxes.BeyondGrant, Logger: c.logger,
		Runs: c.machine.Config.Loops.Runs, Parallel: c.machine.Config.Loops.Tasks, Publish: func(_ context.Context, subject string, data []byte) error {
			return c.machine.Bus.Conn().Publish(subject, data)
		},
		Past: c.runPast(), Programs: runspace.Programs(c.machine.Config.Agents), Version: c.machine.Version,
		Memory: c.memory, Pages: opens.Pages(), Search: c.machine.Search, Render: c.shell, Install: c.boxes,
		Budget: contract.Budget{WallS: b.WallS, ToolCalls: b.ToolCalls, Tokens: int64(b.Tokens), CostUSD: b.CostUSD},
		Turns:  b.Turns, Repairs: c.machine.Config.Loops.Repairs, DirectWords: c.machine.Config.Loops.DirectWords,
		Times: runspace.Times(c.machine.Config), Review: c.machine.Config.Loops.Reviews(string(c.cid)),
	})
}

// runWorkspace is the workspace as runs see it.
func (c *Computer) runWorkspace() *runspace.Workspace {
	return &runspace.Workspace{Log: c.log, State: c.state, Workspace: c.workspace, Mirror: c.mirror, Volumes: c.boxes.Volumes(), Shell: c.shell}
}

func (c *Computer) runPast() runspace.Past {
	return runspace.Past{Log: c.log, State: c.state, Page: c.Events}
}

// export has the traces of runs exported, if that is configured.
func (c *Computer) export() {
	if c.machine.Traces == nil {
		if err := tracing.Off(c.path("traced")); err != nil {
			c.logger.Warn("once tracing is switched on, runs from before are sent, too", "error", err)
		}
		return
	}
	c.parts.Add(tracing.New(tracing.Options{CID: c.cid, Past: c.Past, Exporter: c.machine.Traces, File: c.path("traced"), Logger: c.logger}).Part())
}

// note appends one event whose actor is the system.
func (c *Computer) note(ctx context.Context, eventType string, data contract.Payload) error {
	_, err := c.log.Append(ctx, contract.Draft{Actor: contract.System(), Type: eventType, Data: data})
	return err
}
