package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/recovery"
)

// recoverCmd works on the data directory itself: where it is needed, nothing
// else may have it open.
func recoverCmd() *cobra.Command {
	var data, file string
	var histories []string
	t := &talk{}
	cmd := &cobra.Command{Use: "recover", Short: "Bring back what is damaged of a data directory from what else knows it", Args: exactly(0)}
	cmd.Long = `Recover brings back what is damaged of a data directory: a log from its files and
the state's copy, the state from the log. What can't be had is said, and the old is
kept under aside/ in the data directory. Stop choir up first, or use the console.`
	cmd.Flags().BoolVar(&t.json, "json", false, "print JSON")
	cmd.Flags().StringVar(&data, "data", "", "data directory")
	cmd.Flags().StringVar(&file, "config", "", "configuration file")
	cmd.Flags().StringArrayVar(&histories, "history", nil, "computer whose history of checkpoints can't be used")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		flags := map[string]any{}
		if cmd.Flags().Changed("data") {
			flags["server.data"] = data
		}
		cfg, err := config.Load(config.Sources{File: file, Environ: os.Environ(), Flags: flags})
		if err != nil {
			return err
		}
		var cids []contract.CID
		for _, h := range histories {
			cid := contract.CID(h)
			if err := cid.Validate(); err != nil {
				return usageError{err}
			}
			cids = append(cids, cid)
		}
		r, err := recoverData(cmd.Context(), cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), cids...)
		if err != nil {
			return err
		}
		return t.show(r, func(w io.Writer) { printRecovered(w, r) })
	}
	return cmd
}

// recoverData recovers the data directory of a configuration.
func recoverData(ctx context.Context, cfg config.Config, logger *slog.Logger, histories ...contract.CID) (*recovery.Result, error) {
	dir, err := datadir.OpenDamaged(cfg.Server.Data)
	if err != nil {
		return nil, err
	}
	defer dir.Close() // only gives the lock back
	return recovery.Recover(ctx, recovery.Options{Dir: dir, Driver: "local", Logger: logger, Histories: histories})
}

func printRecovered(w io.Writer, r *recovery.Result) {
	if r.Aside == "" {
		row(w, "nothing is damaged")
		return
	}
	for _, d := range r.Found {
		row(w, "damaged", d.String())
	}
	for _, s := range r.Shared {
		row(w, "made anew", s)
	}
	for cid, n := range r.Computers {
		row(w, string(cid), fmt.Sprintf("%d events are there, %d of them from the state", n.Kept, n.FromState))
		if n.Unproven > 0 {
			row(w, "", fmt.Sprintf("%d are from before there was a chain: nothing proves them", n.Unproven))
		}
		if n.Lost > 0 {
			row(w, "", fmt.Sprintf("%d events can't be had", n.Lost))
		}
		if n.History {
			row(w, "", "the history of checkpoints begins anew with the files as they are")
		}
	}
	row(w, "what was there is kept in", r.Aside)
}
