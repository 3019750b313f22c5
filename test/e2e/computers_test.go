package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestSeveralComputersOnOneMachine makes several computers at once: each has its own files and log,
// also after choir was killed, and they are listed in the order in which they were made.
func TestSeveralComputersOnOneMachine(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	var first []view.Computer
	in.JSON(t, &first, "computers")
	made := make([]view.Computer, 2)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			res, err := in.Run(t.Context(), "computers", "create", fmt.Sprintf("Number %d", i), "--json")
			if err != nil || json.Unmarshal([]byte(res.Stdout), &made[i]) != nil || made[i].State != view.StateAwake {
				t.Errorf("made: %v, %+v", err, res)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if res, err := in.Run(t.Context(), "runs"); err != nil || res.Code == 0 || !strings.Contains(res.Stderr, "--computer") {
		t.Errorf("without saying which: %v, %+v", err, res)
	}
	for i, c := range made {
		if res, err := in.RunInput(t.Context(), fmt.Appendf(nil, "of %d", i), "files", "put", "-", "workspace/mine", "--computer", string(c.ID)); err != nil || res.Code != 0 {
			t.Fatalf("put: %v, %+v", err, res)
		}
	}
	data := in.Data
	in.Kill()
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	var list []view.Computer
	in.JSON(t, &list, "computers")
	if len(list) != 3 || list[0].ID != first[0].ID || list[1].Created.After(list[2].Created) {
		t.Errorf("listed: %+v", list)
	}
	for i, c := range made {
		if got := in.Must(t, "files", "cat", "workspace/mine", "--computer", string(c.ID)); got != fmt.Sprintf("of %d", i) {
			t.Errorf("number %d holds %q", i, got)
		}
	}
	if res, err := in.Run(t.Context(), "files", "cat", "workspace/mine", "--computer", string(first[0].ID)); err != nil || res.Code == 0 {
		t.Errorf("the first one has it too: %v, %+v", err, res)
	}
}

// TestARemovedComputerComesBack shows that a removed computer is in no list and answers nobody,
// also after a restart, and that it can be put back unchanged. Other computers are not affected.
func TestARemovedComputerComesBack(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	var made, removed view.Computer
	in.JSON(t, &made, "computers", "create", "Gone")
	id := string(made.ID)
	if res, err := in.RunInput(t.Context(), []byte("mine"), "files", "put", "-", "workspace/mine", "--computer", id); err != nil || res.Code != 0 {
		t.Fatalf("put: %v, %+v", err, res)
	}
	in.JSON(t, &removed, "computers", "remove", id)
	if removed.Removed.IsZero() || !removed.Gone.After(removed.Removed) {
		t.Errorf("removed: %+v", removed)
	}
	gone := func() {
		t.Helper()
		var list []view.Computer
		in.JSON(t, &list, "computers")
		if len(list) != 1 || list[0].ID == made.ID {
			t.Errorf("listed: %+v", list)
		}
		for _, verb := range [][]string{{"files", "cat", "workspace/mine"}, {"events"}, {"checkpoints"}, {"wake"}, {"prompt", "Hello"}} {
			if res, err := in.Run(t.Context(), append(verb, "--computer", id)...); err != nil || res.Code == 0 {
				t.Errorf("%v: %v, %+v", verb, err, res)
			}
		}
		in.JSON(t, &list, "computers", "removed")
		if len(list) != 1 || list[0].ID != made.ID || list[0].Name != "Gone" {
			t.Errorf("removed are: %+v", list)
		}
	}
	gone()
	data := in.Data
	in.Kill()
	in = choirtest.Start(t, choirtest.Options{Data: data, Args: nil})
	gone()
	in.Must(t, "files") // this is the other one, which is the only one now
	in.Must(t, "computers", "put-back", id)
	if got := in.Must(t, "files", "cat", "workspace/mine", "--computer", id); got != "mine" {
		t.Errorf("it came back with %q", got)
	}
}
