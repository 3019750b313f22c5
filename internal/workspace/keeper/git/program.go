package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// forced is forced on every git process through its environment, where it
// outranks every file. core.bare keeps git away from the work tree.
var forced = [][2]string{
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

// Unsynced, in the environment of a command, makes git sync nothing: it outranks the forced
// settings.
const Unsynced = "GIT_CONFIG_PARAMETERS='core.fsync'='none'"

// environment is the whole environment of a git process.
func environment(gitDir string, extra ...string) []string {
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
		"GIT_CONFIG_COUNT=" + strconv.Itoa(len(forced)),
	}
	for i, kv := range forced {
		if defence.Off(defence.GitForced) && kv[0] != "core.bare" && kv[0] != "safe.directory" {
			kv = forced[0]
		}
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, kv[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, kv[1]))
	}
	return append(env, extra...)
}

// Program runs the git program on one repository.
type Program struct {
	path   string // of the program
	gitDir string // the repository

	objects string // where objects are written and looked for first, if not in the repository
}

// New makes a Program for the program at a path and the repository in a folder.
func New(path, gitDir string) *Program { return &Program{path: path, gitDir: gitDir} }

// WithObjectDir returns a Program that writes objects to a folder, and looks there first.
func (g *Program) WithObjectDir(objects string) *Program {
	return &Program{path: g.path, gitDir: g.gitDir, objects: objects}
}

// Command prepares one git process. It runs in .git itself, never in the tree, and ends
// with the keeper.
func (g *Program) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, g.path, args...)
	cmd.Dir = g.gitDir
	cmd.Env = environment(g.gitDir)
	if g.objects != "" {
		cmd.Env = append(cmd.Env, "GIT_OBJECT_DIRECTORY="+g.objects)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Init makes a bare repository at tmp, inside a folder.
func (g *Program) Init(ctx context.Context, folder, tmp string) error {
	cmd := g.Command(ctx, "init", "--quiet", "--template=", "--object-format=sha1", "--bare", tmp)
	cmd.Dir = folder
	cmd.Env = append(environment(tmp), "GIT_DIR="+tmp)
	if out, err := cmd.CombinedOutput(); err != nil {
		return Error(ctx, []string{"init"}, string(out), err)
	}
	return nil
}

// Run runs a git command and returns its standard output.
func (g *Program) Run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := g.Command(ctx, args...)
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &PrefixBuffer{Max: 16 << 10, To: &stderr}
	if err := cmd.Run(); err != nil {
		return out.Bytes(), g.Failed(ctx, args, stderr.String(), err)
	}
	return out.Bytes(), nil
}

// Line runs a git command that prints one line.
func (g *Program) Line(ctx context.Context, args ...string) (string, error) {
	out, err := g.Run(ctx, nil, args...)
	return strings.TrimSpace(string(out)), err
}

// writes are the commands that write to .git. They don't always say why a write failed.
var writes = []string{"update-ref", "index-pack", "maintenance"}

// Failed is Error for a command in the repository. If git could not write and does not say
// why, writing is tried to find out.
func (g *Program) Failed(ctx context.Context, args []string, stderr string, err error) error {
	failed := Error(ctx, args, stderr, err)
	mayWrite := slices.ContainsFunc(args, func(arg string) bool { return slices.Contains(writes, arg) })
	if !mayWrite || ctx.Err() != nil || fault.CodeOf(failed) != fault.Internal {
		return failed
	}
	return errors.Join(failed, g.tryDisk())
}

// tryDisk returns why .git can't be written to, nil when it can.
func (g *Program) tryDisk() error {
	f, err := os.CreateTemp(filepath.Join(g.gitDir, "choir"), "tmp-disk-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// Error describes how a command failed.
func Error(ctx context.Context, args []string, stderr string, err error) error {
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

// PrefixBuffer keeps the first Max bytes and discards the rest.
type PrefixBuffer struct {
	To  *bytes.Buffer // what is kept
	Max int           // bytes
}

func (l *PrefixBuffer) Write(p []byte) (int, error) {
	if room := l.Max - l.To.Len(); room > 0 {
		l.To.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
