package chaos_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// These operations are what a user does. Each tells the witness what was acknowledged, and the tree
// what follows from that. An operation without an acknowledgement may have happened or not.

// put writes a file.
func (w *world) put(ctx context.Context, path, content string) error {
	w.tree.maybe(path, content)
	sum := sha256.Sum256([]byte(content))
	if _, err := w.c.Put(ctx, view.Put{Path: path}, strings.NewReader(content)); err != nil {
		return err
	}
	w.tree.is(path, content)
	w.witness.put(path, hex.EncodeToString(sum[:]))
	return nil
}

// remove removes a file.
func (w *world) remove(ctx context.Context, path string) error {
	w.tree.maybe(path, gone)
	if err := w.c.Remove(ctx, path, "", false); err != nil {
		return err
	}
	w.tree.is(path, gone)
	return nil
}

// move renames a file that holds content.
func (w *world) move(ctx context.Context, from, to, content string) error {
	w.tree.maybe(from, gone)
	w.tree.maybe(to, content)
	if _, err := w.c.Move(ctx, from, to); err != nil {
		return err
	}
	w.tree.is(from, gone)
	w.tree.is(to, content)
	return nil
}

// add imports a folder with one file.
func (w *world) add(ctx context.Context, name, content string) error {
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	if err := archive.WriteHeader(&tar.Header{Name: "file", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	if _, err := archive.Write([]byte(content)); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	path := "workspace/" + name + "/file"
	w.tree.maybe(path, content)
	if _, err := w.c.AddTar(ctx, name, "/somewhere/"+name, &b); err != nil {
		return err
	}
	w.tree.is(path, content)
	return nil
}

// push makes a repository of one file, clones it and pushes a change of the file.
func (w *world) push(ctx context.Context, name, content string) error {
	path := "workspace/" + name + "/file"
	if _, err := w.verb(ctx, "exec", "--", "sh", "-c", "mkdir workspace/"+name+" && cd workspace/"+name+
		" && git init -q -b main && echo one > file && git add file && git -c user.name=me -c user.email=me@example.org commit -q -m one"); err != nil {
		return err
	}
	w.tree.is(path, "one\n")
	return w.pushTo(ctx, "workspace/"+name, "file", path, content)
}

// pushFiles makes a file and pushes a change of it, with stock git, into the history of the
// computer's own files.
func (w *world) pushFiles(ctx context.Context, path, content string) error {
	if err := w.put(ctx, path, "one "+content); err != nil {
		return err
	}
	if _, _, err := w.save(ctx, "to be pushed to"); err != nil {
		return err
	}
	return w.pushTo(ctx, "", path, path, content)
}

// pushTo clones a repository with stock git, changes a file of it, which is at path in the
// computer, and pushes that.
func (w *world) pushTo(ctx context.Context, repository, file, path, content string) error {
	asked := []string{"git", "url", "--write", "--json"}
	if repository != "" {
		asked = append(asked, repository)
	}
	out, err := w.verb(ctx, asked...)
	if err != nil {
		return err
	}
	var access struct {
		URL   string
		Token struct{ Secret string }
	}
	if err := json.Unmarshal([]byte(out), &access); err != nil {
		return err
	}
	dir := w.t.TempDir()
	stock := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir, "-c", "user.name=me", "-c", "user.email=me@example.org"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
		return nil
	}
	if err := stock("clone", "-q", strings.Replace(access.URL, "://", "://me:"+access.Token.Secret+"@", 1), "."); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(file)), []byte(content), 0o644); err != nil {
		return err
	}
	if err := stock("commit", "-q", "-a", "-m", "two"); err != nil {
		return err
	}
	w.tree.maybe(path, content)
	if err := stock("push", "-q", "origin", "main"); err != nil {
		return err
	}
	w.tree.is(path, content)
	return nil
}

// verb runs a verb of the command line.
func (w *world) verb(ctx context.Context, args ...string) (string, error) {
	r, err := w.in.Run(ctx, args...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("choir %s: code %d: %s", args[0], r.Code, r.Stderr)
	}
	return r.Stdout, err
}

// save makes a checkpoint and returns it with the tree at that time.
func (w *world) save(ctx context.Context, message string) (string, map[string]values, error) {
	was := w.tree.copy()
	k, err := w.c.Checkpoint(ctx, message)
	if err != nil {
		return "", nil, err
	}
	w.witness.checkpoint(k.ID)
	return k.ID, was, nil
}

// restore goes back to a checkpoint, or undoes the last restore.
func (w *world) restore(ctx context.Context, to string, was map[string]values) error {
	then := w.tree.restoredTo(was)
	w.tree.either = []map[string]values{w.tree.copy(), then}
	var r view.Restored
	var err error
	if to == "" {
		r, err = w.c.Undo(ctx, false)
	} else {
		r, err = w.c.Restore(ctx, view.RestoreRequest{To: to})
	}
	if err != nil {
		return err
	}
	w.tree.either = nil
	w.tree.known = then
	if r.Checkpoint == "" {
		return fmt.Errorf("the restore to %q made no checkpoint", to)
	}
	w.witness.restored(r.Checkpoint)
	w.witness.checkpoint(r.Safety)
	return nil
}

// exec runs a command that makes a file atomically.
func (w *world) exec(ctx context.Context, path, content string, code int) error {
	if w.tree.clock != nil {
		// Until the command is acknowledged, a power cut may leave a file empty, or with zeroes, if
		// its program did not sync it.
		w.tree.maybe(path, "")
		w.tree.maybe(path, strings.Repeat("\x00", len(content)+1))
		w.tree.maybe(path+".tmp", strings.Repeat("\x00", len(content)+1))
	}
	w.tree.maybe(path, content+"\n")
	w.tree.maybe(path+".tmp", "")
	w.tree.maybe(path+".tmp", content+"\n")
	script := fmt.Sprintf("mkdir -p $(dirname %s) && echo %s > %s.tmp && mv %s.tmp %s; echo out; exit %d", path, content, path, path, path, code)
	var out bytes.Buffer
	exit, err := w.c.Exec(ctx, view.ExecRequest{Argv: []string{"sh", "-c", script}}, view.ExecIO{Stdout: &out})
	if err != nil {
		return err
	}
	w.witness.commanded(exit.Command, exit.Code, exit.Sequence)
	if exit.Reason != "" {
		return fmt.Errorf("the command was ended: %s", exit.Reason) // its box was killed, and the error says so
	}
	if exit.Code != code || out.String() != "out\n" {
		return fmt.Errorf("the command said %q and exited with %d; want %d", out.String(), exit.Code, code)
	}
	w.tree.is(path, content+"\n")
	w.tree.is(path+".tmp", gone)
	return nil
}

// prompt is one run and what is known of it.
type prompt struct {
	text       string
	run        string // "" if it was not acknowledged
	fails      bool   // by its plan
	review     bool   // what it makes is looked at before it is published
	unverified bool   // it fails only because its verification does
	writes     map[string]func(values) string
	told       bool
	counted    bool // in the histogram
	outcome    string

	begun, acknowledged int // instants on a recorded disk
}

func (w *world) prompt(ctx context.Context, p *prompt) error {
	p.begun = w.witness.clock()
	w.mu.Lock()
	w.prompts = append(w.prompts, p)
	w.mu.Unlock()
	acted, err := w.c.Prompt(ctx, view.Prompt{ID: contract.NewID(), Text: p.text, Review: p.review})
	if err != nil {
		return err
	}
	p.run, p.acknowledged = acted.Run, w.witness.clock()
	w.witness.prompted(acted.Run, acted.Sequence)
	return nil
}

// run submits the prompt and waits for the end of the run.
func (w *world) run(ctx context.Context, p *prompt) error {
	if err := w.prompt(ctx, p); err != nil {
		return err
	}
	_, err := w.c.Wait(ctx, p.run)
	return err
}

// look submits the prompt, publishes what waits to be looked at, and waits for the end of the run.
func (w *world) look(ctx context.Context, p *prompt) error {
	if err := w.prompt(ctx, p); err != nil {
		return err
	}
	r, err := w.c.Wait(ctx, p.run)
	if err != nil {
		return err
	}
	if len(r.Reviews) != 1 {
		return fmt.Errorf("run %s is %s and has %d reviews", p.run, r.Status, len(r.Reviews))
	}
	v := r.Reviews[0]
	if _, err := w.c.Looked(ctx, p.run, v.Task, view.Looked{Attempt: v.Attempt, Review: v.Review, Work: v.Work, Decision: contract.ReviewPublish}); err != nil {
		return err
	}
	_, err = w.c.Wait(ctx, p.run)
	return err
}

var background = regexp.MustCompile(`"background"[ \t]*:[ \t]*"#[0-9a-fA-F]{3,8}"`)

func recolour(color string) *prompt {
	return &prompt{text: "make the desktop background " + color, writes: map[string]func(values) string{themePath: func(v values) string {
		return background.ReplaceAllString(v[0], `"background": "`+color+`"`)
	}}}
}

func writeFile(path, text string) *prompt {
	return &prompt{text: fmt.Sprintf("write %q to %s", text, path), writes: map[string]func(values) string{path: func(values) string { return text + "\n" }}}
}
