package commands

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

// unknownEnd is the reason given for a command whose end nobody saw.
const unknownEnd = "unknown: choir ended while it ran; it may have done all, some or none of its work, and does not run any more"

// EndLost appends the end of the commands that were running when the last process died:
// their boxes are gone, and nobody knows how far they came. What they did must be in a
// checkpoint already, for undo looks for it before a command's end (see LeftUnseen).
func EndLost(ctx context.Context, log *ledger.Log, s *state.Store) error {
	const op = "commands.EndLost"
	for {
		if err := s.CaughtUp(ctx, log); err != nil {
			return fault.Wrap(op, err)
		}
		open, err := s.Commands(ctx, state.MaxPage)
		if err != nil || len(open) == 0 {
			return fault.Wrap(op, err)
		}
		made, err := s.Checkpoints(ctx, 0, 1)
		if err != nil {
			return fault.Wrap(op, err)
		}
		newest := ""
		if len(made) > 0 {
			newest = made[0].Commit
		}
		for _, k := range open {
			if _, err := log.Append(ctx, contract.Draft{
				ID: contract.DeriveID(k.ID, "closed"), Actor: contract.System(), Type: "command.finished", Subject: "command/" + k.ID,
				Data: contract.CommandFinished{Command: k.ID, ExitCode: -1, Reason: unknownEnd, Checkpoint: newest},
			}); err != nil {
				return fault.Wrap(op, err)
			}
		}
	}
}

// LeftUnseen reports whether a command was running when the last process died: what it did
// after the last checkpoint is in none yet.
func LeftUnseen(ctx context.Context, s *state.Store) (bool, error) {
	open, err := s.Commands(ctx, 1)
	return len(open) > 0, fault.Wrap("commands.LeftUnseen", err)
}
