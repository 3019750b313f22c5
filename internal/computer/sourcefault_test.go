package computer

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

func TestFilesTheDevServerStartsFrom(t *testing.T) {
	d := openShell(t)
	put := func(name, text string) {
		t.Helper()
		d.putFile("choiros/"+name, text)
	}
	put("index.html", `<div id="root"></div><script src="/src/main.tsx"></script>`)
	put("src/main.tsx", "")
	for _, c := range []struct{ name, text, want string }{
		{"package.json", "{}", ""},
		{"package.json", "{\n  \"name\": \"x\",\n  oops\n}", "package.json, line 3: invalid character 'o' looking for beginning of object key string"},
		{"package.json", "[]", "package.json is a list, where an object has to be"},
		{"package.json", `{"dependencies": []}`, "package.json: dependencies is a list, where an object of names and texts has to be"},
		{"package.json", `{"scripts": {"dev": 1}}`, `package.json: "dev" in scripts is a number, where a text has to be`},
		{"package.json", `{"scripts": {"dev": "exit 1"}}`, ""}, // nobody runs it
		{"package.json", "{}", ""},
		{"index.html", "<p>", `index.html has no element with id="root", which the desktop is put into`},
		{"index.html", `<div id="root">`, "index.html does not load /src/main.tsx"},
	} {
		put(c.name, c.text)
		if got := d.brokenSource(t.Context()); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.name, c.text, got, c.want)
		}
	}
}
