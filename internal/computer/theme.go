package computer

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/api"
	"choir.dev/choiros/internal/fault"
)

// themePoll is how often the theme's file is looked at besides when it is known
// to have changed: a terminal may write it at any time.
const themePoll = time.Second

// watchTheme delivers the theme's file as events until ctx ends.
func (c *Computer) watchTheme(ctx context.Context) error {
	tick := time.NewTicker(themePoll)
	defer tick.Stop()
	var seen contract.BlobRef
	for {
		var err error
		if seen, err = c.deliverTheme(ctx, seen); err != nil && ctx.Err() == nil && !fault.Is(err, fault.Unavailable) {
			c.logger.Warn("the theme could not be read", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.themePoke:
		}
	}
}

// pokeTheme says that the theme's file may have changed.
func (c *Computer) pokeTheme() {
	select {
	case c.themePoke <- struct{}{}:
	default:
	}
}

// deliverTheme appends theme.changed when the file holds another valid theme
// than the one in force, and theme.refused, once per content, when it is not
// valid. The last good theme stays.
func (c *Computer) deliverTheme(ctx context.Context, seen contract.BlobRef) (contract.BlobRef, error) {
	b, err := c.readFile(ctx, themePath, contract.MaxTheme+1)
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
		return ref, c.note(ctx, "theme.refused", refused)
	}
	if err := c.caughtUp(ctx); err != nil {
		return seen, err
	}
	have, err := c.state.Theme(ctx)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return seen, err
	}
	if err == nil && have.SHA256 == ref {
		return ref, nil
	}
	return ref, c.note(ctx, "theme.changed", contract.ThemeChanged{Theme: theme, SHA256: ref})
}

// treeChanged says that the live tree may have changed: what is derived from it
// is looked at again.
func (c *Computer) treeChanged() {
	c.pokeTheme()
	c.builds.poke()
}

// brokenDesktop is what the page said when it was blank or throwing.
type brokenDesktop struct {
	since  time.Time
	reason string
	run    string
}

func (c *Computer) brokenDesktop() brokenDesktop {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// Beat implements control.Desktop.
func (c *Computer) Beat(ctx context.Context, b api.Heartbeat) error {
	c.mu.Lock()
	was := c.broken
	switch {
	case !b.Broken:
		c.broken = brokenDesktop{}
	case was.since.IsZero():
		c.broken = brokenDesktop{since: time.Now(), reason: brokenWords(b)}
	}
	c.mu.Unlock()
	if !b.Broken || !was.since.IsZero() {
		return nil
	}
	run, err := c.lastShellEdit(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.broken.run = run
	c.mu.Unlock()
	reason := b.Reason
	if reason == "" {
		reason = "silent"
	}
	return c.note(ctx, "desktop.broke", contract.DesktopBroke{Reason: clip(reason, 200), Detail: clip(b.Detail, 4096)})
}

// brokenWords says for a person what a page reported: the first line of its
// error, if there was one. The words of the error are the page's own.
func brokenWords(b api.Heartbeat) string {
	detail, _, _ := strings.Cut(strings.TrimSpace(b.Detail), "\n")
	switch {
	case b.Reason == "error" && detail != "":
		return "Its page stopped with an error: " + clip(detail, 300)
	case b.Reason == "error":
		return "Its page stopped with an error."
	case b.Reason == "blank":
		return "Its page is blank."
	}
	return "Its page does not answer."
}

// lastShellEdit names the run whose live publish touched the shell last, if it
// is recent enough to be what broke it.
func (c *Computer) lastShellEdit(ctx context.Context) (string, error) {
	publishes, err := c.state.Publishes(ctx, "", false)
	if err != nil {
		return "", err
	}
	for i := len(publishes) - 1; i >= 0; i-- {
		if publishes[i].Live && !publishes[i].Inverted {
			return publishes[i].Run, nil
		}
	}
	return "", nil
}

func (c *Computer) desktopStatus(ctx context.Context) (api.DesktopStatus, error) {
	var s api.DesktopStatus
	s.Mode, s.Since, s.Reason = c.live.status()
	broken := c.brokenDesktop()
	if !broken.since.IsZero() {
		s.Broken, s.Reason, s.Run = true, broken.reason, broken.run
	}
	checkpoints, err := c.state.Checkpoints(ctx, 0, 50)
	if err != nil {
		return s, err
	}
	for _, k := range checkpoints {
		if k.Verified == contract.VerificationPass || k.Kind == contract.CheckpointInitial {
			s.LastGood = k.ID
			break
		}
	}
	kept, err := c.state.Builds(ctx, 1)
	if err != nil {
		return s, err
	}
	if len(kept) > 0 {
		s.Build = kept[0].Commit
	}
	return s, nil
}
