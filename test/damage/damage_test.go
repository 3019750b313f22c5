package damage_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// prepared is a data directory that was used, in two states, each after an orderly stop.
type prepared struct {
	older, data string
	cid         contract.CID
	events      []string
	together    int       // how many events the largest message has
	large       [2]string // the SHA-256 of workspace/large in each, if there is one
	first       string    // the last checkpoint of older
}

// prepare uses a computer twice: a command, a file, a checkpoint.
func prepare(t *testing.T) prepared {
	t.Helper()
	return prepareBy(t, (*choirtest.Instance).Stop, "")
}

// changeLarge makes a file that is stored as chunks, or replaces it. It is mostly a hole, with few
// chunks and little space on the disk.
const changeLarge = "head -c 3000000 /dev/urandom >workspace/large.new; truncate -s 101M workspace/large.new; mv workspace/large.new workspace/large"

// prepareBy is prepare with another way of stopping choir, and with a command each time.
func prepareBy(t *testing.T, end func(*choirtest.Instance, testing.TB), command string) prepared {
	t.Helper()
	p := prepared{data: filepath.Join(choirtest.Scratch(t), "data"), older: filepath.Join(choirtest.Scratch(t), "older")}
	use := func(i int, name string) {
		in := choirtest.Start(t, choirtest.Options{Data: p.data})
		in.Must(t, "exec", "--", "sh", "-ec", "echo "+name+" > workspace/"+name+"\n"+command)
		p.large[i] = largeOf(t, p.data)
		in.Must(t, "checkpoint", "-m", name)
		if i == 0 {
			var list []struct{ ID string }
			in.JSON(t, &list, "checkpoints")
			p.first = list[0].ID
		}
		in.Must(t, "prompt", "--wait", "run `seq 20000`") // its output becomes a blob
		end(in, t)
	}
	use(0, "one")
	copyTree(t, p.data, p.older)
	use(1, "two")
	cids, err := os.ReadDir(filepath.Join(p.data, "computers"))
	if err != nil || len(cids) != 1 {
		t.Fatalf("%v, %d computers", err, len(cids))
	}
	p.cid = contract.CID(cids[0].Name())
	if command != "" { // the layers of a snapshot contain the version before, from which it would be repaired
		emptied(t, filepath.Join(p.data, "computers", string(p.cid), "snapshots"))
	}
	if _, err := bus.ReadStore(t.Context(), filepath.Join(p.data, "nats"), "", func(m bus.Message) error {
		lines := strings.Split(string(m.Data), "\n") // a message has one event a line
		p.events, p.together = append(p.events, lines...), max(p.together, len(lines))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// emptied removes the contents of a folder.
func emptied(t *testing.T, dir string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	for _, f := range found {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// largeOf returns the SHA-256 of workspace/large, "" if there is none.
func largeOf(t *testing.T, data string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(data, "computers/*/workspace/workspace/large"))
	if err != nil || len(found) > 1 {
		t.Fatal(found, err)
	}
	if len(found) == 0 {
		return ""
	}
	f, err := os.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}

// rows returns a state's events as the log stores them.
func rows(t *testing.T, data string, cid contract.CID) []string {
	t.Helper()
	var out []string
	err := state.ReadRows(t.Context(), filepath.Join(data, "computers", string(cid), "state.sqlite"), func(e contract.Event, _ []byte) error {
		b, err := contract.Stored(e)
		out = append(out, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kept returns what a refused start must not change: everything but the files that each start
// makes, and the state, whose rows are compared instead.
func kept(t *testing.T, data string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, data+"/")
		if below, apart := strings.CutPrefix(name, "nats/apart"); apart {
			// All files of a damaged log are set apart together, unchanged.
			account, stream, deep := strings.Cut(strings.TrimPrefix(below, "/"), "/")
			if !deep {
				return nil
			}
			name = filepath.Join("nats/jetstream", account, "streams", stream)
		}
		for _, own := range []string{"cache", "choir.lock", "reserve", "runtime", "control.sqlite", "control.head", "api-token", "keeper.lock", ".git/choir", "state.sqlite", "bus.lock", "snapshots", "boxes", "index.db"} {
			if strings.Contains(name, own) {
				return nil
			}
		}
		if name == "logs" || strings.HasPrefix(name, "logs/choir.log") {
			return nil // the log file of choir up, which also describes damage
		}
		if d.IsDir() {
			if strings.HasPrefix(name, "nats/jetstream") && !strings.Contains(name, "EVENTS-") {
				return nil // the server makes and removes these
			}
			out[name] = "directory"
			return nil
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		b, err := os.ReadFile(path)
		out[name] = fmt.Sprintf("%x", sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// post sends a request to the console's API.
func post(t *testing.T, in *choirtest.Instance, path, body string) int {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(in.URL, "http://"), ":")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+port+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = strings.TrimPrefix(in.URL, "http://")
	req.Header.Set("Authorization", "Bearer "+in.Token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// damages are ways to damage a file or directory. A way that does not apply to a directory leaves
// it unchanged.
func damages(older string) map[string]func(path, rel string) error {
	return map[string]func(path, rel string) error{
		"bit flip": func(path, _ string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			at := len(b) / 2 // a byte of a hash in hex may become another digit
			if filepath.Base(path) == "control.sqlite" {
				at = bytes.LastIndex(b, []byte("Owner")) // elsewhere nothing may be stored
			}
			b[at] ^= 4
			return os.WriteFile(path, b, 0o600)
		},
		"cut": func(path, _ string) error {
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, st.Size()*2/3)
		},
		"empty": func(path, _ string) error {
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			if !st.IsDir() {
				return os.Truncate(path, 0)
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
		"gone": func(path, _ string) error { return os.RemoveAll(path) },
		"older copy": func(path, rel string) error {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			return exec.Command("cp", "-a", filepath.Join(older, rel), path).Run()
		},
	}
}

func unchanged(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, sum := range before {
		if after[name] != sum {
			t.Errorf("%s was changed (%q)", name, after[name])
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s was made", name)
		}
	}
}

// TestRecoverBringsACutLogBack shows that choir recover restores, from the state, a computer whose
// stream was truncated, equal to before, and that the console's button does the same while choir up
// runs.
func TestRecoverBringsACutLogBack(t *testing.T) {
	t.Parallel()
	p := prepare(t)
	cut := func(t *testing.T) string {
		data := copied(t, p.data)
		blocks, err := filepath.Glob(filepath.Join(data, "nats/jetstream/*/streams/EVENTS-*/msgs/*.blk"))
		if err != nil || len(blocks) == 0 {
			t.Fatal(err)
		}
		st, err := os.Stat(blocks[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(blocks[0], st.Size()/3); err != nil {
			t.Fatal(err)
		}
		return data
	}
	check := func(t *testing.T, in *choirtest.Instance) {
		t.Helper()
		events := strings.Split(strings.TrimSpace(in.Must(t, "events", "--json")), "\n")
		if len(events) <= len(p.events) {
			t.Fatalf("%d of %d events are there", len(events), len(p.events))
		}
		for i, e := range p.events {
			if events[i] != e {
				t.Fatalf("event %d is\n%s\nit was\n%s", i+1, events[i], e)
			}
		}
		var gap contract.Event
		if err := json.Unmarshal([]byte(events[len(p.events)]), &gap); err != nil {
			t.Fatal(err)
		}
		var last contract.Event
		if err := json.Unmarshal([]byte(p.events[len(p.events)-1]), &last); err != nil {
			t.Fatal(err)
		}
		var note contract.LogRecovered
		if err := json.Unmarshal(gap.Data, &note); err != nil {
			t.Fatal(err)
		}
		if gap.Type != "log.recovered" || gap.Epoch != last.Epoch+1 || note.Kept != len(p.events) || note.FromState == 0 || note.Lost != 0 {
			t.Errorf("the recovery says %s, epoch %d after %d: %+v", gap.Type, gap.Epoch, last.Epoch, note)
		}
		if got := in.Must(t, "exec", "--", "cat", "workspace/one", "workspace/two"); !strings.Contains(got, "one") || !strings.Contains(got, "two") {
			t.Errorf("the files hold %q", got)
		}
		if list := in.Must(t, "checkpoints"); strings.Count(list, " after ") < 2 || !strings.Contains(list, "initial") {
			t.Errorf("the checkpoints are %s", list)
		}
		in.Must(t, "rebuild", "--check")
		if kept, _ := filepath.Glob(filepath.Join(in.Data, "aside", "*", "nats")); len(kept) != 1 {
			t.Errorf("the old store is kept as %v", kept)
		}
	}
	t.Run("by the verb", func(t *testing.T) {
		data := cut(t)
		out, err := exec.CommandContext(t.Context(), choirtest.Binary(t), "recover", "--data", data).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("from the state")) {
			t.Fatalf("choir recover: %v: %s", err, out)
		}
		check(t, choirtest.Start(t, choirtest.Options{Data: data}))
	})
	t.Run("on the console", func(t *testing.T) {
		in, err := choirtest.TryStart(t, choirtest.Options{Data: cut(t)})
		if err != nil {
			t.Fatal(err)
		}
		c := in.Standing(t)
		if c.State != view.StateDamaged {
			t.Fatalf("it is %s", c.State)
		}
		if status := post(t, in, "/api/computers/"+string(p.cid)+"/recover", ""); status >= 300 {
			t.Fatalf("the answer is %d", status)
		}
		choirtest.Eventually(t, time.Minute, "the computer is recovered and awake", func() bool {
			res, err := in.Run(t.Context(), "events", "--limit", "1")
			return err == nil && res.Code == 0
		})
		check(t, in)
	})
}
