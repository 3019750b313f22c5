package damage_test

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/client"
	_ "choir.dev/choiros/internal/identity" // for the SQLite driver, and the function of the sums
	"choir.dev/choiros/test/choirtest"
)

// asked sends one request to the console of an instance, or to another of its hosts.
func asked(t *testing.T, in *choirtest.Instance, method, host, path string) (*http.Response, string) {
	t.Helper()
	authority := strings.TrimPrefix(in.URL, "http://")
	_, port, _ := strings.Cut(authority, ":")
	req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:"+port+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = strings.Replace(authority, "console.", host, 1)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// TestWhatCantBeOpenedIsSaidAtTheConsole shows that what prevents the data directory from being
// opened is shown at the console's address, on every path of it and to everybody alike: which file,
// what is safe, and what to do. Meanwhile nothing in it is written, and the lock is free for doctor
// and recover. Choir continues by itself once the directory can be opened.
func TestWhatCantBeOpenedIsSaidAtTheConsole(t *testing.T) {
	p := prepare(t)
	token, err := os.ReadFile(filepath.Join(p.data, "keys", "api-token"))
	if err != nil {
		t.Fatal(err)
	}
	// A later version leaves its own number, and a sum over it and the schema.
	newer := func(data string) error {
		db, err := sql.Open("sqlite", filepath.Join(data, "control.sqlite"))
		if err != nil {
			return err
		}
		_, err = db.ExecContext(t.Context(), "PRAGMA user_version = 999; UPDATE schema_sum SET sum = (SELECT row_sum(999, group_concat(coalesce(sql, ''), ';')) FROM (SELECT sql FROM sqlite_schema ORDER BY type, name))")
		return errors.Join(err, db.Close())
	}
	for name, c := range map[string]struct {
		hurt func(data string) error
		code string
		says []string
		heal func(data string) error // nil: choir recover repairs it
	}{
		"accounts": {
			hurt: func(data string) error { return damages("")["bit flip"](filepath.Join(data, "control.sqlite"), "") },
			code: "damaged", says: []string{"control.sqlite", "choir recover", "accounts"},
		},
		"no version": {
			hurt: func(data string) error { return os.Remove(filepath.Join(data, "version")) },
			code: "damaged", says: []string{"version", "choir recover"},
		},
		"a newer version": {
			hurt: func(data string) error { return os.WriteFile(filepath.Join(data, "version"), []byte("999\n"), 0o600) },
			code: "newer", says: []string{"newer version", "Install"},
			heal: func(data string) error { return os.WriteFile(filepath.Join(data, "version"), []byte("3\n"), 0o600) },
		},
		"newer accounts": {
			hurt: newer,
			code: "newer", says: []string{"control.sqlite was written by a newer version of ChoirOS (version 999 of the accounts", "newer choir"},
			heal: func(data string) error {
				return exec.CommandContext(t.Context(), "cp", filepath.Join(p.data, "control.sqlite"), filepath.Join(data, "control.sqlite")).Run()
			},
		},
		"keys that others may read": {
			hurt: func(data string) error { return os.Chmod(filepath.Join(data, "keys", "master.key"), 0o644) },
			code: "denied", says: []string{"master.key", "chmod"},
			heal: func(data string) error { return os.Chmod(filepath.Join(data, "keys", "master.key"), 0o600) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := copied(t, p.data)
			if err := c.hurt(data); err != nil {
				t.Fatal(err)
			}
			before := kept(t, data)
			in, err := choirtest.TryStart(t, choirtest.Options{Data: data, Stopped: true})
			if err != nil {
				t.Fatal(err)
			}
			if in.Stopped == nil || in.Stopped.Code != c.code || in.Token != "" || in.ClaimURL != "" {
				t.Fatalf("it says %+v; want it stopped, with code %s", in, c.code)
			}
			for _, r := range []struct {
				method, host, path string
				status             int
				html               bool
			}{
				{"GET", "console.", "/", 503, true}, {"GET", "console.", "/claim", 503, true}, {"GET", "console.", "/assets/frame.js", 503, true},
				{"GET", "console.", "/no/such", 503, true},
				{"GET", "console.", "/health", 503, false}, {"GET", "console.", "/api/computers", 503, false}, {"POST", "console.", "/api/claim", 503, false}, {"POST", "console.", "/", 503, false},
				{"GET", "studio.desk.", "/", 503, false}, {"GET", "evil.", "/", 421, false},
			} {
				resp, body := asked(t, in, r.method, r.host, r.path)
				if resp.StatusCode != r.status || len(resp.Cookies()) > 0 || resp.Header.Get("Cache-Control") != "no-store" {
					t.Errorf("%s %s%s: %s, cookies %v, %q", r.method, r.host, r.path, resp.Status, resp.Cookies(), resp.Header.Get("Cache-Control"))
				}
				if r.status != 503 {
					continue
				}
				words := append([]string{}, c.says...)
				if r.html {
					words = append(words, "Nothing was written", "choir doctor", "<html")
					if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
						t.Errorf("its policy is %q", csp)
					}
				} else {
					var problem struct {
						Status       int
						Code, Detail string
						Hint         string
					}
					if err := json.Unmarshal([]byte(body), &problem); err != nil || problem.Status != 503 || problem.Code != c.code || problem.Hint == "" {
						t.Errorf("%s %s: %v, %s", r.method, r.path, err, body)
					}
				}
				for _, w := range words {
					if !strings.Contains(body, w) {
						t.Errorf("%s %s%s does not say %q: %.900s", r.method, r.host, r.path, w, body)
					}
				}
				for _, secret := range []string{data, string(p.cid), strings.TrimSpace(string(token)), "CHOIR_"} {
					if strings.Contains(body, secret) {
						t.Errorf("%s %s%s says %q", r.method, r.host, r.path, secret)
					}
				}
			}
			// The verbs say what choir up says, and do not advise to start it.
			verb := exec.CommandContext(t.Context(), choirtest.Binary(t), "checkpoints", "--data", data)
			verb.Env = []string{"HOME=" + data}
			out, err := verb.CombinedOutput()
			for _, w := range append([]string{"choir up runs and can't open what it has stored"}, c.says...) {
				if !strings.Contains(string(out), w) || verb.ProcessState.ExitCode() != 1 || strings.Contains(string(out), "Start it") {
					t.Errorf("choir checkpoints: %v: %s; want exit code 1 and %q", err, out, w)
				}
			}
			unchanged(t, before, kept(t, data))

			out, err = exec.CommandContext(t.Context(), choirtest.Binary(t), "doctor", "--json", "--data", data).CombinedOutput()
			if bytes.Contains(out, []byte("in use")) {
				t.Errorf("choir doctor: %v: %s", err, out)
			}
			if c.code == "damaged" && !bytes.Contains(out, []byte(c.says[0])) {
				t.Errorf("choir doctor does not name it: %v: %s", err, out)
			}
			unchanged(t, before, kept(t, data))
			if resp, body := asked(t, in, "GET", "console.", "/health"); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, c.says[0]) {
				t.Fatalf("it went on although nothing was mended: %s, %.300s", resp.Status, body)
			}
			if c.heal != nil {
				err = c.heal(data)
			} else {
				out, err = exec.CommandContext(t.Context(), choirtest.Binary(t), "recover", "--data", data).CombinedOutput()
			}
			if err != nil {
				t.Fatalf("it can't be mended while choir up says so: %v: %s", err, out)
			}
			in.GoneOn(t)
			if got := in.Must(t, "exec", "--", "cat", "workspace/one", "workspace/two"); got != "one\ntwo\n" {
				t.Errorf("the files hold %q", got)
			}
		})
	}
}

// TestUpSaysWhichComputerIsDamaged shows that choir up prints in one line which computer is
// damaged, how, and where to look, and that it prints when the computer is awake again.
func TestUpSaysWhichComputerIsDamaged(t *testing.T) {
	p := prepare(t)
	data := copied(t, p.data)
	if err := os.Remove(filepath.Join(data, "computers", string(p.cid), "log.head")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(choirtest.Binary(t), "up", "--data", data, "--listen", "127.0.0.1:0", "--no-open") // it outlives the test's context until the cleanup
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + data}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	if err := out.(*os.File).SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	line := func(with string) string {
		t.Helper()
		for said.Scan() {
			if strings.Contains(said.Text(), with) {
				return said.Text()
			}
		}
		t.Fatalf("choir up does not say %q: %v", with, said.Err())
		return ""
	}
	line("is up")
	run, err := client.ReadRuntime(data)
	if err != nil {
		t.Fatal(err)
	}
	if got := line("is damaged"); !strings.Contains(got, "log.head: it is gone") || !strings.HasSuffix(got, run.URL) {
		t.Errorf("it says %q", got)
	}
	if status := post(t, &choirtest.Instance{URL: run.URL, Token: run.Token}, "/api/computers/"+string(p.cid)+"/recover", ""); status >= 300 {
		t.Fatalf("the answer is %d", status)
	}
	line("is awake")
}
