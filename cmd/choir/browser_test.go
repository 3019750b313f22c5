package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// TestTheBrowsersArgumentHoldsNoToken: every program of the machine can read the browser's
// arguments, so the token must not be in them.
func TestTheBrowsersArgumentHoldsNoToken(t *testing.T) {
	bin, data := t.TempDir(), t.TempDir()
	seen := filepath.Join(bin, "seen")
	script := "#!/bin/sh\ntr '\\0' '\\n' < /proc/$$/cmdline > " + seen + ".new; cat \"$1\" >> " + seen + ".page; mv " + seen + ".new " + seen + "\n"
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":99")
	const link = "http://console.choir.localhost:7700/claim#a-secret-token"
	done := openBrowser(data, link, slog.New(slog.DiscardHandler))
	choirtest.Eventually(t, 20*time.Second, "the browser is opened", func() bool { _, err := os.Stat(seen); return err == nil })
	argv, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(seen + ".page")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(argv), "a-secret-token") {
		t.Errorf("the token is an argument: %s", argv)
	}
	if !strings.Contains(string(page), link) {
		t.Errorf("the page does not lead to the link: %s", page)
	}
	if info, err := os.Stat(filepath.Join(data, openFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	done()
	if _, err := os.Stat(filepath.Join(data, openFile)); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
}
