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
// their boxes are gone, and nobody knows how far they came.
func EndLost(ctx context.Context, log *ledger.Log, s *state.Store) error {
	const op = "commands.EndLost"
	for {
		open, err := s.Commands(ctx, state.MaxPage)
		if err != nil || len(open) == 0 {
			return fault.Wrap(op, err)
		}
		for _, k := range open {
			if _, err := log.Append(ctx, contract.Draft{
				ID: contract.DeriveID(k.ID, "closed"), Actor: contract.System(), Type: "command.finished", Subject: "command/" + k.ID,
				Data: contract.CommandFinished{Command: k.ID, ExitCode: -1, Reason: unknownEnd},
			}); err != nil {
				return fault.Wrap(op, err)
			}
		}
		if err := s.CaughtUp(ctx, log); err != nil {
			return fault.Wrap(op, err)
		}
	}
}

// LeftUnseen reports whether the newest event about the files is the end of a command that
// nobody saw end: what it did is in no checkpoint yet.
func LeftUnseen(ctx context.Context, s *state.Store) (bool, error) {
	const op = "commands.LeftUnseen"
	last, err := s.Events(ctx, state.EventFilter{Newest: true, Types: []string{"command.finished", "checkpoint.created"}, Limit: 1})
	if err != nil || len(last) == 0 || last[0].Type != "command.finished" {
		return false, fault.Wrap(op, err)
	}
	data, err := contract.DecodeData(last[0].Type, last[0].Data)
	if err != nil {
		return false, fault.Wrap(op, err)
	}
	finished, ok := data.(*contract.CommandFinished)
	return ok && finished.Reason == unknownEnd, nil
}
