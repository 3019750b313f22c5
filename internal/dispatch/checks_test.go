package dispatch_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
)

// TestACheckWhoseBoxDiesIsMadeAgain shows that a check is repeated when its box is killed before it
// answers: a change that fails its check is not published for want of that answer, and one that
// passes is verified all the same. When every box of the check dies, nothing is published.
func TestACheckWhoseBoxDiesIsMadeAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		last contract.Part
		tool string // the tool at whose call a box dies
		most int    // the number of boxes that die
		want contract.VerificationStatus
		live string
	}{
		{"a failing check", broken, "check", 1, contract.VerificationFail, "red\n"},
		{"the look at a failing change", broken, "facts", 2, contract.VerificationFail, "red\n"},
		{"a passing check", edit("c1"), "check", 2, contract.VerificationPass, "blue\n"},
		{"every check", edit("c1"), "check", 1 << 20, contract.VerificationUnknown, "blue\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.model.director = plan(agentTask)
			h.model.associate = steps(blue, c.last)
			var mu sync.Mutex
			died := 0
			h.boxes.checks = func(tool string) bool {
				mu.Lock()
				defer mu.Unlock()
				dies := tool == c.tool && died < c.most
				if dies {
					died++
				}
				return dies
			}
			h.report(h.submit("go"))
			h.quiet()
			res := h.results()
			if len(res) != 1 || res[0].Verification.Status != c.want || died == 0 {
				t.Errorf("%d boxes died, %+v", died, res)
			}
			if got := string(readFile(h.ws.live(), "choiros/x.css")); got != c.live {
				t.Errorf("live %q, want %q", got, c.live)
			}
			if c.most > 3 && died > 3*10 {
				t.Error(fmt.Sprint("it was tried for ever: ", died))
			}
		})
	}
}

// TestACheckOfTheBaseThatCantBeMadeIsNoPass shows that when the base's tests can't be run, the
// number of tests before the change is taken as unknown and not as zero.
func TestACheckOfTheBaseThatCantBeMadeIsNoPass(t *testing.T) {
	h := newHouse(t)
	h.model.director = plan(agentTask)
	h.model.associate = steps(blue, edit("c1"))
	h.boxes.break_ = func(r ports.BoxRequest) error {
		if r.Kind == contract.BoxVerify && r.Commit == r.Overlay.Base() {
			return fault.New("boxes", fault.Unavailable, "", errors.New("no box can be had"))
		}
		return nil
	}
	h.report(h.submit("go"))
	res := h.results()
	if len(res) != 1 || res[0].Verification.Status != contract.VerificationUnknown || !strings.Contains(res[0].Verification.Reason, "before the change is not known: no box can be had") {
		t.Errorf("%+v", res)
	}
}

// TestOnlyChecksOfTheShellWaitForItsDependencies shows that the shell's dependencies are installed
// when a build needs them, and that neither another check nor the search for projects waits for
// that. Files that are no part of a project are checked without a box.
func TestOnlyChecksOfTheShellWaitForItsDependencies(t *testing.T) {
	for name, c := range map[string]struct {
		part  contract.Part
		least int
		waits bool
	}{
		"a text of no project":   {use("c1", "write", m{"overwrite": true, "path": "workspace/list.txt", "content": "milk"}), 0, false}, // it needs no box
		"a script of no project": {edit("c1"), 2, false},
		"the desktop's source":   {use("c1", "write", m{"overwrite": true, "path": "choiros/package.json", "content": `{"scripts":{"build":"true"}}`}), 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.model.director = plan(agentTask)
			h.model.associate = steps(c.part)
			for _, p := range []string{"requirements.txt", "workspace/requirements.txt"} { // without these there is no project
				if err := os.Remove(filepath.Join(h.ws.live(), p)); err != nil {
					t.Fatal(err)
				}
			}
			var mu sync.Mutex
			boxes, waited := 0, 0
			h.boxes.break_ = func(r ports.BoxRequest) error {
				mu.Lock()
				defer mu.Unlock()
				if r.Kind == contract.BoxVerify {
					boxes++
				}
				if r.Shell {
					waited++
				}
				return nil
			}
			h.report(h.submit("go"))
			if boxes < c.least || c.least == 0 && boxes > 0 || (waited > 0) != c.waits {
				t.Errorf("%d of %d boxes wait for the shell's dependencies", waited, boxes)
			}
		})
	}
}
