package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	_ "choir.dev/choiros/internal/identity" // has the function that makes the accounts' sums
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// inOwnMounts runs the calling test once more in a mount namespace of its own, with users also in a
// user namespace of its own. There it returns an empty directory, and here "".
func inOwnMounts(t *testing.T, users bool) string {
	t.Helper()
	const env = "CHOIR_TEST_OWN_MOUNTS"
	if dir := os.Getenv(env); dir != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatalf("make mounts private: %v", err)
		}
		return dir
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "4m")
	cmd.Env = append(os.Environ(), env+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if users || os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in namespaces of its own (this test needs them): %v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("the test did not run in its namespaces:\n%s", out)
	}
	return ""
}

// hide makes programs unusable in this mount namespace.
func hide(t *testing.T, dir string, programs ...string) {
	t.Helper()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		for found := true; found; {
			path, err := exec.LookPath(program)
			if found = err == nil; found {
				if path, err = filepath.EvalSymlinks(path); err != nil {
					t.Fatal(err)
				}
				if err := unix.Mount(empty, path, "", unix.MS_BIND, ""); err != nil {
					t.Fatalf("hide %s: %v", path, err)
				}
			}
		}
	}
}

// choir runs the command line without an instance.
func choir(t *testing.T, env []string, args ...string) choirtest.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, choirtest.Binary(t), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("choir %s: %v\n%s", strings.Join(args, " "), err, errb.String())
	}
	return choirtest.Result{Stdout: out.String(), Stderr: errb.String(), Code: cmd.ProcessState.ExitCode()}
}

// refused checks that a command ended with this code, printed nothing on standard output, and
// printed one line on standard error with all these words.
func refused(t *testing.T, what string, r choirtest.Result, code int, words ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("%s: exit code %d, want %d: %s", what, r.Code, code, r.Stderr)
	}
	if lines := strings.Split(strings.TrimRight(r.Stderr, "\n"), "\n"); len(lines) != 1 || r.Stdout != "" {
		t.Errorf("%s: got\n%s%s\nwant one line on standard error", what, r.Stdout, r.Stderr)
	}
	for _, w := range words {
		if !strings.Contains(r.Stderr, w) {
			t.Errorf("%s: %q does not say %q", what, strings.TrimSpace(r.Stderr), w)
		}
	}
}

func up(t *testing.T, data string, more ...string) choirtest.Result {
	t.Helper()
	return choir(t, nil, append([]string{"up", "--data", data, "--listen", "127.0.0.1:0", "--no-open", "--json"}, more...)...)
}

func findings(t *testing.T, r choirtest.Result) map[string]view.Finding {
	t.Helper()
	var list []view.Finding
	if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil {
		t.Fatalf("doctor printed no JSON: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
	out := map[string]view.Finding{}
	for _, f := range list {
		out[f.ID] = f
	}
	return out
}

func TestBadMachineNoBubblewrap(t *testing.T) {
	t.Parallel()
	dir := inOwnMounts(t, false)
	if dir == "" {
		return
	}
	hide(t, dir, "bwrap")
	data := filepath.Join(dir, "data")
	refused(t, "up", up(t, data), 1, "bubblewrap", "apt-get install bubblewrap")
	if left, _ := filepath.Glob(filepath.Join(data, "computers", "*")); len(left) != 0 {
		t.Errorf("a computer was begun: %v", left)
	}
	r := choir(t, nil, "doctor", "--json")
	if f := findings(t, r); r.Code != 1 || f["isolation"].Status != "fail" || !strings.Contains(f["bubblewrap"].Hint, "install") {
		t.Errorf("doctor: code %d, %+v", r.Code, f)
	}
}

func TestBadMachineNoGit(t *testing.T) {
	t.Parallel()
	dir := inOwnMounts(t, false)
	if dir == "" {
		return
	}
	hide(t, dir, "git")
	data := filepath.Join(dir, "data")
	refused(t, "up", up(t, data), 1, "git is not installed", "apt-get install git")
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory was begun (%v)", err)
	}
	r := choir(t, nil, "doctor", "--json")
	if f := findings(t, r); r.Code != 1 || f["git"].Status != "fail" || f["git"].Hint == "" {
		t.Errorf("doctor: code %d, %+v", r.Code, f["git"])
	}
}

// TestBadMachineNoNode shows that without Node everything works but the live desktop, which says
// so.
func TestBadMachineNoNode(t *testing.T) {
	t.Parallel()
	dir := inOwnMounts(t, false)
	if dir == "" {
		return
	}
	hide(t, dir, "node", "npm")
	in := choirtest.Start(t, choirtest.Options{Data: filepath.Join(dir, "data")})
	usable(t, in)
	if p := prompt(t, in, "run `echo works`"); p.Status != "done" {
		t.Errorf("a prompt: %+v", p)
	}
	d := lookUntil(t, in, func(d view.DesktopStatus) bool { return d.Mode == view.ModeBuild && d.Reason != "" })
	if !strings.Contains(d.Reason, "Install Node.js") {
		t.Errorf("the desktop says %q", d.Reason)
	}
	r := choir(t, nil, "doctor", "--json")
	if f := findings(t, r); r.Code != 1 || f["node"].Status != "fail" || f["node"].Hint == "" {
		t.Errorf("doctor: code %d, %+v", r.Code, f["node"])
	}
}

// TestBadMachineNoWatches shows that when no file watches are left the desktop is live all the
// same, and that doctor and the log say what to do.
func TestBadMachineNoWatches(t *testing.T) {
	t.Parallel()
	dir := inOwnMounts(t, true)
	if dir == "" {
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("8"), 0); err != nil {
		t.Fatalf("limit the watches of this user namespace: %v", err)
	}
	in := choirtest.Start(t, choirtest.Options{Data: filepath.Join(dir, "data")})
	lookUntil(t, in, func(d view.DesktopStatus) bool { return d.Mode == view.ModeLive })
	if !strings.Contains(in.Logs(), "max_user_watches") {
		t.Errorf("the log does not say what to do:\n%s", in.Logs())
	}
	f := findings(t, choir(t, nil, "doctor", "--json"))["inotify-left"]
	if f.Status != "warn" || !strings.Contains(f.Hint, "max_user_watches") {
		t.Errorf("doctor: %+v", f)
	}
}

// lookUntil requests the desktop's status as the console does until ok returns true.
func lookUntil(t *testing.T, in *choirtest.Instance, ok func(view.DesktopStatus) bool) view.DesktopStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	resp := request(t, ctx, in, http.MethodGet, "/api/computers/-/frame/stream", nil)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	var last string
	for lines.Scan() {
		b, found := strings.CutPrefix(lines.Text(), "data:")
		if !found {
			continue
		}
		last = b
		var f view.Frame
		if err := json.Unmarshal([]byte(b), &f); err == nil && ok(f.Desktop) {
			return f.Desktop
		}
	}
	t.Fatalf("the frame never said what was waited for; last: %s (%v)", last, lines.Err())
	return view.DesktopStatus{}
}

// request sends a request to the API as a program does.
func request(t *testing.T, ctx context.Context, in *choirtest.Instance, method, path string, body io.Reader) *http.Response {
	t.Helper()
	host := strings.TrimPrefix(in.URL, "http://")
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+port+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	req.Header.Set("Authorization", "Bearer "+in.Token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestBadDataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newer := filepath.Join(dir, "newer")
	if err := os.MkdirAll(newer, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(newer, "version"), []byte("999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := choirtest.TryStart(t, choirtest.Options{Data: newer, Stopped: true})
	if err != nil || in.Stopped == nil || in.Stopped.Code != "newer" || !strings.Contains(in.Stopped.Hint, "Install that version") {
		t.Fatalf("a newer version's: %v, %+v", err, in)
	}
	in.Stop(t) // while it runs, runtime.json says where it is
	left, err := os.ReadDir(newer)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		// The cache is shared with other tests.
		if e.Name() != "version" && e.Name() != "choir.lock" && e.Name() != "cache" {
			t.Errorf("a newer version's data directory was changed: %s", e.Name())
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "a file as data directory", up(t, file), 1, file)
	refused(t, "a place where none can be", up(t, "/proc/choir"), 1, "/proc/choir")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	unused := filepath.Join(dir, "unused")
	// A path that is misspelt, or whose disk is not mounted, is not reported as undamaged.
	refused(t, "recovering nothing", choir(t, nil, "recover", "--data", unused), 1, "nothing of choir is stored", "--data")
	if r := choir(t, nil, "doctor", "--json", "--data", unused); r.Code != 1 || findings(t, r)["data"].Status != "fail" {
		t.Errorf("doctor of nothing: %+v", r)
	}
	refused(t, "a port that is taken", choir(t, nil, "up", "--data", unused, "--listen", taken.Addr().String(), "--no-open"), 1, "in use", "--listen")
	if _, err := os.Stat(unused); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a data directory was made by who only looked at it, or although the port is taken")
	}
}

// TestANewersAccountsAreLeftAsTheyAre shows that where a newer version wrote the accounts and was
// killed, choir up, doctor and recover say so, and change no byte of what is stored.
func TestANewersAccountsAreLeftAsTheyAre(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	data := in.Data
	in.Kill()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(data, "control.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("PRAGMA user_version = 99; UPDATE schema_sum SET sum = (SELECT row_sum(99, group_concat(coalesce(sql, ''), ';')) FROM (SELECT sql FROM sqlite_schema ORDER BY type, name))"); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(t.TempDir(), "newer") // as it stands now, with a WAL
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", data, newer).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if st, err := os.Stat(filepath.Join(newer, "control.sqlite-wal")); err != nil || st.Size() == 0 {
		t.Fatalf("there is no WAL: %v", err)
	}
	stored := func() map[string]string {
		t.Helper()
		files := map[string]string{}
		if err := filepath.WalkDir(newer, func(p string, e fs.DirEntry, err error) error {
			name, rerr := filepath.Rel(newer, p)
			// The lock says who took it, runtime.json where choir runs, and the cache is shared with other tests.
			if err != nil || rerr != nil {
				return errors.Join(err, rerr)
			}
			if name == "cache" {
				return fs.SkipDir
			}
			if !e.Type().IsRegular() || name == "choir.lock" || name == "runtime.json" {
				return nil
			}
			b, err := os.ReadFile(p)
			files[name] = string(b)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return files
	}
	before := stored()
	for _, verb := range []string{"doctor", "recover"} {
		refused(t, verb, choir(t, nil, verb, "--data", newer), 1, "newer version", "Start the newer choir")
	}
	up, err := choirtest.TryStart(t, choirtest.Options{Data: newer, Stopped: true})
	if err != nil || up.Stopped == nil || up.Stopped.Code != "newer" || !strings.Contains(up.Stopped.Hint, "Start the newer choir") {
		t.Fatalf("up: %v, %+v", err, up)
	}
	up.Stop(t)
	after := stored()
	for name := range maps.Keys(after) {
		if was, there := before[name]; !there || was != after[name] {
			t.Errorf("%s was changed", name)
		}
	}
	if len(after) != len(before) {
		t.Errorf("there were %d files, and now there are %d", len(before), len(after))
	}
}
