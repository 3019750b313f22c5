package shell

import "testing"

func TestSourceFaultsAreToldWithFileAndLine(t *testing.T) {
	for out, want := range map[string]string{
		"failed to load config from /computer/choiros/vite.config.ts\n\x1b[31merror when starting dev server:\nError: no dev server today\x1b[39m\n    at /computer/choiros/vite.config.ts:1:7\n    at x (file:///computer/choiros/node_modules/vite/dist/node.js:13:3)\n": "vite.config.ts, line 1: no dev server today",
		"error when starting dev server:\nTypeError: Cannot read properties of undefined\n    at file:///computer/choiros/node_modules/vite/dist/x.js:1:1\n":                                                                                                               "Cannot read properties of undefined",
		"something else\n": "something else",
	} {
		if got := sourceFault(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

func TestAFailedRestartIsTold(t *testing.T) {
	out := "restarting server...\nfailed to load config from /computer/choiros/vite.config.ts\n2:08:18 AM \x1b[31m[vite]\x1b[39m no dev server today\n2:08:18 AM [vite] server restart failed\n"
	if got := restartFault(out); got != "vite.config.ts: no dev server today" {
		t.Errorf("%q", got)
	}
}
