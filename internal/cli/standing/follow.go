package standing

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// Follow says on standard error what happens in a run, a line each, until the function that it
// returns is called, which waits for it. It says nothing unless standard error is a terminal.
// after is the event behind which it begins; 0 is now, and then it says first how the run stands.
// What can't be read is not said: who waits for the run is told of that failure.
func Follow(ctx context.Context, c *client.Client, run string, after uint64) (stop func()) {
	if !terminal.Is(os.Stderr) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { follow(ctx, c, run, after, os.Stderr) })
	return func() { cancel(); wg.Wait() }
}

func follow(ctx context.Context, c *client.Client, run string, after uint64, w io.Writer) {
	said := ""
	say := func(line string) {
		if line != "" && line != said {
			fmt.Fprintln(w, "choir: "+line)
			said = line
		}
	}
	say("run " + run)
	if after == 0 {
		info, err := c.Info(ctx)
		if err != nil {
			return
		}
		after = info.Sequence
		r, err := c.Run(ctx, run)
		if err != nil {
			return
		}
		say(Status(r))
		for _, m := range r.Waits {
			say("waits for " + awaited(m))
		}
	}
	t := teller{goals: map[string]string{}}
	for e, err := range c.Events(ctx, client.EventsOptions{After: after, Run: run, Follow: true, Types: toldOf}) {
		if err != nil {
			return
		}
		p, err := contract.DecodeData(e.Type, e.Data)
		if err != nil {
			continue // an event of a newer version
		}
		say(t.line(e, p))
	}
}

// toldOf are the events of which those who wait are told.
var toldOf = []string{"run.moved", "run.commanded", "model.waiting", "model.resumed", "model.switched", "task.requested", "task.started", "task.finished", "repair.requested", "run.reported"}

// teller says in a line what an event means for those who wait.
type teller struct {
	goals map[string]string // of tasks whose request was seen
}

func (t *teller) task(id string) string { return "task " + cmp.Or(t.goals[id], id) }

// line is what an event says; "" if nothing is to be said.
func (t *teller) line(e contract.Event, p contract.Payload) string {
	switch p := p.(type) {
	case *contract.RunMoved:
		return string(p.Status) + Suffix(p.Reason)
	case *contract.RunReported:
		return string(p.Status)
	case *contract.RunCommanded:
		return map[contract.RunCommand]string{contract.CommandPause: "paused", contract.CommandResume: "goes on", contract.CommandCancel: "is being cancelled"}[p.Command]
	case *contract.ModelWaiting:
		return "waits for " + awaited(view.ModelWait{Provider: p.Provider, Model: p.Model, Code: p.Code, Message: p.Message, Since: p.Since, Next: p.Next, Until: p.Until})
	case *contract.ModelResumed:
		if p.Outcome == contract.WaitAnswered {
			return terminal.OneLine("its model "+p.Provider+"/"+p.Model+" answers", 300)
		}
	case *contract.ModelSwitched:
		return terminal.OneLine("goes on with the model "+p.Model, 300)
	case *contract.TaskRequested:
		t.goals[p.Task.ID] = terminal.OneLine(string(p.Task.Kind)+": "+p.Task.Goal, 100)
	case *contract.TaskStarted:
		if p.Attempt > 1 {
			return fmt.Sprintf("%s: attempt %d begun", t.task(e.Task), p.Attempt)
		}
		return t.task(e.Task) + ": begun"
	case *contract.TaskFinished:
		said := fmt.Sprintf("%s: ended as %s", t.task(e.Task), p.Result.Status)
		if p.Result.Status != contract.ResultOK {
			said += ": " + terminal.OneLine(p.Result.Summary, 300)
		}
		return said
	case *contract.RepairRequested:
		return t.task(e.Task) + ": sent back to its loop"
	}
	return ""
}
