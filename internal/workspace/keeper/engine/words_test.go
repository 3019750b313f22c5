package engine_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestARefusalNamesTheWholePath shows that a refusal names the whole path in plain words, as
// whoever asked named it, while the operating system names only a path's last part or the first
// part that is missing.
func TestARefusalNamesTheWholePath(t *testing.T) {
	c := open(t)
	c.write("workspace/a/file", "x\n")
	ctx := t.Context()
	const gone = "workspace/a/" + "a name that is longer than sixty characters, so that nothing of it is cut off" + "/gone.txt"
	move := func(from, to string) error {
		_, err := c.Move(ctx, wire.MoveRequest{From: wire.Path(from), To: wire.Path(to)})
		return err
	}
	for name, test := range map[string]struct {
		do    func() error
		code  fault.Code
		words string
	}{
		"stat":   {func() error { _, err := c.Stat(ctx, gone); return err }, fault.NotFound, `there is no file or folder "` + gone + `"`},
		"read":   {func() error { _, _, err := c.Read(ctx, gone); return err }, fault.NotFound, `there is no file or folder "` + gone + `"`},
		"list":   {func() error { _, _, err := c.Files(ctx, wire.FilesRequest{Path: gone}); return err }, fault.NotFound, `there is no file or folder "` + gone + `"`},
		"remove": {func() error { _, err := c.Remove(ctx, wire.RemoveRequest{Path: gone}); return err }, fault.NotFound, `there is no file or folder "` + gone + `"`},
		"move":   {func() error { return move(gone, "workspace/b") }, fault.NotFound, `there is no file or folder "` + gone + `"`},
		"onto":   {func() error { return move("workspace/a/file", "workspace/a") }, fault.Conflict, `there is something at "workspace/a" already`},
		"into":   {func() error { return move("workspace/a", "workspace/a/file/b") }, fault.Conflict, `a part of "workspace/a/file/b" is no folder`},
	} {
		err := test.do()
		if !fault.Is(err, test.code) || fault.Text(err) != test.words || fault.HintOf(err) == "" || strings.Contains(fault.Text(err), "lstat") {
			t.Errorf("%s: %s %q; want %s %q, and what to do", name, fault.CodeOf(err), fault.Text(err), test.code, test.words)
		}
	}
}
