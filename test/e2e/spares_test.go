package e2e_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// loopBoxes are the boxes of our own loops that are open, by kind, and how many have been opened. flags say of
// which computer.
func loopBoxes(t *testing.T, in *choirtest.Instance, flags ...string) (open map[contract.BoxKind]string, opened int) {
	t.Helper()
	open = map[contract.BoxKind]string{}
	for _, e := range eventsSaid(t, in, append([]string{"events", "--type", "box.opened", "--type", "box.closed"}, flags...)...) {
		if e.Type == "box.closed" {
			if b := data[contract.BoxClosed](t, e); open[b.Kind] == b.Box {
				delete(open, b.Kind)
			}
		} else if b := data[contract.BoxOpened](t, e); b.Kind == contract.BoxDirector || b.Kind == contract.BoxAssociate {
			open[b.Kind] = b.Box
			opened++
		}
	}
	return open, opened
}

// loopGuests are the guests of those boxes.
func loopGuests(t *testing.T, in *choirtest.Instance) map[contract.BoxKind]int {
	t.Helper()
	out := map[contract.BoxKind]int{}
	for _, p := range descendants(t, in.PID) {
		if k := p.guest(); k == contract.BoxDirector || k == contract.BoxAssociate {
			out[k] = p.pid
		}
	}
	return out
}

func jotted(t *testing.T, in *choirtest.Instance, text string) {
	t.Helper()
	if p := prompt(t, in, fmt.Sprintf("write %q to workspace/list.txt", text)); p.Status != "done" {
		t.Fatalf("the prompt %s: %+v", text, p)
	}
}

// TestABoxIsReadyForTheNextPrompt shows, with real boxes, that after a prompt a box of each of our loops
// waits, that the next prompt uses these and no later one does, and that one that is killed is replaced.
func TestABoxIsReadyForTheNextPrompt(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	ready := func(want int) map[contract.BoxKind]string {
		t.Helper()
		var open map[contract.BoxKind]string
		var opened int
		choirtest.Eventually(t, time.Minute, fmt.Sprintf("a box of each loop waits, and %d have been opened", want), func() bool {
			open, opened = loopBoxes(t, in)
			return opened >= want && len(open) == 2
		})
		if opened != want {
			t.Errorf("%d boxes have been opened, want %d", opened, want)
		}
		return open
	}
	differ := func(what string, was, is map[contract.BoxKind]string) {
		t.Helper()
		for kind, box := range is {
			if box == was[kind] {
				t.Errorf("the %s box %s waits, and %s", kind, box, what)
			}
		}
	}

	if g := loopGuests(t, in); len(g) > 0 {
		t.Errorf("before any prompt there are %v", g)
	}
	jotted(t, in, "milk")
	first := ready(4)
	jotted(t, in, "bread")
	second := ready(6)
	differ("was used before", first, second)
	for kind, pid := range loopGuests(t, in) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
	third := ready(8)
	differ("was killed", second, third)
	jotted(t, in, "eggs")
	differ("was used before", third, ready(10))
}

// TestNoBoxIsReadyWhereAComputerSleeps shows that a computer that sleeps has no boxes.
func TestNoBoxIsReadyWhereAComputerSleeps(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{Data: filepath.Join(choirtest.Scratch(t), "data"), Env: []string{"CHOIR_RUNTIME_SLEEP_S=2"}})
	for i, text := range []string{"milk", "bread"} {
		jotted(t, in, text)
		choirtest.Eventually(t, time.Minute, "boxes were opened after the prompt", func() bool { _, n := loopBoxes(t, in); return n >= 4*(i+1) })
		choirtest.Eventually(t, time.Minute, "there is no process but the one that starts boxes", func() bool { return len(descendants(t, in.PID)) <= 1 })
	}
}

// TestABoxWaitsForItsOwnComputer shows that a computer's first prompt uses boxes of its own while another's wait.
func TestABoxWaitsForItsOwnComputer(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	one := only(t, in)
	var other view.Computer
	in.JSON(t, &other, "computers", "create", "Other")
	wrote := func(computer contract.CID) {
		t.Helper()
		in.Must(t, "prompt", "--wait", "--timeout", "100s", "--computer", string(computer), `write "milk" to workspace/list.txt`)
	}
	wrote(one)
	var waits map[contract.BoxKind]string
	choirtest.Eventually(t, time.Minute, "a box of each loop waits", func() bool {
		open, opened := loopBoxes(t, in, "--computer", string(one))
		waits = open
		return opened == 4 && len(open) == 2
	})
	wrote(other.ID)
	still, opened := loopBoxes(t, in, "--computer", string(one))
	if opened != 4 || !maps.Equal(still, waits) {
		t.Errorf("a prompt of another computer's: of the boxes %v that waited there are %v, and %d have been opened", waits, still, opened)
	}
	if _, opened := loopBoxes(t, in, "--computer", string(other.ID)); opened < 2 {
		t.Errorf("the other computer opened %d boxes for its first prompt", opened)
	}
}
