package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/guest"
)

// execs runs true through the API, through the command line, and in a box that is already
// open.
func execs(ctx context.Context, e *env) (_ []report.Result, err error) {
	w, err := e.openWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if _, err := w.exec(ctx, nil, "/bin/true"); err != nil {
		return nil, err
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	out, err := w.execRows(ctx)
	if err != nil {
		return out, err
	}
	warm, err := warmExec(ctx, e)
	return append(out, warm...), err
}

// execRows measures commands in the world's tree.
func (w *world) execRows(ctx context.Context) ([]report.Result, error) {
	var firsts times
	whole, _, err := w.measure(ctx, act{ID: "exec-whole", What: "true through the API, whole", Tries: 60, Least: 10, Target: report.AtMost(report.OfOurs, 7.5, "ms"),
		RawWhat: "/bin/true started on the host", Raw: hostTrue,
		Do: func(ctx context.Context, i int) error {
			first, err := w.exec(ctx, nil, "/bin/true")
			if i > 0 || w.env.Tiny {
				firsts = append(firsts, first)
			}
			return err
		}})
	if err != nil {
		return nil, err
	}
	first := report.Result{ID: "exec-first", What: "true through the API, first byte", Ours: firsts.ms(), P99: millis(firsts.p(0.99)), Target: report.AtMost(report.OfOurs, 5, "ms"),
		Note: "Until the answer says that the command has started, which is in the log by then."}
	command, _, err := w.measure(ctx, act{ID: "exec-command", What: "choir exec -- true, as a command", Tries: 40, Least: 8, Target: report.AtMost(report.OfOurs, 20, "ms"),
		Note: "The program from its start to its end. Fsyncs are those of the control plane and its boxes.", Do: w.commandTrue})
	if err != nil {
		return nil, err
	}
	help, _, err := w.measure(ctx, act{ID: "command", What: "the command line itself (choir version)", Tries: 60, Least: 10, Target: report.AtMost(report.OfOurs, 3, "ms"),
		RawWhat: "/bin/true started on the host", Raw: hostTrue, Do: func(ctx context.Context, _ int) error { return w.command(ctx, "version") }})
	help.Fsyncs = nil // it sends no request
	return []report.Result{first, whole, command, help}, err
}

func hostTrue(ctx context.Context, _ int) error { return exec.CommandContext(ctx, "/bin/true").Run() }

func (w *world) commandTrue(ctx context.Context, _ int) error {
	return w.command(ctx, "exec", "--data", w.data, "--", "true")
}

// command runs choir as a user's shell does.
func (w *world) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, w.env.Binary, args...)
	cmd.Env = plainEnviron()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("choir %s: %w: %s", args[0], err, report.OneLine(string(out)))
	}
	return nil
}

// warmExec is the least that a command costs: through the guest of an open box, without the
// product around it.
func warmExec(ctx context.Context, e *env) (_ []report.Result, err error) {
	g, err := openBoxFixture(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	_, client, err := g.box(ctx, contract.BoxTask, g.tree())
	if err != nil {
		return nil, err
	}
	var ours, raw times
	for i := range e.rounds(300, 20, 3*time.Second) {
		err := ours.timed(func() error {
			exit, err := client.Exec(ctx, guest.ExecRequest{Argv: []string{"/bin/true"}}, guest.Streams{})
			if err == nil && exit.Code != 0 {
				err = fmt.Errorf("true ended with %d", exit.Code)
			}
			return err
		})
		if err = errors.Join(err, raw.timed(func() error { return hostTrue(ctx, i) })); err != nil {
			return nil, err
		}
		if i == 0 && !e.Tiny {
			ours, raw = nil, nil
		}
	}
	return []report.Result{{ID: "exec", What: "true in a warm box, through its guest", Ours: ours.ms(), P99: millis(ours.p(0.99)), Raw: raw.ms(), RawWhat: "/bin/true started on the host",
		Ratio: over(ours.p50(), raw.p50()), Target: report.AtMost(report.OfOurs, 3, "ms")}}, nil
}
