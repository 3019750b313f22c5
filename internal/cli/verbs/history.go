package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/standing"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Checkpoints is choir checkpoints.
func Checkpoints() cli.Verb {
	var limit int
	return cli.Verb{
		Use: "checkpoints", Short: "List checkpoints, newest first", Args: cli.Exactly(0), JSON: []view.Checkpoint{},
		Examples: []string{"choir checkpoints", "choir checkpoints --limit 0 --json"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			all, err := cli.Every(ctx, limit, func(k view.Checkpoint) uint64 { return k.Sequence }, c.Checkpoints)
			if err != nil {
				return err
			}
			in, err := standing.PeopleOf(ctx, c)
			if err != nil {
				return err
			}
			return t.Show(cli.List(all), func(w io.Writer) {
				for _, k := range all {
					terminal.Row(w, terminal.Short(k.ID), standing.Mark(k.Verified), terminal.Time(k.Time), k.Kind, madeBy(k, in), fmt.Sprintf("%d files", k.Files), terminal.OneLine(k.Message, 70), notInIt(k))
				}
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&limit, "limit", 50, "how many; 0: all")
		},
		Verbs: []cli.Verb{{
			Use: "show CHECKPOINT", Short: "Show one checkpoint, and what is not in it", Args: cli.Exactly(1), JSON: view.Checkpoint{},
			Examples: []string{"choir checkpoints show 1a2b3c4"},
			Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
				k, err := c.ShowCheckpoint(ctx, args[0])
				if err != nil {
					return err
				}
				in, err := standing.PeopleOf(ctx, c)
				if err != nil {
					return err
				}
				return t.Show(k, func(w io.Writer) { printCheckpoint(w, k, in) })
			},
		}},
	}
}

func printCheckpoint(w io.Writer, k view.Checkpoint, in standing.People) {
	terminal.Row(w, "checkpoint", k.ID)
	terminal.Row(w, "made", terminal.Time(k.Time), k.Kind, standing.Mark(k.Verified))
	terminal.Row(w, "by", madeBy(k, in))
	terminal.Row(w, "changed", fmt.Sprintf("%d files", k.Files))
	terminal.Row(w, "message", terminal.OneLine(k.Message, 300))
	for _, s := range k.Skipped {
		terminal.Row(w, "not in it", terminal.OneLine(s, 300))
	}
	for _, p := range k.Ignored {
		terminal.Row(w, "not in it", terminal.OneLine(p, 300)+": ignored by .gitignore")
	}
	if shown := len(k.Skipped) + len(k.Ignored); k.Left+k.Outside > shown {
		terminal.Row(w, "not in it", fmt.Sprintf("%d files and %d ignored ones altogether", k.Left, k.Outside))
	}
}

// madeBy is who made a checkpoint: who asked for it, if that is known.
func madeBy(k view.Checkpoint, in standing.People) string {
	if k.Actor != "" {
		return terminal.OneLine(in.Whose(k.Actor, k.User), 100)
	}
	return string(k.Author)
}

// notInIt says in a few words what a checkpoint does not hold.
func notInIt(k view.Checkpoint) string {
	if left := max(k.Left, len(k.Skipped)); left > 0 {
		return fmt.Sprintf("%s not in it", files(left))
	}
	return ""
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

// printUnkept says what no checkpoint holds.
func printUnkept(w io.Writer, u view.Unkept) {
	for _, p := range u.Paths {
		terminal.Row(w, "in no checkpoint", terminal.OneLine(p.Path, 200)+": "+terminal.OneLine(p.Reason, 200))
	}
	if u.Files+u.Ignored > len(u.Paths) {
		terminal.Row(w, "in no checkpoint", fmt.Sprintf("%s and %d ignored ones altogether", files(u.Files), u.Ignored))
	}
}

// Checkpoint is choir checkpoint.
func Checkpoint() cli.Verb {
	var message string
	return cli.Verb{
		Use: "checkpoint", Short: "Make a checkpoint of everything as it is", Args: cli.Exactly(0), JSON: view.Checkpointed{},
		Examples: []string{"choir checkpoint -m \"before the move\""},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			k, err := c.Checkpoint(ctx, message)
			if err != nil {
				return err
			}
			return t.Show(k, func(w io.Writer) {
				if k.Created {
					terminal.Row(w, "checkpoint", k.ID)
				} else {
					terminal.Row(w, "nothing changed since", k.ID)
				}
				printUnkept(w, k.Unkept)
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.StringVarP(&message, "message", "m", "Checkpoint", "`TEXT` that says what it is")
		},
	}
}

// Diff is choir diff.
func Diff() cli.Verb {
	var path string
	return cli.Verb{
		Use: "diff [CHECKPOINT [CHECKPOINT]]", Short: "Compare two checkpoints, or one with the live files", Args: cli.Between(0, 2), JSON: view.Diff{},
		Long:     "Without either, the newest checkpoint is compared with the live files: what has changed since.",
		Examples: []string{"choir diff", "choir diff 1a2b3c4", "choir diff 1a2b3c4 4d5e6f7 --path workspace/project"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			r := view.DiffRequest{Path: path}
			switch len(args) {
			case 0:
				newest, _, err := c.Checkpoints(ctx, 0, 1)
				if err != nil {
					return err
				}
				if len(newest) == 0 {
					return fault.New("choir diff", fault.Missing, "Make one by `choir checkpoint`.", errors.New("there is no checkpoint yet"))
				}
				r.From = newest[0].ID
			case 1:
				r.From = args[0]
			default:
				r.From, r.To = args[0], args[1]
			}
			d, err := c.Diff(ctx, r)
			if err != nil {
				return err
			}
			return t.Show(d, func(w io.Writer) {
				terminal.Diff(w, d.Diff)
				for _, ch := range d.Changes { // the path is not text
					if strings.HasSuffix(ch.Path, "/.git/") {
						terminal.Row(w, string(ch.Op), terminal.OneLine(ch.Path, 200), "a repository's own data")
					}
				}
				if d.Truncated {
					fmt.Fprintln(w, "… cut; narrow it with --path")
				}
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&path, "path", "", "only the file or folder at `PATH`")
		},
	}
}

// Restore is choir restore.
func Restore() cli.Verb {
	var paths []string
	var dry bool
	return cli.Verb{
		Use: "restore [CHECKPOINT|ENTRY]", Short: "Go back to a checkpoint, by a new one; or have an entry of the trash take its place again", Args: cli.Between(0, 1), JSON: view.Restored{},
		Long:     "ENTRY is the id of one of the trash. Without either, what was last removed or overwritten at the one --path comes back.",
		Examples: []string{"choir restore 1a2b3c4 --dry-run", "choir restore 1a2b3c4 --path workspace/project/main.go", "choir restore --path workspace/notes.md"},
		Ready: func(args []string) error {
			if len(args) == 0 && len(paths) != 1 {
				return cli.Usage(errors.New("say what to restore: the ID of a checkpoint or of an entry of the trash, or one --path"))
			}
			return nil
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			p := terminal.NewProgress("comparing and restoring", 0)
			r, err := c.Restore(ctx, view.RestoreRequest{To: strings.Join(args, ""), Paths: paths, DryRun: dry})
			p.End()
			if err != nil {
				return err
			}
			return t.Show(r, func(w io.Writer) { printRestored(w, r) })
		},
		Flags: func(f *pflag.FlagSet) {
			f.StringArrayVar(&paths, "path", nil, "only the file or folder at `PATH`; may be given several times")
			f.BoolVar(&dry, "dry-run", false, "only say what would change")
		},
	}
}

// Undo is choir undo.
func Undo() cli.Verb {
	var dry bool
	return cli.Verb{
		Use: "undo", Short: "Undo the last thing that was done; an undo can be undone the same way", Args: cli.Exactly(0), JSON: view.Restored{},
		Examples: []string{"choir undo --dry-run", "choir undo"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			p := terminal.NewProgress("undoing", 0)
			r, err := c.Undo(ctx, dry)
			p.End()
			if err != nil {
				return err
			}
			return t.Show(r, func(w io.Writer) { printRestored(w, r) })
		},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&dry, "dry-run", false, "only say what would change")
		},
	}
}

func printRestored(w io.Writer, r view.Restored) {
	if u := r.Undone; u != nil {
		terminal.Row(w, "undoes the last "+string(u.What), terminal.OneLine(strings.TrimSpace(u.Path+" "+u.Title), 120))
	}
	verb := map[contract.ChangeOp]string{contract.ChangeAdded: "brings back", contract.ChangeModified: "changes", contract.ChangeDeleted: "removes", contract.ChangeMode: "changes the mode of"}
	hue := map[contract.ChangeOp]terminal.Hue{contract.ChangeAdded: terminal.Green, contract.ChangeModified: terminal.Yellow, contract.ChangeDeleted: terminal.Red, contract.ChangeMode: terminal.Yellow}
	for _, ch := range r.Changes {
		terminal.Coloured(w, hue[ch.Op], verb[ch.Op], terminal.OneLine(ch.Path, 200))
	}
	for _, f := range r.Facts {
		terminal.Row(w, keptOrNot(f), f.ID, terminal.OneLine(f.Text, contract.MaxFact))
	}
	if len(r.Changes)+len(r.Facts) == 0 {
		terminal.Row(w, "nothing differs")
	}
	for _, k := range r.Kept {
		terminal.Row(w, "stays as it is", terminal.OneLine(k.Path, 200)+": "+terminal.OneLine(k.Reason, 200))
	}
	for _, p := range r.Unkept.Paths {
		terminal.Row(w, "stays as it is", terminal.OneLine(p.Path, 200)+": in no checkpoint, "+terminal.OneLine(p.Reason, 200))
	}
	if r.Unkept.Files+r.Unkept.Ignored > len(r.Unkept.Paths) {
		terminal.Row(w, "stays as it is", fmt.Sprintf("%s and %d ignored ones altogether that are in no checkpoint", files(r.Unkept.Files), r.Unkept.Ignored))
	}
	if r.DryRun {
		terminal.Row(w, "nothing was changed: this was a dry run")
		return
	}
	if r.Checkpoint != "" {
		terminal.Row(w, "now at", r.Checkpoint)
		terminal.Row(w, "before, kept as", r.Safety)
	}
}

// Rebuild is choir rebuild.
func Rebuild() cli.Verb {
	var check bool
	return cli.Verb{
		Use: "rebuild", Short: "Replay the log into a new state file", Args: cli.Exactly(0), JSON: view.Rebuilt{},
		Examples: []string{"choir rebuild --check", "choir rebuild"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			p := terminal.NewProgress("replaying the log", 0)
			r, err := c.Rebuild(ctx, check)
			p.End()
			if err != nil {
				return err
			}
			if err := t.Show(r, func(w io.Writer) {
				terminal.Row(w, "replayed", fmt.Sprintf("%d events in %d ms", r.Sequence, r.DurationMS))
				for _, d := range r.Differences {
					terminal.Row(w, "differs", terminal.OneLine(d, 300))
				}
				if r.Equal {
					terminal.Row(w, "the state is what the log says")
				}
			}); err != nil {
				return err
			}
			if check && !r.Equal {
				return cli.ExitFailed
			}
			return nil
		},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&check, "check", false, "only compare; exits with 1 when they differ")
		},
	}
}
