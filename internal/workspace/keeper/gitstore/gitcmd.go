package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// gitConfig is forced on every git process through its environment, where it
// outranks every file. core.bare keeps git away from the work tree.
var gitConfig = [][2]string{
	{"core.bare", "true"},
	{"core.fsmonitor", "false"},
	{"core.hooksPath", "/dev/null"},
	{"core.attributesFile", "/dev/null"},
	{"core.excludesFile", "/dev/null"},
	{"core.untrackedCache", "false"},
	{"core.fsync", "all"},
	{"core.fsyncMethod", "fsync"},
	{"core.symlinks", "true"},
	{"core.quotePath", "false"},
	{"core.autocrlf", "false"},
	{"core.protectNTFS", "false"},
	{"core.protectHFS", "false"},
	{"core.askPass", "/bin/false"},
	{"core.sshCommand", "/bin/false"},
	{"core.gitProxy", "/bin/false"},
	{"core.editor", "/bin/false"},
	{"core.pager", "cat"},
	{"core.alternateRefsCommand", "/bin/false"},
	{"core.commitGraph", "false"},
	{"credential.helper", ""},
	{"diff.external", ""},
	{"diff.renames", "false"},
	{"diff.submodule", "short"},
	{"merge.renames", "false"},
	{"protocol.allow", "never"},
	{"submodule.recurse", "false"},
	{"gc.auto", "0"},
	{"maintenance.auto", "false"},
	{"receive.autogc", "false"},
	{"log.showSignature", "false"},
	{"commit.gpgSign", "false"},
	{"safe.directory", "*"},
	{"advice.detachedHead", "false"},
	{"pack.threads", "1"},
}

// gitEnv is the whole environment of a git process.
func gitEnv(gitDir string, extra ...string) []string {
	env := []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=/nonexistent",
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_DIR=" + gitDir,
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_PAGER=cat",
		"GIT_CONFIG_COUNT=" + strconv.Itoa(len(gitConfig)),
	}
	for i, kv := range gitConfig {
		if defence.Off(defence.GitForced) && kv[0] != "core.bare" && kv[0] != "safe.directory" {
			kv = gitConfig[0]
		}
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, kv[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, kv[1]))
	}
	return append(env, extra...)
}

// command prepares one git process. It stands in .git itself, never in the
// tree, and dies with the engine.
func (s *Store) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir = s.gitDir
	cmd.Env = gitEnv(s.gitDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Git runs a git command and returns its standard output.
func (s *Store) Git(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := s.command(ctx, args...)
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &Head{Max: 16 << 10, To: &stderr}
	if err := cmd.Run(); err != nil {
		return out.Bytes(), s.gitFailed(ctx, args, stderr.String(), err)
	}
	return out.Bytes(), nil
}

// gitWrites are the commands that write to .git. They don't always say what a
// write failed for.
var gitWrites = []string{"update-ref", "index-pack", "maintenance"}

// gitFailed is gitError of a command in the engine's repository. Where git could
// not write and does not say why, the disk is asked.
func (s *Store) gitFailed(ctx context.Context, args []string, stderr string, err error) error {
	failed := gitError(ctx, args, stderr, err)
	writes := slices.ContainsFunc(args, func(arg string) bool { return slices.Contains(gitWrites, arg) })
	if !writes || ctx.Err() != nil || fault.CodeOf(failed) != fault.Internal {
		return failed
	}
	return errors.Join(failed, s.tryDisk())
}

// tryDisk says what keeps .git from being written to, nil when nothing does.
func (s *Store) tryDisk() error {
	f, err := os.CreateTemp(s.Work(), "tmp-disk-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// NameOf is the object that a revision names, "" when there is none. That git
// could not look is an error, and not a missing one.
func (s *Store) NameOf(ctx context.Context, rev string) (string, error) {
	for _, kind := range []string{kindCommit, kindTree} {
		if full, ok := strings.CutSuffix(rev, "^{"+kind+"}"); ok && wire.IsHex(full) && len(full) == 40 {
			if id, ok, err := s.nameOfFull(ctx, full, kind); ok {
				return id, err
			}
		}
	}
	id, err := s.GitLine(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", rev)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return "", nil
	}
	return id, err
}

// GitLine runs a git command that prints one line.
func (s *Store) GitLine(ctx context.Context, args ...string) (string, error) {
	out, err := s.Git(ctx, nil, args...)
	return strings.TrimSpace(string(out)), err
}

// TreeOf is the tree that a ref points to, "" when there is no such ref. One
// that can't be read, as after a bad disk, is an error and not a missing one.
func (s *Store) TreeOf(ctx context.Context, ref string) (string, error) {
	id, err := s.Ref(ctx, ref)
	if err != nil || id == "" {
		return "", err
	}
	c, err := s.rawCommit(ctx, id)
	return c.tree, err
}

func gitError(ctx context.Context, args []string, stderr string, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	op := "keeper.git"
	if len(args) > 0 {
		op += " " + args[0]
	}
	code, hint := fault.Code(""), ""
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist):
		code, hint = fault.Missing, "Install git 2.38 or newer."
	case fault.NoSpaceText(stderr) || strings.Contains(stderr, "Out of diskspace"):
		code, hint = fault.DiskFull, fault.FreeSpace
	}
	if s := strings.TrimSpace(stderr); s != "" {
		err = fmt.Errorf("%w: %s", err, s)
	}
	return fault.New(op, code, hint, err)
}

// Head keeps the first max bytes and swallows the rest.
type Head struct {
	To  *bytes.Buffer
	Max int
}

func (l *Head) Write(p []byte) (int, error) {
	if room := l.Max - l.To.Len(); room > 0 {
		l.To.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
