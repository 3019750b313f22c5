package grant_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
)

// TestRoles repeats the capabilities of each role, because one word too many in the table would let
// somebody in.
func TestRoles(t *testing.T) {
	for role, want := range map[grant.Role]string{
		grant.None: "", "admin": "",
		grant.Viewer: "read enter self",
		grant.Editor: "read prompt write exec restore arrange network enter self",
		grant.Owner:  "read prompt write exec restore arrange network approve manage enter invite self",
	} {
		if got := words(role.May()); got != want {
			t.Errorf("a %s may %q, want %q", role, got, want)
		}
	}
}

func words(s contract.CapabilitySet) string {
	var out []string
	for _, c := range s.List() {
		out = append(out, string(c))
	}
	return strings.Join(out, " ")
}

// TestWhatIsGrantedIsTheIntersection shows that an actor may do exactly what its kind, its grant
// and the scope of its token or session all allow.
func TestWhatIsGrantedIsTheIntersection(t *testing.T) {
	roles := []grant.Role{grant.None, grant.Viewer, grant.Editor, grant.Owner, "admin"}
	for range 2000 {
		kind, scope := contract.ActorKinds[rand.IntN(len(contract.ActorKinds))], contract.CapabilitySet(rand.Uint32())
		h := grant.Holder{Account: "u-1", Role: roles[rand.IntN(len(roles))]}
		for _, p := range append(grant.Powers(), "root") {
			if rand.IntN(2) == 0 {
				h.Powers = append(h.Powers, p)
			}
		}
		who := contract.Actor{Kind: kind, ID: "x", On: "u-1"}
		inside, err := h.Inside(who, scope)
		if none := h.Role == grant.None; none != fault.Is(err, fault.NotFound) || !none && err != nil {
			t.Fatalf("%+v: %v", h, err)
		}
		outside, err2 := h.Outside(who, scope)
		if err2 != nil {
			t.Fatal(err2)
		}
		for _, c := range contract.Capabilities {
			power := false
			for _, p := range h.Powers {
				power = power || string(p) == string(c)
			}
			own := c == contract.CanRead || c == contract.CanSelf
			both := kind.Can(c) && scope.Has(c)
			if err == nil && inside.Can(c) != (both && (power || h.Role.May().Has(c))) {
				t.Fatalf("a %s that holds %+v, came with %v: in the computer %s is %v", kind, h, scope.List(), c, inside.Can(c))
			}
			if outside.Can(c) != (both && (power || own)) {
				t.Fatalf("a %s that holds %+v, came with %v: where no computer is asked %s is %v", kind, h, scope.List(), c, outside.Can(c))
			}
		}
	}
	all := contract.Everything()
	for _, who := range []contract.Actor{contract.Person(""), contract.Person("u-1")} {
		nobody := grant.Holder{Role: grant.Owner, Powers: grant.Powers()} // no such account
		if _, err := nobody.Inside(who, all); !fault.Is(err, fault.Denied) {
			t.Errorf("nobody, in a computer: %v", err)
		}
		if _, err := nobody.Outside(who, all); !fault.Is(err, fault.Denied) {
			t.Errorf("nobody: %v", err)
		}
	}
}

// TestForeignIsNotThere shows that a person who is not a member gets the same answer as for a
// computer that does not exist.
func TestForeignIsNotThere(t *testing.T) {
	_, err := grant.Holder{Account: "u-1", Powers: grant.Powers()}.Inside(contract.Person("u-1"), contract.Everything())
	if err == nil || fault.Text(err) != fault.Text(grant.NoComputer()) || fault.HintOf(err) != fault.HintOf(grant.NoComputer()) || !fault.Is(err, fault.NotFound) {
		t.Errorf("a foreign computer answers %v", err)
	}
}

// TestPowers shows that what concerns the machine requires a power over it, whatever roles somebody
// has in computers, and that a power is the capability of the same name.
func TestPowers(t *testing.T) {
	for _, p := range grant.Powers() {
		who, err := grant.Holder{Account: "u-1", Role: grant.Owner}.Inside(contract.Person("u-1"), contract.Everything())
		if err != nil || who.Can(contract.Capability(p)) {
			t.Errorf("an account without it uses the power %s: %v", p, err)
		}
		if contract.SetOf(contract.Capability(p)) == 0 {
			t.Errorf("the power %s is no capability", p)
		}
	}
}

// TestARefusalSaysWhoCanGiveIt shows that a refusal names who can grant what is missing.
func TestARefusalSaysWhoCanGiveIt(t *testing.T) {
	for c, want := range map[contract.Capability]string{contract.CanRead: "viewer", contract.CanExec: "editor", contract.CanManage: "owner", contract.CanSecrets: "administers"} {
		if err := grant.Refuse(c); !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), want) || !strings.Contains(fault.Text(err), string(c)) {
			t.Errorf("%s: %v (%s)", c, err, fault.HintOf(err))
		}
	}
}

// TestNoComputerSaysHowToMakeOne shows that after the last computer was removed, the error says how
// to make one.
func TestNoComputerSaysHowToMakeOne(t *testing.T) {
	if hint := fault.HintOf(grant.NoComputer()); !strings.Contains(hint, "choir computers create") {
		t.Errorf("the hint is %q", hint)
	}
}
