package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestADevServerThatHangsIsToldAndReplaced shows that if something prevents the dev server from
// answering, while it runs, as it starts or as it is restarted, the status names the file that was
// changed last, and that the live desktop comes back by itself once that file is mended. The same
// holds if a source is not a regular file.
func TestADevServerThatHangsIsToldAndReplaced(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{Env: []string{"CHOIR_RUNTIME_SILENCE_S=3"}})
	lookAt(t, in)
	c, err := client.New(in.URL, in.Token, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var status view.DesktopStatus
	look := func() view.DesktopStatus {
		t.Helper()
		frame, err := c.Frame(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		status = frame.Desktop
		return status
	}
	until := func(what string, ok func(s view.DesktopStatus) bool) {
		t.Helper()
		began := time.Now()
		defer func() {
			t.Logf("%s: %s; %+v", what, time.Since(began).Round(100*time.Millisecond), status)
		}()
		choirtest.Eventually(t, 90*time.Second, what, func() bool { return ok(look()) })
	}
	live := func(s view.DesktopStatus) bool { return s.Mode == view.ModeLive && s.Reason == "" && !s.Broken }
	said := func(words ...string) func(view.DesktopStatus) bool {
		return func(s view.DesktopStatus) bool {
			for _, w := range words {
				if !strings.Contains(s.Reason, w) {
					return false
				}
			}
			return true
		}
	}
	file := filepath.Join(t.TempDir(), "text")
	read := func(name string) string { return in.Must(t, "files", "cat", "choiros/"+name) }
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		in.Must(t, "files", "put", file, "choiros/"+name)
	}
	const hangs = "The dev server hangs: it runs and gives no answer."
	config := read("vite.config.ts")

	put("vite.config.ts", "for (;;) {}\n"+config)
	until("a loop is told", func(s view.DesktopStatus) bool {
		return said(hangs, "vite.config.ts was changed last before that")(s) && s.Mode != view.ModeLive
	})
	// The next one hangs as it starts; the reason stays in the status.
	until("it is tried again, with words", func(s view.DesktopStatus) bool { return s.Mode == view.ModeStarting && said(hangs)(s) })
	until("it hangs as it starts", func(s view.DesktopStatus) bool {
		return s.Mode == view.ModeBuild && said(hangs, "vite.config.ts was changed last before that")(s)
	})
	if got := read("vite.config.ts"); !strings.HasPrefix(got, "for (;;) {}\n") {
		t.Errorf("somebody's own edit was taken back: %.60q", got)
	}
	put("vite.config.ts", "await new Promise(() => {})\n"+config)
	until("a dev server that ends without a word is told", said("The dev server ended by itself, with code 0 and without a word. vite.config.ts was changed last before that"))
	put("vite.config.ts", config)
	until("it is live again", live)

	was := status.Since
	put("vite.config.ts", "await new Promise(() => {})\n"+config)
	until("a wait without an end is told", said("The dev server hangs as it starts anew", "vite.config.ts was changed last before that"))
	put("vite.config.ts", config)
	until("another dev server is live", func(s view.DesktopStatus) bool { return live(s) && !s.Since.Equal(was) })

	manifest := read("package.json")
	put("package.json", "[]\n")
	until("a list for a manifest is told", said("package.json is a list, where an object has to be"))
	put("package.json", strings.Replace(manifest, `"dependencies": {`, `"dependencies": [], "peerDependencies": {`, 1))
	until("a list of dependencies is told", said("package.json: dependencies is a list, where an object of names and texts has to be"))
	put("package.json", manifest)
	until("it is live again", live)

	page := read("index.html")
	in.Must(t, "files", "rm", "choiros/index.html")
	put("index.html/a", "a")
	until("a folder for a page is told", said("index.html is a folder, where a file has to be"))
	in.Must(t, "files", "rm", "-r", "choiros/index.html")
	put("index.html", page)
	until("it is live again", live)

	// No file is blamed when the programs themselves were stopped.
	was = status.Since
	stopped := running(t, in.PID, "vite.js")
	if len(stopped) == 0 {
		t.Fatal("there is no dev server")
	}
	for _, p := range stopped {
		if strings.Contains(p.cmdline, "--strictPort") {
			if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
	}
	until("a dev server that was stopped is told, without a file", func(s view.DesktopStatus) bool {
		return s.Mode != view.ModeLive && said("the desktop's box stands still")(s) && !strings.Contains(s.Reason, "changed last")
	})
	until("another dev server is live", func(s view.DesktopStatus) bool { return live(s) && !s.Since.Equal(was) })
}
