package engine_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// smallArchive holds one file.
func smallArchive(name, content string) (io.Reader, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := w.Write([]byte(content)); err != nil {
		return nil, err
	}
	return &b, w.Close()
}

// killedMove is an operation that is killed at a point, or not killed if that is empty, with the
// state that must follow.
type killedMove struct {
	do, from, to, point string
	meanwhile           func(c *computer) // what somebody does before the next start
	live                map[string]string // files of the tree by path
	told                string            // the kind of the operation that is reported, empty for none
}

// TestKilledWhileAFileMoves kills a move, a return from the trash and an import at every point, and
// lets somebody edit before the next start. An operation that took effect must be reported, with
// the same id each time, until the host has it, and one that did not must not be.
func TestKilledWhileAFileMoves(t *testing.T) {
	type files = map[string]string
	for _, test := range []killedMove{
		// Its entry is in the journal, so a start does it.
		{"move", "a", "d/b", "trash.intended", nil, files{"d/b": "first\n"}, "move"},
		{"move", "a", "d/b", "deed.done", nil, files{"d/b": "first\n"}, "move"},
		{"move", "a", "d/b", "", nil, files{"d/b": "first\n"}, "move"},
		{"move", "folder", "d/b", "trash.intended", nil, files{"d/b/x": "x\n"}, "move"},
		{"move", "folder", "d/b", "deed.done", nil, files{"d/b/x": "x\n"}, "move"},
		// The file was saved as editors do, under the new name, so that another file has that name
		// now.
		{"move", "a", "d/b", "deed.done", func(c *computer) { c.save("d/b", "saved\n") }, files{"d/b": "saved\n"}, "move"},
		// Somebody made a new file where the old one was.
		{"move", "a", "d/b", "deed.done", func(c *computer) { c.write("a", "other\n") }, files{"a": "other\n", "d/b": "first\n"}, "move"},
		// Nothing was moved, and somebody made a file where it was to go.
		{"move", "a", "d/b", "trash.intended", func(c *computer) { c.write("d/b", "other\n") }, files{"a": "first\n", "d/b": "other\n"}, ""},
		{"move", "a", "d/b", "trash.intended", func(c *computer) { c.save("a", "saved\n"); c.write("d/b", "other\n") }, files{"a": "saved\n", "d/b": "other\n"}, ""},
		// Nothing was moved, and the file got a second name there.
		{"move", "a", "b", "trash.intended", func(c *computer) { c.link("a", "b") }, files{"a": "first\n", "b": "first\n"}, ""},
		{"untrash", "gone", "gone", "deed.meant", nil, files{}, ""},
		{"untrash", "gone", "gone", "deed.done", nil, files{"gone": "removed\n"}, "untrash"},
		{"untrash", "gone", "gone", "", nil, files{"gone": "removed\n"}, "untrash"},
		{"untrash", "gone", "gone", "deed.done", func(c *computer) { c.save("gone", "saved\n") }, files{"gone": "saved\n"}, "untrash"},
		{"import", "", "workspace/new", "deed.meant", nil, files{}, ""},
		{"import", "", "workspace/new", "deed.done", nil, files{"workspace/new/file": "imported\n"}, "import"},
		{"import", "", "workspace/new", "", nil, files{"workspace/new/file": "imported\n"}, "import"},
	} {
		name := test.do + " " + test.from + " " + test.point
		if test.meanwhile != nil {
			name += " and somebody edits"
		}
		t.Run(name, test.run)
	}
}

// run carries out the operation and checks the state that follows.
func (test killedMove) run(t *testing.T) {
	c := open(t)
	switch test.from {
	case "a":
		c.write("a", "first\n")
	case "folder":
		c.write("folder/x", "x\n")
	}
	c.write("gone", "removed\n")
	removed, err := c.Remove(t.Context(), wire.RemoveRequest{Path: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.OperationsLogged(t.Context(), []string{removed.ID}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c.Engine = nil
	spec := childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: test.point, Nth: 1, Do: test.do, Base: test.from, To: test.to}
	if test.do == "untrash" {
		spec.Base = removed.ID
	}
	if killed := runChild(t, spec); killed != (test.point != "") {
		t.Fatalf("killed: %v", killed)
	}
	if test.meanwhile != nil {
		test.meanwhile(c)
	}
	c.reopen()
	for _, p := range []string{"a", "b", "d/b", "d/b/x", "folder/x", "gone", "workspace/new/file"} {
		b, err := os.ReadFile(c.path(p))
		if got, want := string(b), test.live[p]; got != want || (err == nil) != (want != "") {
			t.Errorf("%s holds %q, %v; want %q", p, got, err, want)
		}
	}
	if left, err := filepath.Glob(c.path(".git/choir/tmp-import-*")); err != nil || len(left) > 0 {
		t.Errorf("an import left %v, %v", left, err)
	}
	test.isTold(t, c)
}

// isTold checks that the operation is reported, as the same one, until the host has it.
func (test killedMove) isTold(t *testing.T, c *computer) {
	t.Helper()
	var id string
	for range 2 { // it is reported again, as the same one, until the host has it
		operations, err := c.UnloggedOperations(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if test.told == "" {
			if len(operations) > 0 {
				t.Errorf("told: %+v", operations)
			}
			return
		}
		if len(operations) != 1 || operations[0].Op != test.told || string(operations[0].Path) != test.to || operations[0].User != "somebody" || operations[0].At == 0 {
			t.Fatalf("told: %+v", operations)
		}
		d := operations[0]
		if id != "" && d.ID != id {
			t.Errorf("told as %s and as %s", id, d.ID)
		}
		id = d.ID
		if im := d.Import; test.do == "import" && (im == nil || im.Files != 1 || im.Bytes != 9 || im.Origin != "/home/me/it" || im.Remote != "https://example.org/it") {
			t.Errorf("the import is told as %+v", im)
		}
		if test.do == "move" && string(d.From) != test.from {
			t.Errorf("moved from %q", d.From)
		}
		c.reopen()
	}
	if err := c.OperationsLogged(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	if operations, err := c.UnloggedOperations(t.Context()); err != nil || len(operations) > 0 {
		t.Errorf("told again: %+v, %v", operations, err)
	}
}

// TestAnOperationThatFailsIsNotTold shows that an operation that could not be carried out leaves no
// record.
func TestAnOperationThatFailsIsNotTold(t *testing.T) {
	c := open(t)
	c.write("a", "a\n")
	c.write("b", "b\n")
	removed, err := c.Remove(t.Context(), wire.RemoveRequest{Path: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.OperationsLogged(t.Context(), []string{removed.ID}); err != nil {
		t.Fatal(err)
	}
	c.write("b", "another\n")
	if _, err := c.Move(t.Context(), wire.MoveRequest{From: "a", To: "b"}); err == nil {
		t.Error("moved over a file")
	}
	if _, err := c.Move(t.Context(), wire.MoveRequest{From: "folder/none", To: "c"}); err == nil {
		t.Error("moved what is not there")
	}
	if _, err := c.Untrash(t.Context(), wire.UntrashRequest{ID: removed.ID}); err == nil {
		t.Error("came back over a file")
	}
	archive, err := smallArchive("file", "imported\n")
	if err != nil {
		t.Fatal(err)
	}
	c.write("workspace/there/x", "x\n")
	if _, err := c.Import(t.Context(), wire.ImportRequest{Path: "workspace/there"}, archive); err == nil {
		t.Error("imported over a folder")
	}
	c.write(".git/choir/deeds/20260101T000000-000000000-0011223344556677.json", `{"id":"another"}`)
	c.write(".git/choir/deeds/20260101T000000-000000000-0011223344556688.json", strings.Repeat("\x00", 40))
	c.reopen()
	if operations, err := c.UnloggedOperations(t.Context()); err != nil || len(operations) > 0 {
		t.Errorf("told: %+v, %v", operations, err)
	}
	if got := trashed(t, c)["b"]; got != "b\n" {
		t.Errorf("the trash holds %q", got)
	}
}

// TestAnArchiveWhoseSenderFailedIsNotTaken shows that an archive is refused when the stream breaks
// after it, because an archive can be complete in form although its sender met an error.
func TestAnArchiveWhoseSenderFailedIsNotTaken(t *testing.T) {
	c := open(t)
	for name, tail := range map[string]io.Reader{
		"broken":  iotest.ErrReader(io.ErrUnexpectedEOF),
		"endless": zeroes{},
	} {
		archive, err := smallArchive("file", "imported\n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Import(t.Context(), wire.ImportRequest{Path: "workspace/" + wire.Path(name)}, io.MultiReader(archive, tail)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(c.path("workspace/" + name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: it is there: %v", name, err)
		}
	}
	archive, err := smallArchive("file", "imported\n")
	if err != nil {
		t.Fatal(err)
	}
	padded := io.MultiReader(archive, io.LimitReader(zeroes{}, 20*512))
	if _, err := c.Import(t.Context(), wire.ImportRequest{Path: "workspace/padded"}, padded); err != nil {
		t.Errorf("an archive whose last record is filled up: %v", err)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// save replaces a file as editors do: another file takes its name.
func (c *computer) save(p, content string) {
	c.write(p+"~", content)
	if err := os.Rename(c.path(p+"~"), c.path(p)); err != nil {
		c.t.Fatal(err)
	}
}

// link gives a file a second name.
func (c *computer) link(p, q string) {
	if err := os.Link(c.path(p), c.path(q)); err != nil {
		c.t.Fatal(err)
	}
}
