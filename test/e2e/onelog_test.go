package e2e_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/control/api"
	"choir.dev/choiros/test/choirtest"
)

// twoComputers is a data directory with two computers, at two moments.
func twoComputers(t *testing.T) (older, data string, a, b contract.CID) {
	t.Helper()
	data, older = filepath.Join(choirtest.Scratch(t), "data"), filepath.Join(choirtest.Scratch(t), "older")
	in := choirtest.Start(t, choirtest.Options{Data: data})
	list := stand(t, in)
	a, b = list[0].ID, contract.NewCID()
	in.Stop(t)
	if err := os.Mkdir(filepath.Join(data, "computers", string(b)), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if i == 1 {
			copyTree(t, data, older)
		}
		in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
		if err != nil {
			t.Fatal(err)
		}
		stand(t, in)
		for _, cid := range []contract.CID{a, b} {
			in.Must(t, "exec", "--computer", string(cid), "--", "sh", "-c", fmt.Sprintf("echo %s %d > workspace/mine", cid, i))
		}
		in.Stop(t)
	}
	return older, data, a, b
}

// stand waits until no computer is waking.
func stand(t *testing.T, in *choirtest.Instance) []api.Computer {
	t.Helper()
	var list []api.Computer
	choirtest.Eventually(t, time.Minute, "the computers wake or say why not", func() bool {
		list = nil
		if err := json.Unmarshal(get(t, in, "/api/computers"), &list); err != nil || len(list) == 0 {
			return false
		}
		for _, c := range list {
			if c.State == api.StateWaking || c.State == api.StateAsleep {
				return false
			}
		}
		return true
	})
	return list
}

// logFiles are the bytes of a computer's log, wherever its files lie.
func logFiles(t *testing.T, data string, cid contract.CID) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"nats/jetstream/*/streams/EVENTS-", "nats/apart/*/EVENTS-"} {
		for _, sub := range []string{"/msgs/*.blk", "/meta.*"} {
			files, err := filepath.Glob(filepath.Join(data, pattern+string(cid)+sub))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				out[filepath.Base(f)] += fmt.Sprintf("%x", sha256.Sum256(b))
			}
		}
	}
	return out
}

// A damaged log keeps its own computer asleep, which is named in the API and by
// the verbs, with its files untouched; the other one is awake and works. So it is
// at the next start, and choir recover brings the damaged one back.
func TestADamagedLogLeavesTheOthersAwake(t *testing.T) {
	t.Parallel()
	older, data, a, b := twoComputers(t)
	var want []string
	for _, cid := range []contract.CID{a, b} {
		want = append(want, strings.Join(rows(t, data, cid), "\n"))
	}
	for _, way := range []string{"bit flip", "cut", "empty", "gone", "older copy"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			data := copied(t, data)
			found, err := filepath.Glob(filepath.Join(data, "nats/jetstream/*/streams/EVENTS-"+string(a)))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			stream := strings.TrimPrefix(found[0], data+"/")
			part := stream
			if way == "bit flip" || way == "cut" || way == "empty" {
				part = filepath.Join(stream, "msgs", "1.blk")
			}
			if err := damages(older)[way](filepath.Join(data, part), part); err != nil {
				t.Fatal(err)
			}
			before := logFiles(t, data, a)
			for start := range 2 {
				in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range stand(t, in) {
					switch {
					case c.ID == b && c.State != api.StateAwake:
						t.Fatalf("start %d: the whole one is %s: %+v", start, c.State, c.Trouble)
					case c.ID == a && (c.State != api.StateDamaged || c.Trouble == nil || len(c.Trouble.Damage) == 0 || !strings.Contains(c.Trouble.Hint, "ecover")):
						t.Fatalf("start %d: the damaged one is %s: %+v", start, c.State, c.Trouble)
					}
				}
				if res, err := in.Run(t.Context(), "runs", "--computer", string(a)); err != nil || res.Code == 0 || !strings.Contains(res.Stderr, "does not wake") || !strings.Contains(res.Stderr, "ecover") {
					t.Errorf("choir runs: %v, exit %d: %s", err, res.Code, res.Stderr)
				}
				if out := in.Must(t, "prompt", "--computer", string(b), "--wait", "--json", "run `echo works`"); !strings.Contains(out, `"done"`) {
					t.Errorf("a prompt to the whole one: %s", out)
				}
				in.Stop(t)
				if after := logFiles(t, data, a); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("start %d: the damaged log's files are %v; they were %v", start, after, before)
				}
			}
			if out, err := exec.CommandContext(t.Context(), choirtest.Binary(t), "recover", "--data", data).CombinedOutput(); err != nil || strings.Contains(string(out), string(b)) {
				t.Fatalf("choir recover: %v: %s", err, out)
			}
			in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range stand(t, in) {
				if c.State != api.StateAwake {
					t.Fatalf("after choir recover %s is %s: %+v", c.ID, c.State, c.Trouble)
				}
			}
			for i, cid := range []contract.CID{a, b} {
				if got := in.Must(t, "events", "--json", "--computer", string(cid)); !strings.HasPrefix(got, want[i]+"\n") {
					t.Errorf("the log of %s does not begin with what it was", cid)
				}
				if got := in.Must(t, "exec", "--computer", string(cid), "--", "cat", "workspace/mine"); got != string(cid)+" 1\n" {
					t.Errorf("the files of %s hold %q", cid, got)
				}
			}
		})
	}
}

func copied(t *testing.T, from string) string {
	t.Helper()
	data := filepath.Join(choirtest.Scratch(t), "data")
	copyTree(t, from, data)
	return data
}

// Of two that are damaged, the one that somebody recovers on the console comes
// back, and the other's files are not touched. A recovery that fails says why
// there, and can be done again.
func TestOneComputerIsRecoveredAtATime(t *testing.T) {
	t.Parallel()
	older, data, a, b := twoComputers(t)
	data = copied(t, data)
	for _, cid := range []contract.CID{a, b} {
		found, err := filepath.Glob(filepath.Join(data, "nats/jetstream/*/streams/EVENTS-"+string(cid)+"/msgs/1.blk"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		if err := damages(older)["cut"](found[0], ""); err != nil {
			t.Fatal(err)
		}
	}
	before := logFiles(t, data, b)
	blocked := filepath.Join(data, "aside")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	one := func(cid contract.CID) (c api.Computer) {
		for _, c = range stand(t, in) {
			if c.ID == cid {
				break
			}
		}
		return c
	}
	for _, cid := range []contract.CID{a, b} {
		if c := one(cid); c.State != api.StateDamaged {
			t.Fatalf("%s is %s", cid, c.State)
		}
	}
	if status := post(t, in, "/api/computers/"+string(a)+"/recover", ""); status >= 300 {
		t.Fatalf("the answer is %d", status)
	}
	choirtest.Eventually(t, time.Minute, "the failure is said", func() bool {
		list, err := computers(t, in)
		return err == nil && len(list) == 2 && list[0].Trouble != nil && strings.Contains(list[0].Trouble.Reason, "recovery failed")
	})
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	if status := post(t, in, "/api/computers/"+string(a)+"/recover", ""); status >= 300 {
		t.Fatalf("the answer is %d", status)
	}
	choirtest.Eventually(t, time.Minute, "the one is awake", func() bool {
		list, err := computers(t, in)
		if err != nil || len(list) != 2 {
			return false
		}
		awake := 0
		for _, c := range list {
			switch {
			case c.ID == a && c.State == api.StateAwake, c.ID == b && c.State == api.StateDamaged:
				awake++
			}
		}
		return awake == 2
	})
	if after := logFiles(t, data, b); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the other's log is %v; it was %v", after, before)
	}
	in.Stop(t)
	if said := recovered(t, data, "--computer", string(b)); !strings.Contains(said, string(b)) || strings.Contains(said, string(a)) {
		t.Errorf("choir recover --computer: %s", said)
	}
	if in, err = choirtest.TryStart(t, choirtest.Options{Data: data}); err != nil {
		t.Fatal(err)
	}
	for _, c := range stand(t, in) {
		if c.State != api.StateAwake {
			t.Errorf("in the end %s is %s: %+v", c.ID, c.State, c.Trouble)
		}
	}
}

// computers asks for the list, also while choir starts anew.
func computers(t *testing.T, in *choirtest.Instance) ([]api.Computer, error) {
	t.Helper()
	c, err := client.New(in.URL, in.Token, "")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Computers(t.Context())
}
