package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// List returns checkpoints, newest first.
func (e *Engine) List(ctx context.Context, req wire.ListRequest) ([]wire.Commit, error) {
	const op = "keeper.List"
	if err := e.readable(); err != nil {
		return nil, fault.Wrap(op, err)
	}
	if req.Limit <= 0 {
		req.Limit = 100
	}
	from := branch
	if req.Before != "" {
		id, err := e.resolve(ctx, req.Before)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		if from, err = e.parentOf(ctx, id); err != nil || from == "" {
			return []wire.Commit{}, fault.Wrap(op, err)
		}
	} else if e.Head() == "" {
		return []wire.Commit{}, nil
	}
	args := []string{from}
	if req.Until != "" {
		id, err := e.resolve(ctx, req.Until)
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		args = append(args, "^"+id)
	}
	out, err := e.log(ctx, min(req.Limit, 10_000), args...)
	return out, fault.Wrap(op, err)
}

// readable is whole for those that do not hold the lock.
func (e *Engine) readable() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.whole()
}

// Head returns the newest commit, or "" before the first.
func (e *Engine) Head() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.head
}

func (e *Engine) parentOf(ctx context.Context, id string) (string, error) {
	out, err := e.log(ctx, 1, id)
	if err != nil || len(out) == 0 {
		return "", err
	}
	return out[0].Parent, nil
}

func (e *Engine) commitAt(ctx context.Context, id string) (wire.Commit, error) {
	out, err := e.log(ctx, 1, id)
	if err == nil && len(out) != 1 {
		err = fault.New("", fault.NotFound, "`choir checkpoints` lists what there is.", fmt.Errorf("there is no checkpoint %s", wire.Short(id)))
	}
	if err != nil {
		return wire.Commit{}, err
	}
	return out[0], nil
}

func (e *Engine) log(ctx context.Context, limit int, revs ...string) ([]wire.Commit, error) {
	return e.logMatching(ctx, limit, "", revs...)
}

// logMatching lists commits whose message has a line that matches grep.
func (e *Engine) logMatching(ctx context.Context, limit int, grep string, revs ...string) ([]wire.Commit, error) {
	args := []string{"log", "-z", "--first-parent", "--no-color", "--no-show-signature", "--max-count=" + strconv.Itoa(limit), "--format=%H%n%P%n%T%n%ct%n%B"}
	if grep != "" {
		args = append(args, "--grep="+grep)
	}
	args = append(append(args, "--end-of-options"), revs...)
	raw, err := e.git(ctx, nil, append(args, "--")...)
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
		commits = append(commits, wire.Commit{Commit: f[0], Parent: parent, Tree: f[2], Time: when, Note: decodeNote(f[4])})
	}
	return commits, nil
}

const maxChanges, maxObeyed = 10_000, 200

// Diff says what differs between two states.
func (e *Engine) Diff(ctx context.Context, req wire.DiffRequest) (wire.DiffReply, error) {
	const op = "keeper.Diff"
	a, err := e.treeish(ctx, req.A, "HEAD")
	if err != nil {
		return wire.DiffReply{}, fault.Wrap(op, err)
	}
	b, err := e.treeish(ctx, req.B, "")
	if err != nil {
		return wire.DiffReply{}, fault.Wrap(op, err)
	}
	if err := checkPaths(req.Paths); err != nil {
		return wire.DiffReply{}, fault.Wrap(op, err)
	}
	reply, err := e.diffTreeish(ctx, a, b, req)
	return reply, fault.Wrap(op, err)
}

func checkPaths(paths []wire.Path) error {
	if len(paths) > 1000 {
		return fault.New("", fault.Invalid, "Name a directory instead.", fmt.Errorf("%d paths are named; at most 1000 are allowed", len(paths)))
	}
	for _, p := range paths {
		if err := wire.CheckPath(string(p), true); err != nil {
			return fault.New("", fault.Invalid, "Name paths relative to the workspace's root.", fmt.Errorf("path %q %w", wire.Short(string(p)), err))
		}
	}
	return nil
}

// treeish returns the tree of a commit or tree, or (name and fallback "") of
// the live tree as it is now.
func (e *Engine) treeish(ctx context.Context, name, fallback string) (string, error) {
	if name == "" {
		name = fallback
	}
	if name == "" {
		return e.liveTree(ctx)
	}
	if isHex(name) && len(name) == 40 {
		if id, err := e.nameOf(ctx, name+"^{tree}"); err != nil || id != "" {
			return id, err
		}
	}
	id, err := e.resolve(ctx, name)
	if err != nil {
		return "", err
	}
	return e.gitLine(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", id+"^{tree}")
}

// liveTree writes the live tree's content as objects, without a commit.
func (e *Engine) liveTree(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	cap, err := e.capture(ctx, true)
	if err != nil {
		return "", err
	}
	defer e.tracked.take(cap)()
	return e.writeIndex(ctx)
}

// pathspecs selects paths as they stand in commits.
func pathspecs(paths []wire.Path, metadata bool) []string {
	args := []string{"--"}
	for _, p := range paths {
		if p == "." {
			continue
		}
		for _, q := range escapedPaths(string(p)) {
			args = append(args, ":(top,literal)"+q)
		}
	}
	if !metadata {
		args = append(args, ":(top,exclude,glob)**/.git"+escapeSuffix, ":(top,exclude,glob)**/.git"+escapeSuffix+"/**")
	}
	return args
}

// plainDiff compares trees by git's own means, whatever programs attributes name.
func plainDiff() []string {
	args := []string{"diff-tree", "-r", "--no-renames", "--no-color"}
	if defence.Off(defence.GitPlainDiff) {
		return append(args, "--ext-diff", "--textconv")
	}
	return append(args, "--no-ext-diff", "--no-textconv")
}

func (e *Engine) diffTreeish(ctx context.Context, a, b string, req wire.DiffRequest) (wire.DiffReply, error) {
	base := append(plainDiff(), "-z", "--full-index", "--ignore-submodules=none")
	raw, err := e.git(ctx, nil, append(append(slices.Clone(base), "--raw", "--numstat", a, b), pathspecs(req.Paths, true)...)...)
	if err != nil {
		return wire.DiffReply{}, err
	}
	reply, err := parseDiff(raw, req.Metadata)
	if err != nil || req.MaxBytes < 0 || len(reply.Changes) == 0 {
		return reply, err
	}
	if req.MaxBytes == 0 {
		req.MaxBytes = 1 << 20
	}
	args := append(plainDiff(), "-p", a, b)
	text, truncated, err := e.gitUpTo(ctx, min(req.MaxBytes, 64<<20), append(args, pathspecs(req.Paths, req.Metadata)...)...)
	if err != nil {
		return wire.DiffReply{}, err
	}
	reply.Diff, reply.Truncated = strings.ToValidUTF8(string(text), "\uFFFD"), truncated
	return reply, nil
}

// gitUpTo runs a git command and returns at most max bytes of its output.
func (e *Engine) gitUpTo(ctx context.Context, max int, args ...string) ([]byte, bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := e.command(ctx, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &limitedBuffer{max: 16 << 10, b: &stderr}
	if err := cmd.Start(); err != nil {
		return nil, false, gitError(ctx, args, "", err)
	}
	text, rerr := io.ReadAll(io.LimitReader(out, int64(max)+1))
	if len(text) > max {
		cancel()
		_ = cmd.Wait() // we ended it
		cut := bytes.LastIndexByte(text[:max], '\n') + 1
		return text[:cut], true, nil
	}
	if err := cmd.Wait(); err != nil {
		return nil, false, gitError(ctx, args, stderr.String(), err)
	}
	return text, false, rerr
}

// parseDiff reads `diff-tree -z --raw --numstat`.
func parseDiff(raw []byte, metadata bool) (wire.DiffReply, error) {
	reply := wire.DiffReply{Changes: []wire.Change{}}
	fields := strings.Split(string(raw), "\x00")
	index := map[string]int{}
	byPath := map[string]int{}
	repos := map[wire.Path]bool{}
	for i := 0; i < len(fields)-1; {
		f := fields[i]
		if strings.HasPrefix(f, ":") {
			meta := strings.Fields(f[1:])
			if len(meta) != 5 || i+1 >= len(fields) {
				return reply, fmt.Errorf("git diff-tree answered %q", wire.Short(f))
			}
			name := fields[i+1]
			i += 2
			p, kind := unescapePath(name)
			op := map[byte]string{'A': "added", 'D': "deleted", 'M': "modified", 'T': "modified"}[meta[4][0]]
			if meta[4][0] == 'M' && meta[2] == meta[3] {
				op = "mode"
			}
			if git, ok := inNestedGit(p); ok && !metadata {
				inside := strings.TrimPrefix(p[len(git):], "/")
				if repo := wire.Path(wire.ParentDir(git)); !repos[repo] && inside != "index" {
					repos[repo] = true
					reply.Repositories = append(reply.Repositories, repo)
				}
				if gitObeys(inside) && len(reply.Obeyed) < maxObeyed {
					reply.Obeyed = append(reply.Obeyed, wire.Change{Path: wire.Path(p), Op: op, Added: -1, Removed: -1})
				}
				continue
			}
			if kind == pathEmpty {
				p += "/"
			}
			if at, ok := byPath[p]; ok { // it is a large file now, or was one
				reply.Changes[at] = wire.Change{Path: wire.Path(p), Op: "modified", Added: -1, Removed: -1}
				continue
			}
			if len(reply.Changes) == maxChanges {
				reply.More++
				continue
			}
			index[name], byPath[p] = len(reply.Changes), len(reply.Changes)
			reply.Changes = append(reply.Changes, wire.Change{Path: wire.Path(p), Op: op})
			continue
		}
		i++
		part := strings.SplitN(f, "\t", 3)
		if len(part) != 3 {
			return reply, fmt.Errorf("git diff-tree answered %q", wire.Short(f))
		}
		at, ok := index[part[2]]
		if !ok || reply.Changes[at].Added < 0 {
			continue
		}
		if part[0] == "-" {
			reply.Changes[at].Added, reply.Changes[at].Removed = -1, -1
			continue
		}
		var errA, errR error
		reply.Changes[at].Added, errA = strconv.Atoi(part[0])
		reply.Changes[at].Removed, errR = strconv.Atoi(part[1])
		if err := errors.Join(errA, errR); err != nil {
			return reply, err
		}
	}
	return reply, nil
}

// Show streams a file as it was in a commit and returns its mode and size. At
// most max bytes are written when max >= 0.
func (e *Engine) Show(ctx context.Context, commit, p string, max int64, w io.Writer) (Entry, int64, error) {
	const op = "keeper.Show"
	if err := checkPaths([]wire.Path{wire.Path(p)}); err != nil {
		return none, 0, fault.Wrap(op, err)
	}
	tree, err := e.treeish(ctx, commit, "HEAD")
	if err != nil {
		return none, 0, fault.Wrap(op, err)
	}
	en, err := e.lookup(ctx, tree, p)
	if err != nil {
		return none, 0, fault.Wrap(op, err)
	}
	if !en.exists() {
		return none, 0, fault.New(op, fault.NotFound, "`choir diff` shows what a checkpoint holds.", fmt.Errorf("%q is not in that checkpoint", wire.Short(p)))
	}
	size, err := e.readContent(ctx, en, 0, max, w)
	return en, size, fault.Wrap(op, err)
}

// lookup returns one path's entry in a tree.
func (e *Engine) lookup(ctx context.Context, tree, p string) (Entry, error) {
	for _, q := range escapedPaths(p) {
		cmd := e.command(ctx, "ls-tree", "-z", "--full-tree", tree, "--", q)
		cmd.Env = append(cmd.Env, "GIT_LITERAL_PATHSPECS=1")
		out, err := cmd.Output()
		if err != nil {
			return none, gitError(ctx, []string{"ls-tree"}, "", err)
		}
		if out = bytes.TrimSuffix(out, []byte{0}); len(out) > 0 {
			mode, id, _, err := parseTreeLine(out)
			if err != nil || mode == "040000" {
				return none, err
			}
			_, kind := unescapePath(q)
			return Entry{Mode: wire.Mode(mode), ID: id, Chunked: kind == pathChunked}, nil
		}
	}
	return none, nil
}

// Status compares the live tree with the newest checkpoint and changes nothing.
func (e *Engine) Status(ctx context.Context) (wire.StatusReply, error) {
	const op = "keeper.Status"
	e.mu.Lock()
	defer e.mu.Unlock()
	cap, err := e.capture(ctx, false)
	if err != nil {
		return wire.StatusReply{}, fault.Wrap(op, err)
	}
	reply := wire.StatusReply{Head: e.head, Tree: e.tree, Changes: []wire.Change{}, Left: cap.skipped}
	for i, c := range cap.changes {
		if len(reply.Changes) == maxChanges {
			reply.More = len(cap.changes) - i
			break
		}
		what := "modified"
		switch {
		case !c.from.exists():
			what = "added"
		case !c.to.exists():
			what = "deleted"
		case c.from.holds() == c.to.holds():
			what = "mode"
		}
		reply.Changes = append(reply.Changes, wire.Change{Path: wire.Path(c.path), Op: what})
	}
	for _, p := range cap.ignored {
		reply.Ignored = append(reply.Ignored, wire.Path(p))
	}
	for _, p := range cap.nested {
		reply.Repositories = append(reply.Repositories, wire.Path(p))
	}
	slices.Sort(reply.Ignored)
	slices.Sort(reply.Repositories)
	reply.Pending, err = e.pending(ctx)
	return reply, fault.Wrap(op, err)
}
