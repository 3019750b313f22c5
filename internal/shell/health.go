package shell

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// health is what the desktop's pages reported of themselves.
type health struct {
	judging sync.Mutex // held while a page's report is examined

	mu     sync.Mutex
	page   brokenPage
	shells map[string]string // shells that broke in a browser by a task's edit, with what the page said
	well   map[string]bool   // shells that a page showed without trouble
	shown  map[string]string // by page: the shell that was live when the page last reported that it is well
	names  map[string]string // by commit: its shell
}

// maxShells bounds how many shells, pages and commits are remembered.
const maxShells = 256

// brokenPage is a page that was blank or throwing; the zero value is none.
type brokenPage struct {
	since  time.Time
	reason string
	judged bool   // whether run, good and auto have been determined
	run    string // the run that edited it, if a task did
	good   string // newest good checkpoint with another shell than this
	auto   bool   // whether going to good takes back only edits of that task that passed no check
}

func (s *Shell) broken() brokenPage {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.page
}

func (s *Shell) setBroken(b brokenPage) {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	s.health.page = b
}

// Heartbeat handles the report of a page that runs the current shell. The control plane drops
// the reports of a broken page while another one is well.
func (s *Shell) Heartbeat(ctx context.Context, b view.Heartbeat) error {
	s.health.judging.Lock()
	defer s.health.judging.Unlock()
	was := s.broken()
	switch {
	case b.Stale && !defence.Off(defence.PageCurrent):
		// The page is not of the current source, so it says nothing about that.
		return nil
	case !b.Broken && b.Mode == view.ModeBuild && s.live():
		// The kept build works, which says nothing about the source.
		return nil
	case !b.Broken:
		s.setBroken(brokenPage{})
		return s.showedWell(ctx, b)
	case was.judged:
		return nil
	}
	now := brokenPage{since: was.since, reason: brokenWords(b)}
	if now.since.IsZero() {
		now.since = time.Now()
	}
	err := s.judge(ctx, &now)
	s.setBroken(now)
	if err != nil {
		return err // the page will report it again
	}
	reason := b.Reason
	if reason == "" {
		reason = "blank"
	}
	return s.note(ctx, "desktop.broke", contract.DesktopBroke{Reason: contract.Clip(reason, 200), Detail: contract.Clip(b.Detail, 4096)})
}

// live reports whether the dev server has the page.
func (s *Shell) live() bool {
	mode, _, _ := s.server.status()
	return mode == view.ModeLive
}

// showedWell remembers the live shell as good when the same page reported twice that it is
// well on it, some seconds apart: at the first report the newest source may not have
// reached the page yet. It also makes a checkpoint of people's edits, so that there is one
// to go back to that has them.
func (s *Shell) showedWell(ctx context.Context, b view.Heartbeat) error {
	if b.Mode != view.ModeLive || b.Page == "" {
		return nil
	}
	if err := s.state.CaughtUp(ctx, s.log); err != nil {
		return err
	}
	newest, err := s.state.Checkpoints(ctx, 0, 1)
	if err != nil || len(newest) == 0 {
		return err
	}
	commit := newest[0].Commit
	same, err := s.shellIs(ctx, commit)
	if err != nil {
		return err
	}
	if !same {
		k, err := s.workspace.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointAuto, Message: "The desktop as it was shown"})
		if err != nil {
			return err
		}
		commit = k.Commit
	}
	shell, err := s.shellOf(ctx, commit)
	if err != nil {
		return err
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if s.health.shown[b.Page] == shell {
		remember(&s.health.well, shell, true)
	}
	remember(&s.health.shown, b.Page, shell)
	return nil
}

// remember puts a value into a map that is emptied when it is full.
func remember[V any](m *map[string]V, key string, v V) {
	if *m == nil || len(*m) >= maxShells {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

// shellOf identifies the desktop's content in a checkpoint: the same content gives the same
// name.
func (s *Shell) shellOf(ctx context.Context, commit string) (string, error) {
	s.health.mu.Lock()
	known, ok := s.health.names[commit]
	s.health.mu.Unlock()
	if ok {
		return known, nil
	}
	var ids []string
	for _, p := range workspace.LivePaths {
		id, err := s.workspace.ObjectID(ctx, commit, string(p))
		if err != nil && !fault.Is(err, fault.NotFound) {
			return "", err
		}
		ids = append(ids, id)
	}
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	remember(&s.health.names, commit, strings.Join(ids, " "))
	return strings.Join(ids, " "), nil
}

func (s *Shell) wasWell(shell string) bool {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.well[shell]
}

// judge finds out whose edit broke the desktop and where it can go back to.
func (s *Shell) judge(ctx context.Context, b *brokenPage) error {
	if err := s.state.CaughtUp(ctx, s.log); err != nil {
		return err
	}
	edit, err := s.taskShell(ctx)
	if err != nil {
		return err
	}
	b.run, b.auto = edit.Run, false
	if edit.Commit != "" {
		tree, err := s.workspace.ObjectID(ctx, edit.Commit, "choiros")
		if err != nil {
			return err
		}
		shell, err := s.shellOf(ctx, edit.Commit)
		if err != nil {
			return err
		}
		s.health.mu.Lock()
		remember(&s.health.shells, tree, b.reason)
		delete(s.health.well, shell)
		s.health.mu.Unlock()
	}
	good, verified, err := s.goodCheckpoint(ctx, true)
	if err != nil {
		return err
	}
	b.good = good
	if edit.Commit != "" && good != "" && (!verified || defence.Off(defence.UnverifiedOnly)) {
		if b.auto, err = s.onlyTakesBack(ctx, edit, good); err != nil {
			return err
		}
	}
	b.judged = true
	return nil
}

// onlyTakesBack reports whether going to a checkpoint takes back only what one task edited
// of the desktop while it worked, and nothing that anybody else did.
func (s *Shell) onlyTakesBack(ctx context.Context, edit state.Publish, good string) (bool, error) {
	if defence.Off(defence.UsersEditsStay) {
		return true, nil
	}
	publishes, err := s.state.Publishes(ctx, edit.Task, false)
	if err != nil {
		return false, err
	}
	mine := map[string]bool{}
	for _, p := range publishes {
		mine[p.Commit] = p.Live
	}
	before := edit.Commit
	for n := 0; mine[before]; n++ {
		k, err := s.state.Checkpoint(ctx, before)
		if err != nil || k.Parent == "" || n > state.MaxPage {
			return false, err
		}
		before = k.Parent
	}
	a, err := s.shellOf(ctx, before)
	if err != nil {
		return false, err
	}
	b, err := s.shellOf(ctx, good)
	return err == nil && a == b, err
}

// MayGoBackUnasked refuses a restore that nobody asked for, unless it is the one that the
// desktop's status allows without asking. The status is determined again, so that what
// somebody did since counts.
func (s *Shell) MayGoBackUnasked(ctx context.Context, to string) error {
	s.health.judging.Lock()
	defer s.health.judging.Unlock()
	b := s.broken()
	if b.judged {
		if err := s.judge(ctx, &b); err != nil {
			return err
		}
		s.setBroken(b)
	}
	if !b.judged || !b.auto || b.good != to {
		return fault.New("shell.MayGoBackUnasked", fault.Conflict, "Look at what would be taken back, and choose.", errors.New("the desktop goes back by itself only from a task's edits that no check has passed"))
	}
	return nil
}

// brokenShell is what a page said of a git tree of choiros/ that a task's edit made; ""
// when it did not break, or no page showed it.
func (s *Shell) brokenShell(tree string) string {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.shells[tree]
}

// brokenWords says, for a person, what a page reported: the first line of its error, if
// there was one. The error's text is the page's own.
func brokenWords(b view.Heartbeat) string {
	detail, _, _ := strings.Cut(strings.TrimSpace(b.Detail), "\n")
	switch {
	case b.Reason == "error" && detail != "":
		return "Its page stopped with an error: " + contract.Clip(detail, 300)
	case b.Reason == "error":
		return "Its page stopped with an error."
	case b.Reason == "blank":
		return "Its page is blank."
	}
	return "Its page does not answer."
}

// Touches reports whether a restore's paths include something that is published live: the
// desktop's source or its theme. No paths mean all.
func Touches(paths []string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool {
		return slices.ContainsFunc(workspace.LivePaths, func(live wire.Path) bool {
			return p == "." || strings.HasPrefix(p+"/", string(live)+"/") || strings.HasPrefix(string(live), p+"/")
		})
	})
}

// taskShell is the task's edit that made the current shell, unless somebody has changed the
// shell since, by hand or by a restore.
func (s *Shell) taskShell(ctx context.Context) (state.Publish, error) {
	edit, err := s.state.LivePublish(ctx)
	if fault.Is(err, fault.NotFound) {
		return state.Publish{}, nil
	}
	if err != nil {
		return state.Publish{}, err
	}
	if back, err := s.RestoredSince(ctx, edit.StartedSeq); err != nil || back {
		return state.Publish{}, err
	}
	same, err := s.shellIs(ctx, edit.Commit)
	if err != nil || !same {
		return state.Publish{}, err
	}
	return edit, nil
}

// RestoredSince reports whether the shell was restored after a sequence.
func (s *Shell) RestoredSince(ctx context.Context, after uint64) (bool, error) {
	restores, err := s.state.Restores(ctx, state.MaxPage)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(restores, func(r state.Restore) bool { return r.ID > after && Touches(r.Paths) }), nil
}

// shellIs reports whether the live shell is that of a commit.
func (s *Shell) shellIs(ctx context.Context, commit string) (bool, error) {
	d, err := s.workspace.Diff(ctx, wire.DiffRequest{From: commit, Paths: workspace.LivePaths, MaxBytes: -1})
	return err == nil && len(d.Changes) == 0, err
}

// maxCompared bounds how many checkpoints are compared with a broken shell.
const maxCompared = 20

// maxLooked bounds how many unverified checkpoints are compared with the shells that pages
// showed without trouble.
const maxLooked = 50

// goodCheckpoint is the newest good checkpoint in the line that led to the current shell:
// what was undone by a restore does not count. Good are verified ones, the first one, and
// those whose shell a page showed without trouble. With other, only one whose shell differs
// from the live one counts; verified then says that the live one has been verified. It is
// "" when there is none.
func (s *Shell) goodCheckpoint(ctx context.Context, other bool) (good string, verified bool, err error) {
	restores, err := s.state.Restores(ctx, state.MaxPage)
	if err != nil {
		return "", false, err
	}
	back := map[string]string{} // the checkpoint that a restore's checkpoint went back to
	for _, r := range restores {
		if Touches(r.Paths) {
			back[r.Checkpoint] = r.To
		}
	}
	jump, compared, looked := "", 0, 0
	for before := uint64(0); ; {
		page, err := s.state.Checkpoints(ctx, before, 100)
		if err != nil || len(page) == 0 {
			return "", verified, err
		}
		for _, k := range page {
			before = k.Sequence
			if jump != "" && k.Commit != jump {
				continue
			}
			if jump = back[k.Commit]; jump != "" {
				continue
			}
			checked := k.Verified == contract.VerificationPass
			if !checked && k.Kind != contract.CheckpointInitial {
				if looked++; looked > maxLooked {
					continue
				}
				shell, err := s.shellOf(ctx, k.Commit)
				if err != nil {
					return "", verified, err
				}
				if !s.wasWell(shell) {
					continue
				}
			}
			if !other {
				return k.Commit, false, nil
			}
			if compared++; compared > maxCompared {
				return "", verified, nil
			}
			same, err := s.shellIs(ctx, k.Commit)
			if err != nil || !same {
				return k.Commit, verified, err
			}
			verified = verified || checked
		}
	}
}

// WentBack forgets who broke the shell and which checkpoint was good. The shell counts as
// broken until a page has painted.
func (s *Shell) WentBack() {
	s.health.judging.Lock()
	defer s.health.judging.Unlock()
	if was := s.broken(); !was.since.IsZero() {
		s.setBroken(brokenPage{since: was.since, reason: was.reason})
	}
}

// Status is what is served now, whether it is broken, and which checkpoint is good.
func (s *Shell) Status(ctx context.Context) (view.DesktopStatus, error) {
	var out view.DesktopStatus
	out.Mode, out.Since, out.Reason = s.server.status()
	broken := s.broken()
	if !broken.since.IsZero() {
		out.Broken, out.Reason, out.Run, out.LastGood, out.Auto = true, broken.reason, broken.run, broken.good, broken.auto
	}
	var err error
	if !broken.judged {
		if out.LastGood, _, err = s.goodCheckpoint(ctx, false); err != nil {
			return out, err
		}
	}
	kept, err := s.state.Builds(ctx, 1)
	if err != nil {
		return out, err
	}
	if len(kept) > 0 {
		out.Build = kept[0].Commit
	}
	return out, nil
}

// Broken reports whether the last report of its page was that it is blank or throwing.
func (s *Shell) Broken() bool { return !s.broken().since.IsZero() }
