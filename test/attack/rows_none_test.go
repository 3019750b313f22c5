package attack_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
	"choir.dev/choiros/test/choirtest"
)

// Inapplicable is a row, or a part of one, for which there is nothing to attack here. Holds fails
// as soon as there is something.
type Inapplicable struct {
	Number int
	Why    string
	Holds  func(t *testing.T)
}

// inapplicable lists the rows for which there is nothing to attack.
var inapplicable = []Inapplicable{
	{4, "inside TLS nobody looks, so a Host header that differs from the server name is out of reach: docs/egress.md says so", func(t *testing.T) {
		if doc := source(t, "docs/egress.md"); !strings.Contains(doc, "domain fronting") {
			t.Error("docs/egress.md no longer says so")
		}
		absent(t, "the proxy looks inside TLS", `x509\.CreateCertificate|tls\.(Server|Client|Dial|NewListener)\(`, "internal/egress")
		var walk func(at string, of reflect.Type)
		walk = func(at string, of reflect.Type) {
			if of.Kind() != reflect.Struct {
				return
			}
			for i := range of.NumField() {
				f := of.Field(i)
				if regexp.MustCompile(`(?i)inspect|intercept|decrypt|mitm`).MatchString(f.Name) {
					t.Errorf("the configuration has %s.%s", at, f.Name)
				}
				walk(at+"."+f.Name, f.Type)
			}
		}
		walk("config", reflect.TypeFor[config.Config]())
	}},
	{18, "no running box is ever cloned: a box begins with a new kernel view, token and entropy, and nothing resumes a snapshot of memory", func(t *testing.T) {
		methods(t, reflect.TypeFor[sandbox.Computer](), "Box", "Boxes", "Close", "Notes", "Pause", "Resume", "Volumes")
		methods(t, reflect.TypeFor[sandbox.Box](), "Done", "Err", "ID", "Kill", "Kind", "PID", "Signal", "Tether", "Usage")
		onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
			var said []string
			for _, id := range []string{"one", "two"} {
				_, g := e.Box(t, sandbox.BoxSpec{ID: id})
				said = append(said, sandboxtest.Run(t, g, "sh", "-c", "head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id /var/lib/dbus/machine-id").Out)
			}
			if said[0] == said[1] || strings.Count(said[0], "\n") != 1 {
				t.Errorf("two boxes of one computer say %q", said)
			}
		})
	}},
	{26, "there is no terminal in the desktop: commands' output is shown as text (row 25); choir exec -t shows a command's own in the terminal it was started in, without what sets titles, clipboards or answers (TestADrawnTerminalIsNotSpokenTo)", func(t *testing.T) {
		absent(t, "the desktop has a terminal", `xterm|hterm|ghostty|libvterm|node-pty`, "desktop/src", "desktop/package.json", "console")
		unnamed(t, "a terminal", `pty|terminal`)
		absent(t, "the control plane opens terminals", `guest\.PTYRequest`, "internal/control", "internal/fleet", "internal/shell", "cmd")
	}},
	{29, "there are no passkeys, mails or OAuth yet: sign-in is a claim link on the machine itself (see row 24)", func(t *testing.T) {
		unnamed(t, "another way to sign in", `passkey|webauthn|oauth|oidc|mail|password|otp|recovery|github|sign-?in|login`)
		absent(t, "another way to sign in", `webauthn|golang\.org/x/oauth2|coreos/go-oidc`, "internal", "cmd") // a library of MCP names oauth2 in go.mod
		absent(t, "mail is sent", `"net/smtp"`, "internal", "cmd")
		absent(t, "pages ask for passkeys", `navigator\.credentials`, "console", "desktop/src")
		w := newWeb(t)
		open := 0
		for path, verbs := range operations(t, w) {
			for verb := range verbs {
				res := w.ask(t, strings.ToUpper(verb), w.console+regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "x"), "{}",
					http.Header{"Sec-Fetch-Site": {"same-origin"}, "Sec-Fetch-Mode": {"cors"}, "Sec-Fetch-Dest": {"empty"}, "Origin": {w.console}, "Content-Type": {"application/json"}})
				if res.StatusCode == http.StatusUnauthorized {
					continue
				}
				if open++; path != "/api/claim" {
					t.Errorf("%s %s answers somebody without a session: %s", verb, path, res.told())
				}
			}
		}
		if open != 1 {
			t.Errorf("%d operations are open; want the claim alone", open)
		}
	}},
	{37, "there are no payments yet", func(t *testing.T) {
		unnamed(t, "payments", `x402|pay|invoice|wallet|settle`)
		uneventful(t, "payments", `x402|payment|payout|invoice|wallet|settle|royalt`) // citations say what a claim rests on, and pay nobody
		absent(t, "payments", `(?i)x402|eip-?3009`, "internal", "cmd", "contract", "console", "go.mod")
	}},
	{38, "there is no attestation yet", func(t *testing.T) {
		uneventful(t, "attestation", `attest|enclave|measurement`)
		unnamed(t, "attestation", `attest|enclave|quote`)
		// The configuration has names for its servers, which nothing uses.
		absent(t, "attestation", `(?i)attestation[^S_]|enclave|sev-snp|go-sev-guest|go-tdx-guest`, "internal", "cmd", "contract")
		absent(t, "attestation", `\bTee\.`, "internal/computer", "internal/fleet", "internal/shell", "internal/control", "internal/sandbox", "internal/vault", "cmd")
	}},
	{40, "releases are not published yet", func(t *testing.T) {
		for _, p := range []string{".github", ".goreleaser.yml", ".goreleaser.yaml"} {
			if _, err := os.Stat(filepath.Join(choirtest.Root(), p)); err == nil {
				t.Errorf("%s is there: are its releases reproducible and signed?", p)
			}
		}
		absent(t, "something publishes releases", `(?m)^\s*(npm publish|docker push|gh release|cosign|twine)`, ".ci", "Makefile", "scripts")
	}},
}

// TestNothingToAttack checks that each reason still holds, so that a feature that makes a row apply
// needs a test.
func TestNothingToAttack(t *testing.T) {
	for _, i := range inapplicable {
		t.Run(fmt.Sprintf("%02d", i.Number), i.Holds)
	}
}

// TestRow40Pinned shows that the dependencies of the desktop and of this program are pinned to the
// byte, and that everything that is installed has a hash.
func TestRow40Pinned(t *testing.T) {
	var p struct{ Dependencies, DevDependencies map[string]string }
	must(t, json.Unmarshal([]byte(source(t, "desktop/package.json")), &p))
	exact := regexp.MustCompile(`^(npm:[a-z/@-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$`)
	if len(p.Dependencies) == 0 || len(p.DevDependencies) == 0 {
		t.Fatal("package.json names nothing")
	}
	for _, list := range []map[string]string{p.Dependencies, p.DevDependencies} {
		for name, version := range list {
			if !exact.MatchString(version) {
				t.Errorf("%s is not pinned: %s", name, version)
			}
		}
	}
	var lock struct {
		Packages map[string]struct {
			Resolved, Integrity string
			Link                bool
		}
	}
	must(t, json.Unmarshal([]byte(source(t, "desktop/package-lock.json")), &lock))
	for name, k := range lock.Packages {
		if name != "" && !k.Link && !strings.HasPrefix(k.Integrity, "sha512-") {
			t.Errorf("%s has no hash", name)
		}
	}
	if len(lock.Packages) < 50 {
		t.Fatalf("the lock file names %d packages", len(lock.Packages))
	}
	sums := source(t, "go.sum")
	mod := source(t, "go.mod")
	instead := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^replace (\S+) => (\S+) (v\S+)`).FindAllStringSubmatch(mod, -1) {
		if m[1] != m[2] {
			t.Errorf("%s is replaced by another module, %s", m[1], m[2])
		}
		instead[m[1]] = m[3]
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllStringSubmatch(mod, -1) {
		if v, ok := instead[m[1]]; ok {
			m[2] = v
		}
		if !strings.Contains(sums, m[1]+" "+m[2]+"/go.mod h1:") {
			t.Errorf("go.sum has no hash of %s %s", m[1], m[2])
		}
	}
}

func source(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(choirtest.Root(), file))
	must(t, err)
	return string(b)
}

// absent searches source files other than tests.
func absent(t *testing.T, what, pattern string, places ...string) {
	t.Helper()
	find, looked := regexp.MustCompile(pattern), 0
	for _, place := range places {
		err := filepath.WalkDir(filepath.Join(choirtest.Root(), place), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if d.Name() == "node_modules" || d.Name() == "payload" || d.Name() == "dist" {
					return fs.SkipDir
				}
				return nil
			}
			if strings.Contains(d.Name(), "_test.") || strings.Contains(d.Name(), ".test.") {
				return nil
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			looked++
			if m := find.Find(b); m != nil {
				t.Errorf("%s: %s has %q", what, strings.TrimPrefix(path, choirtest.Root()), m)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if looked == 0 {
		t.Fatalf("nothing was looked through for: %s", what)
	}
}

// methods compares an interface with the methods that it should have.
func methods(t *testing.T, of reflect.Type, want ...string) {
	t.Helper()
	var got []string
	for i := range of.NumMethod() {
		got = append(got, of.Method(i).Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s has %v; it had %v", of, got, want)
	}
}

// operations returns the API's operations, by path and verb.
func operations(t *testing.T, w *web) map[string]map[string]any {
	t.Helper()
	var doc struct{ Paths map[string]map[string]any }
	res := w.ask(t, "GET", w.console+"/api/openapi.json", "", http.Header{"Sec-Fetch-Site": {"same-origin"}})
	if err := json.Unmarshal(res.body, &doc); err != nil || len(doc.Paths) < 30 {
		t.Fatalf("%d paths, %v: %s", len(doc.Paths), err, res.told())
	}
	return doc.Paths
}

// unnamed fails if a path of the API names the feature.
func unnamed(t *testing.T, what, pattern string) {
	t.Helper()
	find := regexp.MustCompile(`(?i)(^|[/_-])(` + pattern + `)`)
	for path := range operations(t, newWeb(t)) {
		if find.MatchString(path) {
			t.Errorf("%s: the API has %s", what, path)
		}
	}
}

// uneventful fails if a type of event names the feature.
func uneventful(t *testing.T, what, pattern string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(choirtest.Root(), "contract/schema/data"))
	must(t, err)
	if len(files) < 40 {
		t.Fatalf("only %d kinds of event", len(files))
	}
	for _, f := range files {
		if regexp.MustCompile(pattern).MatchString(strings.TrimSuffix(f.Name(), ".json")) {
			t.Errorf("%s: there is an event %s", what, f.Name())
		}
	}
}
