package damage_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// recovered runs choir recover on a data directory and returns its output.
func recovered(t *testing.T, data string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), choirtest.Binary(t), append([]string{"recover", "--data", data}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("choir recover: %v: %s", err, out)
	}
	return string(out)
}

// notesOf returns the recoveries that a log records, after a check that its sequences have no gaps.
func notesOf(t *testing.T, in *choirtest.Instance) (lines []string, notes []contract.LogRecovered) {
	t.Helper()
	lines = strings.Split(strings.TrimSpace(in.Must(t, "events", "--json")), "\n")
	for i, line := range lines {
		var e contract.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Sequence != uint64(i+1) {
			t.Fatalf("event %d: %v, %.200s", i+1, err, line)
		}
		var n contract.LogRecovered
		if e.Type == "log.recovered" {
			if err := json.Unmarshal(e.Data, &n); err != nil {
				t.Fatal(err)
			}
			notes = append(notes, n)
		}
	}
	return lines, notes
}

// TestRecoverGivesTheComputerBack shows that whatever is lost, choir recover repairs the computer
// with every event and file that another part still has, and names what is lost in its report and
// in the log. A second recovery finds nothing to do.
func TestRecoverGivesTheComputerBack(t *testing.T) {
	t.Parallel()
	p := prepare(t)
	computer := filepath.Join("computers", string(p.cid))
	block := "nats/jetstream/*/streams/EVENTS-*/msgs/1.blk"
	lose := func(names ...string) func(t *testing.T, data string) {
		return func(t *testing.T, data string) {
			for _, name := range names {
				if err := os.RemoveAll(filepath.Join(data, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	spoil := func(name string) func(t *testing.T, data string) {
		return func(t *testing.T, data string) {
			if err := os.WriteFile(filepath.Join(data, name), []byte("spoiled\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	pipe := func(name string) func(t *testing.T, data string) {
		return func(t *testing.T, data string) {
			if err := errors.Join(os.Remove(filepath.Join(data, name)), unix.Mkfifo(filepath.Join(data, name), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	folder := func(name string) func(t *testing.T, data string) {
		return func(t *testing.T, data string) {
			if err := errors.Join(os.RemoveAll(filepath.Join(data, name)), os.MkdirAll(filepath.Join(data, name, "full"), 0o700)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// hole flips a bit in the log, and removes what the state has from that event on.
	hole := func(t *testing.T, data string) {
		found, err := filepath.Glob(filepath.Join(data, block))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		b, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 4
		if err := os.WriteFile(found[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(data, computer, "state.sqlite")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, data string)
		lost   bool   // events are lost for good
		anew   bool   // the history of checkpoints begins anew
		says   string // a part of the report
	}{
		{"keys", lose("keys"), false, false, "secrets can't be read"},
		{"account.nk", lose("keys/account.nk"), false, false, "keys/account.nk"},
		{"master.key", lose("keys/master.key"), false, false, ""},
		{"master.key that is none", spoil("keys/master.key"), false, false, "secrets can't be read"},
		{"secrets.sealed changed", spoil("keys/secrets.sealed"), false, false, "secrets can't be read"},
		{"operator.nk that is none", spoil("keys/operator.nk"), false, false, "made anew"},
		{"nats", lose("nats"), false, false, "from the state"},
		{"keys and nats", lose("nats", "keys"), false, false, "from the state"},
		{"history", lose(filepath.Join(computer, "workspace/.git")), false, true, "begins anew"},
		{"branch", lose(filepath.Join(computer, "workspace/.git/refs/heads/main")), false, false, ""},
		{"branch that names nothing", spoil(filepath.Join(computer, "workspace/.git/refs/heads/main")), false, false, "which is no commit"},
		{"branch that is a pipe", pipe(filepath.Join(computer, "workspace/.git/refs/heads/main")), false, false, "it is p"},
		{"branch that is a folder", folder(filepath.Join(computer, "workspace/.git/refs/heads/main")), false, false, "it is d"},
		{"branch's folder that is a file", func(t *testing.T, data string) {
			lose(filepath.Join(computer, "workspace/.git/refs/heads"))(t, data)
			spoil(filepath.Join(computer, "workspace/.git/refs/heads"))(t, data)
		}, false, false, "it can't be read"},
		{"parts", lose("parts"), false, false, ""},
		{"version", lose("version"), false, false, ""},
		{"head", lose(filepath.Join(computer, "log.head")), false, false, ""},
		{"accounts", lose("control.sqlite"), false, false, "sign in with the link"},
		{"blobs", lose("blobs"), false, false, ""},
		{"a gap that nothing fills", hole, true, false, "can't be had"},
		{"a gap, and a pipe for what the log was told of", func(t *testing.T, data string) {
			hole(t, data)
			pipe(filepath.Join(computer, "workspace/.git/refs/choir/logged"))(t, data)
		}, true, false, "can't be had"},
		{"log and state", lose("nats", filepath.Join(computer, "state.sqlite")), true, false, "told again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data := copied(t, p.data)
			c.damage(t, data)
			commits := ""
			if c.lost {
				commits = commitsOf(t, filepath.Join(data, computer, "workspace"))
			}
			said := recovered(t, data)
			if !strings.Contains(said, c.says) {
				t.Errorf("the report does not say %q: %s", c.says, said)
			}
			in := choirtest.Start(t, choirtest.Options{Data: data})
			lines, notes := notesOf(t, in)
			if len(notes) != 1 || (notes[0].Lost > 0) != c.lost || notes[0].History != c.anew || len(notes[0].Gone) == 0 && c.name != "version" && c.name != "accounts" {
				if len(notes) > 0 || c.name != "version" && c.name != "accounts" {
					t.Errorf("the log tells of the recovery: %+v", notes)
				}
			}
			same := len(p.events)
			if c.lost && len(notes) == 1 {
				if same = notes[0].Kept; notes[0].Kept+notes[0].Lost < len(p.events) {
					t.Errorf("%d events are there and %d are said to be lost, of %d", notes[0].Kept, notes[0].Lost, len(p.events))
				}
			}
			if len(lines) < same || strings.Join(lines[:same], "\n") != strings.Join(p.events[:same], "\n") {
				t.Errorf("the log does not begin with the %d events it had", same)
			}
			if got := in.Must(t, "exec", "--", "cat", "workspace/one", "workspace/two"); got != "one\ntwo\n" {
				t.Errorf("the files hold %q", got)
			}
			if listed := in.Must(t, "checkpoints", "--json"); c.lost {
				for id := range strings.FieldsSeq(commits) {
					if !strings.Contains(listed, id) {
						t.Errorf("the checkpoint %s is in the history and not listed: %s", id, listed)
					}
				}
				if n := len(strings.Fields(commits)); n < 3 {
					t.Errorf("the history had %d checkpoints", n)
				}
			}
			in.Must(t, "exec", "--", "sh", "-c", "echo three > workspace/three")
			list := in.Must(t, "checkpoints")
			in.Must(t, "rebuild", "--check")
			in.Stop(t)
			if again := recovered(t, data); !strings.Contains(again, "nothing is damaged") {
				t.Errorf("a second recovery: %s", again)
			}
			in = choirtest.Start(t, choirtest.Options{Data: data})
			if got := in.Must(t, "checkpoints"); !strings.HasSuffix(got, list) || !strings.Contains(got, " after ") {
				t.Errorf("the checkpoints are\n%sthey were\n%s", got, list)
			}
		})
	}
}

// commitsOf returns the checkpoints of a history.
func commitsOf(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "-C", dir, "rev-list", "main").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestADamagedComputerIsExported shows that a damaged computer can be exported from the console's
// API with its files, its history, and every event that can be read.
func TestADamagedComputerIsExported(t *testing.T) {
	t.Parallel()
	p := prepare(t)
	for _, way := range []string{"bit flip", "cut", "gone"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			data := copied(t, p.data)
			found, err := filepath.Glob(filepath.Join(data, "nats/jetstream/*/streams/EVENTS-*/msgs/1.blk"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			if err := damages(p.older)[way](found[0], ""); err != nil {
				t.Fatal(err)
			}
			in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
			if err != nil {
				t.Fatal(err)
			}
			if c := in.Standing(t); c.State != view.StateDamaged {
				t.Fatalf("it is %s", c.State)
			}
			archive := tar.NewReader(bytes.NewReader(in.Get(t, "/api/computers/"+string(p.cid)+"/export")))
			files := map[string]string{}
			for {
				h, err := archive.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(archive)
				if err != nil {
					t.Fatal(err)
				}
				files[h.Name] = string(b)
			}
			if files["files/workspace/two"] != "two\n" || files["files/.git/refs/heads/main"] == "" {
				t.Errorf("the archive holds %d files, two is %q", len(files), files["files/workspace/two"])
			}
			events := strings.Split(strings.TrimSuffix(files["events.jsonl"], "\n"), "\n")
			switch {
			case way == "gone" && files["events.jsonl"] != "", way != "gone" && (len(events) < len(p.events)/3 || events[0] != p.events[0]):
				t.Errorf("it holds %d of %d events", len(events), len(p.events))
			case way == "bit flip" && (len(events) >= len(p.events) || len(events) < len(p.events)-p.together):
				t.Errorf("it holds %d of %d events, of which one message can't be read", len(events), len(p.events))
			}
		})
	}
}
