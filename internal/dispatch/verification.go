package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate/verify"
	"choir.dev/choiros/internal/fault"
)

// verify checks a merged tree: each check in a box of its own, judged by exit
// codes alone.
func (a *attempt) verify(ctx context.Context, m Merged) contract.Verification {
	profile := a.task.Verify.Profile
	if profile == contract.VerifyNone && len(a.task.Verify.Commands) == 0 {
		return verify.Judge(profile, m.Tree, nil)
	}
	facts, err := a.facts(ctx, m)
	if err != nil {
		v := verify.Judge(profile, m.Tree, nil)
		v.Reason = "what to check could not be found out: " + oneLine(fault.Text(err), 500)
		return v
	}
	var notes []string
	if facts.Cut {
		notes = append(notes, "only a part of what changed was looked at")
	}
	var checks []contract.Check
	for _, c := range verify.Plan(facts, a.task.Verify) {
		if c.Changed != "" {
			notes = append(notes, fmt.Sprintf("%s, which defines %q, was changed by this task", c.Changed, c.Name))
		}
		got := a.check(ctx, m, c)
		checks = append(checks, got)
		if got.Status == contract.VerificationFail {
			break // one failure decides; the rest would only cost time
		}
	}
	if touchesShell(m.Changes) && profile != contract.VerifyNone {
		sofar := verify.Judge(profile, m.Tree, checks)
		switch {
		case sofar.Status != contract.VerificationPass:
		case a.r.d.o.Render == nil:
			notes = append(notes, "the desktop was not rendered, only type-checked and built")
		default:
			cmd, err := a.r.d.o.Render.Render(ctx, a.overlay, m.Commit)
			if err != nil {
				cmd = contract.Command{Argv: []string{"render"}, ExitCode: -1, Stderr: oneLine(err.Error(), 1000)}
			}
			checks = append(checks, verify.JudgeCheck("renders", bound(cmd)))
		}
	}
	return verify.Judge(profile, m.Tree, checks, notes...)
}

func touchesShell(changes []contract.Change) bool {
	for _, c := range changes {
		if strings.HasPrefix(c.Path, verify.ShellDir+"/") {
			return true
		}
	}
	return false
}

func (a *attempt) inVerifyBox(ctx context.Context, m Merged, f func(Box) error) error {
	box, err := a.r.d.o.Boxes.Open(ctx, BoxRequest{ID: boxID("v"), Kind: contract.BoxVerify, Run: a.ref.Run, Task: a.ref.Task, Overlay: a.overlay, Commit: m.Commit})
	if err != nil {
		return err
	}
	defer a.r.kill(box)
	return f(box)
}

func (a *attempt) facts(ctx context.Context, m Merged) (verify.Facts, error) {
	var facts verify.Facts
	var paths []string
	for _, c := range m.Changes {
		if c.PathBase64 == "" && len(paths) < 5000 && len(c.Path) < 4096 {
			paths = append(paths, c.Path)
		}
	}
	args, err := json.Marshal(map[string]any{"paths": paths})
	if err != nil {
		return facts, err
	}
	if len(args) > 1<<20 {
		return facts, errors.New("too many paths changed")
	}
	err = a.inVerifyBox(ctx, m, func(b Box) error {
		res, err := a.inBox(ctx, b, "facts", args)
		if err != nil {
			return err
		}
		if !res.OK {
			return errors.New(res.Output)
		}
		return json.NewDecoder(bytes.NewReader(res.Data)).Decode(&facts)
	})
	return facts, err
}

func (a *attempt) check(ctx context.Context, m Merged, c verify.Check) contract.Check {
	name, in := "run", any(map[string]any{"argv": c.Argv, "cwd": c.Cwd, "timeout_s": c.TimeoutS})
	cmd := contract.Command{Argv: c.Argv, ExitCode: -1}
	if c.Theme != "" {
		name, in = "check_theme", map[string]any{"path": c.Theme}
		cmd.Argv = []string{"check-theme", c.Theme}
	}
	args, err := json.Marshal(in)
	if err == nil {
		err = a.inVerifyBox(ctx, m, func(b Box) error {
			res, err := a.inBox(ctx, b, name, args)
			switch {
			case err != nil:
				return err
			case c.Theme != "" && res.OK:
				cmd.ExitCode = 0
			case c.Theme != "":
				cmd.ExitCode, cmd.Stderr = 1, res.Output
			case res.Command == nil:
				return errors.New(res.Output)
			default:
				cmd = *res.Command
			}
			return nil
		})
	}
	if err != nil {
		cmd.ExitCode, cmd.Stderr = -1, oneLine(err.Error(), 1000)
	}
	return verify.JudgeCheck(c.Name, bound(cmd))
}

func bound(c contract.Command) contract.Command {
	const keep = 8 << 10
	c.Truncated = c.Truncated || len(c.Stdout) > keep || len(c.Stderr) > keep
	c.Stdout, c.Stderr = clipText(c.Stdout, keep), clipText(c.Stderr, keep)
	c.DurationMS = max(0, c.DurationMS)
	return c
}
