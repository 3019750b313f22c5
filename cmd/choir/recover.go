package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/recovery"
)

// recoverVerb works on the data directory itself: while it is damaged, nothing else can
// have it open.
func recoverVerb() cli.Verb {
	var file string
	var histories, only []string
	return cli.Verb{
		Use: "recover", Short: "Bring back what is damaged of a data directory from what else knows it", Args: cli.Exactly(0), JSON: recovery.Result{}, Data: true,
		Long: `A log comes back from its files and the state's copy, the state from the log. What can't
be had is said, and the old is kept under aside/ in the data directory. Stop choir up
first, or use the console.`,
		Examples: []string{"choir recover", "choir recover --data ~/choir-data --json"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&file, "config", "", "the configuration, a `FILE`")
			f.StringArrayVar(&histories, "history", nil, "id of a `COMPUTER` whose history of checkpoints can't be used")
			f.StringArrayVar(&only, "computer", nil, "id of a `COMPUTER` to recover; else all that are damaged")
		},
		Does: func(ctx context.Context, t *cli.Call, _ []string) error {
			cfg, err := config.Load(t.Sources(file, nil))
			if err != nil {
				return err
			}
			o := recovery.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
			if o.Histories, err = computers(histories); err != nil {
				return err
			}
			if o.Only, err = computers(only); err != nil {
				return err
			}
			r, err := recoverData(ctx, cfg, o)
			if err != nil {
				return err
			}
			return t.Show(r, func(w io.Writer) { printRecovered(w, r) })
		},
	}
}

func computers(ids []string) ([]contract.CID, error) {
	var out []contract.CID
	for _, id := range ids {
		cid := contract.CID(id)
		if err := cid.Validate(); err != nil {
			return nil, cli.Usage(err)
		}
		out = append(out, cid)
	}
	return out, nil
}

// recoverData recovers the data directory of a configuration.
func recoverData(ctx context.Context, cfg config.Config, o recovery.Options) (*recovery.Result, error) {
	dir, err := datadir.OpenDamaged(cfg.Server.Data)
	if err != nil {
		return nil, err
	}
	defer dir.Close() // nothing was written since, so an error only concerns the lock
	o.Dir, o.Driver = dir, "local"
	return recovery.Recover(ctx, o)
}

func printRecovered(w io.Writer, r *recovery.Result) {
	if r.Aside == "" {
		terminal.Row(w, "nothing is damaged", "a history of checkpoints is held against its log as its computer wakes: what choir wake says of it is recovered with --history")
		return
	}
	for _, d := range r.Found {
		terminal.Row(w, "damaged", d.String())
	}
	for _, s := range r.Shared {
		terminal.Row(w, "made anew", s)
	}
	for cid, n := range r.Computers {
		terminal.Row(w, string(cid), fmt.Sprintf("%d events are there, %d of them from the state", n.Kept, n.FromState))
		if n.Unproven > 0 {
			terminal.Row(w, "", fmt.Sprintf("%d are from before there was a chain: nothing proves them", n.Unproven))
		}
		if n.Lost > 0 {
			terminal.Row(w, "", fmt.Sprintf("%d events can't be had", n.Lost))
		}
		if n.Continues != "" {
			terminal.Row(w, "", "the checkpoints that the log does not know any more are told again from the history")
		}
		if n.History {
			terminal.Row(w, "", "the history of checkpoints begins anew with the files as they are")
		}
	}
	terminal.Row(w, "what was there is kept in", r.Aside)
}
