package boxtools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
)

// Bounds of bash.
const (
	defaultCommandTime = 120 * time.Second
	maxEnvironment     = 128 << 10 // bytes that are kept from one command to the next
	maxExported        = 4 << 20   // of a list of them: four for a byte that can't be shown, and arrays, which are not kept
)

// shell is what commands leave to the next one: the folder where the last ended, and the variables that
// it exported. Each command has a bash of its own, which starts with them, so that nothing that one
// command does to its shell can break the next beyond them.
type shell struct {
	mu  sync.Mutex
	dir string   // "": the workspace's root
	env []string // nil: the box's own
}

type bashArgs struct {
	Command    string `json:"command"`
	Cwd        string `json:"cwd"`
	TimeoutS   int    `json:"timeout_s"`
	Background bool   `json:"background"`
	Fresh      bool   `json:"fresh"`
}

func (b *Box) bash(ctx context.Context, a bashArgs) (Result, error) {
	if a.Fresh {
		b.shell.set("", nil)
	}
	dir, env, note := b.shell.get(b)
	if a.Cwd != "" {
		var err error
		if dir, err = b.folder(a.Cwd); err != nil {
			return Result{}, err
		}
	}
	p := process{argv: []string{"bash", "-c", a.Command}, dir: dir, env: append(slices.Clone(env), "PWD="+dir), path: b.env, timeout: defaultCommandTime}
	if a.TimeoutS > 0 {
		p.timeout = time.Duration(a.TimeoutS) * time.Second
	}
	if a.Background {
		if a.TimeoutS == 0 {
			p.timeout = 24 * time.Hour // it ends with the box
		}
		return b.background(a.Command, p, note)
	}
	out := b.kept.sink()
	defer out.close()
	p.stdout, p.stderr = out, out
	leave, left := b.leaving(env)
	p.env = append(p.env, leave...)
	ran, why := start(ctx, p)
	if at, vars, said := left(); at != "" {
		b.shell.set(at, vars)
		dir, note = at, note+said
	}
	cmd := contract.Command{Argv: p.argv, ExitCode: ran.ExitCode, DurationMS: ran.DurationMS, Stdout: out.shown.String() + ran.Stderr, Truncated: out.shown.cut()}
	if strings.HasPrefix(why, "stopped after") {
		note += "(what takes longer runs with a larger timeout_s, or in the background)\n"
	}
	text, cut := show(cmd.Stdout, out.end(false))
	res := Result{OK: true, Command: &cmd, Output: ended(ran.ExitCode, why) + b.within(dir) + "\n" + note + text, Truncated: cut}
	if changed := b.changedBy("a command"); changed != "" {
		res.Output += "\n" + changed
	}
	return res, nil
}

// ended is how a command ended, in the words that the result of every command begins with.
func ended(code int, why string) string {
	if why != "" {
		return fmt.Sprintf("exit code %d (%s)", code, why)
	}
	return fmt.Sprintf("exit code %d", code)
}

// within says in which folder the shell is, if that is not the workspace's root.
func (b *Box) within(dir string) string {
	rel, err := filepath.Rel(b.dir, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return ", in " + dir
	}
	if rel == "." {
		return ""
	}
	return ", in " + rel
}

func (s *shell) set(dir string, env []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir, s.env = dir, env
}

// get is where and with what the next command starts. What was left may be gone by now.
func (s *shell) get(b *Box) (dir string, env []string, note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env == nil {
		env = b.env
	} else {
		env = s.env
	}
	if s.dir == "" {
		return b.dir, env, ""
	}
	if info, err := os.Stat(s.dir); err != nil || !info.IsDir() {
		note = fmt.Sprintf("(%s is gone; the shell is in the workspace's root again)\n", s.dir)
		s.dir = ""
		return b.dir, env, note
	}
	return s.dir, env, ""
}

// leaving prepares two files for one command, which starts with the variables in start. The first is read by its
// bash before the command and has a trap write folder and environment to the second at the end; a command that sets
// a trap of its own or replaces its shell leaves nothing. left reads the second one, which may hold anything.
func (b *Box) leaving(start []string) (env []string, left func() (dir string, env []string, note string)) {
	nothing := func() (string, []string, string) { return "", nil, "" }
	lister, err := lookUp("env", b.env)
	if err != nil {
		return nil, nothing
	}
	after, err := b.kept.create("after")
	if err != nil {
		return nil, nothing
	}
	_ = after.file.Close() // nothing was written
	before, err := b.kept.create("before")
	if err != nil {
		after.remove()
		return nil, nothing
	}
	// What bash says of its variables by itself takes no other process. What it says of functions can't be told apart, and within one it
	// does not say what the function's own variables hide. How it quotes depends on the locale, of which there are any.
	trap := fmt.Sprintf(`{ builtin trap - DEBUG; set +eux; builtin export -pf >|%[1]s; if [[ -s %[1]s || ${FUNCNAME+x} ]]
then { builtin printf '%%s\0' "$PWD" env; %[2]s -0; } >|%[1]s
else { builtin printf '%%s\0' "$PWD" bash; LC_ALL=C builtin export -p; } >|%[1]s
fi; } 2>/dev/null`, quoted(after.path), quoted(lister))
	_, err = before.file.WriteString("unset BASH_ENV\ntrap " + quoted(trap) + " EXIT\n")
	if err = errors.Join(err, before.file.Close()); err != nil {
		after.remove()
		before.remove()
		return nil, nothing
	}
	return []string{"BASH_ENV=" + before.path}, func() (string, []string, string) {
		defer after.remove()
		defer before.remove()
		f, _, err := b.open(place{after.root, after.name, after.path})
		if err != nil {
			return "", nil, ""
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxExported+1))
		if err != nil {
			return "", nil, ""
		}
		dir, rest, ok := bytes.Cut(data, []byte{0})
		if info, err := os.Stat(string(dir)); !ok || !filepath.IsAbs(string(dir)) || err != nil || !info.IsDir() {
			return "", nil, ""
		}
		by, rest, _ := bytes.Cut(rest, []byte{0})
		vars, err := strings.Split(string(rest), "\x00"), error(nil)
		if string(by) != "env" && len(data) <= maxExported {
			vars, err = exported(string(rest))
			vars = append(vars, unnamed(start)...)
		}
		vars = variables(vars)
		_, was, _ := b.shell.get(b)
		switch {
		case len(data) > maxExported || len(strings.Join(vars, "\x00")) > maxEnvironment:
			return string(dir), was, fmt.Sprintf("(the environment is larger than %d bytes; variables stay as they were before)\n", maxEnvironment)
		case err != nil:
			return string(dir), was, "(the shell's variables could not be read; they stay as they were before)\n"
		}
		return string(dir), vars, ""
	}
}

// variables are those that the next command gets: all but what every bash sets for itself.
func variables(list []string) []string {
	out := []string{}
	for _, kv := range list {
		name, _, ok := strings.Cut(kv, "=")
		if ok && name != "" && name != "_" && name != "SHLVL" && name != "PWD" && name != "BASH_ENV" {
			out = append(out, kv)
		}
	}
	return out
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
