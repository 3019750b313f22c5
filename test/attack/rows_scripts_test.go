package attack_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"choir.dev/choiros/internal/defence"
)

// script is a defence in a file that the console serves to browsers: to switch it off, the text
// with is replaced by the text without.
type script struct{ file, with, without string }

var scripts = map[defence.Name]script{
	// Without it the console still detects this, and reports it to the suite only.
	defence.StageWatch: {"assets/stage.js", "if (ping.n - ping.answered > missable) this.told.ailing('hung', '')",
		"if (ping.n - ping.answered > missable) window.unanswered = true"},
}

// scriptRows are attacks that the console's scripts stop.
var scriptRows = []Row{
	withBrowser(48, "a desktop's page never ends what it does, and nothing leads out of it", hung, defence.StageWatch),
	withBrowser(48, "a desktop's page never ends what it does, and takes the console's page with it", hangsAll, defence.ControlAgents),
}

// serve replaces a text, which must be there, in what the console serves.
func (v *visitor) serve(t *testing.T, s script) {
	t.Helper()
	b, err := fs.ReadFile(v.files.FS, s.file)
	if err != nil {
		t.Fatal(err)
	}
	v.files.FS = replaced{v.files.FS, fstest.MapFS{s.file: {Data: []byte(s.in(t, string(b)))}}}
}

// scripted serves the console without those defences of its scripts that are off.
func (v *visitor) scripted(t *testing.T) {
	t.Helper()
	for name, s := range scripts {
		if defence.Off(name) {
			v.serve(t, s)
		}
	}
}

// hung shows a desktop whose page paints and then loops.
func hung(t *testing.T, v *visitor) Verdict {
	v.loops(t)
	if err := v.Until(v.ctx, "!!window.unanswered || !document.getElementById('down').hidden"); err != nil {
		t.Fatal(err)
	}
	got := v.eval(t, "document.getElementById('down').hidden ? 'nothing' : document.getElementById('down').innerText")
	if got != "nothing" && (!strings.Contains(got, "does not answer") || !strings.Contains(got, "Start it afresh")) {
		t.Fatalf("the console says %q", got)
	}
	return Verdict{got == "nothing", "the console says " + got}
}

// loops shows a desktop whose page paints and then never finishes a script.
func (v *visitor) loops(t *testing.T) {
	t.Helper()
	v.scripted(t)
	v.serve(t, script{"assets/stage.js", "const pingEvery = 2000", "const pingEvery = 400"})
	v.desktopIs(`parent.postMessage({type: 'choir.painted', mode: 'live'}, '*'); setTimeout(() => { for (;;) document.title = String(Math.random()) }, 200)`, nil)
	v.open(t, v.console+"/")
}

// hangsAll shows whether the console's page still runs while a desktop's loops, by whether it
// reports anything. A page in the same process never would.
func hangsAll(t *testing.T, v *visitor) Verdict {
	v.loops(t)
	ctx, cancel := context.WithTimeout(v.ctx, 20*time.Second)
	defer cancel()
	err := v.Until(ctx, "!document.getElementById('down').hidden")
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return Verdict{err != nil, fmt.Sprintf("the console's page says that the desktop's hangs: %v", err)}
}
