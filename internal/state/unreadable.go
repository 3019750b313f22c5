package state

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"choir.dev/choiros/internal/fault"
)

// OpenOrReplace opens the state file at path. One that can't be read is kept beside a new
// one, which the log fills.
func OpenOrReplace(ctx context.Context, path string, logger *slog.Logger, opts ...Option) (*Store, error) {
	opts = append(opts, WithLogger(logger))
	open := func() (*Store, error) {
		s, err := Open(ctx, path, opts...)
		if err != nil {
			return nil, err
		}
		// Damage further into the file would only show when somebody queries it.
		text, err := s.QuickCheck(ctx)
		if err == nil && text != "" {
			err = fault.New("state.OpenOrReplace", fault.Invalid, "", errors.New(text))
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return s, nil
	}
	s, err := open()
	if !fault.Is(err, fault.Invalid) {
		return s, err
	}
	aside := path + ".unreadable"
	logger.Warn("the state file can't be read; it is moved aside and replayed from the log", "aside", aside, "error", err)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(path+suffix, aside+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return open()
}
