package computer

import "testing"

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
		{"package.json", `{"scripts": {"dev": "exit 1"}}`, ""}, // nobody runs this script
		{"package.json", "{}", ""},
		{"index.html", "<p>", `index.html has no element with id="root", which the desktop is put into`},
		{"index.html", `<div id="root">`, "index.html does not load /src/main.tsx"},
	} {
		put(c.name, c.text)
		if got := d.shell.BrokenSource(t.Context()); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.name, c.text, got, c.want)
		}
	}
}
