package computer

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/api"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper"
)

// health is how the desktop's page said it is.
type health struct {
	judging sync.Mutex // held while what a page said is looked into

	mu     sync.Mutex
	broken brokenDesktop
	shells map[string]string // git trees of choiros/ that broke in a browser, by a task's edit: what the page said
}

// maxShells bounds how many broken trees are remembered.
const maxShells = 64

// brokenDesktop is a page that was blank or throwing; the zero value is none.
type brokenDesktop struct {
	since  time.Time
	reason string
	judged bool   // run and good are known
	run    string // whose edit it was, if it was a task's
	good   string // newest verified checkpoint whose shell is another one than this
}

func (c *Computer) brokenDesktop() brokenDesktop {
	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	return c.health.broken
}

func (c *Computer) setBroken(b brokenDesktop) {
	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	c.health.broken = b
}

// Beat implements control.Desktop.
func (c *Computer) Beat(ctx context.Context, b api.Heartbeat) error {
	c.health.judging.Lock()
	defer c.health.judging.Unlock()
	was := c.brokenDesktop()
	switch {
	case !b.Broken:
		c.setBroken(brokenDesktop{})
		return nil
	case was.judged:
		return nil
	}
	now := brokenDesktop{since: was.since, reason: brokenWords(b)}
	if now.since.IsZero() {
		now.since = time.Now()
	}
	err := c.judge(ctx, &now)
	c.setBroken(now)
	if err != nil {
		return err // the page says it again
	}
	reason := b.Reason
	if reason == "" {
		reason = "silent"
	}
	return c.note(ctx, "desktop.broke", contract.DesktopBroke{Reason: clip(reason, 200), Detail: clip(b.Detail, 4096)})
}

// judge finds out whose edit broke the desktop and where it can go back to.
func (c *Computer) judge(ctx context.Context, b *brokenDesktop) error {
	if err := c.caughtUp(ctx); err != nil {
		return err
	}
	edit, err := c.taskShell(ctx)
	if err != nil {
		return err
	}
	if edit.Commit != "" {
		tree, err := c.workspace.ObjectID(ctx, edit.Commit, "choiros")
		if err != nil {
			return err
		}
		c.health.mu.Lock()
		if c.health.shells == nil || len(c.health.shells) >= maxShells {
			c.health.shells = map[string]string{}
		}
		c.health.shells[tree] = b.reason
		c.health.mu.Unlock()
	}
	b.run = edit.Run
	if b.good, err = c.goodCheckpoint(ctx, true); err != nil {
		return err
	}
	b.judged = true
	return nil
}

// brokenShell is what the page said of a git tree of choiros/ that a task's edit
// made; "" when it did not break, or nobody looked.
func (c *Computer) brokenShell(tree string) string {
	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	return c.health.shells[tree]
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

// touchesShell reports whether paths of a restore are of what is published
// live: the desktop's source and its theme. No paths are all.
func touchesShell(paths []string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool {
		return slices.ContainsFunc(workspace.LivePaths, func(live keeper.Path) bool {
			return p == "." || strings.HasPrefix(p+"/", string(live)+"/") || strings.HasPrefix(string(live), p+"/")
		})
	})
}

// taskShell is the task's edit that the shell stands as, unless somebody has
// changed the shell since: by hand or by going back. Then it is theirs.
func (c *Computer) taskShell(ctx context.Context) (state.Publish, error) {
	edit, err := c.state.LivePublish(ctx)
	if fault.Is(err, fault.NotFound) {
		return state.Publish{}, nil
	}
	if err != nil {
		return state.Publish{}, err
	}
	if back, err := c.wentBack(ctx, edit.StartedSeq); err != nil || back {
		return state.Publish{}, err
	}
	same, err := c.shellIs(ctx, edit.Commit)
	if err != nil || !same {
		return state.Publish{}, err
	}
	return edit, nil
}

// wentBack reports whether the shell was restored after a sequence.
func (c *Computer) wentBack(ctx context.Context, after uint64) (bool, error) {
	restores, err := c.state.Restores(ctx, state.MaxPage)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(restores, func(r state.Restore) bool { return r.ID > after && touchesShell(r.Paths) }), nil
}

// shellIs reports whether the live shell is that of a commit.
func (c *Computer) shellIs(ctx context.Context, commit string) (bool, error) {
	d, err := c.workspace.Diff(ctx, keeper.DiffRequest{A: commit, Paths: workspace.LivePaths, MaxBytes: -1})
	return err == nil && len(d.Changes) == 0, err
}

// maxCompared bounds how many checkpoints are compared with a broken shell.
const maxCompared = 20

// goodCheckpoint is the newest checkpoint that was verified, or the first one,
// on the line that the shell came by: what was gone back from does not count.
// With other, only one whose shell is not the live one does. "" when there is
// none.
func (c *Computer) goodCheckpoint(ctx context.Context, other bool) (string, error) {
	restores, err := c.state.Restores(ctx, state.MaxPage)
	if err != nil {
		return "", err
	}
	back := map[string]string{} // where a restore's checkpoint went
	for _, r := range restores {
		if touchesShell(r.Paths) {
			back[r.Checkpoint] = r.To
		}
	}
	jump, compared := "", 0
	for before := uint64(0); ; {
		page, err := c.state.Checkpoints(ctx, before, 100)
		if err != nil || len(page) == 0 {
			return "", err
		}
		for _, k := range page {
			before = k.Seq
			if jump != "" && k.ID != jump {
				continue
			}
			if jump = back[k.ID]; jump != "" || k.Verified != contract.VerificationPass && k.Kind != contract.CheckpointInitial {
				continue
			}
			if !other {
				return k.ID, nil
			}
			if compared++; compared > maxCompared {
				return "", nil
			}
			if same, err := c.shellIs(ctx, k.ID); err != nil || !same {
				return k.ID, err
			}
		}
	}
}

// shellWentBack forgets whose the broken shell was and what is good beside it.
// It counts as broken until a page has painted.
func (c *Computer) shellWentBack() {
	c.health.judging.Lock()
	defer c.health.judging.Unlock()
	if was := c.brokenDesktop(); !was.since.IsZero() {
		c.setBroken(brokenDesktop{since: was.since, reason: was.reason})
	}
}

func (c *Computer) desktopStatus(ctx context.Context) (api.DesktopStatus, error) {
	var s api.DesktopStatus
	s.Mode, s.Since, s.Reason = c.live.status()
	broken := c.brokenDesktop()
	if !broken.since.IsZero() {
		s.Broken, s.Reason, s.Run, s.LastGood = true, broken.reason, broken.run, broken.good
	}
	var err error
	if !broken.judged {
		if s.LastGood, err = c.goodCheckpoint(ctx, false); err != nil {
			return s, err
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
