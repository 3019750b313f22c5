package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

func checkpointsVerb() verb {
	var limit int
	return verb{
		use: "checkpoints", short: "List checkpoints, newest first", args: exactly(0), json: []view.Checkpoint{},
		examples: []string{"choir checkpoints", "choir checkpoints --limit 0 --json"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			all, err := every(ctx, limit, func(k view.Checkpoint) uint64 { return k.Sequence }, c.Checkpoints)
			if err != nil {
				return err
			}
			return t.show(list(all), func(w io.Writer) {
				for _, k := range all {
					row(w, short(k.ID), mark(k.Verified), ago(k.Time), k.Kind, fmt.Sprintf("%d files", k.Files), oneLine(k.Message, 70), notInIt(k))
				}
			})
		},
		flags: func(f *pflag.FlagSet) {
			f.IntVar(&limit, "limit", 50, "how many; 0: all")
		},
		verbs: []verb{{
			use: "show ID", short: "Show one checkpoint, and what is not in it", args: exactly(1), json: view.Checkpoint{},
			examples: []string{"choir checkpoints show 1a2b3c4"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				k, err := c.ShowCheckpoint(ctx, args[0])
				if err != nil {
					return err
				}
				return t.show(k, func(w io.Writer) { printCheckpoint(w, k) })
			},
		}},
	}
}

func printCheckpoint(w io.Writer, k view.Checkpoint) {
	row(w, "checkpoint", k.ID)
	row(w, "made", ago(k.Time), k.Kind, mark(k.Verified))
	row(w, "changed", fmt.Sprintf("%d files", k.Files))
	row(w, "message", oneLine(k.Message, 300))
	for _, s := range k.Skipped {
		row(w, "not in it", oneLine(s, 300))
	}
	for _, p := range k.Ignored {
		row(w, "not in it", oneLine(p, 300)+": ignored by .gitignore")
	}
	if shown := len(k.Skipped) + len(k.Ignored); k.Left+k.Outside > shown {
		row(w, "not in it", fmt.Sprintf("%d files and %d ignored ones altogether", k.Left, k.Outside))
	}
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
		row(w, "in no checkpoint", oneLine(p.Path, 200)+": "+oneLine(p.Reason, 200))
	}
	if u.Files+u.Ignored > len(u.Paths) {
		row(w, "in no checkpoint", fmt.Sprintf("%s and %d ignored ones altogether", files(u.Files), u.Ignored))
	}
}

func checkpointVerb() verb {
	var message string
	return verb{
		use: "checkpoint", short: "Make a checkpoint of everything as it is", args: exactly(0), json: view.Checkpointed{},
		examples: []string{"choir checkpoint -m \"before the move\""},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			k, err := c.Checkpoint(ctx, message)
			if err != nil {
				return err
			}
			return t.show(k, func(w io.Writer) {
				if k.Created {
					row(w, "checkpoint", k.ID)
				} else {
					row(w, "nothing changed since", k.ID)
				}
				printUnkept(w, k.Unkept)
			})
		},
		flags: func(f *pflag.FlagSet) {
			f.StringVarP(&message, "message", "m", "Checkpoint", "what it is")
		},
	}
}

func diffVerb() verb {
	var path string
	return verb{
		use: "diff A [B]", short: "Compare two checkpoints, or one with the live files", args: between(1, 2), json: view.Diff{},
		examples: []string{"choir diff 1a2b3c4", "choir diff 1a2b3c4 4d5e6f7 --path workspace/project"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			r := view.DiffRequest{From: args[0], Path: path}
			if len(args) == 2 {
				r.To = args[1]
			}
			d, err := c.Diff(ctx, r)
			if err != nil {
				return err
			}
			return t.show(d, func(w io.Writer) {
				fmt.Fprint(w, plain(d.Diff))
				for _, ch := range d.Changes { // which is no text
					if strings.HasSuffix(ch.Path, "/.git/") {
						row(w, string(ch.Op), oneLine(ch.Path, 200), "a repository's own data")
					}
				}
				if d.Truncated {
					fmt.Fprintln(w, "… cut; narrow it with --path")
				}
			})
		},
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&path, "path", "", "only this file or folder")
		},
	}
}

func restoreVerb() verb {
	var paths []string
	var dry bool
	return verb{
		use: "restore [ID]", short: "Go back to a checkpoint, by a new one; or have an entry of the trash take its place again", args: between(0, 1), json: view.Restored{},
		long:     "ID is a checkpoint's, or that of an entry of the trash. Without one, what was last removed or overwritten at the one --path comes back.",
		examples: []string{"choir restore 1a2b3c4 --dry-run", "choir restore 1a2b3c4 --path workspace/project/main.go", "choir restore --path workspace/notes.md"},
		ready: func(args []string) error {
			if len(args) == 0 && len(paths) != 1 {
				return usageError{errors.New("say what to restore: the ID of a checkpoint or of an entry of the trash, or one --path")}
			}
			return nil
		},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			p := newProgress("comparing and restoring", 0)
			r, err := c.Restore(ctx, view.RestoreRequest{To: strings.Join(args, ""), Paths: paths, DryRun: dry})
			p.end()
			if err != nil {
				return err
			}
			return t.show(r, func(w io.Writer) { printRestored(w, r) })
		},
		flags: func(f *pflag.FlagSet) {
			f.StringArrayVar(&paths, "path", nil, "only this file or folder; may be given several times")
			f.BoolVar(&dry, "dry-run", false, "only say what would change")
		},
	}
}

func undoVerb() verb {
	var dry bool
	return verb{
		use: "undo", short: "Undo the last thing that was done; an undo can be undone the same way", args: exactly(0), json: view.Restored{},
		examples: []string{"choir undo --dry-run", "choir undo"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			p := newProgress("undoing", 0)
			r, err := c.Undo(ctx, dry)
			p.end()
			if err != nil {
				return err
			}
			return t.show(r, func(w io.Writer) { printRestored(w, r) })
		},
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&dry, "dry-run", false, "only say what would change")
		},
	}
}

func printRestored(w io.Writer, r view.Restored) {
	if u := r.Undone; u != nil {
		row(w, "undoes the last "+string(u.What), oneLine(strings.TrimSpace(u.Path+" "+u.Title), 120))
	}
	verb := map[contract.ChangeOp]string{contract.ChangeAdded: "brings back", contract.ChangeModified: "changes", contract.ChangeDeleted: "removes", contract.ChangeMode: "changes the mode of"}
	for _, ch := range r.Changes {
		row(w, verb[ch.Op], oneLine(ch.Path, 200))
	}
	if len(r.Changes) == 0 {
		row(w, "nothing differs")
	}
	for _, k := range r.Kept {
		row(w, "stays as it is", oneLine(k.Path, 200)+": "+oneLine(k.Reason, 200))
	}
	for _, p := range r.Unkept.Paths {
		row(w, "stays as it is", oneLine(p.Path, 200)+": in no checkpoint, "+oneLine(p.Reason, 200))
	}
	if r.Unkept.Files+r.Unkept.Ignored > len(r.Unkept.Paths) {
		row(w, "stays as it is", fmt.Sprintf("%s and %d ignored ones altogether that are in no checkpoint", files(r.Unkept.Files), r.Unkept.Ignored))
	}
	if r.DryRun {
		row(w, "nothing was changed: this was a dry run")
		return
	}
	if r.Checkpoint != "" {
		row(w, "now at", r.Checkpoint)
		row(w, "before, kept as", r.Safety)
	}
}

func rebuildVerb() verb {
	var check bool
	return verb{
		use: "rebuild", short: "Replay the log into a new state file", args: exactly(0), json: view.Rebuilt{},
		examples: []string{"choir rebuild --check", "choir rebuild"},
		asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
			p := newProgress("replaying the log", 0)
			r, err := c.Rebuild(ctx, check)
			p.end()
			if err != nil {
				return err
			}
			if err := t.show(r, func(w io.Writer) {
				row(w, "replayed", fmt.Sprintf("%d events in %d ms", r.Sequence, r.DurationMS))
				for _, d := range r.Differences {
					row(w, "differs", oneLine(d, 300))
				}
				if r.Equal {
					row(w, "the state is what the log says")
				}
			}); err != nil {
				return err
			}
			if check && !r.Equal {
				return exitError(exitFailed)
			}
			return nil
		},
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&check, "check", false, "only compare; exits with 1 when they differ")
		},
	}
}
