package contract_test

import (
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
)

// Nobody may do more than their kind, whatever they are given, and what was
// taken from an actor is not given back.
func TestAnActorNeverHasMoreThanItsKind(t *testing.T) {
	for _, kind := range contract.ActorKinds {
		whole := contract.Actor{Kind: kind, ID: "x"}
		for _, c := range contract.Capabilities {
			if whole.Can(c) != kind.Can(c) {
				t.Errorf("%s by itself: %s is %v", kind, c, whole.Can(c))
			}
			if given := whole.Only(c); given.Can(c) != kind.Can(c) || len(given.May()) > 1 {
				t.Errorf("%s with only %s may %v", kind, c, given.May())
			}
			if whole.Without(c).Can(c) || whole.Without(c).Only(c).Can(c) || whole.Only().Can(c) {
				t.Errorf("%s has %s although it was taken", kind, c)
			}
		}
		if got := whole.Only("everything", "*"); len(got.May()) != 0 {
			t.Errorf("%s with capabilities that there are not may %v", kind, got.May())
		}
	}
	for _, nobody := range []contract.Actor{{}, {Kind: "user"}, {Kind: "owner", ID: "x"}} {
		if len(nobody.May()) != 0 || nobody.Validate() == nil {
			t.Errorf("%+v may %v", nobody, nobody.May())
		}
	}
}

// Each capability is somebody's: one that nobody has is a word without meaning.
func TestEveryCapabilityIsSomebodys(t *testing.T) {
	if len(contract.Capabilities) > 32 {
		t.Fatal("a set holds 32 capabilities")
	}
	for _, c := range contract.Capabilities {
		if !slices.ContainsFunc(contract.ActorKinds, func(k contract.ActorKind) bool { return k.Can(c) }) {
			t.Errorf("nobody can %s", c)
		}
	}
}

func TestNamesOfActors(t *testing.T) {
	for _, a := range []contract.Actor{
		contract.Person("u-1"), contract.Person(""), contract.DesktopOf("u-1"), contract.System(), contract.DirectorOf("r"), contract.AssociateOf("t"),
		{Kind: contract.KindProgram, ID: "box-1", On: "u-1"}, {Kind: contract.KindApp, ID: "a:b", On: "u-1"},
	} {
		got, err := a.Name().Actor(a.On)
		if err != nil || got != a || a.Validate() != nil {
			t.Errorf("%s: %+v, %v", a.Name(), got, err)
		}
	}
	for _, bad := range []contract.ActorName{"", "user", "person:", ":x", "person: ", "person:a\nb", "person:\xff", "Person:x", contract.ActorName("app:" + strings.Repeat("x", 129))} {
		if _, err := bad.Actor("u-1"); err == nil || bad.Kind() != "" {
			t.Errorf("%q is an actor", bad)
		}
	}
	if _, err := contract.ActorName("system").Actor("a\nb"); err == nil {
		t.Error("an account of two lines")
	}
	if a := contract.Person("u-1"); a.Account() != "u-1" || contract.DesktopOf("u-1").Account() != "u-1" || contract.System().Account() != "" {
		t.Error("whose account it is")
	}
}
