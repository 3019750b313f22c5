package grant_test

import (
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
)

// Every rule against every holder, by a table that is written otherwise than the
// decision: a role may what those below it may, a power is held or not, and a
// rule that says nothing lets nobody in.
func TestDecide(t *testing.T) {
	order := map[grant.Role]int{grant.None: 0, grant.Viewer: 1, grant.Editor: 2, grant.Owner: 3, "admin": -1}
	powers := append(grant.Powers(), "root")
	for role, has := range order {
		for _, held := range append(powers, "") {
			h := grant.Holder{Account: "u-1", Role: role}
			if held != "" {
				h.Powers = []grant.Power{held}
			}
			for wanted, least := range order {
				for _, power := range append(powers, "") {
					r := grant.Rule{Role: wanted, Power: power}
					known := least >= 0 && (power == "" || slices.Contains(grant.Powers(), power)) && (wanted != "" || power != "")
					member := wanted == "" || has >= least && has > 0
					want := known && member && (power == "" || power == held)
					if got := r.Decide(h); (got == nil) != want {
						t.Fatalf("%+v asked by %+v: %v", r, h, got)
					}
				}
			}
			if err := grant.Anyone.Decide(h); err != nil {
				t.Errorf("an account is not anyone: %v", err)
			}
		}
	}
	if err := (grant.Rule{}).Decide(grant.Holder{Account: "u-1", Role: grant.Owner, Powers: grant.Powers()}); !fault.Is(err, fault.Denied) {
		t.Errorf("no rule: %v", err)
	}
	if err := grant.Anyone.Decide(grant.Holder{}); !fault.Is(err, fault.Denied) {
		t.Errorf("nobody: %v", err)
	}
}

// Who is no member is told what is told of a computer that there is not.
func TestForeignIsNotThere(t *testing.T) {
	for _, r := range []grant.Rule{grant.View, grant.Edit, grant.Own, {Role: grant.Owner, Power: grant.Machine}} {
		err := r.Decide(grant.Holder{Account: "u-1", Powers: grant.Powers()})
		if err == nil || fault.Text(err) != fault.Text(grant.NoComputer()) || fault.HintOf(err) != fault.HintOf(grant.NoComputer()) || !fault.Is(err, fault.NotFound) {
			t.Errorf("%+v: a foreign computer answers %v", r, err)
		}
	}
}

// A viewer changes nothing, and an editor lets nobody in.
func TestRoles(t *testing.T) {
	for _, c := range []struct {
		who  grant.Role
		what grant.Rule
	}{{grant.Viewer, grant.Edit}, {grant.Viewer, grant.Own}, {grant.Editor, grant.Own}} {
		if err := c.what.Decide(grant.Holder{Account: "u-1", Role: c.who}); !fault.Is(err, fault.Denied) {
			t.Errorf("a %s may what takes %s: %v", c.who, c.what.Role, err)
		}
	}
}

// What is the machine's takes its own power, whatever is one's in a computer.
func TestPowers(t *testing.T) {
	for _, p := range grant.Powers() {
		if err := grant.With(p).Decide(grant.Holder{Account: "u-1", Role: grant.Owner}); !fault.Is(err, fault.Denied) {
			t.Errorf("an account without it uses the power %s: %v", p, err)
		}
	}
}

// TestNoComputerSaysHowToMakeOne: who removed the last one is told what to do.
func TestNoComputerSaysHowToMakeOne(t *testing.T) {
	if hint := fault.HintOf(grant.NoComputer()); !strings.Contains(hint, "choir computers create") {
		t.Errorf("the hint is %q", hint)
	}
}
