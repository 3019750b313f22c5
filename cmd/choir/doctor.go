package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/fleet"
	"choir.dev/choiros/internal/guest/image"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/vault"
	"choir.dev/choiros/internal/view"
)

// doctorVerb examines this machine, whether or not a control plane runs.
func doctorVerb() cli.Verb {
	return cli.Verb{
		Use: "doctor", Short: "Say what this machine provides and what is missing", Args: cli.Exactly(0), JSON: []view.Finding{}, Data: true,
		Long: `It looks through the data directory as well, and writes nothing to what that holds. It ends
with 1 when something is missing or damaged.`,
		Examples: []string{"choir doctor", "choir doctor --data ~/choir-data --json"},
		Does: func(ctx context.Context, t *cli.Call, _ []string) error {
			var findings []view.Finding
			for _, tool := range tools {
				findings = append(findings, tool.look(ctx))
			}
			boxes, err := isolation(ctx)
			if err != nil {
				return err
			}
			findings = append(findings, boxes...)
			stored, err := examine(ctx, t)
			if err != nil {
				return err
			}
			findings = append(findings, stored...)
			failed := false
			if err := t.Show(findings, func(w io.Writer) {
				for _, f := range findings {
					terminal.Row(w, map[string]string{"ok": "✓", "warn": "!", "fail": "✕"}[f.Status], f.ID, f.Detail, f.Hint)
				}
			}); err != nil {
				return err
			}
			for _, f := range findings {
				failed = failed || f.Status == "fail"
			}
			if failed {
				return cli.ExitFailed
			}
			return nil
		},
	}
}

// tool is a program that the machine must have, with the versions that are supported.
type tool struct {
	name, need, hint string
	// since holds the first supported version of each major version, the newest last. Later
	// major versions than the last are supported too. Without any, every version is.
	since [][2]int
}

var tools = []tool{
	{"git", "checkpoints", "Install git 2.38 or newer.", [][2]int{{2, 38}}},
	{"node", "the live desktop", "Install Node.js 20.19 or 22.12 or newer; without it the kept build is served and can't be rewritten live.", [][2]int{{20, 19}, {22, 12}}},
	{"npm", "the live desktop", "It comes with Node.js.", nil},
}

// look finds out whether the machine has the tool in a supported version.
func (t tool) look(ctx context.Context) view.Finding {
	out, err := exec.CommandContext(ctx, t.name, "--version").Output()
	if err != nil {
		return view.Finding{ID: t.name, Status: "fail", Detail: "not found; needed for " + t.need, Hint: t.hint}
	}
	f := view.Finding{ID: t.name, Status: "ok", Detail: strings.TrimSpace(string(out))}
	if !t.does(f.Detail) {
		f.Status, f.Hint = "fail", t.hint
	}
	return f
}

// does says whether a tool's --version output names a supported version.
func (t tool) does(said string) bool {
	words := strings.Fields(said)
	for _, word := range words {
		var have [2]int
		if n, _ := fmt.Sscanf(strings.TrimPrefix(word, "v"), "%d.%d", &have[0], &have[1]); n != 2 {
			continue
		}
		for i, since := range t.since {
			if have[0] == since[0] && have[1] >= since[1] || i == len(t.since)-1 && have[0] > since[0] {
				return true
			}
		}
		return len(t.since) == 0
	}
	return len(t.since) == 0
}

// isolation tries whether boxes can be isolated. On a full disk it is not tried, for there
// the other findings are what doctor is run for.
func isolation(ctx context.Context) (findings []view.Finding, err error) {
	dir, err := os.MkdirTemp("", "choir-doctor-")
	guest := ""
	if err == nil {
		defer os.RemoveAll(dir)
		guest, err = image.Path(dir)
	}
	if fault.Is(err, fault.DiskFull) {
		return []view.Finding{{ID: "isolation", Status: "warn", Detail: "not tried: there is no space in " + os.TempDir() + " for a program in a box"}}, nil
	}
	if err != nil {
		return nil, err
	}
	isolated := view.Finding{ID: "isolation", Status: "ok", Detail: "boxes can be isolated with bubblewrap"}
	for _, f := range local.Diagnose(ctx, local.Options{Guest: guest, Dir: dir}) {
		status := "warn"
		if f.Severity == sandbox.Fatal {
			status, isolated.Status, isolated.Detail = "fail", "fail", "boxes can't be isolated, so none is opened"
		}
		findings = append(findings, view.Finding{ID: f.ID, Status: status, Detail: f.Text, Hint: f.Hint})
	}
	return append(findings, isolated), nil
}

// examine looks through a data directory that nobody has open, and changes nothing in it.
// When a control plane has it open, that one is asked for its findings.
func examine(ctx context.Context, t *cli.Call) ([]view.Finding, error) {
	named := t.Data != ""
	cfg, err := config.Load(t.Sources("", nil))
	if err != nil {
		return nil, err
	}
	t.Data = cfg.Server.Data
	if holds, err := datadir.Holds(t.Data); err != nil {
		return nil, err
	} else if !holds && named {
		return []view.Finding{{ID: "data", Status: "fail", Detail: "nothing of choir is stored in " + t.Data, Hint: "Check the path given with --data, and that its disk is mounted."}}, nil
	} else if !holds {
		return []view.Finding{{ID: "data", Status: "ok", Detail: "nothing is stored in " + t.Data + " yet; choir up begins there"}}, nil
	}
	dir, err := datadir.OpenDamaged(t.Data)
	space, serr := spaceOf(ctx, t.Data)
	if serr != nil {
		return nil, serr
	}
	if fault.Is(err, fault.InUse) {
		return append([]view.Finding{space}, ask(ctx, t)...), nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close() // nothing was written, so an error only concerns the lock
	found, err := lookThrough(ctx, dir)
	return append([]view.Finding{space}, found...), err
}

// lookThrough says what of a data directory is damaged, or would be put right by a start.
func lookThrough(ctx context.Context, dir *datadir.Dir) ([]view.Finding, error) {
	if err := recovery.Newer(ctx, dir); err != nil {
		return nil, err
	}
	unfinished, err := recovery.Unfinished(dir)
	if err != nil {
		return nil, err
	}
	if len(unfinished) > 0 {
		return []view.Finding{{ID: "data", Status: "warn", Detail: "a recovery was interrupted", Hint: "The next choir up, or choir recover, brings it to its end."}}, nil
	}
	if held, err := bus.Held(dir.Path("nats")); err != nil {
		return nil, err
	} else if len(held) > 0 {
		return []view.Finding{{ID: "data", Status: "warn", Detail: "files of logs were kept while they were being opened, and are not back in their place: " + strings.Join(held, ", "), Hint: "The next choir up, or choir recover, puts them back."}}, nil
	}
	report, err := recovery.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []view.Finding
	damaged := slices.Concat(report.Accounts, report.Shared)
	for _, list := range report.Computers {
		damaged = append(damaged, list...)
	}
	if dir.Unversioned() {
		damaged = append(damaged, bus.Damage{File: "version", What: "it is gone or no number"})
	}
	for _, d := range damaged {
		out = append(out, view.Finding{ID: "data", Status: "fail", Detail: d.String(), Hint: "Run choir recover."})
	}
	if err := vault.Check(dir.Path("keys")); err != nil && len(damaged) == 0 { // a damaged vault was named above
		out = append(out, view.Finding{ID: "data", Status: "fail", Detail: fault.Text(err), Hint: fault.HintOf(err)})
	}
	if len(damaged) == 0 {
		out = append(out, view.Finding{ID: "data", Status: "ok", Detail: "the logs of " + dir.Path() + " are whole"})
	}
	return out, nil
}

// spaceOf says what takes the space of a data directory, whoever has it open.
func spaceOf(ctx context.Context, data string) (view.Finding, error) {
	free, err := datadir.FreeAt(data)
	if err != nil {
		return view.Finding{}, err
	}
	return fleet.Space(ctx, data, free)
}

// ask requests from the control plane that uses a data directory what it found there.
func ask(ctx context.Context, t *cli.Call) []view.Finding {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	used := view.Finding{ID: "data", Status: "ok", Detail: "in use by choir up, which looks through it and says what it finds"}
	c, err := client.Discover(func(string) string { return "" }, t.Data, "")
	if err == nil {
		defer c.Close()
		var seen []view.Finding
		if seen, err = c.Doctor(ctx); err == nil {
			// What this machine provides was examined above.
			return append([]view.Finding{used}, slices.DeleteFunc(seen, func(f view.Finding) bool {
				return f.ID != "accounts" && f.ID != "dependencies" && !strings.HasPrefix(f.ID, "computer ")
			})...)
		}
	}
	used.Status, used.Detail, used.Hint = "warn", "in use by choir up, which does not say what it found: "+fault.Text(err), "Ask again, or look at the console."
	return []view.Finding{used}
}
