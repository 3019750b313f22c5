package main

import (
	"fmt"
	"html"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/defence"
)

// openFile is the page that leads the browser to the link, readable by its owner only.
const openFile = "open.html"

// openBrowser tries to open the link with the desktop's own program. The link was printed
// as well, so it does not matter when there is no such program. The link is a credential,
// and every program of the machine can read another's arguments, so the browser is given a
// file that leads to the link. The returned function removes the file and waits for the
// program.
func openBrowser(data, link string, logger *slog.Logger) (done func()) {
	done = func() {}
	if !hasDisplay() {
		return done
	}
	opener, err := exec.LookPath("xdg-open")
	if err != nil {
		return done
	}
	target := filepath.Join(data, openFile)
	page := fmt.Sprintf("<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n"+
		"<meta http-equiv=\"refresh\" content=\"0;url=%[1]s\">\n<title>ChoirOS</title>\n<p><a href=\"%[1]s\">Open ChoirOS</a></p>\n", html.EscapeString(link))
	if defence.Off(defence.ClaimArgv) {
		target = link
	} else if err := datadir.WriteFile(target, []byte(page), 0o600); err != nil {
		logger.Warn("no browser was opened; use the link above", "error", err)
		return done
	}
	cmd := exec.Command(opener, target)
	ended := make(chan struct{})
	if err := cmd.Start(); err != nil {
		close(ended)
	} else {
		go func() {
			defer close(ended)
			_ = cmd.Wait() // whether it worked is for the user to see
		}()
	}
	return func() {
		if err := os.Remove(filepath.Join(data, openFile)); err != nil && !os.IsNotExist(err) {
			logger.Warn("the file with the used link is left behind", "error", err)
		}
		if cmd.Process != nil {
			_ = cmd.Process.Kill() // it only hands the file to the browser, which is a process of its own
		}
		<-ended
	}
}

// hasDisplay says whether a browser could show a window.
func hasDisplay() bool { return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" }
