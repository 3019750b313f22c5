//go:build defenceswitches

package attack_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
	"choir.dev/choiros/test/choirtest"
)

const (
	asUser    = "CHOIR_ATTACK_AS_USER" // set in the copy of this program that runs as an ordinary user: where it writes its results
	plainUID  = 64206                  // an ordinary user that owns nothing else
	userLimit = 25 * time.Minute
)

// TestMatrix tries every row with all of its defences off, with each one alone, and with all of
// them, as root and as an ordinary user, who beside root tries rows that are alike for both with all
// of them.
func TestMatrix(t *testing.T) {
	if path := os.Getenv(asUser); path != "" {
		writeResults(t, path, runMatrix(t, "user", true))
		return
	}
	results := map[string][]Result{}
	if os.Geteuid() != 0 {
		t.Log("this is an ordinary user: the rows are not tried as root")
		results["user"] = runMatrix(t, "user", false)
	} else {
		finish := startAsUser(t)
		results["root"] = runMatrix(t, "root", false)
		results["user"] = finish()
	}
	t.Log("\n" + printed(results))
}

// runMatrix tries the rows. besideRoot says whether root tries them as well.
func runMatrix(t *testing.T, user string, besideRoot bool) []Result {
	matrix = t
	switches := filepath.Join(t.TempDir(), "off")
	off := func(names ...defence.Name) {
		var b strings.Builder
		for _, n := range names {
			fmt.Fprintln(&b, n)
		}
		if err := os.WriteFile(switches, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	off()
	if err := os.Chmod(filepath.Dir(switches), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(defence.Env, switches)
	defer func() {
		if err := endBrowser(); err != nil {
			t.Error(err)
		}
	}()
	var results []Result
	for i, r := range rows() {
		name := user + "/" + rowName(r, i)
		res := Result{Row: i}
		t.Run(name, func(t *testing.T) {
			key := r.NotAs[user]
			if key == "" && r.Lacks != nil {
				key = r.Lacks(t)
			}
			if key != "" {
				if cannot[key] == "" {
					t.Fatalf("%q is no reason of the list", key)
				}
				res.Not = key
				return
			}
			try := func(what string, want bool, names ...defence.Name) string {
				out := "failed"
				t.Run(what, func(t *testing.T) {
					defer func() {
						if t.Skipped() {
							out = "skipped"
							t.Error("a row may not skip: give a reason of the list")
						}
					}()
					off(names...)
					defer off()
					v := r.Run(t)
					out = map[bool]string{true: "works", false: "stopped"}[v.Worked]
					if v.Worked != want {
						t.Errorf("%s (off: %v): the attack %s: %s", r.Attack, names, out, v.Evidence)
					}
				})
				return out
			}
			if !r.Alike || !besideRoot {
				res.Off = try("all-off", true, r.Defences...)
				for _, d := range r.Defences {
					rest := slices.DeleteFunc(slices.Clone(r.Defences), func(n defence.Name) bool { return n == d })
					res.Alone = append(res.Alone, try("only-"+string(d), false, rest...))
				}
			}
			res.On = try("all-on", false)
		})
		results = append(results, res)
	}
	return results
}

// endBrowser ends the Chromium that the rows share.
func endBrowser() error {
	chrome.Lock()
	defer chrome.Unlock()
	if chrome.Browser == nil {
		return nil
	}
	err := errors.Join(chrome.Close(), os.RemoveAll(chrome.dir))
	chrome.Browser = nil
	return err
}

// startAsUser runs this program again as an ordinary user, at the same time.
func startAsUser(t *testing.T) (finish func() []Result) {
	t.Helper()
	dir, err := os.MkdirTemp("", "choir-attack-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, results, tmp := filepath.Join(dir, "attack.test"), filepath.Join(dir, "tmp", "results.json"), filepath.Join(dir, "tmp")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Chmod(dir, 0o755), os.WriteFile(program, b, 0o755), os.Mkdir(tmp, 0o755), os.Chown(tmp, plainUID, plainUID)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Dir(sandboxtest.BareGuest(t)) // the ordinary user may be unable to build
	sandboxtest.Probe(t)
	sandboxtest.BadGuest(t)
	run, chosen := "-test.run=^TestMatrix$", regexp.MustCompile("")
	for _, arg := range os.Args[1:] {
		if pattern, ok := strings.CutPrefix(arg, "-test.run="); ok {
			run = strings.ReplaceAll(arg, "/root", "/user")
			if parts := strings.Split(pattern, "/"); len(parts) > 2 {
				chosen = regexp.MustCompile(parts[2])
			}
		}
	}
	if pkgs := besideOf(chosen.MatchString); len(pkgs) > 0 {
		besidePrograms(t, pkgs...)
	}
	var modules string
	if wholeOf(chosen.MatchString) {
		builtChoir(t)
		modules = readableModules(t, filepath.Join(dir, "modules"))
	}
	cmd := exec.CommandContext(t.Context(), program, run, "-test.timeout="+userLimit.String())
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp, "LANG=C.UTF-8",
		asUser + "=" + results, "CHOIR_TEST_BIN=" + bin, choirtest.ModulesAt + "=" + modules,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: plainUID, Gid: plainUID}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() []Result {
		if err := cmd.Wait(); err != nil {
			t.Errorf("as an ordinary user: %v\n%s", err, out.String())
		}
		b, err := os.ReadFile(results)
		if err != nil {
			t.Fatalf("no results of the ordinary user: %v", err)
		}
		var got []Result
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
}

func writeResults(t *testing.T, path string, results []Result) {
	b, err := json.Marshal(results)
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Result is the outcome of a row for one user.
type Result struct {
	Row   int    // index in rows()
	Off   string // empty, as Alone is, where it was tried with all on only
	Alone []string
	On    string
	Not   string // why it was not tried: a key of cannot
}

// printed returns the table of outcomes that the suite prints.
func printed(results map[string][]Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-4s %-72s %-5s %-8s %-28s %s\n", "row", "attack", "as", "all off", "each alone", "all on")
	all := rows()
	for i, r := range all {
		for _, user := range []string{"root", "user"} {
			if i >= len(results[user]) {
				fmt.Fprintf(&b, "%-4d %-72.72s %-5s not tried: this is an ordinary user\n", r.Number, r.Attack, user)
				continue
			}
			switch got := results[user][i]; {
			case got.Not != "":
				fmt.Fprintf(&b, "%-4d %-72.72s %-5s can't: %s\n", r.Number, r.Attack, user, cannot[got.Not])
			case got.Off == "":
				fmt.Fprintf(&b, "%-4d %-72.72s %-5s %-8s %-28s %s\n", r.Number, r.Attack, user, "-", "as root", got.On)
			default:
				alone := make([]string, len(got.Alone))
				for k, a := range got.Alone {
					alone[k] = string(r.Defences[k]) + " " + a
				}
				fmt.Fprintf(&b, "%-4d %-72.72s %-5s %-8s %-28s %s\n", r.Number, r.Attack, user, got.Off, strings.Join(alone, ", "), got.On)
			}
		}
	}
	return b.String()
}

// besideOf returns the packages whose tests the rows of this run use.
func besideOf(chosen func(name string) bool) []string {
	var out []string
	for i, r := range rows() {
		if r.Beside != nil && chosen(rowName(r, i)) && !slices.Contains(out, r.Beside.pkg) {
			out = append(out, r.Beside.pkg)
		}
	}
	return out
}

// wholeOf reports whether a row of this run needs a whole computer.
func wholeOf(chosen func(name string) bool) bool {
	for i, r := range rows() {
		if r.Whole && chosen(rowName(r, i)) {
			return true
		}
	}
	return false
}

// readableModules returns a directory with the shell's dependencies that the ordinary user can
// read: a copy at dir if they can't read the repository's.
func readableModules(t *testing.T, dir string) string {
	t.Helper()
	modules, err := choirtest.Modules()
	if err != nil {
		t.Fatal(err)
	}
	look := exec.Command("ls", modules)
	look.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: plainUID, Gid: plainUID}}
	if look.Run() == nil {
		return modules
	}
	if out, err := exec.Command("cp", "-a", modules, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func rowName(r Row, i int) string { return fmt.Sprintf("%02d-%d", r.Number, i) }
