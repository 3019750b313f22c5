package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// MakeCommit makes a commit of what was so at a time, in Unix milliseconds. The history
// goes along the parent; what was pushed, beside it, is not of it.
func (s *Store) MakeCommit(ctx context.Context, tree, parent string, note wire.Note, at int64, pushed ...string) (wire.Commit, error) {
	note.At = at // git dates a commit in whole seconds, which could be before its cause
	c := wire.Commit{Parent: parent, Tree: tree, Time: at / 1000, Note: note}
	info := commitInfo{tree: tree, when: c.Time, message: encodeNote(&c.Note)}
	if parent != "" {
		info.parents = append(info.parents, parent)
	}
	info.parents = append(info.parents, pushed...)
	var err error
	c.Commit, err = s.writeCommit(ctx, info)
	return c, err
}

// Parent is the commit before another, "" for the first.
func (s *Store) Parent(ctx context.Context, id string) (string, error) {
	c, err := s.Commit(ctx, id)
	return c.Parent, err
}

// Commit is one commit. Errors: fault.NotFound.
func (s *Store) Commit(ctx context.Context, id string) (wire.Commit, error) {
	raw, err := s.rawCommit(ctx, id)
	if fault.Is(err, fault.NotFound) {
		err = fault.New("", fault.NotFound, "`choir checkpoints` lists what there is.", fmt.Errorf("there is no checkpoint %s", wire.Short(id)))
	}
	if err != nil {
		return wire.Commit{}, err
	}
	c := wire.Commit{Commit: id, Tree: raw.tree, Time: raw.when, Note: DecodeNote(raw.message)}
	if len(raw.parents) > 0 {
		c.Parent = raw.parents[0]
	}
	return c, nil
}

// Line lists at most limit commits along the first parents, the newest first.
func (s *Store) Line(ctx context.Context, from string, limit int) ([]wire.Commit, error) {
	out := []wire.Commit{}
	for id := from; id != "" && len(out) < limit; {
		c, err := s.Commit(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
		id = c.Parent
	}
	return out, nil
}

// Log lists at most limit commits along the first parents, the newest first, in one git
// process: git lists many of them faster than they can be requested one by one.
func (s *Store) Log(ctx context.Context, limit int, revs ...string) ([]wire.Commit, error) {
	return s.LogMatching(ctx, limit, "", revs...)
}

// LogMatching lists commits whose message has a line that matches grep.
func (s *Store) LogMatching(ctx context.Context, limit int, grep string, revs ...string) ([]wire.Commit, error) {
	args := []string{"log", "-z", "--first-parent", "--no-color", "--no-show-signature", "--max-count=" + strconv.Itoa(limit), "--format=%H%n%P%n%T%n%ct%n%B"}
	if grep != "" {
		args = append(args, "--grep="+grep)
	}
	args = append(append(args, "--end-of-options"), revs...)
	raw, err := s.Git(ctx, nil, append(args, "--")...)
	if err != nil {
		return nil, err
	}
	commits := []wire.Commit{}
	for rec := range bytes.SplitSeq(raw, []byte{0}) {
		f := strings.SplitN(string(rec), "\n", 5)
		if len(f) != 5 {
			continue
		}
		when, err := strconv.ParseInt(f[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("git log answered %q as a time", wire.Short(f[3]))
		}
		parent, _, _ := strings.Cut(f[1], " ")
		commits = append(commits, wire.Commit{Commit: f[0], Parent: parent, Tree: f[2], Time: when, Note: DecodeNote(f[4])})
	}
	return commits, nil
}
