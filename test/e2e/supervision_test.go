package e2e_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// statusOf is what choir status says, and the code that it ends with.
func statusOf(t *testing.T, in *choirtest.Instance) (view.Status, int) {
	t.Helper()
	r, err := in.Run(t.Context(), "status", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var s view.Status
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
		t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
	return s, r.Code
}

// healthOf is one computer's part of the status.
func healthOf(t *testing.T, s view.Status, cid contract.CID) view.ComputerHealth {
	t.Helper()
	for _, c := range s.Computers {
		if c.ID == cid {
			return c
		}
	}
	t.Fatalf("%s is not in %+v", cid, s)
	return view.ComputerHealth{}
}

func partOf(c view.ComputerHealth, name string) view.Part {
	for _, p := range c.Parts {
		if p.Name == name {
			return p
		}
	}
	return view.Part{}
}

// killUntil kills the process of a computer's part whenever it has a new one, until over says that
// it is enough. It returns how many it killed.
func killUntil(t *testing.T, in *choirtest.Instance, cid contract.CID, part string, over func(view.ComputerHealth) bool) int {
	t.Helper()
	killed := map[int]bool{}
	var last view.ComputerHealth
	defer func() {
		if t.Failed() {
			t.Logf("killed %d, then it was %+v", len(killed), last)
		}
	}()
	choirtest.Eventually(t, 4*time.Minute, "it is given up", func() bool {
		s, _ := statusOf(t, in)
		last = healthOf(t, s, cid)
		if over(last) {
			return true
		}
		if p := partOf(last, part); p.State == view.PartRunning && p.PID > 1 && !killed[p.PID] {
			killed[p.PID] = true
			_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have just ended
		}
		return false
	})
	return len(killed)
}

// happened counts a computer's events of a type about one of its parts.
func happened(t *testing.T, in *choirtest.Instance, cid contract.CID, eventType, part string) (n int) {
	t.Helper()
	for _, e := range eventsSaid(t, in, "events", "--type", eventType, "--computer", string(cid)) {
		if strings.Contains(string(e.Data), `"`+part+`"`) {
			n++
		}
	}
	return n
}

// TestAKeeperThatKeepsDyingPutsItsComputerToSleep kills the keeper of a computer again and again: it
// is restarted, and in the end given up, which puts that computer to sleep with the reason in choir
// status and two events in its log. Another computer works, and the control plane answers.
// Woken again, the computer has what it had.
func TestAKeeperThatKeepsDyingPutsItsComputerToSleep(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{Env: []string{"CHOIR_RUNTIME_WAKE_TRIES=0"}})
	cid := only(t, in)
	put(t, in, "workspace/kept", "kept")
	var other view.Computer
	in.JSON(t, &other, "computers", "create", "Other")
	if s, code := statusOf(t, in); code != 0 || !s.Well || len(s.Machine) == 0 || partOf(healthOf(t, s, cid), "keeper").PID == 0 {
		t.Fatalf("before, it ends with %d: %+v", code, s)
	}

	n := killUntil(t, in, cid, "keeper", func(c view.ComputerHealth) bool { return c.Trouble != nil })
	if n < 2 {
		t.Errorf("it was killed %d times, so it was not restarted", n)
	}
	s, code := statusOf(t, in)
	c := healthOf(t, s, cid)
	if code != 1 || s.Well || c.State != view.StateFailed || !strings.Contains(c.Trouble.Reason, "keeper failed 8 times within") {
		t.Errorf("it ends with %d and says of it %+v: %+v", code, c, c.Trouble)
	}
	if r, err := in.Run(t.Context(), "status"); err != nil || r.Code != 1 || !strings.Contains(r.Stdout, "keeper failed 8 times within") {
		t.Errorf("for people: %v, %+v", err, r)
	}
	if o := healthOf(t, s, other.ID); !o.Well() {
		t.Errorf("the other one: %+v", o)
	}
	if r, err := in.Run(t.Context(), "exec", "--computer", string(other.ID), "--", "echo", "works"); err != nil || r.Stdout != "works\n" {
		t.Errorf("the other one: %v, %+v", err, r)
	}
	if failed, gaveUp := happened(t, in, cid, "service.failed", "keeper"), happened(t, in, cid, "service.gave_up", "keeper"); failed != 1 || gaveUp != 1 {
		t.Errorf("its log says %d times that it failed, and %d times that it was given up", failed, gaveUp)
	}

	in.Must(t, "wake", "--computer", string(cid))
	if got := in.Must(t, "files", "cat", "workspace/kept", "--computer", string(cid)); got != "kept" {
		t.Errorf("woken again, its file holds %q", got)
	}
	if s, code := statusOf(t, in); code != 0 || !s.Well {
		t.Errorf("woken again, it ends with %d: %+v", code, s)
	}
}

// TestADevServerThatKeepsDyingIsGivenUpAlone kills the desktop's dev server again and again: it is
// restarted, and in the end given up, while its computer stays awake and serves the kept build.
// choir wake starts it again.
func TestADevServerThatKeepsDyingIsGivenUpAlone(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	cid := only(t, in)
	lookAt(t, in)
	const part = "dev server"
	n := killUntil(t, in, cid, part, func(c view.ComputerHealth) bool { return partOf(c, part).State == view.PartFailed })
	if n < 2 || n > 5 { // it may also have failed by itself
		t.Errorf("it was killed %d times; it is to be given up after 5 failures", n)
	}
	s, code := statusOf(t, in)
	c := healthOf(t, s, cid)
	if p := partOf(c, part); code != 1 || s.Well || c.Trouble != nil || p.Restarts != 4 || p.Reason == "" || p.PID != 0 {
		t.Errorf("it ends with %d and says of it %+v", code, c)
	}
	if got := in.Must(t, "exec", "--", "echo", "works"); got != "works\n" {
		t.Errorf("the computer says %q", got)
	}
	choirtest.Eventually(t, time.Minute, "the log says it", func() bool { return happened(t, in, cid, "service.gave_up", part) == 1 })
	in.Must(t, "wake")
	choirtest.Eventually(t, 90*time.Second, "it runs again", func() bool {
		s, code := statusOf(t, in)
		p := partOf(healthOf(t, s, cid), part)
		return code == 0 && p.State == view.PartRunning && p.PID > 1
	})
}
