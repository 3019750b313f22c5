package chaos_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestPowerCutsInAFirstStart cuts the power at instants from the beginning of a first start to the
// new computer's first checkpoint. Whatever that leaves, the next start makes a computer or
// continues with the existing one. Everything that was reported by then (the token, the checkpoint)
// is there, and a key that a person had put there is unchanged.
func TestPowerCutsInAFirstStart(t *testing.T) {
	if !mountable(t) {
		return
	}
	d := newDisk(t, 1<<30)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	const key = "0f0e0d0c0b0a09080706050403020100f0e0d0c0b0a090807060504030201000\n"
	given := func(data string) string { return filepath.Join(data, "keys", "master.key") }
	data := filepath.Join(d.path(), "data")
	if err := os.MkdirAll(filepath.Dir(given(data)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(given(data), []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "sync", "-f", data)
	begun := d.now()
	first, err := choirtest.TryStart(t, choirtest.Options{Data: data, Binary: path})
	if err != nil {
		t.Fatal(err)
	}
	told := d.now()
	c := first.Standing(t)
	initial := checkpointsOf(t, first)
	made := d.now()
	first.Stop(t)
	if len(initial) != 1 {
		t.Fatalf("a new computer has the checkpoints %q", initial)
	}
	t.Logf("told after %d, made after %d writes and flushes", told-begun, made-begun)
	images := 6
	if long > 0 {
		images = 40
	}
	dice := random("first start")
	for i := range images {
		from, to := begun, told // in half of the tries, before anything was reported
		if i%2 == 1 {
			from, to = told, made
		}
		part := max(1, 2*(to-from)/images)
		at := min(from+1+i/2*part+dice.IntN(part), to)
		t.Run(fmt.Sprintf("the power fails after %d", at-begun), func(t *testing.T) {
			image, mnt := filepath.Join(d.dir, "cut.img"), filepath.Join(t.TempDir(), "cut")
			if err := os.Mkdir(mnt, 0o755); err != nil {
				t.Fatal(err)
			}
			for try := 0; ; try++ {
				d.failure(t, at, 0, dice, image)
				if _, err := tryMount(t, image, mnt); err == nil {
					break
				} else if try == 5 { // ext4 writes its superblock in two sectors, of which one may be torn
					t.Fatal(err)
				}
			}
			data := filepath.Join(mnt, "data")
			in, err := choirtest.TryStart(t, choirtest.Options{Data: data, Binary: path})
			if err != nil {
				t.Fatal(err)
			}
			defer in.Stop(t)
			now := in.Standing(t)
			if now.Trouble != nil || now.State != view.StateAwake || strings.Contains(in.Logs(), "damaged") {
				t.Errorf("it is %s, %+v\n%s", now.State, now.Trouble, in.Logs())
			}
			if b, err := os.ReadFile(given(data)); err != nil || string(b) != key {
				t.Errorf("the key that was given is %q, %v", b, err)
			}
			list := checkpointsOf(t, in)
			if len(list) != 1 {
				t.Errorf("it has the checkpoints %q", list)
			}
			if at >= told && in.Token != first.Token {
				t.Error("the token that was told is another")
			}
			if at >= made && (now.ID != c.ID || list[0] != initial[0]) {
				t.Errorf("%s has %q; it was %s with %q", now.ID, list, c.ID, initial)
			}
			histogram.add("power cut in a first start", "nothing lost")
		})
	}
}

// checkpointsOf returns the ids of the one computer's checkpoints, once it has one.
func checkpointsOf(t *testing.T, in *choirtest.Instance) (ids []string) {
	t.Helper()
	choirtest.Eventually(t, time.Minute, "the first checkpoint", func() bool {
		var list []struct{ ID string }
		if err := json.Unmarshal([]byte(in.Must(t, "checkpoints", "--json")), &list); err != nil {
			t.Fatal(err)
		}
		ids = nil
		for _, c := range list {
			ids = append(ids, c.ID)
		}
		return len(ids) > 0
	})
	return ids
}
