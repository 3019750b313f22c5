package boxtools

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
)

var commitID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`) })

const gitTime = 60 * time.Second

// gitEnv makes git run nothing that a tree, a home directory or a nested
// repository says. Numbered config pairs win over every file.
func gitEnv(extra ...string) []string {
	pairs := [][2]string{
		{"core.fsmonitor", "false"}, {"core.hooksPath", "/dev/null"}, {"core.attributesFile", "/dev/null"},
		{"core.untrackedCache", "false"}, {"core.sshCommand", "/bin/false"}, {"core.pager", "cat"},
		{"core.quotePath", "true"}, {"diff.ignoreSubmodules", "all"},
		{"submodule.recurse", "false"}, {"credential.helper", ""}, {"protocol.allow", "never"},
		{"safe.directory", "*"}, {"gc.auto", "0"}, {"color.ui", "false"},
	}
	env := []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ATTR_NOSYSTEM=1", "GIT_NO_LAZY_FETCH=1",
		"LC_ALL=C", fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(pairs))}
	for i, p := range pairs {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, p[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, p[1]))
	}
	return append(env, extra...)
}

// against prepares an index of the commit that the task started from, in a directory of its
// own: the workspace's .git can't be written here, and its index describes the live tree,
// not this one.
func (b *Box) against(ctx context.Context, base string) (env, large []string, done func(), err error) {
	if base == "" {
		base = "HEAD"
	} else if !commitID().MatchString(base) {
		return nil, nil, nil, refuse("the task's base %q is not a commit id", base)
	}
	if _, err := b.root.Lstat(".git"); err != nil {
		return nil, nil, nil, refuse("this box has no git history to compare with")
	}
	dir, err := os.MkdirTemp("", "choir-index-")
	if err != nil {
		return nil, nil, nil, err
	}
	done = func() { _ = os.RemoveAll(dir) } // a leftover in the box's own /tmp goes with the box
	env = gitEnv("GIT_DIR="+filepath.Join(b.dir, ".git"), "GIT_WORK_TREE="+b.dir, "GIT_INDEX_FILE="+filepath.Join(dir, "index"))
	cmd, why := b.exec(ctx, []string{"git", "read-tree", base}, b.dir, nil, gitTime, env...)
	if cmd.ExitCode != 0 {
		done()
		return nil, nil, nil, refuse("git read-tree: %s %s", strings.TrimSpace(cmd.Stderr), why)
	}
	if large, err = b.setLargeAside(ctx, env); err != nil {
		done()
		return nil, nil, nil, err
	}
	return env, large, done, nil
}

// largeSuffix ends the names of the manifests that stand for large files in a
// commit (see keeper's names).
const largeSuffix = ".chunks.choir"

// setLargeAside makes git treat large files as unchanged: the commit has only manifests of
// them, and no content that git could compare.
func (b *Box) setLargeAside(ctx context.Context, env []string) ([]string, error) {
	run := func(in string, args ...string) (string, error) {
		cmd, why := b.exec(ctx, append([]string{"git"}, args...), b.dir, strings.NewReader(in), gitTime, env...)
		if cmd.ExitCode != 0 || why != "" {
			return "", refuse("git %s: exit code %d %s %s", args[0], cmd.ExitCode, strings.TrimSpace(cmd.Stderr), why)
		}
		return cmd.Stdout, nil
	}
	out, err := run("", "ls-files", "-s", "--", ":(top,glob)**/*"+largeSuffix)
	if err != nil || out == "" {
		return nil, err
	}
	var large []string
	var info strings.Builder
	for _, line := range lines(out) {
		meta, path, ok := strings.Cut(line, "\t")
		if !ok || len(strings.Fields(meta)) != 3 {
			continue // a line of a list that was cut
		}
		// A name may be quoted; git accepts it as it printed it.
		quote := ""
		if strings.HasPrefix(path, `"`) {
			quote = `"`
		}
		name := strings.TrimSuffix(path, largeSuffix+quote) + quote
		large = append(large, name)
		fmt.Fprintf(&info, "0 %040d\t%s\n%s\t%s\n", 0, path, meta, name)
	}
	if _, err := run(info.String(), "update-index", "--index-info"); err != nil {
		return nil, err
	}
	_, err = run(strings.Join(large, "\n")+"\n", "update-index", "--skip-worktree", "--stdin")
	return large, err
}

func (b *Box) git(ctx context.Context, a pathArgs, base string, args ...string) (_ contract.Command, large []string, err error) {
	env, large, done, err := b.against(ctx, base)
	if err != nil {
		return contract.Command{}, nil, err
	}
	defer done()
	argv := append([]string{"git"}, args...)
	if a.Path != "" {
		p, err := b.clean(a.Path)
		if err != nil {
			return contract.Command{}, nil, err
		}
		argv = append(argv, "--", ":(literal)"+p)
	}
	cmd, why := b.exec(ctx, argv, b.dir, nil, gitTime, env...)
	if cmd.ExitCode != 0 || why != "" {
		return cmd, nil, refuse("git %s: exit code %d %s %s", args[0], cmd.ExitCode, strings.TrimSpace(cmd.Stderr), why)
	}
	return cmd, large, nil
}

func (b *Box) gitStatus(ctx context.Context, a pathArgs, base string) (Result, error) {
	// Two plumbing commands instead of git status: no refresh, no submodules.
	changed, large, err := b.git(ctx, a, base, "diff-files", "--name-status", "--no-renames", "--ignore-submodules=all")
	if err != nil {
		return Result{}, err
	}
	fresh, _, err := b.git(ctx, a, base, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return Result{}, err
	}
	var out strings.Builder
	for _, l := range lines(changed.Stdout) {
		out.WriteString(strings.Replace(l, "\t", "  ", 1) + "\n")
	}
	for _, l := range lines(fresh.Stdout) {
		out.WriteString("A  " + l + "\n")
	}
	if out.Len() == 0 {
		out.WriteString("nothing changed\n")
	}
	if len(large) > 0 {
		fmt.Fprintf(&out, "not compared, for they are large: %s\n", strings.Join(large[:min(len(large), 20)], ", "))
	}
	return Result{OK: true, Output: out.String(), Truncated: changed.Truncated || fresh.Truncated}, nil
}

func (b *Box) gitDiff(ctx context.Context, a pathArgs, base string) (Result, error) {
	cmd, _, err := b.git(ctx, a, base, "diff-files", "-p", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color", "--ignore-submodules=all")
	if err != nil {
		return Result{}, err
	}
	if cmd.Stdout == "" {
		cmd.Stdout = "nothing changed in files that existed before\n"
	}
	return Result{OK: true, Output: cmd.Stdout, Truncated: cmd.Truncated}, nil
}

func lines(s string) []string {
	if s = strings.TrimRight(s, "\n"); s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}
