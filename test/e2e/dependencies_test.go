package e2e_test

import (
	"archive/tar"
	ziplib "archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// registry serves npm packages and Go modules, and records the requests.
type registry struct {
	t     *testing.T
	port  string
	mu    sync.Mutex
	files map[string][]byte
	asked []string
}

// newRegistry serves over TLS, and returns the environment that configures choir, npm and go to use
// it.
func newRegistry(t *testing.T) (*registry, []string) {
	t.Helper()
	r := &registry{t: t, files: map[string][]byte{}}
	srv, ca := tlsServer(t, "127.0.0.1", r)
	_, r.port, _ = strings.Cut(srv.Listener.Addr().String(), ":")
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, ca, 0o644); err != nil {
		t.Fatal(err)
	}
	// Go uses no proxy for addresses that it recognises as this machine's, so it gets 0.0.0.0,
	// which leads there too.
	return r, []string{"CHOIR_EGRESS_ALLOW_PRIVATE=127.0.0.1:" + r.port + ",0.0.0.0:" + r.port, "CHOIR_EGRESS_CA_FILE=" + caFile,
		"npm_config_registry=https://127.0.0.1:" + r.port + "/", "PIP_INDEX_URL=https://127.0.0.1:" + r.port + "/simple/", "GOPROXY=https://0.0.0.0:" + r.port}
}

// ServeHTTP implements http.Handler. Requests below /stalled/ are never answered.
func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	b, ok := r.files[q.URL.Path]
	r.asked = append(r.asked, q.URL.Path)
	r.mu.Unlock()
	if strings.HasPrefix(q.URL.Path, "/stalled/") {
		<-q.Context().Done()
		return
	}
	if !ok {
		http.NotFound(w, q)
		return
	}
	_, _ = w.Write(b)
}

func (r *registry) wasAsked(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, a := range r.asked {
		if strings.Contains(a, path) {
			n++
		}
	}
	return n
}

// npm adds a package and returns its entry for a lock file.
func (r *registry) npm(name string, files map[string]string) object {
	r.t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + f, Mode: 0o644, Size: int64(len(files[f]))}); err != nil {
			r.t.Fatal(err)
		}
		_, _ = w.Write([]byte(files[f]))
	}
	if err := w.Close(); err != nil {
		r.t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		r.t.Fatal(err)
	}
	at := "/" + name + "/-/" + name + "-1.0.0.tgz"
	sum := sha512.Sum512(b.Bytes())
	r.mu.Lock()
	r.files[at] = b.Bytes()
	r.mu.Unlock()
	return object{"version": "1.0.0", "resolved": "https://127.0.0.1:" + r.port + at, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
}

// wheel adds a Python package of one module and returns its pinned line.
func (r *registry) wheel(name, source string) string {
	r.t.Helper()
	var b bytes.Buffer
	w := ziplib.NewWriter(&b)
	info := name + "-1.0.dist-info/"
	for _, f := range [][2]string{{name + ".py", source}, {info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}, {info + "RECORD", name + ".py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"}} {
		e, err := w.Create(f[0])
		if err == nil {
			_, err = e.Write([]byte(f[1]))
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		r.t.Fatal(err)
	}
	file := name + "-1.0-py3-none-any.whl"
	r.mu.Lock()
	r.files["/wheels/"+file] = b.Bytes()
	r.files["/simple/"+name+"/"] = []byte(`<!DOCTYPE html><html><body><a href="/wheels/` + file + `">` + file + `</a></body></html>`)
	r.mu.Unlock()
	return fmt.Sprintf("%s==1.0 \\\n    --hash=sha256:%x\n", name, sha256.Sum256(b.Bytes()))
}

// module adds a module and returns its lines for go.sum.
func (r *registry) module(path, version string, files map[string]string) string {
	r.t.Helper()
	dir := r.t.TempDir()
	write(r.t, dir, files)
	v := module.Version{Path: path, Version: version}
	var b bytes.Buffer
	if err := zip.CreateFromDir(&b, v, dir); err != nil {
		r.t.Fatal(err)
	}
	name := filepath.Join(r.t.TempDir(), "zip")
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		r.t.Fatal(err)
	}
	sum, err := dirhash.HashZip(name, dirhash.Hash1)
	if err != nil {
		r.t.Fatal(err)
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return readCloser{strings.NewReader(files["go.mod"])}, nil })
	if err != nil {
		r.t.Fatal(err)
	}
	at := "/" + path + "/@v/" + version
	r.mu.Lock()
	r.files[at+".zip"], r.files[at+".mod"], r.files[at+".info"] = b.Bytes(), []byte(files["go.mod"]), []byte(`{"Version":"`+version+`"}`)
	r.mu.Unlock()
	return fmt.Sprintf("%s %s %s\n%s %s/go.mod %s\n", path, version, sum, path, version, mod)
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// locked is a Node project with a lock file and without node_modules.
func locked(t *testing.T, packages map[string]any) map[string]string {
	t.Helper()
	deps := object{}
	all := object{}
	for name, e := range packages {
		deps[name], all["node_modules/"+name] = "1.0.0", e
	}
	top := object{"name": "sum", "private": true, "scripts": object{"test": "node test.js"}, "dependencies": deps}
	all[""] = object{"name": "sum", "dependencies": deps}
	files := maps.Clone(projects["node"])
	delete(files, "node_modules/same/index.js")
	files["package.json"] = text(t, top)
	files["package-lock.json"] = text(t, object{"name": "sum", "lockfileVersion": 3, "requires": true, "packages": all})
	return files
}

// TestWhatLockFilesNameIsInstalledForChecks shows that the dependencies in the base's lock files
// are installed in a box of their own, from where the machine's package managers are configured,
// for one computer, and that a check leaves nothing in them.
func TestWhatLockFilesNameIsInstalledForChecks(t *testing.T) {
	t.Parallel()
	r, env := newRegistry(t)
	same := r.npm("same", map[string]string{
		"package.json": `{"name":"same","version":"1.0.0","scripts":{"install":"node build.js"}}`,
		// What it builds during its installation shows whether it had network access.
		"build.js": "require('fs').writeFileSync('built.js', `module.exports = ${JSON.stringify(process.env.HTTPS_PROXY || 'no way out')}`)",
		"index.js": "if (require('./built.js') !== 'no way out') throw new Error('its script had a network');\nmodule.exports = (got, want) => { if (got !== want) throw new Error(`got ${got}, want ${want}`) }\n",
	})
	same["hasInstallScript"] = true
	plus := r.npm("plus", map[string]string{"package.json": `{"name":"plus","version":"1.0.0"}`, "index.js": "module.exports = (a, b) => a + b\n"})
	all := filepath.Join(t.TempDir(), "all")
	with := func(e object, key string, v any) object { e = maps.Clone(e); e[key] = v; return e }
	write(t, filepath.Join(all, "npm"), locked(t, map[string]any{"same": same}))
	write(t, filepath.Join(all, "asked"), locked(t, map[string]any{"same": same}))
	write(t, filepath.Join(all, "more"), locked(t, map[string]any{"same": same, "plus": plus}))
	write(t, filepath.Join(all, "git"), locked(t, map[string]any{"same": with(same, "resolved", "git+ssh://git@evil.example/same.git#1")}))
	write(t, filepath.Join(all, "elsewhere"), locked(t, map[string]any{"same": with(same, "resolved", "https://evil.example/same.tgz")}))
	write(t, filepath.Join(all, "forged"), locked(t, map[string]any{"same": with(same, "integrity", plus["integrity"])}))
	write(t, filepath.Join(all, "stalled"), locked(t, map[string]any{"same": with(same, "resolved", "https://127.0.0.1:"+r.port+"/stalled/same.tgz")}))
	python := maps.Clone(projects["python"])
	python["requirements.txt"] = r.wheel("five", "FIVE = 5\n")
	python["test_sum.py"] = strings.Replace(strings.Replace(python["test_sum.py"], "import unittest\n", "import unittest\n\nfrom five import FIVE\n", 1), "3), 5)", "3), FIVE)", 1)
	write(t, filepath.Join(all, "python"), python)

	fix := `sed -i 's/a - b/a + b/' sum.*`
	// This change replaces the package that compares, as far as it can.
	poison := `printf "require('fs').writeFileSync(require.resolve('same'), 'module.exports = () => {}')\nexports.add = (a, b) => a + b\n" > sum.js`
	relock := `cp ../more/package.json ../more/package-lock.json . && echo "exports.add = require('plus')" > sum.js`
	rows := []struct {
		mark, dir, shell, words string
		want                    contract.VerificationStatus
		says                    string
		look                    func(t *testing.T, v contract.Verification)
	}{
		{mark: "row a:", dir: "npm", shell: poison, want: "pass", look: func(t *testing.T, v contract.Verification) {
			i := v.Installed[0]
			if len(v.Installed) != 1 || i.Tool != "npm" || i.Kept || i.Packages != 1 || i.Bytes == 0 || !slices.Equal(i.Hosts, []string{"127.0.0.1:" + r.port}) ||
				i.Lock != "workspace/all/npm/package-lock.json" || i.Of != contract.LockOfBase {
				t.Errorf("it says of what was installed: %+v", v.Installed)
			}
		}},
		{mark: "row b:", dir: "npm", shell: "echo 'exports.add = (a, b) => a * b' > sum.js", want: "fail", says: "failed: adds", look: func(t *testing.T, _ contract.Verification) {
			if n := r.wasAsked("/same/-/"); n != 1 {
				t.Errorf("what is kept was fetched %d times", n)
			}
		}},
		{mark: "row c:", dir: "npm", shell: relock, want: "unknown", says: "Cannot find module 'plus'", look: func(t *testing.T, v contract.Verification) {
			if n := r.wasAsked("/plus/"); n != 0 {
				t.Errorf("a package that only the task wants was asked for %d times", n)
			}
		}},
		{mark: "row d:", dir: "asked", shell: relock, words: "add plus to package.json", want: "pass", says: "the task's own workspace/all/asked/package-lock.json"},
		{mark: "row e:", dir: "git", shell: fix, want: "unknown", says: "only packages of a registry, over https"},
		{mark: "row f:", dir: "elsewhere", shell: fix, want: "unknown", says: "evil.example:443 may not be reached from boxes"},
		{mark: "row g:", dir: "forged", shell: fix, want: "unknown", says: "integrity"},
		{mark: "row h:", dir: "python", shell: fix, want: "pass", look: func(t *testing.T, v contract.Verification) {
			if v.Tests != 2 || len(v.Installed) == 0 || v.Installed[0].Tool != "pip" {
				t.Errorf("it says of what was installed: %+v", v)
			}
		}},
	}
	var script modelserver.Script
	for _, row := range rows {
		script.Turns = append(script.Turns, cheat{shell: row.shell}.script(row.mark, row.dir)...)
	}
	script.Turns = append(script.Turns, cheat{shell: fix}.script("row stalled:", "stalled")...)
	in, _ := startModel(t, modelserver.Anthropic, script, env...)
	in.Must(t, "add", all)
	for _, row := range rows {
		t.Run(row.mark+" "+row.dir, func(t *testing.T) {
			run := ended(t, in, submit(t, in, row.mark+" "+row.words))
			v := run.Tasks[0].Result.Verification
			if v.Status != row.want || (row.want == "pass") != (run.Verified == "pass") || !strings.Contains(run.Summary+v.Reason, row.says) {
				t.Errorf("%s, its run %s; want %s and %q: %s\n%s", v.Status, run.Verified, row.want, row.says, v.Reason, text(t, v))
			}
			if row.look != nil && !t.Failed() {
				row.look(t, v)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		run := submit(t, in, "row stalled: make it pass")
		choirtest.Eventually(t, time.Minute, "the registry is asked", func() bool { return r.wasAsked("/stalled/") > 0 })
		in.Must(t, "run", "cancel", run)
		if got := ended(t, in, run); got.Status != contract.RunCancelled || got.Verified == "pass" {
			t.Errorf("%s, %s", got.Status, got.Verified)
		}
		choirtest.Eventually(t, time.Minute, "its box is gone", func() bool {
			open := map[string]bool{}
			for _, e := range eventsOf(t, in, "box.opened") {
				b := data[contract.BoxOpened](t, e)
				open[b.Box] = b.Kind == contract.BoxScratch
			}
			for _, e := range eventsOf(t, in, "box.closed") {
				delete(open, data[contract.BoxClosed](t, e).Box)
			}
			return !slices.Contains(slices.Collect(maps.Values(open)), true)
		})
	})
	var metered bool
	for _, e := range eventsOf(t, in, "egress.metered") {
		m := data[contract.EgressMetered](t, e)
		metered = metered || m.Kind == contract.BoxScratch && m.Received > 0 && e.Task != ""
	}
	if !metered {
		t.Error("what an installation received is not on record")
	}
	if found, err := filepath.Glob(filepath.Join(workspaceDir(t, in), "..", "dependencies", ".fill-*")); err != nil || len(found) > 0 {
		t.Errorf("left over: %v, %v", found, err)
	}
}

type readCloser struct{ *strings.Reader }

// Close implements io.Closer.
func (readCloser) Close() error { return nil }

// TestComputersShareDependencies shows that a check uses what another computer has installed and
// could not change, that after a kill, or damage on the disk, it is installed again and the log
// says so, and that doctor reports its size.
func TestComputersShareDependencies(t *testing.T) {
	t.Parallel()
	r, env := newRegistry(t)
	same := r.npm("same", map[string]string{
		"package.json": `{"name":"same","version":"1.0.0","scripts":{"install":"node build.js"}}`,
		"build.js":     "require('fs').writeFileSync('built.js', 'module.exports = true')",
		"index.js":     "if (!require('./built.js')) throw new Error('not built');\nmodule.exports = (got, want) => { if (got !== want) throw new Error(`got ${got}, want ${want}`) }\n",
	})
	same["hasInstallScript"] = true
	all := filepath.Join(t.TempDir(), "all")
	write(t, filepath.Join(all, "npm"), locked(t, map[string]any{"same": same}))
	stalled := maps.Clone(same)
	stalled["resolved"] = "https://127.0.0.1:" + r.port + "/stalled/same.tgz"
	write(t, filepath.Join(all, "stalled"), locked(t, map[string]any{"same": stalled}))
	python := maps.Clone(projects["python"])
	python["requirements.txt"] = r.wheel("five", "FIVE = 5\n")
	python["test_sum.py"] = strings.Replace(strings.Replace(python["test_sum.py"], "import unittest\n", "import unittest\n\nfrom five import FIVE\n", 1), "3), 5)", "3), FIVE)", 1)
	write(t, filepath.Join(all, "python"), python)
	poison := `printf "require('fs').writeFileSync(require.resolve('same'), 'module.exports = () => {}')\nexports.add = (a, b) => a + b\n" > sum.js`
	poisonPython := `printf "import five\nopen(five.__file__, 'w').write('FIVE = 6')\ndef add(a, b):\n    return a + b\n" > sum.py`
	fix := `sed -i 's/a - b/a + b/' sum.*`
	var script modelserver.Script
	for _, row := range []struct{ mark, dir, shell string }{
		{"one npm:", "npm", poison}, {"one python:", "python", poisonPython}, {"two npm:", "npm", fix}, {"two python:", "python", fix}, {"two again:", "python", "echo >> sum.py"}, {"one stalled:", "stalled", fix},
	} {
		script.Turns = append(script.Turns, cheat{shell: row.shell}.script(row.mark, row.dir)...)
	}
	in, s := startModel(t, modelserver.Anthropic, script, env...)
	var second view.Computer
	in.JSON(t, &second, "computers", "create", "Second")
	var list []view.Computer
	in.JSON(t, &list, "computers")
	first := list[slices.IndexFunc(list, func(c view.Computer) bool { return c.ID != second.ID })]
	verified := func(c view.Computer, mark string) contract.Installation {
		t.Helper()
		var p prompted
		in.JSON(t, &p, "prompt", mark, "--computer", string(c.ID))
		var run view.Run
		choirtest.Eventually(t, 3*time.Minute, "run "+p.Run+" has ended", func() bool {
			in.JSON(t, &run, "runs", p.Run, "--computer", string(c.ID))
			return run.Status.Ended()
		})
		v := run.Tasks[0].Result.Verification
		if v.Status != "pass" || len(v.Installed) != 1 {
			t.Fatalf("%s %s: %s\n%s", mark, v.Status, v.Reason, text(t, v))
		}
		return v.Installed[0]
	}
	for _, c := range []view.Computer{first, second} {
		in.Must(t, "add", all, "--computer", string(c.ID))
	}
	for _, kind := range []string{"npm", "python"} {
		one, two := verified(first, "one "+kind+":"), verified(second, "two "+kind+":")
		if one.Kept || !two.Kept || one.Key != two.Key || len(two.Hosts) != 0 {
			t.Errorf("%+v and %+v", one, two)
		}
	}
	asked := func() []int { return []int{r.wasAsked("/same/-/"), r.wasAsked("/wheels/five")} }
	if got := asked(); !slices.Equal(got, []int{1, 1}) {
		t.Errorf("what is shared was fetched %d times", got)
	}
	if said := in.Must(t, "doctor", "--data", in.Data); !strings.Contains(said, "2 installed for the checks of all computers") {
		t.Errorf("doctor says %s", said)
	}

	in.Must(t, "prompt", "one stalled:", "--computer", string(first.ID))
	choirtest.Eventually(t, time.Minute, "the registry is asked", func() bool { return r.wasAsked("/stalled/") > 0 })
	in.Kill()
	begun, err := filepath.Glob(filepath.Join(in.Data, "cache", "dependencies", ".fill-*"))
	if err != nil || len(begun) != 1 {
		t.Fatalf("begun are %v, %v", begun, err)
	}
	found, err := filepath.Glob(filepath.Join(in.Data, "cache", "dependencies", "pip-*", "out", "five.py"))
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	if err := os.WriteFile(found[0], []byte("FIVE = 6\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	in, err = choirtest.TryStart(t, choirtest.Options{Data: in.Data, Env: append(modelEnv(s, modelserver.Anthropic, newKey()), env...)})
	if err != nil {
		t.Fatal(err)
	}
	if again := verified(second, "two again:"); again.Kept || !strings.Contains(again.Note, "damaged") || !slices.Equal(asked(), []int{1, 2}) {
		t.Errorf("what was damaged: %+v, fetched %d times", again, asked())
	}
	if _, err := os.Stat(begun[0]); !os.IsNotExist(err) {
		t.Errorf("what a kill left of an installation is there: %v", err)
	}
}
