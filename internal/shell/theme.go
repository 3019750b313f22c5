package shell

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// themePoll is how often the theme's file is checked, besides when it is known to have
// changed: a terminal may write it at any time.
const themePoll = time.Second

// WatchTheme delivers the theme's file as events until ctx ends.
func (s *Shell) WatchTheme(ctx context.Context) error {
	tick := time.NewTicker(themePoll)
	defer tick.Stop()
	var seen contract.BlobRef
	for {
		var err error
		if seen, err = s.deliverTheme(ctx, seen); err != nil && ctx.Err() == nil && !fault.Is(err, fault.Unavailable) {
			s.logger.Warn("the theme could not be read", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.changed:
		}
	}
}

// ThemeChanged says that the theme's file may have changed.
func (s *Shell) ThemeChanged() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// deliverTheme appends theme.changed when the file has another valid theme than the current
// one, and theme.refused, once per content, when it is not valid. The last valid theme
// stays.
func (s *Shell) deliverTheme(ctx context.Context, seen contract.BlobRef) (contract.BlobRef, error) {
	b, err := s.workspace.ReadAll(ctx, "", contract.ThemePath, contract.MaxTheme+1)
	if fault.Is(err, fault.NotFound) {
		return "", nil
	}
	if err != nil {
		return seen, err
	}
	ref := contract.NewBlobRef(sha256.Sum256(b))
	if ref == seen {
		return seen, nil
	}
	theme, err := contract.DecodeTheme(b)
	if err != nil {
		refused := contract.ThemeRefused{Field: "theme", Reason: err.Error()}
		var fe *contract.FieldError
		if errors.As(err, &fe) {
			refused = contract.ThemeRefused{Field: fe.Field, Reason: fe.Reason}
		}
		return ref, s.note(ctx, "theme.refused", refused)
	}
	if err := s.state.CaughtUp(ctx, s.log); err != nil {
		return seen, err
	}
	have, err := s.state.Theme(ctx)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return seen, err
	}
	if err == nil && have.SHA256 == ref {
		return ref, nil
	}
	return ref, s.note(ctx, "theme.changed", contract.ThemeChanged{Theme: theme, SHA256: ref})
}
