package lockfile_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lockfile"
)

func reader(files map[string]string) lockfile.Reader {
	return func(p string, max int) ([]byte, error) {
		b, ok := files[p]
		if !ok {
			return nil, fault.New("read", fault.NotFound, "", errors.New(p+" is not there"))
		}
		return []byte(b[:min(len(b), max)]), nil
	}
}

const hash = `"integrity":"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="`

// npmLock is a lock file with one entry besides the project's own.
func npmLock(key, entry string) map[string]string {
	return map[string]string{"p/package.json": "{}", "p/package-lock.json": `{"lockfileVersion":3,"packages":{"":{},"` + key + `":` + entry + `}}`}
}

func TestLocksThatAreNotInstalledFrom(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		tool  lockfile.Tool
		files map[string]string
		says  string // a part of the error; "" means that it is accepted
	}{
		"a package of a registry":     {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"https://registry.example/a.tgz",`+hash+`}`), ""},
		"without an address":          {lockfile.NPM, npmLock("node_modules/a", `{`+hash+`}`), ""},
		"bundled":                     {lockfile.NPM, npmLock("node_modules/a/node_modules/b", `{"inBundle":true}`), ""},
		"a folder of the workspace":   {lockfile.NPM, npmLock("node_modules/a", `{"link":true,"resolved":"lib/a"}`), ""},
		"a folder beside the project": {lockfile.NPM, npmLock("node_modules/a", `{"link":true,"resolved":"../a"}`), ""},
		"a folder outside":            {lockfile.NPM, npmLock("node_modules/a", `{"link":true,"resolved":"../../a"}`), "not in the workspace"},
		"a folder of the machine":     {lockfile.NPM, npmLock("node_modules/a", `{"link":true,"resolved":"/etc"}`), "not in the workspace"},
		"a link to nothing":           {lockfile.NPM, npmLock("node_modules/a", `{"link":true}`), "not in the workspace"},
		"a key outside":               {lockfile.NPM, npmLock("../../node_modules/a", `{`+hash+`}`), "not in the workspace"},
		"a key that climbs":           {lockfile.NPM, npmLock("node_modules/../../../a", `{`+hash+`}`), "names"},
		"no hash":                     {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"https://registry.example/a.tgz"}`), "no hash of node_modules/a"},
		"no hash, spelt for others":   {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"https://registry.example/a.tgz","Integrity":"sha512-AA=="}`), "no hash"},
		"git":                         {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"git+ssh://git@git.example/a.git#1",`+hash+`}`), "only packages of a registry"},
		"git, spelt for others":       {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"git+ssh://git@git.example/a.git","RESOLVED":"https://registry.example/a.tgz",`+hash+`}`), "only packages of a registry"},
		"git for a version":           {lockfile.NPM, npmLock("node_modules/a", `{"version":"git+https://git.example/a.git#main",`+hash+`}`), "only packages of a registry"},
		"an address for a version":    {lockfile.NPM, npmLock("node_modules/a/node_modules/b", `{"version":"https://a.example/a.tgz","inBundle":true}`), "only packages of a registry"},
		"a host of git's":             {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"https://github.com/a/b",`+hash+`}`), "only packages of a registry"},
		"a host of git's, as a file":  {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"https://www.GitLab.com/a/b/c.tgz",`+hash+`}`), "only packages of a registry"},
		"a host of git's, an archive": {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"https://github.com/a/b/archive/refs/tags/v1.tar.gz",`+hash+`}`), ""},
		"an underlined address":       {lockfile.NPM, npmLock("node_modules/a", `{"_resolved":"git+https://git.example/a.git",`+hash+`}`), "which npm writes in no lock"},
		"bundled, from elsewhere":     {lockfile.NPM, npmLock("node_modules/a/node_modules/b", `{"inBundle":true,"resolved":"git+https://git.example/a.git"}`), "only packages of a registry"},
		"bundled in nothing":          {lockfile.NPM, npmLock("node_modules/a", `{"inBundle":true,"version":"1.0.0"}`), "no hash of node_modules/a"},
		"versions":                    {lockfile.NPM, npmLock("node_modules/a", `{"version":"1.2.3-rc.1+b.7",`+hash+`}`), ""},
		"a file":                      {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"file:../a.tgz",`+hash+`}`), "only packages of a registry"},
		"plain http":                  {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"http://registry.example/a.tgz",`+hash+`}`), "only packages of a registry"},
		"with credentials":            {lockfile.NPM, npmLock("node_modules/a", `{"resolved":"https://me:secret@registry.example/a.tgz",`+hash+`}`), "only packages of a registry"},
		"an address that is none":     {lockfile.NPM, npmLock("node_modules/a", `{"resolved":7,`+hash+`}`), "only packages of a registry"},
		"an old lock":                 {lockfile.NPM, map[string]string{"p/package.json": "{}", "p/package-lock.json": `{"lockfileVersion":1,"dependencies":{}}`}, "not of version 2 or 3"},
		"no JSON":                     {lockfile.NPM, map[string]string{"p/package.json": "{}", "p/package-lock.json": `{`}, "no JSON"},
		"a manifest that is too long": {lockfile.NPM, map[string]string{"p/package.json": long + "x", "p/package-lock.json": `{"lockfileVersion":3,"packages":{}}`}, "larger than"},

		"modules":                {lockfile.Go, map[string]string{"p/go.mod": "module p\n\nrequire a.example/a v1.0.0\n", "p/go.sum": "a.example/a v1.0.0 h1:x\na.example/a v1.0.0/go.mod h1:x\n"}, ""},
		"a module of a folder":   {lockfile.Go, map[string]string{"p/go.mod": "module p\n\nreplace a.example/a => ../a\n", "a/go.mod": "module a\n", "p/go.sum": ""}, ""},
		"a module of outside":    {lockfile.Go, map[string]string{"p/go.mod": "module p\n\nreplace a.example/a => ../../a\n", "p/go.sum": ""}, "not in the workspace"},
		"a module of /":          {lockfile.Go, map[string]string{"p/go.mod": "module p\n\nreplace a.example/a => /etc\n", "p/go.sum": ""}, "not in the workspace"},
		"a manifest go can't do": {lockfile.Go, map[string]string{"p/go.mod": "modul p\n", "p/go.sum": ""}, "unknown directive"},

		"crates":             {lockfile.Cargo, map[string]string{"p/Cargo.toml": "[package]\nname='p'\n[dependencies]\nb={path='../b'}\n", "b/Cargo.toml": "[package]\nname='b'\n", "p/Cargo.lock": "[[package]]\nname='a'\nsource='registry+https://index.example/'\nchecksum='" + strings.Repeat("a", 64) + "'\n"}, ""},
		"a crate from git":   {lockfile.Cargo, map[string]string{"p/Cargo.toml": "", "p/Cargo.lock": "[[package]]\nname='a'\nsource='git+https://git.example/a#1'\n"}, "only crates of a registry"},
		"a crate, no hash":   {lockfile.Cargo, map[string]string{"p/Cargo.toml": "", "p/Cargo.lock": "[[package]]\nname='a'\nsource='registry+https://index.example/'\n"}, "no hash of a"},
		"crates by pattern":  {lockfile.Cargo, map[string]string{"p/Cargo.toml": "[workspace]\nmembers=['crates/*']\n", "p/Cargo.lock": ""}, "by a pattern"},
		"a crate of outside": {lockfile.Cargo, map[string]string{"p/Cargo.toml": "[dependencies]\nb={path='../../b'}\n", "p/Cargo.lock": ""}, "not in the workspace"},

		"pinned":                {lockfile.Pip, map[string]string{"p/requirements.txt": "a==1.0 \\\n    --hash=sha256:" + strings.Repeat("a", 64) + " \\\n    --hash=sha256:" + strings.Repeat("b", 64) + "\n    # via b\nb[x]==2 ; python_version > '3' --hash=sha256:" + strings.Repeat("a", 64) + "\n"}, ""},
		"one without a hash":    {lockfile.Pip, map[string]string{"p/requirements.txt": "a==1.0 --hash=sha256:" + strings.Repeat("a", 64) + "\nb==1\n"}, "no package of one version"},
		"another index":         {lockfile.Pip, map[string]string{"p/requirements.txt": "--index-url https://evil.example\na==1.0 --hash=sha256:" + strings.Repeat("a", 64) + "\n"}, "no package of one version"},
		"another index, inside": {lockfile.Pip, map[string]string{"p/requirements.txt": "a==1.0 ; x --index-url=https://evil.example --hash=sha256:" + strings.Repeat("a", 64) + "\n"}, "no package of one version"},
		"an address":            {lockfile.Pip, map[string]string{"p/requirements.txt": "a @ https://evil.example/a.whl --hash=sha256:" + strings.Repeat("a", 64) + "\n"}, "no package of one version"},
	} {
		if _, ok := c.files["p/lib/a/package.json"]; !ok && c.tool == lockfile.NPM {
			c.files["p/lib/a/package.json"] = "{}"
		}
		_, err := lockfile.Read(c.tool, "p", reader(c.files))
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !fault.Is(err, fault.Invalid)) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
	if _, err := lockfile.Read(lockfile.Pip, "p", reader(map[string]string{"p/requirements.txt": "a\nb==1\n"})); !fault.Is(err, fault.NotFound) {
		t.Errorf("requirements without hashes are no lock: %v", err)
	}
	for _, tool := range lockfile.Tools {
		if _, err := lockfile.Read(tool, ".", reader(nil)); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s without a lock: %v", tool, err)
		}
	}
}

// TestWhatAnInstallationSees shows that an installation gets the manifests and lock files without
// the parts that a project may not decide.
func TestWhatAnInstallationSees(t *testing.T) {
	files := map[string]string{
		"p/package.json": `{"workspaces":["lib/*"]}`, "p/lib/a/package.json": `{"name":"a"}`, "p/lib/a/index.js": "secret", "p/.env": "secret",
		"p/.npmrc": "registry=https://evil.example\nlegacy-peer-deps=true\nscript-shell=./evil\n//evil.example/:_authToken=${TOKEN}\nomit[]=${X}\n",
		"p/package-lock.json": `{"lockfileVersion":3,"packages":{"":{},"lib/a":{},"node_modules/a":{"link":true,"resolved":"lib/a"},
			"node_modules/b":{"resolved":"https://registry.example/b.tgz",` + hash + `,"hasInstallScript":true},"lib/a/node_modules/b":{` + hash + `}}}`,
	}
	l, err := lockfile.Read(lockfile.NPM, "p", reader(files))
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(l.Files)); !slices.Equal(got, []string{"p/.npmrc", "p/lib/a/package.json", "p/package-lock.json", "p/package.json"}) {
		t.Errorf("it sees %q", got)
	}
	if got := string(l.Files["p/.npmrc"]); got != "legacy-peer-deps=true\n" {
		t.Errorf("of .npmrc it sees %q", got)
	}
	if !slices.Equal(l.Folders, []string{"p", "p/lib/a"}) || l.Packages != 2 || l.Scripts != 1 {
		t.Errorf("%+v", l)
	}
	sum := l.Sum("npm 1")
	l.Files["p/package.json"] = []byte(`{}`)
	if l.Sum("npm 1") == sum || l.Sum("npm 2") == l.Sum("npm 1") {
		t.Error("what differs has one name")
	}
}
