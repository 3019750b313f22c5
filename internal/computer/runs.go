package computer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/runspace"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
)

// newDispatcher makes the dispatcher from the computer's other parts.
func (c *Computer) newDispatcher() (*dispatch.Dispatcher, error) {
	b := c.machine.Config.Budget
	opens := runspace.Boxes{Boxes: c.boxes, Mounts: c.mounts, Awake: c.ctx, Once: c.once, Logger: c.logger, Pool: runspace.NewPool(c.boxes, c.once, c.logger)}
	c.own("spare boxes", opens.Pool.Keep)
	return dispatch.New(dispatch.Options{
		CID: c.cid, Log: c.log, Blobs: c.machine.Blobs, Boxes: opens, Workspace: c.runWorkspace(),
		Documents: runspace.Documents{Log: c.log, State: c.state, Documents: c.documents},
		Models:    runspace.ModelsOf(c.cid, c.machine.Gateway, c.machine.Config.Models, c.machine.Blobs), Egress: opens.Way, BeyondGrant: c.boxes.BeyondGrant, Logger: c.logger,
		Publish: func(_ context.Context, subject string, data []byte) error {
			return c.machine.Bus.Conn().Publish(subject, data)
		},
		Past:    c.runPast(),
		Render:  c.shell,
		Install: c.boxes,
		Budget:  contract.Budget{WallS: b.WallS, ToolCalls: b.ToolCalls, Tokens: int64(b.Tokens), CostUSD: b.CostUSD},
		Turns:   b.Turns, Repairs: c.machine.Config.Loops.Repairs,
		Times: times(c.machine.Config),
	})
}

// runWorkspace is the workspace as runs see it.
func (c *Computer) runWorkspace() *runspace.Workspace {
	return &runspace.Workspace{Log: c.log, State: c.state, Workspace: c.workspace, Mirror: c.mirror, Volumes: c.boxes.Volumes(), Shell: c.shell}
}

func (c *Computer) runPast() runspace.Past {
	return runspace.Past{Log: c.log, State: c.state, Page: c.Events}
}

func times(c config.Config) ports.Times {
	silence := time.Duration(c.Runtime.SilenceS) * time.Second
	return ports.Times{Approval: time.Duration(c.Approvals.WaitS) * time.Second, Silence: silence, Heartbeat: min(2*time.Second, silence/4)}
}

// setAside moves what tasks left to another folder, without reading it.
func (c *Computer) setAside() error {
	boxes := c.path("boxes")
	if _, err := os.Lstat(boxes); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fault.Wrap("computer.setAside", os.Rename(boxes, c.path(fmt.Sprintf("boxes.aside-%d", time.Now().UnixNano()))))
}

// note appends one event whose actor is the system.
func (c *Computer) note(ctx context.Context, eventType string, data contract.Payload) error {
	_, err := c.log.Append(ctx, contract.Draft{Actor: contract.System(), Type: eventType, Data: data})
	return err
}
