package gitstore

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
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// MaxChanges is how many changes are listed, maxObeyed how many of what git obeys.
const MaxChanges, maxObeyed = 10_000, 200

// pathspecs selects paths as they stand in commits.
func pathspecs(paths []wire.Path, metadata bool) []string {
	args := []string{"--"}
	for _, p := range paths {
		if p == "." {
			continue
		}
		for _, q := range EscapedPaths(string(p)) {
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

// Diff says what differs between two commits or trees.
func (s *Store) Diff(ctx context.Context, a, b string, req wire.DiffRequest) (wire.DiffReply, error) {
	base := append(plainDiff(), "-z", "--full-index", "--ignore-submodules=none")
	raw, err := s.Git(ctx, nil, append(append(slices.Clone(base), "--raw", "--numstat", a, b), pathspecs(req.Paths, true)...)...)
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
	text, truncated, err := s.gitUpTo(ctx, min(req.MaxBytes, 64<<20), append(args, pathspecs(req.Paths, req.Metadata)...)...)
	if err != nil {
		return wire.DiffReply{}, err
	}
	reply.Diff, reply.Truncated = strings.ToValidUTF8(string(text), "\uFFFD"), truncated
	return reply, nil
}

// gitUpTo runs a git command and returns at most max bytes of its output.
func (s *Store) gitUpTo(ctx context.Context, max int, args ...string) ([]byte, bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := s.command(ctx, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &Head{Max: 16 << 10, To: &stderr}
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
			if len(reply.Changes) == MaxChanges {
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

// Lookup returns one path's entry in a tree.
func (s *Store) Lookup(ctx context.Context, tree, p string) (Entry, error) {
	for _, q := range EscapedPaths(p) {
		cmd := s.command(ctx, "ls-tree", "-z", "--full-tree", tree, "--", q)
		cmd.Env = append(cmd.Env, "GIT_LITERAL_PATHSPECS=1")
		out, err := cmd.Output()
		if err != nil {
			return None, gitError(ctx, []string{"ls-tree"}, "", err)
		}
		if out = bytes.TrimSuffix(out, []byte{0}); len(out) > 0 {
			mode, id, _, err := parseTreeLine(out)
			if err != nil || mode == "040000" {
				return None, err
			}
			_, kind := unescapePath(q)
			return Entry{Mode: wire.Mode(mode), ID: id, Chunked: kind == pathChunked}, nil
		}
	}
	return None, nil
}
