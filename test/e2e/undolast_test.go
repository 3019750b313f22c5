package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestUndoPassesOverACommandThatOnlyRead shows that a command that changed nothing is not the last
// thing, although the document of the run before it was written to its file while it ran: the run is
// undone, and undoing that brings its change back.
func TestUndoPassesOverACommandThatOnlyRead(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	u.put("a")
	for _, dies := range []bool{false, false, true} {
		before := u.picture()
		u.prompt(`write "` + u.text() + `" to workspace/p.txt`)
		after := u.picture()
		if dies { // before its document is in a checkpoint, and maybe before it is in its file
			data := u.in.Data
			u.in.Kill()
			u.in = choirtest.Start(t, choirtest.Options{Data: data})
		}
		u.in.Must(t, "exec", "--", "cat", "workspace/p.txt")
		for i, want := range []struct {
			what view.UndoneKind
			is   string
		}{{view.UndoneRun, before}, {view.UndoneRestore, after}} {
			if did := u.undo(); did.Undone.What != want.what || u.picture() != want.is {
				t.Fatalf("undo %d undid %+v, and there is\n%s\nwant\n%s", i, did.Undone, u.picture(), want.is)
			}
		}
	}
}

// TestUndoTakesBackWhatACommandDidAlone shows that what a run, a put, a removal and an edit of a
// document did while a command ran is not the command's: undoing the command leaves it, and if the
// command itself changed nothing, the last of those is the last thing. A command that has not ended
// holds nothing up as long as it has changed nothing itself.
func TestUndoTakesBackWhatACommandDidAlone(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	for _, own := range []string{"", "workspace/own", u.doc.Path} {
		for _, other := range []struct {
			name string
			do   func()
			what view.UndoneKind
		}{
			{"run", func() { u.prompt(`write "` + u.text() + `" to workspace/p.txt`) }, view.UndoneRun},
			{"put", func() { u.put("a") }, view.UndonePut},
			{"removal", func() { u.in.Must(t, "files", "rm", "workspace/b") }, view.UndoneRemoval},
			{"revision", func() { u.revise() }, view.UndoneRevision},
		} {
			if own != "" && other.name == "revision" {
				continue // where both wrote one file, it is undone whole
			}
			u.put("b")
			before := u.picture()
			do := ":"
			if own != "" {
				do = "echo " + u.text() + " >> " + own
			}
			end := u.command(do)
			other.do()
			during := u.picture()
			if own == "" {
				if did := u.undo(); did.Undone.What != other.what || u.picture() != before {
					t.Errorf("%s: while a command only waits, undo undid %+v, and there is\n%s\nwant\n%s", other.name, did.Undone, u.picture(), before)
				}
				u.undo()
			}
			end()
			after, want := u.picture(), during
			if own == "" {
				want = before
			}
			did := u.undo()
			if (did.Undone.What == view.UndoneCommand) != (own != "") || u.picture() != want {
				t.Errorf("%s during %q: undo undid %+v, and there is\n%s\nwant\n%s", other.name, own, did.Undone, u.picture(), want)
			}
			if u.undo(); u.picture() != after {
				t.Errorf("%s during %q: after undoing that there is\n%s\nwant\n%s", other.name, own, u.picture(), after)
			}
		}
	}
}

// TestUndoUndoesWhateverWasLast does things in a random order, and undoes some: each undo takes back
// exactly what changed something last, as its dry run says.
func TestUndoUndoesWhateverWasLast(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	acts := []struct {
		name string
		do   func()
	}{
		{"a prompt", func() { u.prompt(`write "` + u.text() + `" to workspace/p.txt`) }},
		{"a prompt that edits a document", func() { u.prompt(`write "` + u.text() + `" to ` + u.doc.Path) }},
		{"a prompt without a task", func() { u.prompt("what is this?") }},
		{"a command that reads", func() { u.in.Must(t, "exec", "--", "ls", "workspace") }},
		{"a command that writes", func() { u.in.Must(t, "exec", "--", "sh", "-c", "echo "+u.text()+" > workspace/c; rm -f workspace/b") }},
		{"a command that edits a document", func() { u.in.Must(t, "exec", "--", "sh", "-c", "echo "+u.text()+" >> "+u.doc.Path) }},
		{"a put", func() { u.put("a") }},
		{"another put", func() { u.put("b") }},
		{"a removal", func() { _, _ = u.in.Run(t.Context(), "files", "rm", "workspace/a") }}, // there may be none
		{"a revision", func() { u.revise() }},
		{"a checkpoint", func() { u.in.Must(t, "checkpoint") }},
	}
	u.put("a")
	before, after := "", u.picture()
	did := []string{"a put"}
	for range 30 {
		act := acts[random.IntN(len(acts))]
		did = append(did, act.name)
		act.do()
		if now := u.picture(); now != after {
			before, after = after, now
		}
		for before != "" && random.IntN(3) == 0 {
			undone := u.undo()
			did = append(did, fmt.Sprintf("an undo of %+v", *undone.Undone))
			if now := u.picture(); now != before {
				t.Fatalf("seed %d: there is\n%s\nwant\n%s\nbefore it\n%s\nafter %s", seed, now, before, after, strings.Join(did, "\n"))
			}
			before, after = after, before
		}
	}
}

// undoing is an instance in which things are done and undone. Its document is a run's, which a
// person has edited since.
type undoing struct {
	t   *testing.T
	in  *choirtest.Instance
	doc view.Document
	n   int
}

func newUndoing(t *testing.T) *undoing {
	t.Helper()
	u := &undoing{t: t, in: choirtest.Start(t, choirtest.Options{})}
	u.prompt("the first")
	made := eventsOf(t, u.in, "document.revised")
	if len(made) == 0 {
		t.Fatal("a run made no document")
	}
	u.doc.ID = made[0].Subject
	u.doc = u.now()
	u.revise()
	return u
}

// text returns another text each time.
func (u *undoing) text() string {
	u.n++
	return fmt.Sprint("text ", u.n)
}

func (u *undoing) prompt(text string) { ended(u.t, u.in, submit(u.t, u.in, text)) }

func (u *undoing) put(name string) {
	u.t.Helper()
	if r, err := u.in.RunInput(u.t.Context(), []byte(u.text()), "files", "put", "-", "workspace/"+name); err != nil || r.Code != 0 {
		u.t.Fatalf("put: %v %+v", err, r)
	}
}

func (u *undoing) now() view.Document {
	u.t.Helper()
	var now view.Document
	u.in.JSON(u.t, &now, "documents", "show", u.doc.ID)
	return now
}

func (u *undoing) revise() {
	u.t.Helper()
	now := u.now()
	r, err := u.in.RunInput(u.t.Context(), []byte(u.text()+"\n\n"+now.Body), "documents", "write", u.doc.ID, "-", "--base", fmt.Sprint(now.Revision))
	if err != nil || r.Code != 0 {
		u.t.Fatalf("documents write: %v %+v", err, r)
	}
}

// undo undoes the last thing, which must be what a dry run said, and changes what that said.
func (u *undoing) undo() view.Restored {
	u.t.Helper()
	var dry, did view.Restored
	u.in.JSON(u.t, &dry, "undo", "--dry-run")
	u.in.JSON(u.t, &did, "undo")
	if dry.Undone == nil || did.Undone == nil || *dry.Undone != *did.Undone || paths(dry.Changes) != paths(did.Changes) || len(did.Changes) == 0 {
		u.t.Fatalf("the dry run says that it undoes %+v (%q), the undo %+v (%q)", dry.Undone, paths(dry.Changes), did.Undone, paths(did.Changes))
	}
	return did
}

// picture is what people see: their files, and the document.
func (u *undoing) picture() string {
	u.t.Helper()
	dir := filepath.Join(workspaceDir(u.t, u.in), "workspace")
	var out []string
	files, err := os.ReadDir(dir)
	if err != nil {
		u.t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			u.t.Fatal(err)
		}
		out = append(out, f.Name()+": "+string(b))
	}
	for line := range strings.Lines(u.now().Body) {
		if strings.HasPrefix(line, "text ") { // what the tests wrote
			out = append(out, "document: "+line)
		}
	}
	return strings.Join(out, "\n")
}

// command starts a command that waits, and returns what has it do something, end, and be reported.
func (u *undoing) command(do string) (end func()) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, choirtest.Binary(u.t), "exec", "--", "sh", "-c", "echo begun; read -r line; "+do)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CHOIR_URL=" + u.in.URL, "CHOIR_TOKEN=" + u.in.Token}
	said, said2 := &heard{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said2
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		u.t.Fatal(err)
	}
	said.await(u.t, "begun")
	return func() {
		u.t.Helper()
		defer cancel()
		if _, err := io.WriteString(stdin, "on\n"); err != nil {
			u.t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			u.t.Fatalf("%v %s", err, said2)
		}
	}
}
