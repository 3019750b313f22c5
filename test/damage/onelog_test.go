package damage_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// twoComputers is a data directory with two computers, in two states.
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

// stand wakes computers that are asleep, and waits until no computer is waking.
func stand(t *testing.T, in *choirtest.Instance) []view.Computer {
	t.Helper()
	var list []view.Computer
	choirtest.Eventually(t, time.Minute, "the computers wake or say why not", func() bool {
		list = nil
		if err := json.Unmarshal(in.Get(t, "/api/computers"), &list); err != nil || len(list) == 0 {
			return false
		}
		for _, c := range list {
			switch c.State {
			case view.StateAsleep:
				if _, err := in.Run(t.Context(), "wake", "--computer", string(c.ID)); err != nil {
					t.Fatal(err)
				}
				return false
			case view.StateWaking:
				return false
			}
		}
		return true
	})
	return list
}

// logFiles returns the contents of a computer's log files, wherever they are.
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

// TestADamagedLogLeavesTheOthersAwake shows that a damaged log keeps its own computer asleep, with
// its files unchanged, and that the API and the verbs name it, while the other computer is awake
// and works. The same holds after the next start, and choir recover repairs the damaged one.
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
			backup, data := data, copied(t, data)
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
			if way == "bit flip" || way == "cut" {
				mendWhileTheOtherWorks(t, copied(t, data), part, backup, way == "bit flip", a, b)
			}
			for start := range 2 {
				in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range stand(t, in) {
					switch {
					case c.ID == b && c.State != view.StateAwake:
						t.Fatalf("start %d: the whole one is %s: %+v", start, c.State, c.Trouble)
					case c.ID == a && (c.State != view.StateDamaged || c.Trouble == nil || len(c.Trouble.Damage) == 0 || !strings.Contains(c.Trouble.Hint, "ecover")):
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
				if c.State != view.StateAwake {
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

// mendWhileTheOtherWorks recovers a damaged computer from the console, or tries to wake it again
// once its log is back from a backup. The other one is not woken again, and its commands and
// connections go on.
func mendWhileTheOtherWorks(t *testing.T, data, part, backup string, recovery bool, a, b contract.CID) {
	t.Helper()
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	stand(t, in)
	woken := func() int {
		return strings.Count(in.Must(t, "events", "--json", "--computer", string(b)), `"computer.woken"`)
	}
	before := woken()
	type ended struct {
		res choirtest.Result
		err error
	}
	over := make(chan ended, 1)
	go func() {
		res, err := in.Run(t.Context(), "exec", "--computer", string(b), "--", "sh", "-c", "echo began > workspace/began; while [ ! -e workspace/go ]; do sleep 0.05; done; echo over")
		over <- ended{res, err}
	}()
	choirtest.Eventually(t, time.Minute, "it began", func() bool {
		res, err := in.Run(t.Context(), "exec", "--computer", string(b), "--", "cat", "workspace/began")
		return err == nil && res.Code == 0
	})
	verb := "recover"
	if !recovery {
		verb = "wake"
		apart, err := filepath.Glob(filepath.Join(data, "nats", "apart", "*", filepath.Base(filepath.Dir(filepath.Dir(part)))))
		if err != nil || len(apart) != 1 {
			t.Fatal(apart, err)
		}
		if status := post(t, in, "/api/computers/"+string(a)+"/wake", "{}"); status >= 300 {
			t.Fatalf("the answer is %d", status)
		}
		for _, c := range stand(t, in) {
			if c.ID == a && c.State != view.StateDamaged {
				t.Fatalf("still cut, it is %s", c.State)
			}
		}
		if err := os.RemoveAll(apart[0]); err != nil {
			t.Fatal(err)
		}
		copyTree(t, filepath.Join(backup, filepath.Dir(filepath.Dir(part))), apart[0])
	}
	if status := post(t, in, "/api/computers/"+string(a)+"/"+verb, "{}"); status >= 300 {
		t.Fatalf("the answer is %d", status)
	}
	choirtest.Eventually(t, time.Minute, "it is awake", func() bool {
		for _, c := range stand(t, in) {
			if c.ID == a {
				return c.State == view.StateAwake
			}
		}
		return false
	})
	in.Must(t, "exec", "--computer", string(b), "--", "touch", "workspace/go")
	if e := <-over; e.err != nil || e.res.Code != 0 || e.res.Stdout != "over\n" {
		t.Errorf("what ran in the other one ended with %+v, %v", e.res, e.err)
	}
	if now := woken(); now != before {
		t.Errorf("the other one was woken %d times meanwhile", now-before)
	}
	in.Must(t, "exec", "--computer", string(a), "--", "sh", "-c", "echo again > workspace/again")
	in.Must(t, "rebuild", "--check", "--computer", string(a))
	in.Stop(t)
	if said := recovered(t, data); !strings.Contains(said, "nothing is damaged") {
		t.Errorf("choir recover, in the end: %s", said)
	}
}

func copied(t *testing.T, from string) string {
	t.Helper()
	data := filepath.Join(choirtest.Scratch(t), "data")
	copyTree(t, from, data)
	return data
}

// TestOneComputerIsRecoveredAtATime shows that of two damaged computers the one that is recovered
// on the console is repaired, and the other's files are not changed. A recovery that fails says why
// on the console, and can be repeated.
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
	one := func(cid contract.CID) (c view.Computer) {
		for _, c = range stand(t, in) {
			if c.ID == cid {
				break
			}
		}
		return c
	}
	for _, cid := range []contract.CID{a, b} {
		if c := one(cid); c.State != view.StateDamaged {
			t.Fatalf("%s is %s", cid, c.State)
		}
	}
	if status := post(t, in, "/api/computers/"+string(a)+"/recover", ""); status >= 300 {
		t.Fatalf("the answer is %d", status)
	}
	choirtest.Eventually(t, time.Minute, "the failure is said", func() bool {
		list, err := computers(t, in)
		return err == nil && slices.ContainsFunc(list, func(c view.Computer) bool {
			return c.ID == a && c.Trouble != nil && strings.Contains(c.Trouble.Reason, "recovery failed")
		})
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
			case c.ID == a && c.State == view.StateAwake, c.ID == b && c.State == view.StateDamaged:
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
		if c.State != view.StateAwake {
			t.Errorf("in the end %s is %s: %+v", c.ID, c.State, c.Trouble)
		}
	}
	in.Stop(t)

	// A journal that can't be read keeps its own computers asleep. The console is there, and the
	// recovery can be given up on it.
	for _, of := range []string{"." + string(b), ""} {
		if err := os.WriteFile(filepath.Join(data, "recovering"+of), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if in, err = choirtest.TryStart(t, choirtest.Options{Data: data}); err != nil {
			t.Fatal(err)
		}
		for _, c := range stand(t, in) {
			bad := c.ID == b || of == ""
			if (c.State == view.StateDamaged) != bad || bad && (c.Trouble == nil || !strings.Contains(c.Trouble.Reason, "recovering"+of+",")) {
				t.Errorf("with recovering%s in pieces %s is %s: %+v", of, c.ID, c.State, c.Trouble)
			}
		}
		if status := post(t, in, "/api/computers/"+string(b)+"/recover", ""); status >= 300 {
			t.Fatalf("the answer is %d", status)
		}
		choirtest.Eventually(t, time.Minute, "both are awake", func() bool {
			list, err := computers(t, in)
			for _, c := range list {
				if c.State == view.StateAsleep { // everything was started again
					_, _ = in.Run(t.Context(), "wake", "--computer", string(c.ID)) // the next request shows the outcome
				}
			}
			return err == nil && len(list) == 2 && list[0].State == view.StateAwake && list[1].State == view.StateAwake
		})
		in.Stop(t)
	}
	for _, cid := range []contract.CID{a, b} {
		if got := rows(t, data, cid); len(got) == 0 || !strings.Contains(strings.Join(got, ""), "log.recovered") {
			t.Errorf("%d events are left of %s", len(got), cid)
		}
	}
}

// computers requests the list, also while choir is starting again.
func computers(t *testing.T, in *choirtest.Instance) ([]view.Computer, error) {
	t.Helper()
	c, err := client.New(in.URL, in.Token, "")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Computers(t.Context())
}
