package gitstore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/workspace/keeper/git"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// MaxChanges is how many changes are listed, maxObeyed how many of what git obeys.
const MaxChanges, maxObeyed = 10_000, 200

// pathspecs selects paths by their names in commits.
func pathspecs(paths []wire.Path, metadata bool) []string {
	args := []string{"--"}
	for _, p := range paths {
		if p == "." {
			continue
		}
		for _, q := range names.Ways(string(p)) {
			args = append(args, ":(top,literal)"+q)
		}
	}
	if !metadata {
		args = append(args, ":(top,exclude,glob)**/.git"+names.EscapeSuffix, ":(top,exclude,glob)**/.git"+names.EscapeSuffix+"/**")
	}
	return args
}

// plainDiff makes git compare trees by its own means, whatever programs attributes name.
func plainDiff() []string {
	args := []string{"diff-tree", "-r", "--no-renames", "--no-color"}
	if defence.Off(defence.GitPlainDiff) {
		return append(args, "--ext-diff", "--textconv")
	}
	return append(args, "--no-ext-diff", "--no-textconv")
}

// Diff says what differs between two trees.
func (s *Store) Diff(ctx context.Context, a, b string, req wire.DiffRequest) (wire.DiffReply, error) {
	d, err := s.list(ctx, a, b, req)
	if err != nil || len(d.reply.Changes) == 0 {
		return d.reply, err
	}
	if req.MaxBytes == 0 {
		req.MaxBytes = 1 << 20
	}
	text, truncated, err := s.diffText(ctx, a, b, req, d.lines)
	d.reply.Diff, d.reply.Truncated = strings.ToValidUTF8(string(text), "\uFFFD"), truncated
	return d.reply, err
}

// Changes says which paths differ between two trees, without reading any file.
func (s *Store) Changes(ctx context.Context, a, b string) (wire.DiffReply, error) {
	d, err := s.list(ctx, a, b, wire.DiffRequest{})
	return d.reply, err
}

// changeList collects changes by their names in commits.
type changeList struct {
	reply    wire.DiffReply
	metadata bool
	index    bool
	byName   map[string]int // as it stands in the commit
	byPath   map[string]int
	repos    map[wire.Path]int
}

func (s *Store) list(ctx context.Context, a, b string, req wire.DiffRequest) (*changeList, error) {
	d := &changeList{
		reply: wire.DiffReply{Changes: []wire.Change{}}, metadata: req.Metadata, index: req.Index,
		byName: map[string]int{}, byPath: map[string]int{}, repos: map[wire.Path]int{},
	}
	var paths []string
	for _, p := range req.Paths {
		if p == "." {
			paths = nil
			break
		}
		paths = append(paths, names.Ways(string(p))...)
	}
	return d, s.Differ(ctx, a, b, paths, d.add)
}

func (d *changeList) add(name string, from, to TreeItem) error {
	p, kind := names.UnescapePath(name)
	op := "modified"
	switch {
	case from.Mode == "":
		op = "added"
	case to.Mode == "":
		op = "deleted"
	case from.ID == to.ID && Entry{Mode: wire.Mode(from.Mode)}.IsRegular() && Entry{Mode: wire.Mode(to.Mode)}.IsRegular():
		op = "mode"
	}
	if git, ok := nested.In(p); ok && !d.metadata {
		inside := strings.TrimPrefix(p[len(git):], "/")
		if inside != "index" || d.index {
			repo := wire.Path(wire.ParentDir(git))
			at, known := d.repos[repo]
			if !known {
				at = len(d.reply.Repositories)
				d.repos[repo] = at
				d.reply.Repositories = append(d.reply.Repositories, wire.Change{Path: repo, Op: "modified", Added: -1, Removed: -1})
			}
			if inside == "" || inside == "HEAD" { // what makes it a repository
				d.reply.Repositories[at].Op = op
			}
		}
		if nested.Obeyed(inside) && len(d.reply.Obeyed) < maxObeyed {
			d.reply.Obeyed = append(d.reply.Obeyed, wire.Change{Path: wire.Path(p), Op: op, Added: -1, Removed: -1})
		}
		return nil
	}
	if kind == names.PathEmpty {
		p += "/"
	}
	if at, ok := d.byPath[p]; ok { // it is a large file now, or was one
		d.reply.Changes[at] = wire.Change{Path: wire.Path(p), Op: "modified", Added: -1, Removed: -1}
		return nil
	}
	if len(d.reply.Changes) == MaxChanges {
		d.reply.More++
		return nil
	}
	d.byName[name], d.byPath[p] = len(d.reply.Changes), len(d.reply.Changes)
	d.reply.Changes = append(d.reply.Changes, wire.Change{Path: wire.Path(p), Op: op})
	return nil
}

// lines records how many lines of a file were added and removed, -1 for content that is not
// text.
func (d *changeList) lines(name string, added, removed int) {
	if at, ok := d.byName[name]; ok && d.reply.Changes[at].Added >= 0 {
		d.reply.Changes[at].Added, d.reply.Changes[at].Removed = added, removed
	}
}

// diffText has git compare what is in files: how many lines differ and, unless
// req.MaxBytes is negative, which, as at most so many bytes of a patch.
func (s *Store) diffText(ctx context.Context, a, b string, req wire.DiffRequest, lines func(name string, added, removed int)) (_ []byte, truncated bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := append(plainDiff(), "--numstat")
	if req.MaxBytes > 0 {
		args = append(args, "-p")
	}
	cmd := s.git.Command(ctx, append(append(args, a, b), pathspecs(req.Paths, req.Metadata)...)...)
	// Git would read all of the index, which names every file, and does not need it.
	cmd.Env = append(cmd.Env, "GIT_INDEX_FILE=/nonexistent/index")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &git.PrefixBuffer{Max: 16 << 10, To: &stderr}
	if err := cmd.Start(); err != nil {
		return nil, false, git.Error(ctx, args, "", err)
	}
	from := bufio.NewReaderSize(out, 64<<10)
	rerr := readLineCounts(from, lines)
	max := min(max(req.MaxBytes, 0), 64<<20)
	var text []byte
	if rerr == nil {
		text, rerr = io.ReadAll(io.LimitReader(from, int64(max)+1))
	}
	if len(text) > max {
		cancel()
		_ = cmd.Wait() // it was killed by us
		cut := bytes.LastIndexByte(text[:max], '\n') + 1
		return text[:cut], true, nil
	}
	if rerr != nil && !errors.Is(rerr, io.EOF) {
		cancel()
	}
	if err := cmd.Wait(); err != nil {
		return nil, false, git.Error(ctx, args, stderr.String(), errors.Join(err, rerr))
	}
	if errors.Is(rerr, io.EOF) {
		rerr = nil
	}
	return text, false, rerr
}

// readLineCounts reads lines of "added TAB removed TAB name", up to the empty
// one before a patch.
func readLineCounts(from *bufio.Reader, visit func(name string, added, removed int)) error {
	for {
		line, err := from.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // the name is longer than any of ours
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = from.ReadSlice('\n')
			}
			if err == nil {
				continue
			}
		}
		if err != nil || len(line) == 1 {
			return err
		}
		part := strings.SplitN(strings.TrimSuffix(string(line), "\n"), "\t", 3)
		if len(part) != 3 {
			return fmt.Errorf("git diff-tree answered %q", wire.Short(string(line)))
		}
		name, err := unquoteName(part[2])
		if err != nil {
			return err
		}
		if part[0] == "-" {
			visit(name, -1, -1)
			continue
		}
		added, errA := strconv.Atoi(part[0])
		removed, errR := strconv.Atoi(part[1])
		if err := errors.Join(errA, errR); err != nil {
			return err
		}
		visit(name, added, removed)
	}
}

// unquoteName reads a name as git prints it: in quotes, as C has them, where it
// holds a quote, a backslash or a control character.
func unquoteName(s string) (string, error) {
	in, ok := strings.CutPrefix(s, `"`)
	if !ok {
		return s, nil
	}
	in, ok = strings.CutSuffix(in, `"`)
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in) && ok; i++ {
		if in[i] != '\\' {
			out = append(out, in[i])
			continue
		}
		i++
		if at := strings.IndexByte(`abtnvfr"\`, at0(in, i)); at >= 0 {
			out = append(out, "\a\b\t\n\v\f\r\"\\"[at])
			continue
		}
		code, err := strconv.ParseUint(in[min(i, len(in)):min(i+3, len(in))], 8, 8)
		if ok = err == nil; ok {
			out = append(out, byte(code))
			i += 2
		}
	}
	if !ok {
		return "", fmt.Errorf("git quoted a name as %q", wire.Short(s))
	}
	return string(out), nil
}

// at0 is a byte of a text, 0 beyond its end.
func at0(s string, i int) byte {
	if i >= len(s) {
		return 0
	}
	return s[i]
}

// Lookup returns one path's entry in a tree.
func (s *Store) Lookup(ctx context.Context, tree, p string) (Entry, error) {
	for _, q := range names.Ways(p) {
		it, ok, err := s.itemAt(ctx, tree, q)
		if err != nil {
			return None, err
		}
		if ok {
			if it.Mode == modeFolder {
				return None, nil
			}
			_, kind := names.UnescapePath(q)
			return Entry{Mode: wire.Mode(it.Mode), ID: it.ID, Chunked: kind == names.PathChunked}, nil
		}
	}
	return None, nil
}

// ObjectAt is the id of what a commit holds at a path, a tree's for a folder; ""
// when it holds nothing there.
func (s *Store) ObjectAt(ctx context.Context, commit, p string) (string, error) {
	c, err := s.rawCommit(ctx, commit)
	if err != nil {
		return "", err
	}
	for _, q := range names.Ways(p) {
		if it, ok, err := s.itemAt(ctx, c.tree, q); err != nil || ok {
			return it.ID, err
		}
	}
	return "", nil
}
